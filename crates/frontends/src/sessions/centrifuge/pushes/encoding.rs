//! The push encoding of a client: its encoding, and whether it is one-way.

use veche_centrifuge::{Encoding, Push};
use veche_proto::websocket::MessageKind;

/// How messages to a client are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PushEncoding {
    pub(crate) encoding: Encoding,
    /// The client gets bare pushes, and no replies.
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

/// Returns the kind of message for this encoding.
pub(crate) fn kind(encoding: Encoding) -> MessageKind {
    match encoding {
        Encoding::Json => MessageKind::Text,
        Encoding::Protobuf => MessageKind::Binary,
    }
}
