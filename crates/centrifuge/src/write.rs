//! From replies and pushes to bytes. Each message says once which fields it has ([`Message`]); what they look like is
//! the business of [`json`] and [`protobuf`], so that both encodings always say the same.

pub(crate) mod json;
mod parts;
pub(crate) mod protobuf;

pub use parts::{Element, Parts};

use crate::{Data, Delta, Encoding, Push, Reply};

impl<M: Message> Message for &M {
    const KEEPS_ZEROS: bool = M::KEEPS_ZEROS;

    fn write(&self, fields: &mut impl Fields) {
        (**self).write(fields);
    }
}

/// What can be written: a list of fields, told in the order in which they are to stand.
pub(crate) trait Message {
    /// Whether JSON has the fields of this message with their zero values too, as clients of old expect of some.
    const KEEPS_ZEROS: bool = false;

    /// Tells all fields.
    fn write(&self, fields: &mut impl Fields);
}

/// Takes the fields of one message: Protobuf goes by the number, JSON by the name. Zero values are left out.
pub(crate) trait Fields {
    fn text(&mut self, number: u32, name: &'static str, value: &str);
    fn unsigned(&mut self, number: u32, name: &'static str, value: u64);
    fn signed(&mut self, number: u32, name: &'static str, value: i64);
    fn flag(&mut self, number: u32, name: &'static str, value: bool);
    /// Data of a publication.
    fn payload(&mut self, number: u32, name: &'static str, value: Data<'_>, delta: Delta);
    /// A message that is there even if it is empty.
    fn message(&mut self, number: u32, name: &'static str, value: &impl Message);
    fn messages(&mut self, number: u32, name: &'static str, values: &[impl Message]);
    fn texts(&mut self, number: u32, name: &'static str, entries: &[(&str, &str)]);
    fn map(&mut self, number: u32, name: &'static str, entries: &[(&str, impl Message)]);

    fn data(&mut self, number: u32, name: &'static str, value: Option<Data<'_>>) {
        if let Some(data) = value {
            self.payload(number, name, data, Delta::Off);
        }
    }

    fn optional(&mut self, number: u32, name: &'static str, value: Option<&impl Message>) {
        if let Some(message) = value {
            self.message(number, name, message);
        }
    }
}

/// What a client gets: an answer to one of its commands, or a push.
enum Out<'m> {
    Reply(&'m Reply<'m>),
    Push(&'m Push<'m>),
}

impl Message for Out<'_> {
    fn write(&self, fields: &mut impl Fields) {
        match self {
            Self::Reply(reply) => reply.write(fields),
            Self::Push(push) => fields.message(4, "push", *push),
        }
    }
}

/// A message without fields.
pub(crate) struct Empty;

impl Message for Empty {
    fn write(&self, _fields: &mut impl Fields) {}
}

/// One message each, appended: in JSON without a line break, in Protobuf behind its length. What is written here once
/// can be sent to many ([`Batch::encoded`]).
impl Encoding {
    /// Appends the answer to a command.
    pub fn write_reply(self, out: &mut Vec<u8>, reply: &Reply<'_>) {
        self.write(out, &Out::Reply(reply))
    }

    /// Appends a push as clients with a connection in both directions get it, or with one that is emulated.
    pub fn write_push(self, out: &mut Vec<u8>, push: &Push<'_>) {
        self.write(out, &Out::Push(push))
    }

    /// Appends a push as clients of unidirectional transports get it: without a reply around it.
    pub fn write_bare_push(self, out: &mut Vec<u8>, push: &Push<'_>) {
        self.write(out, push)
    }

    /// Appends a ping, which is the same for all transports.
    pub fn write_ping(self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self {
            Self::Json => b"{}",
            Self::Protobuf => &[0],
        });
    }

    fn write(self, out: &mut Vec<u8>, message: &impl Message) {
        match self {
            Self::Json => json::message(out, message),
            Self::Protobuf => protobuf::delimited(out, message),
        }
    }
}

/// Several messages in one of the transport's, in order: in JSON a line each, without a line break at the end.
#[derive(Debug)]
pub struct Batch<'o> {
    encoding: Encoding,
    out: &'o mut Vec<u8>,
    start: usize,
}

impl<'o> Batch<'o> {
    /// Begins a message of the transport at the end of `out`.
    #[must_use]
    pub const fn new(encoding: Encoding, out: &'o mut Vec<u8>) -> Self {
        let start = out.len();
        Self {
            encoding,
            out,
            start,
        }
    }

    /// Whether nothing was added yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.out.len() == self.start
    }

    /// Adds the answer to a command.
    pub fn reply(&mut self, reply: &Reply<'_>) {
        self.separate();
        self.encoding.write_reply(self.out, reply);
    }

    /// Adds a push.
    pub fn push(&mut self, push: &Push<'_>) {
        self.separate();
        self.encoding.write_push(self.out, push);
    }

    /// Adds a push without a reply around it.
    pub fn bare_push(&mut self, push: &Push<'_>) {
        self.separate();
        self.encoding.write_bare_push(self.out, push);
    }

    /// Adds a ping.
    pub fn ping(&mut self) {
        self.separate();
        self.encoding.write_ping(self.out);
    }

    /// Adds what was written before, in this encoding.
    pub fn encoded(&mut self, message: &[u8]) {
        self.separate();
        self.out.extend_from_slice(message);
    }

    fn separate(&mut self) {
        if self.encoding == Encoding::Json && !self.is_empty() {
            self.out.push(b'\n');
        }
    }
}
