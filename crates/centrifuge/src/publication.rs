//! What is published, by whom, and how an application's data look in both encodings.

use crate::write::{Fields, Message};
use crate::{DEPTH_MAX, depth};

/// An application's data, which the protocol carries and does not look into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// One JSON value. Written to JSON clients as it stands, without line breaks between its tokens; it is not checked
    /// again, so what is no JSON here breaks the client's whole message. Empty means that there are none.
    Json(&'a str),
    /// Any text. JSON clients get a JSON string.
    Text(&'a str),
    /// Any bytes. JSON clients get a JSON string with their base64 form.
    Binary(&'a [u8]),
}

impl<'a> Data<'a> {
    /// What bytes are that come without a type, as from Protobuf clients: JSON if they are one value of it, nested no deeper than
    /// [`DEPTH_MAX`], and else binary.
    #[must_use]
    pub fn of_bytes(bytes: &'a [u8]) -> Self {
        match simdutf8::basic::from_utf8(bytes) {
            Ok(text) if is_json(text) => Self::Json(text),
            _ => Self::Binary(bytes),
        }
    }

    /// The bytes, as Protobuf clients get them.
    #[must_use]
    pub const fn bytes(self) -> &'a [u8] {
        match self {
            Self::Json(text) | Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }
}

/// Whether a text is one JSON value that can be sent to clients: nested no deeper than [`DEPTH_MAX`].
#[must_use]
pub fn is_json(text: &str) -> bool {
    !depth::is_over(text, DEPTH_MAX) && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// What the data of a publication are, where its subscriber and the server may have agreed on deltas (Fossil's format).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Delta {
    /// Nothing was agreed on: data as they are.
    #[default]
    Off,
    /// Agreed on, and these are whole data. JSON clients get them as a JSON string that holds their JSON form.
    Whole,
    /// Agreed on, and these are a delta from the data before ([`fossil_delta`](crate::fossil_delta)), as [`Data::Text`],
    /// or [`Data::Binary`] for Protobuf clients. It is between whole data as clients have them: JSON as it stands, a text
    /// as JSON string. JSON clients take no delta from or to binary data.
    Patch,
}

impl Data<'_> {
    /// Appends what JSON clients get as `data`.
    pub fn write_json(self, out: &mut Vec<u8>) {
        crate::write::json::data(out, self, Delta::Off);
    }
}

/// Where something stands in a channel's stream.
#[derive(Clone, Debug, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(default)]
pub struct StreamPosition<'a> {
    /// The last publication's number.
    #[serde(deserialize_with = "crate::read::json::zero")]
    pub offset: u64,
    /// Which life of the stream that number belongs to.
    #[serde(borrow, deserialize_with = "crate::read::json::text")]
    pub epoch: std::borrow::Cow<'a, str>,
}

/// A connected client, as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClientInfo<'a> {
    /// The user; empty if anonymous.
    pub user: &'a str,
    /// The connection's id.
    pub client: &'a str,
    /// What is known of the connection.
    pub conn_info: Option<Data<'a>>,
    /// What is known of its subscription.
    pub chan_info: Option<Data<'a>>,
}

/// Data that were published into a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication<'a> {
    /// What was published, or the delta to it.
    pub data: Data<'a>,
    /// Which of them, and whether deltas were agreed on.
    pub delta: Delta,
    /// Who did, where a client did.
    pub info: Option<ClientInfo<'a>>,
    /// Its number in the channel's stream, from 1; 0 where the channel has none.
    pub offset: u64,
    /// Names and values that were published with it.
    pub tags: &'a [(&'a str, &'a str)],
    /// When, in milliseconds since 1970; 0 if it is not said.
    pub time_ms: i64,
    /// The channel, where the subscription is to a pattern of channels; else empty.
    pub channel: &'a str,
}

impl<'a> Publication<'a> {
    /// A publication of nothing but data.
    #[must_use]
    pub const fn new(data: Data<'a>) -> Self {
        Self {
            data,
            delta: Delta::Off,
            info: None,
            offset: 0,
            tags: &[],
            time_ms: 0,
            channel: "",
        }
    }
}

impl Message for ClientInfo<'_> {
    const KEEPS_ZEROS: bool = true;

    fn write(&self, fields: &mut impl Fields) {
        fields.text(1, "user", self.user);
        fields.text(2, "client", self.client);
        fields.data(3, "conn_info", self.conn_info);
        fields.data(4, "chan_info", self.chan_info);
    }
}

impl Message for Publication<'_> {
    fn write(&self, fields: &mut impl Fields) {
        fields.payload(4, "data", self.data, self.delta);
        fields.optional(5, "info", self.info.as_ref());
        fields.unsigned(6, "offset", self.offset);
        fields.texts(7, "tags", self.tags);
        fields.flag(8, "delta", self.delta == Delta::Patch);
        fields.signed(9, "time", self.time_ms);
        fields.text(10, "channel", self.channel);
    }
}
