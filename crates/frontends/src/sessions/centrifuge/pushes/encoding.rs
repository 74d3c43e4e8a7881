//! In which form a client is told things: the encoding, and whether it only listens.

use veche_centrifuge::{Encoding, Push};
use veche_proto::websocket::MessageKind;

/// What a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PushEncoding {
    pub(crate) encoding: Encoding,
    /// It gets pushes without a reply around them, and no replies.
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
    /// Appends a push.
    pub(crate) fn write_push(self, out: &mut Vec<u8>, push: &Push<'_>) {
        match self.is_one_way {
            true => self.encoding.write_bare_push(out, push),
            false => self.encoding.write_push(out, push),
        }
    }
}

/// What carries messages of this encoding.
pub(crate) fn kind(encoding: Encoding) -> MessageKind {
    match encoding {
        Encoding::Json => MessageKind::Text,
        Encoding::Protobuf => MessageKind::Binary,
    }
}
