//! Publications, stream positions, and public data of clients.

use crate::data::{DeltaKind, PublicationData};
use crate::write::fields::{Fields, Message};

/// A position in a channel's stream.
#[derive(Clone, Debug, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(default)]
pub struct StreamPosition<'a> {
    /// Offset of the last publication.
    #[serde(deserialize_with = "crate::read::json::zero")]
    pub offset: u64,
    /// Epoch of the stream that the offset belongs to.
    #[serde(borrow, deserialize_with = "crate::read::json::text")]
    pub epoch: std::borrow::Cow<'a, str>,
}

/// The public data of a connected client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClientInfo<'a> {
    /// The user; empty if anonymous.
    pub user: &'a str,
    /// The id of the connection.
    pub client: &'a str,
    /// Public data of the connection.
    pub conn_info: Option<PublicationData<'a>>,
    /// Public data of the client's subscription.
    pub chan_info: Option<PublicationData<'a>>,
}

/// A publication in a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication<'a> {
    /// The published data, or a delta from the previous data.
    pub data: PublicationData<'a>,
    /// Whether `data` is a delta; if not, whether the subscription uses deltas.
    pub delta: DeltaKind,
    /// The publisher, if it is a client.
    pub info: Option<ClientInfo<'a>>,
    /// Offset in the channel's stream, from 1; 0 without a stream.
    pub offset: u64,
    /// Names and values of the publication's tags.
    pub tags: &'a [(&'a str, &'a str)],
    /// Time in milliseconds since 1970; 0 if omitted.
    pub time_ms: i64,
    /// The channel, for wildcard subscriptions; otherwise empty.
    pub channel: &'a str,
}

impl<'a> Publication<'a> {
    /// Creates a publication with only data.
    #[must_use]
    pub const fn new(data: PublicationData<'a>) -> Self {
        Self {
            data,
            delta: DeltaKind::Off,
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
        fields.flag(8, "delta", self.delta == DeltaKind::Patch);
        fields.signed(9, "time", self.time_ms);
        fields.text(10, "channel", self.channel);
    }
}
