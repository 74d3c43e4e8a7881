//! Writes long replies part by part, with the same bytes that [`Encoding::write_reply`] writes at once.

use super::fields::Fields;
use super::{json, protobuf};
use crate::{ClientInfo, Encoding, Outcome, Publication, Reply};

/// An element of a long reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element<'a> {
    /// A publication of a history.
    Publication(Publication<'a>),
    /// A member of a presence, by connection id.
    Client(&'a str, ClientInfo<'a>),
}

impl Element<'_> {
    /// Passes the element to `fields` as a field of the reply's result.
    fn write(&self, fields: &mut impl Fields) {
        match self {
            Self::Publication(publication) => fields.message(1, "publications", publication),
            Self::Client(id, client) => fields.map(1, "presence", &[(id, client)]),
        }
    }
}

/// A partially written long reply.
#[derive(Debug)]
pub struct ReplyWriter {
    encoding: Encoding,
    is_first: bool,
    /// The bytes of the reply that follow its elements.
    end: Vec<u8>,
}

impl ReplyWriter {
    /// Appends the beginning of a reply, which must be a history or presence without elements. `elements_bytes` is the
    /// sum of [`element_bytes`](Encoding::element_bytes) over the elements that will follow.
    ///
    /// # Panics
    /// If `reply` is another kind of reply, or has elements.
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
            _ => panic!("a reply of this kind can't be sent in parts: {reply:?}"),
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

    /// Appends the bytes of the reply that follow its elements.
    pub fn end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.end);
    }
}

impl Encoding {
    /// Returns the encoded length of an element in bytes, if the encoding needs this length before the first element is
    /// written; otherwise 0.
    #[must_use]
    pub fn element_bytes(self, element: &Element<'_>) -> usize {
        match self {
            Self::Json => 0,
            Self::Protobuf => protobuf::count(|fields| element.write(fields)),
        }
    }
}

/// Splits an encoded reply where its elements belong. Appends the part before the elements to `out`, and returns the
/// part after them. `none` is the encoding of the empty list or object of elements.
fn split(out: &mut Vec<u8>, reply: &Reply<'_>, none: &[u8; 2]) -> Vec<u8> {
    let start = out.len();
    json::message(out, reply);
    let at = out[start..].windows(2).position(|two| two == none);
    out.split_off(
        start
            + at.expect("the encoded reply must contain an empty list or object for its elements")
            + 1,
    )
}
