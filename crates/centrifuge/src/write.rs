//! Encoding of replies and pushes. Each message lists its fields once ([`Message`]), and [`json`]
//! and [`protobuf`] encode them, so that both encodings always contain the same fields.

pub(crate) mod fields;
pub(crate) mod json;
mod parts;
pub(crate) mod protobuf;

pub use parts::{Element, ReplyWriter};

use crate::{Encoding, Push, Reply};
use fields::{Fields, Message};

/// A message to a client: a reply or a push.
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

/// Encodes one message and appends it: in JSON without a line break, in Protobuf with its length prefix. The result can
/// be sent to many clients.
impl Encoding {
    /// Appends the encoded reply.
    pub fn write_reply(self, out: &mut Vec<u8>, reply: &Reply<'_>) {
        self.write(out, &ServerMessage::Reply(reply))
    }

    /// Appends a push for bidirectional or emulated connections.
    pub fn write_push(self, out: &mut Vec<u8>, push: &Push<'_>) {
        self.write(out, &ServerMessage::Push(push))
    }

    /// Appends a push for unidirectional transports: without a reply around it.
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
