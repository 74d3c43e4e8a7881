//! From replies and pushes to bytes. Each message says once which fields it has ([`Message`]); what they look like is
//! the business of [`json`] and [`protobuf`], so that both encodings always say the same.

pub(crate) mod fields;
pub(crate) mod json;
mod parts;
pub(crate) mod protobuf;

pub use parts::{Element, ReplyWriter};

use crate::{Encoding, Push, Reply};
use fields::{Fields, Message};

/// What a client gets: an answer to one of its commands, or a push.
enum ServerMessage<'m> {
    Reply(&'m Reply<'m>),
    Push(&'m Push<'m>),
}

impl Message for ServerMessage<'_> {
    fn write(&self, fields: &mut impl Fields) {
        match self {
            Self::Reply(reply) => reply.write(fields),
            Self::Push(push) => fields.message(4, "push", *push),
        }
    }
}

/// One message each, appended: in JSON without a line break, in Protobuf behind its length. What is written here once
/// can be sent to many.
impl Encoding {
    /// Appends the answer to a command.
    pub fn write_reply(self, out: &mut Vec<u8>, reply: &Reply<'_>) {
        self.write(out, &ServerMessage::Reply(reply))
    }

    /// Appends a push as clients with a connection in both directions get it, or with one that is emulated.
    pub fn write_push(self, out: &mut Vec<u8>, push: &Push<'_>) {
        self.write(out, &ServerMessage::Push(push))
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
