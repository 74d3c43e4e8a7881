//! Publications, positions in streams, and clients as others see them.

use crate::data::{DeltaKind, PublicationData};
use crate::write::fields::{Fields, Message};

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
    pub conn_info: Option<PublicationData<'a>>,
    /// What is known of its subscription.
    pub chan_info: Option<PublicationData<'a>>,
}

/// Data that were published into a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication<'a> {
    /// What was published, or the delta to it.
    pub data: PublicationData<'a>,
    /// Which of them, and whether deltas were agreed on.
    pub delta: DeltaKind,
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
