//! How messages to a client are encoded: in JSON or Protobuf, with replies or as a one-way client's bare pushes.

use veche_centrifuge::{Encoding, Push};
use veche_proto::websocket::MessageKind;

/// How messages to a client are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PushEncoding {
    pub(crate) encoding: Encoding,
    /// Whether the client is one-way: it receives bare pushes, and no replies.
    pub(crate) is_one_way: bool,
}

impl From<Encoding> for PushEncoding {
    fn from(encoding: Encoding) -> Self {
        Self {
            encoding,
            is_one_way: false,
        }
    }
}

impl PushEncoding {
    pub(crate) fn write_push(self, out: &mut Vec<u8>, push: &Push<'_>) {
        match self.is_one_way {
            true => self.encoding.write_bare_push(out, push),
            false => self.encoding.write_push(out, push),
        }
    }
}

/// Returns the kind of WebSocket message for this encoding.
pub(crate) fn kind(encoding: Encoding) -> MessageKind {
    match encoding {
        Encoding::Json => MessageKind::Text,
        Encoding::Protobuf => MessageKind::Binary,
    }
}
