//! Hook requests of sessions, and the decisions on them.
//!
//! A session of Centrifugo's protocol asks before it executes a command if its route has [`HookTargets`] for it. The
//! [`HookRequest`] is plain data: it leaves through [`Requests::hook_requests`](crate::Requests::hook_requests), and the
//! worker sends it after the call. The [`HookDecision`] returns with the session, which may be gone by then, and the
//! request's number, through [`Connection::handle_hook_decision`](crate::Connection::handle_hook_decision). Meanwhile the
//! command waits as bytes, with those behind it ([`WaitReason::HookDecision`](crate::WaitReason::HookDecision)); then it
//! is parsed again, with the decision. So no parsed state is held, and changes in between count. No other client waits.
//!
//! # Adding a target
//!
//! Add a variant of [`HookTarget`], which routes name in their [`HookTargets`] by kind, and a case where the worker sends
//! requests. A target
//!
//! - returns exactly one decision for each request, also if it fails ([`HookDecision::Failed`]) and when it ends: the
//!   session waits without a limit, and pings its client meanwhile;
//! - adds it to [`Requests::hook_decisions`](crate::Requests::hook_decisions) if it runs on the worker's thread, at once
//!   or in a later turn, and otherwise sends it to the worker as that of the back end does;
//! - need not know whether the client is still connected: a decision for a closed session, or for a request that is no
//!   longer pending, is dropped;
//! - need not validate its decision: the session checks channels, codes and users, and treats an invalid decision as
//!   [`HookDecision::Failed`], with a log message.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
pub use veche_centrifuge::Encoding;
use veche_centrifuge::{PublicationData, is_json};
use veche_hub::{ConnectionId, Payload, PayloadKind};
use veche_proto::http::Head;
use veche_types::AppId;

/// The kind of command that a hook decides on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HookKind {
    /// The user of a client without a token, and its channels.
    Connect,
    /// Whether an expired connection may stay.
    Refresh,
    /// Whether a client may subscribe to a channel.
    Subscribe,
    /// Whether an expired subscription may stay.
    SubRefresh,
    /// Whether a client may publish, and what.
    Publish,
    /// The result of a method.
    Rpc,
    /// A message without a reply: the client does not learn the decision, unless it closes the connection.
    Message,
    /// The end of a connected client. The decision is ignored.
    Disconnect,
}

impl HookKind {
    /// All kinds in a fixed order.
    pub const ALL: [Self; 8] = [
        Self::Connect,
        Self::Refresh,
        Self::Subscribe,
        Self::SubRefresh,
        Self::Publish,
        Self::Rpc,
        Self::Message,
        Self::Disconnect,
    ];

    /// Kinds supported by back ends.
    pub const BACKEND_KINDS: [Self; 6] = [
        Self::Connect,
        Self::Refresh,
        Self::Subscribe,
        Self::SubRefresh,
        Self::Publish,
        Self::Rpc,
    ];

    /// Returns its name in directives and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Refresh => "refresh",
            Self::Subscribe => "subscribe",
            Self::SubRefresh => "sub_refresh",
            Self::Publish => "publish",
            Self::Rpc => "rpc",
            Self::Message => "message",
            Self::Disconnect => "disconnect",
        }
    }
}

/// The target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookTarget {
    /// The back end, over HTTP.
    BackEnd(BackEndId),
    /// An application of this worker.
    App {
        /// The id of the application.
        app: AppId,
        /// Time limit in milliseconds; 0: none.
        timeout_ms: u64,
    },
}

/// A back end for one kind of request, numbered by the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackEndId(pub u32);

/// The kinds that an application handles. They change with its code, also for existing connections.
#[derive(Debug)]
pub struct HookKinds(AtomicU8);

impl Default for HookKinds {
    /// All kinds, so that no command bypasses an application whose code is not loaded yet.
    fn default() -> Self {
        Self(AtomicU8::new(u8::MAX))
    }
}

impl HookKinds {
    /// Replaces the handled kinds.
    pub fn set(&self, kinds: impl Iterator<Item = HookKind>) {
        let bits = kinds.fold(0, |bits, kind| bits | Self::bit(kind));
        self.0.store(bits, Ordering::Relaxed);
    }

    /// Returns whether the kind is handled.
    #[must_use]
    pub fn has(&self, kind: HookKind) -> bool {
        self.0.load(Ordering::Relaxed) & Self::bit(kind) != 0
    }

    fn bit(kind: HookKind) -> u8 {
        1 << kind as u8
    }
}

/// The targets of a route by kind, and the headers they receive.
#[derive(Clone, Debug, Default)]
pub struct HookTargets {
    kinds: [Option<HookTarget>; HookKind::ALL.len()],
    app: Option<(HookTarget, Arc<HookKinds>)>,
    /// Lower-case names of the handshake headers included in requests.
    pub headers: Vec<String>,
    /// The headers among them that a client may also send in its connect command, since pages can't set headers of a
    /// WebSocket. Headers of the handshake take precedence.
    pub emulated: Vec<String>,
}

impl HookTargets {
    /// Sets the target of a kind.
    pub fn set(&mut self, kind: HookKind, target: HookTarget) {
        self.kinds[kind as usize] = Some(target);
    }

    /// Sets an application that handles these kinds, with precedence over other targets.
    pub fn set_app(&mut self, app: AppId, timeout_ms: u64, kinds: Arc<HookKinds>) {
        self.app = Some((HookTarget::App { app, timeout_ms }, kinds));
    }

    /// Returns the target of a kind, if any.
    #[must_use]
    pub fn of(&self, kind: HookKind) -> Option<HookTarget> {
        let app = self.app.as_ref().filter(|(_, kinds)| kinds.has(kind));
        app.map_or(self.kinds[kind as usize], |(app, _)| Some(*app))
    }

    /// Returns the target of a kind beside the application.
    #[must_use]
    pub fn beside_app(&self, kind: HookKind) -> Option<HookTarget> {
        self.kinds[kind as usize]
    }
}

/// Number of a request within its session, unique there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HookRequestId(pub u32);

/// A request for a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookRequest {
    /// The id of the session.
    pub session: ConnectionId,
    /// The number of the request within the session.
    pub id: HookRequestId,
    /// The target of the request.
    pub target: HookTarget,
    /// The kind of decision.
    pub kind: HookKind,
    /// The client that caused the request.
    pub caller: Arc<HookCaller>,
    /// The user; empty if anonymous.
    pub user: Box<str>,
    /// The channel, if any.
    pub channel: Box<str>,
    /// The method, for [`HookKind::Rpc`].
    pub method: Box<str>,
    /// The command's token, where the server itself does not use tokens.
    pub token: MaskedToken,
    /// Data sent by the client.
    pub data: Option<Payload>,
    /// For [`HookKind::Connect`]: server-side subscriptions that a reconnecting client claims.
    pub channels: Vec<Box<str>>,
    /// For [`HookKind::Disconnect`]: close code and reason.
    pub disconnect: Option<(u16, Box<str>)>,
}

/// The properties of a client that all its requests share.
#[derive(Clone, PartialEq, Eq)]
pub struct HookCaller {
    /// The id of the connection.
    pub client: Box<str>,
    /// The client's transport: `websocket`, `http_stream` or `sse`.
    pub transport: &'static str,
    /// The encoding of its messages.
    pub encoding: Encoding,
    /// The name and version that the client sends.
    pub name: Box<str>,
    /// The version that the client sends.
    pub version: Box<str>,
    /// The IP address of the client.
    pub address: IpAddr,
    /// The selected headers of its handshake, with lower-case names.
    pub headers: Vec<(Box<str>, Box<[u8]>)>,
    /// Data that the target attached to the connection.
    pub meta: Option<Payload>,
}

impl HookCaller {
    pub(crate) fn new(
        transport: &'static str,
        encoding: Encoding,
        head: &Head<'_>,
        chosen: &[String],
    ) -> Self {
        let headers = head.headers().map(|(name, value)| {
            let name = name.to_ascii_lowercase().into_boxed_str();
            (name, Box::from(value))
        });
        let is_chosen = |name: &str| chosen.iter().any(|one| one == name);
        Self {
            client: Box::default(),
            transport,
            encoding,
            name: Box::default(),
            version: Box::default(),
            address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            headers: headers.filter(|(name, _)| is_chosen(name)).collect(),
            meta: None,
        }
    }
}

impl HookCaller {
    /// Adds headers that the client sent in its connect command, if permitted and not in its handshake.
    pub(crate) fn add_headers(
        &mut self,
        chosen: &[String],
        sent: &[(Cow<'_, str>, veche_centrifuge::SecretText<'_>)],
    ) {
        for (name, value) in sent {
            let name = name.to_ascii_lowercase();
            let is_known = self.headers.iter().any(|(known, _)| **known == *name);
            if !is_known && chosen.contains(&name) {
                self.headers.push((name.into(), value.as_bytes().into()));
            }
        }
    }
}

impl fmt::Debug for HookCaller {
    /// Headers may contain secrets and are omitted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookCaller")
            .field("client", &self.client)
            .field("transport", &self.transport)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// A token, masked in debug output.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct MaskedToken(pub Box<str>);

impl fmt::Debug for MaskedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// The decision on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookDecision {
    /// The application turned out to have no handler of that kind: the command goes on without it.
    Unhandled,
    /// The request is granted.
    Granted(Box<HookGrant>),
    /// The command fails with this error.
    Error {
        /// At least 1; an application's own codes from 400 on.
        code: u32,
        /// The text, meant for people.
        message: Box<str>,
        /// Whether the command may succeed later.
        is_temporary: bool,
    },
    /// The client is disconnected.
    Disconnect {
        /// From 3000 to 4999, an application's own from 4000 on. SDKs reconnect except after 3500 to 3999 and 4500 to
        /// 4999.
        code: u16,
        /// A text for people; at most 123 bytes are sent to the client.
        reason: Box<str>,
    },
    /// No decision: the command fails with error 100, which is temporary.
    Failed,
}

/// The permissions and options granted; fields that do not apply to the kind are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookGrant {
    /// [`HookKind::Connect`]: the user; empty for anonymous.
    pub user: Box<str>,
    /// Expiry of a connection or subscription, in seconds since 1970; `None`: never.
    pub expires_at_s: Option<u64>,
    /// Refresh kinds: the connection or subscription has expired.
    pub is_expired: bool,
    /// Public data of the client: in the connection, or in the channel.
    pub info: Option<Payload>,
    /// Data for the client; [`HookKind::Publish`]: data that replaces the client's.
    pub data: Option<Payload>,
    /// [`HookKind::Connect`]: the server-side subscriptions of the client.
    pub channels: Vec<HookSubscription>,
    /// [`HookKind::Connect`]: data included in each further request of the connection.
    pub meta: Option<Payload>,
    /// [`HookKind::Publish`]: the publication is not stored.
    pub skips_history: bool,
}

/// A server-side subscription granted at connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookSubscription {
    /// The name of the channel.
    pub channel: Box<str>,
    /// Public data of the client in the channel.
    pub info: Option<Payload>,
    /// Data for the client.
    pub data: Option<Payload>,
    /// Expiry in seconds since 1970; `None`: never.
    pub expires_at_s: Option<u64>,
}

/// Returns a JSON value as a payload for clients; `None` if it is invalid or nested too deeply.
#[must_use]
pub fn json(text: &str) -> Option<Payload> {
    is_json(text).then(|| Payload {
        kind: PayloadKind::Json,
        bytes: Bytes::copy_from_slice(text.as_bytes()),
    })
}

/// Returns bytes as a payload for clients. JSON is recognised, so that JSON clients can receive it too.
#[must_use]
pub fn bytes(bytes: Vec<u8>) -> Payload {
    let kind = match PublicationData::of_bytes(&bytes) {
        PublicationData::Json(_) => PayloadKind::Json,
        _ => PayloadKind::Binary,
    };
    let bytes = Bytes::from(bytes);
    Payload { kind, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_decides_before_the_back_end_where_it_has_handlers() {
        let kinds = Arc::new(HookKinds::default());
        let mut targets = HookTargets::default();
        let by_back_end = HookTarget::BackEnd(BackEndId(1));
        targets.set(HookKind::Rpc, by_back_end);
        targets.set(HookKind::Connect, by_back_end);
        let (app, timeout_ms) = (AppId(7), 1000);
        targets.set_app(app, timeout_ms, Arc::clone(&kinds));
        let of = |targets: &HookTargets| HookKind::ALL.map(|kind| targets.of(kind));
        let (none, back_end) = (None, Some(by_back_end));
        let by_app = Some(HookTarget::App { app, timeout_ms });
        assert_eq!(of(&targets), [by_app; 8]);
        kinds.set(std::iter::empty());
        let expected = [back_end, none, none, none, none, back_end, none, none];
        assert_eq!(of(&targets), expected);
        kinds.set([HookKind::Rpc, HookKind::Message].into_iter());
        let expected = [back_end, none, none, none, none, by_app, by_app, none];
        assert_eq!(of(&targets), expected);
        kinds.set(HookKind::ALL.into_iter());
        assert_eq!(of(&targets), [by_app; 8]);
    }

    #[test]
    fn kinds_have_a_name_each_and_back_ends_decide_on_all_but_two() {
        let names = HookKind::ALL.map(HookKind::name);
        let expected = [
            "connect",
            "refresh",
            "subscribe",
            "sub_refresh",
            "publish",
            "rpc",
            "message",
            "disconnect",
        ];
        assert_eq!(names, expected);
        assert_eq!(HookKind::BACKEND_KINDS.map(HookKind::name), expected[..6]);
    }

    fn caller(chosen: &[&str]) -> HookCaller {
        let request = b"GET / HTTP/1.1\r\nHost: a\r\nCookie: c=1\r\nX-Custom: from the request\r\n\
                        X-Other: not chosen\r\n\r\n";
        let head = veche_proto::http::parse_head(request, &Default::default()).expect("a head");
        let chosen: Vec<String> = chosen.iter().map(|&name| name.to_owned()).collect();
        HookCaller::new("websocket", Encoding::Protobuf, &head, &chosen)
    }

    fn header<'a>(caller: &'a HookCaller, name: &str) -> Vec<&'a [u8]> {
        let headers = caller.headers.iter();
        let of_name = headers.filter(|(one, _)| **one == *name);
        of_name.map(|(_, value)| &**value).collect()
    }

    #[test]
    fn only_configured_headers_are_passed_on_and_those_of_the_request_win() {
        let mut caller = caller(&["cookie", "x-custom", "x-said"]);
        assert_eq!(caller.headers.len(), 2, "{:?}", caller.headers);
        assert_eq!(header(&caller, "cookie"), [b"c=1"]);
        assert_eq!(header(&caller, "x-custom"), [b"from the request"]);
        assert_eq!(
            (caller.transport, caller.encoding, &*caller.client),
            ("websocket", Encoding::Protobuf, "")
        );
        let chosen = ["x-custom", "x-said"].map(str::to_owned);
        let sent = [
            ("X-Custom", "from the client"),
            ("X-Said", "once"),
            ("x-said", "twice"),
            ("Cookie", "c=2"),
            ("X-Other", "not chosen"),
        ];
        let sent = sent.map(|(name, value)| {
            (
                Cow::from(name),
                veche_centrifuge::SecretText(Cow::from(value)),
            )
        });
        caller.add_headers(&chosen, &sent);
        assert_eq!(header(&caller, "x-custom"), [b"from the request"]);
        assert_eq!(header(&caller, "x-said"), [b"once"]);
        assert_eq!(header(&caller, "cookie"), [b"c=1"]);
        assert_eq!(caller.headers.len(), 3, "{:?}", caller.headers);
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!("{:?}", caller(&["cookie"]));
        assert!(
            shown.contains("websocket") && !shown.contains("c=1"),
            "{shown}"
        );
        let credential = MaskedToken("a.secret.token".into());
        assert_eq!(format!("{credential:?}"), "14 bytes");
    }

    #[test]
    fn payloads_are_of_the_kind_of_their_bytes() {
        let payload = json("{\"a\": [1]}").expect("it is JSON");
        assert_eq!(
            (payload.kind, &*payload.bytes),
            (PayloadKind::Json, &b"{\"a\": [1]}"[..])
        );
        for bad in ["", "{", "a", "{} {}"] {
            assert_eq!(json(bad), None, "{bad}");
        }
        let payload = bytes(b"[1,2]".to_vec());
        assert_eq!(
            (payload.kind, &*payload.bytes),
            (PayloadKind::Json, &b"[1,2]"[..])
        );
        let payload = bytes(vec![0, 255]);
        assert_eq!(
            (payload.kind, &*payload.bytes),
            (PayloadKind::Binary, &[0, 255][..])
        );
    }

    #[test]
    fn a_kind_may_be_named_twice() {
        let kinds = HookKinds::default();
        kinds.set([HookKind::Rpc, HookKind::Publish, HookKind::Rpc].into_iter());
        let set: Vec<HookKind> = HookKind::ALL
            .into_iter()
            .filter(|kind| kinds.has(*kind))
            .collect();
        assert_eq!(set, [HookKind::Publish, HookKind::Rpc]);
    }
}
