//! Messages to clients other than replies.

use veche_types::codes::{DisconnectCode, UnsubscribeCode};

use crate::data::PublicationData;
use crate::publication::{ClientInfo, Publication};
use crate::reply::ConnectResult;
use crate::write::fields::{Fields, Message};

/// A push to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Push<'a> {
    /// The channel of the push; empty if it concerns the connection.
    pub channel: &'a str,
    /// The content of the push.
    pub body: PushBody<'a>,
}

/// The content of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushBody<'a> {
    /// A publication in the channel.
    Publication(Publication<'a>),
    /// A client has subscribed.
    Join(ClientInfo<'a>),
    /// A client is no longer subscribed.
    Leave(ClientInfo<'a>),
    /// The server ended the client's subscription.
    Unsubscribe(Unsubscribe<'a>),
    /// The server subscribed the client.
    Subscribe(Subscribe<'a>),
    /// A message for this connection.
    Message(PublicationData<'a>),
    /// The connect result: the first push on unidirectional transports.
    Connect(ConnectResult<'a>),
    /// The server closes the connection: the last push on transports without close frames.
    Disconnect(Disconnect<'a>),
    /// A new expiry of the connection.
    Refresh(Refresh),
}

/// The end of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    /// The reason as a number. After codes below 2500 clients stay unsubscribed; after other codes they subscribe again.
    pub code: u32,
    /// The reason as a text for people.
    pub reason: &'a str,
}

/// A new server-side subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Subscribe<'a> {
    /// Whether the client can recover missed publications.
    pub recoverable: bool,
    /// Epoch of the stream that the offset belongs to.
    pub epoch: &'a str,
    /// Offset of the last publication in the stream.
    pub offset: u64,
    /// Whether publications have offsets.
    pub positioned: bool,
    /// Data from the application.
    pub data: Option<PublicationData<'a>>,
}

/// The end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnect<'a> {
    /// Clients reconnect after all codes except 3500 to 3999 and 4500 to 4999.
    pub code: u16,
    /// The reason as a text for people.
    pub reason: &'a str,
}

/// A new expiry of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Refresh {
    /// Whether the connection expires.
    pub expires: bool,
    /// Seconds until the connection expires.
    pub ttl_s: u32,
}

impl From<UnsubscribeCode> for Unsubscribe<'static> {
    fn from(code: UnsubscribeCode) -> Self {
        Self {
            code: code.code(),
            reason: code.text(),
        }
    }
}

impl From<DisconnectCode> for Disconnect<'static> {
    fn from(code: DisconnectCode) -> Self {
        Self {
            code: code.code(),
            reason: code.text(),
        }
    }
}

impl Message for Push<'_> {
    fn write(&self, fields: &mut impl Fields) {
        fields.text(2, "channel", self.channel);
        match &self.body {
            PushBody::Publication(publication) => fields.message(4, "pub", publication),
            PushBody::Join(info) => fields.message(5, "join", &Info(info)),
            PushBody::Leave(info) => fields.message(6, "leave", &Info(info)),
            PushBody::Unsubscribe(unsubscribe) => fields.message(7, "unsubscribe", unsubscribe),
            PushBody::Message(data) => fields.message(8, "message", &Direct(*data)),
            PushBody::Subscribe(subscribe) => fields.message(9, "subscribe", subscribe),
            PushBody::Connect(connect) => fields.message(10, "connect", &Connect(connect)),
            PushBody::Disconnect(disconnect) => fields.message(11, "disconnect", disconnect),
            PushBody::Refresh(refresh) => fields.message(12, "refresh", refresh),
        }
    }
}

/// A joining or leaving client.
struct Info<'m>(&'m ClientInfo<'m>);

impl Message for Info<'_> {
    fn write(&self, fields: &mut impl Fields) {
        fields.message(1, "info", self.0);
    }
}

/// A message for one connection.
struct Direct<'m>(PublicationData<'m>);

impl Message for Direct<'_> {
    fn write(&self, fields: &mut impl Fields) {
        fields.data(1, "data", Some(self.0));
    }
}

/// A connect result as a push: the same fields with other Protobuf field numbers.
struct Connect<'m>(&'m ConnectResult<'m>);

impl Message for Connect<'_> {
    fn write(&self, fields: &mut impl Fields) {
        fields.text(1, "client", self.0.client);
        fields.text(2, "version", self.0.version);
        fields.data(3, "data", self.0.data);
        fields.map(4, "subs", self.0.subs);
        fields.flag(5, "expires", self.0.expires);
        fields.unsigned(6, "ttl", self.0.ttl_s.into());
        fields.unsigned(7, "ping", self.0.ping_s.into());
        fields.flag(8, "pong", self.0.pong);
        fields.text(9, "session", self.0.session);
        fields.text(10, "node", self.0.node);
        fields.signed(11, "time", self.0.time_ms);
    }
}

impl Message for Unsubscribe<'_> {
    fn write(&self, fields: &mut impl Fields) {
        fields.unsigned(2, "code", self.code.into());
        fields.text(3, "reason", self.reason);
    }
}

impl Message for Subscribe<'_> {
    fn write(&self, fields: &mut impl Fields) {
        fields.flag(1, "recoverable", self.recoverable);
        fields.text(4, "epoch", self.epoch);
        fields.unsigned(5, "offset", self.offset);
        fields.flag(6, "positioned", self.positioned);
        fields.data(7, "data", self.data);
    }
}

impl Message for Disconnect<'_> {
    fn write(&self, fields: &mut impl Fields) {
        fields.unsigned(1, "code", self.code.into());
        fields.text(2, "reason", self.reason);
    }
}

impl Message for Refresh {
    fn write(&self, fields: &mut impl Fields) {
        fields.flag(1, "expires", self.expires);
        fields.unsigned(2, "ttl", self.ttl_s.into());
    }
}
