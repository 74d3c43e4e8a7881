//! Answers that may be long, written part by part: the same bytes as [`Encoding::write_reply`] makes of them at once.

use super::fields::Fields;
use super::{json, protobuf};
use crate::{ClientInfo, Encoding, Outcome, Publication, Reply};

/// One of many in a long answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element<'a> {
    /// Of a history.
    Publication(Publication<'a>),
    /// Of a presence, by the id of its connection.
    Client(&'a str, ClientInfo<'a>),
}

impl Element<'_> {
    /// Tells it as part of the message that holds all of them.
    fn write(&self, fields: &mut impl Fields) {
        match self {
            Self::Publication(publication) => fields.message(1, "publications", publication),
            Self::Client(id, client) => fields.map(1, "presence", &[(id, client)]),
        }
    }
}

/// A long answer of which some is written.
#[derive(Debug)]
pub struct ReplyWriter {
    encoding: Encoding,
    is_first: bool,
    /// What stands behind the elements.
    end: Vec<u8>,
}

impl ReplyWriter {
    /// Appends what stands before the elements of an answer, which is a history or a presence without any. They take
    /// [`elements_bytes`](Encoding::element_bytes) together.
    ///
    /// # Panics
    /// It is another answer, or has elements.
    #[must_use]
    pub fn begin(
        encoding: Encoding,
        out: &mut Vec<u8>,
        reply: &Reply<'_>,
        elements_bytes: usize,
    ) -> Self {
        let end = match (encoding, &reply.outcome) {
            (Encoding::Json, Outcome::History(_)) => split(out, reply, b"[]"),
            (Encoding::Json, Outcome::Presence(_)) => split(out, reply, b"{}"),
            (Encoding::Protobuf, Outcome::History(result)) => {
                protobuf::open(out, reply.id, 11, result, elements_bytes)
            }
            (Encoding::Protobuf, Outcome::Presence(result)) => {
                protobuf::open(out, reply.id, 9, result, elements_bytes)
            }
            _ => panic!("no long answer: {reply:?}"),
        };
        Self {
            encoding,
            is_first: true,
            end,
        }
    }

    /// Appends the next element.
    pub fn element(&mut self, out: &mut Vec<u8>, element: &Element<'_>) {
        let is_first = std::mem::take(&mut self.is_first);
        match self.encoding {
            Encoding::Json => {
                if !is_first {
                    out.push(b',');
                }
                match element {
                    Element::Publication(publication) => json::message(out, publication),
                    Element::Client(id, client) => json::entry(out, id, client),
                }
            }
            Encoding::Protobuf => {
                protobuf::write(out, |fields| element.write(fields));
            }
        }
    }

    /// Appends what stands behind the elements.
    pub fn end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.end);
    }
}

impl Encoding {
    /// The bytes of an element where the encoding wants to know them before the first one is written; else 0.
    #[must_use]
    pub fn element_bytes(self, element: &Element<'_>) -> usize {
        match self {
            Self::Json => 0,
            Self::Protobuf => protobuf::count(|fields| element.write(fields)),
        }
    }
}

/// Appends a reply up to where its elements go, which is the first place with these two bytes; returns the rest.
fn split(out: &mut Vec<u8>, reply: &Reply<'_>, none: &[u8; 2]) -> Vec<u8> {
    let start = out.len();
    json::message(out, reply);
    let at = out[start..].windows(2).position(|two| two == none);
    out.split_off(start + at.expect("both have their elements written where there are none") + 1)
}
