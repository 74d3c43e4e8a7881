//! Publications as pushes. There is a format per encoding, and a publication is encoded once per format for all
//! receivers.

mod encoding;

use bytes::Bytes;
use veche_centrifuge::{DeltaKind, Encoding, Publication, Push, PushBody, fossil_delta};
use veche_hub::{Delivery, FeedEvent};
use veche_proto::websocket::MessageKind;

use super::writing;
use crate::outbox::{MakeDelta, PushForm, PushFormat};
pub(super) use encoding::{PushEncoding, kind};

const JSON: PushEncoding = PushEncoding {
    encoding: Encoding::Json,
    is_one_way: false,
};
const PROTOBUF: PushEncoding = PushEncoding {
    encoding: Encoding::Protobuf,
    is_one_way: false,
};
const ONE_WAY_JSON: PushEncoding = PushEncoding {
    is_one_way: true,
    ..JSON
};
const ONE_WAY_PROTOBUF: PushEncoding = PushEncoding {
    is_one_way: true,
    ..PROTOBUF
};

/// The format for JSON clients with an SDK, which accepts several pushes in a message, one per line.
static JSON_FORMAT: PushFormat = PushFormat {
    kind: MessageKind::Text,
    is_single: false,
    separator: b"\n",
    has_cursors: false,
    whole_is_plain: false,
    encode: |delivery, form, patch| push(JSON, form, patch, delivery),
    has_deltas: |payload| writing::has_deltas(payload, Encoding::Json),
    deltas: Some(&FOSSIL),
};

/// The format for Protobuf clients. Its messages contain their length, and the data of a whole publication is the
/// same for clients with and without deltas.
static PROTOBUF_FORMAT: PushFormat = PushFormat {
    kind: MessageKind::Binary,
    separator: b"",
    whole_is_plain: true,
    encode: |delivery, form, patch| push(PROTOBUF, form, patch, delivery),
    has_deltas: |payload| writing::has_deltas(payload, Encoding::Protobuf),
    ..JSON_FORMAT
};

/// The format for one-way JSON clients. A page without an SDK passes each message to `JSON.parse`, so a push is a
/// message of its own. There are no deltas, since only a subscribe command can request them.
static ONE_WAY_JSON_FORMAT: PushFormat = PushFormat {
    is_single: true,
    has_cursors: true,
    whole_is_plain: true,
    encode: |delivery, form, patch| push(ONE_WAY_JSON, form, patch, delivery),
    deltas: None,
    ..JSON_FORMAT
};

static ONE_WAY_PROTOBUF_FORMAT: PushFormat = PushFormat {
    has_cursors: true,
    encode: |delivery, form, patch| push(ONE_WAY_PROTOBUF, form, patch, delivery),
    deltas: None,
    ..PROTOBUF_FORMAT
};

static FOSSIL: MakeDelta = MakeDelta(|delivery| {
    let new = writing::whole(delivery.payload);
    let previous = delivery.previous.map(writing::whole)?;
    fossil_delta(&previous, &new)
});

impl PushEncoding {
    /// Returns the push format of the encoding.
    pub(super) fn format(self) -> &'static PushFormat {
        match (self.encoding, self.is_one_way) {
            (Encoding::Json, false) => &JSON_FORMAT,
            (Encoding::Protobuf, false) => &PROTOBUF_FORMAT,
            (Encoding::Json, true) => &ONE_WAY_JSON_FORMAT,
            (Encoding::Protobuf, true) => &ONE_WAY_PROTOBUF_FORMAT,
        }
    }
}

fn push(
    push_encoding: PushEncoding,
    form: PushForm,
    patch: &[u8],
    delivery: &Delivery<'_>,
) -> Bytes {
    let tags = writing::tags(delivery.info);
    let quoted = writing::quoted(delivery.payload, push_encoding.encoding);
    let payload = quoted.as_deref().map_or(delivery.payload, writing::as_json);
    let client = delivery.info.and_then(|info| info.client.as_deref());
    let body = match (delivery.event, client) {
        (FeedEvent::Joined, Some(client)) => PushBody::Join(writing::client(client)),
        (FeedEvent::Left, Some(client)) => PushBody::Leave(writing::client(client)),
        _ => {
            let publication =
                writing::publication(payload, delivery.position, delivery.info, &tags);
            PushBody::Publication(match form {
                PushForm::Plain => publication,
                PushForm::Whole => Publication {
                    delta: DeltaKind::Whole,
                    ..publication
                },
                PushForm::Patch => Publication {
                    delta: DeltaKind::Patch,
                    data: writing::patch(patch),
                    ..publication
                },
            })
        }
    };
    let push = Push {
        channel: delivery.channel,
        body,
    };
    let mut out = Vec::with_capacity(delivery.payload.bytes.len() + delivery.channel.len() + 64);
    push_encoding.write_push(&mut out, &push);
    Bytes::from(out)
}
