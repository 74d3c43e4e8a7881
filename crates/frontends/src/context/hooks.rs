//! Hook requests of sessions, and the decisions on them.
//!
//! A session of Centrifugo's protocol requests a decision before it executes a command if its route has a target for
//! that kind of command ([`HookTargets`]). The [`HookRequest`] is plain data: the session adds it to
//! [`Requests::hook_requests`](crate::Requests::hook_requests), and the worker sends it afterwards. The
//! [`HookDecision`] comes back with the session's id and the request's number, through
//! [`Connection::handle_hook_decision`](crate::Connection::handle_hook_decision); the session may be closed by then.
//! Until then the command and those after it wait as bytes
//! ([`WaitReason::HookDecision`](crate::WaitReason::HookDecision)). With the decision the command is parsed again, so
//! no parsed state is kept, and changes made in the meantime are respected. No other client waits.
//!
//! # Adding a target
//!
//! Add a variant of [`HookTarget`] (a route's [`HookTargets`] assign a target to each kind of command), and make the
//! worker send the requests that have this variant as their target. A target
//!
//! - returns exactly one decision for each request, also if the request fails ([`HookDecision::Failed`]) and when the
//!   target shuts down: the session waits without a time limit and pings its client meanwhile;
//! - adds the decision to [`Requests::hook_decisions`](crate::Requests::hook_decisions) if it runs on the worker's
//!   thread, at once or in a later turn; otherwise it sends the decision to the worker, as the back end's target does;
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

/// The kind of command that needs a hook's decision. Each variant's comment states the task of the hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HookKind {
    /// Determines the user of a client without a token, and the channels to which the server subscribes it.
    Connect,
    /// Decides whether a connection may stay open after its expiry.
    Refresh,
    /// Decides whether a client may subscribe to a channel.
    Subscribe,
    /// Decides whether a subscription may continue after its expiry.
    SubRefresh,
    /// Decides whether a client may publish, and may replace the published data.
    Publish,
    /// Provides the result of a method that a client calls.
    Rpc,
    /// Handles a message without a reply. The client learns only of a decision that closes its connection.
    Message,
    /// Handles the end of a connected client. The decision is ignored.
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

    /// The kinds that back ends support as hooks over HTTP.
    pub const BACKEND_KINDS: [Self; 6] = [
        Self::Connect,
        Self::Refresh,
        Self::Subscribe,
        Self::SubRefresh,
        Self::Publish,
        Self::Rpc,
    ];

    /// Returns the name of the kind in directives and metrics.
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

/// The recipient of a hook request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookTarget {
    /// The back end, over HTTP.
    BackEnd(BackEndId),
    /// An application of this worker.
    App {
        /// The id of the application.
        app: AppId,
        /// Time limit for the decision in milliseconds; 0 means no limit.
        timeout_ms: u64,
    },
}

/// The number that the process assigned to a hook of a route. A reload that changes the hook's URL does not change the
/// number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackEndId(pub u32);

/// The kinds of commands that an application has handlers for. They change when its code is reloaded, also for open
/// connections.
#[derive(Debug)]
pub struct HookKinds(AtomicU8);

impl Default for HookKinds {
    /// Returns the set of all kinds, so that no command bypasses an application whose code is not loaded yet.
    fn default() -> Self {
        Self(AtomicU8::new(u8::MAX))
    }
}

impl HookKinds {
    /// Replaces the set of kinds that the application handles.
    pub fn set(&self, kinds: impl Iterator<Item = HookKind>) {
        let bits = kinds.fold(0, |bits, kind| bits | Self::bit(kind));
        self.0.store(bits, Ordering::Relaxed);
    }

    /// Returns whether the application handles the kind.
    #[must_use]
    pub fn has(&self, kind: HookKind) -> bool {
        self.0.load(Ordering::Relaxed) & Self::bit(kind) != 0
    }

    fn bit(kind: HookKind) -> u8 {
        1 << kind as u8
    }
}

/// The hook targets of a route, by kind of command, and the client's headers that they receive.
#[derive(Clone, Debug, Default)]
pub struct HookTargets {
    kinds: [Option<HookTarget>; HookKind::ALL.len()],
    app: Option<(HookTarget, Arc<HookKinds>)>,
    /// Lower-case names of the handshake's headers that are included in requests.
    pub headers: Vec<String>,
    /// The subset of `headers` that a client may send in its connect command instead of its handshake,
    /// since pages can't set headers of a WebSocket. A header of the handshake takes precedence.
    pub emulated: Vec<String>,
}

impl HookTargets {
    /// Sets the target for a kind of command.
    pub fn set(&mut self, kind: HookKind, target: HookTarget) {
        self.kinds[kind as usize] = Some(target);
    }

    /// Sets the application of the route. It takes precedence over other targets for the kinds that it handles.
    pub fn set_app(&mut self, app: AppId, timeout_ms: u64, kinds: Arc<HookKinds>) {
        self.app = Some((HookTarget::App { app, timeout_ms }, kinds));
    }

    /// Returns the target for a kind of command, if there is one.
    #[must_use]
    pub fn of(&self, kind: HookKind) -> Option<HookTarget> {
        let app = self.app.as_ref().filter(|(_, kinds)| kinds.has(kind));
        app.map_or(self.kinds[kind as usize], |(app, _)| Some(*app))
    }

    /// Returns the target for commands of a kind that the application does not handle.
    #[must_use]
    pub fn beside_app(&self, kind: HookKind) -> Option<HookTarget> {
        self.kinds[kind as usize]
    }
}

/// The number of a hook request; unique within its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HookRequestId(pub u32);

/// A request for a hook's decision on a client's command.
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
    /// The token in the client's command; empty if the server verifies tokens itself.
    pub token: MaskedToken,
    /// Data sent by the client.
    pub data: Option<Payload>,
    /// For [`HookKind::Connect`]: the server-side subscriptions that a reconnecting client had.
    pub channels: Vec<Box<str>>,
    /// For [`HookKind::Disconnect`]: close code and reason.
    pub disconnect: Option<(u16, Box<str>)>,
}

/// The properties of a client that are the same in all its hook requests.
#[derive(Clone, PartialEq, Eq)]
pub struct HookCaller {
    /// The id of the connection.
    pub client: Box<str>,
    /// The client's transport: `websocket`, `http_stream` or `sse`.
    pub transport: &'static str,
    /// The encoding of the client's messages.
    pub encoding: Encoding,
    /// The name that the client sends in its connect command.
    pub name: Box<str>,
    /// The version that the client sends in its connect command.
    pub version: Box<str>,
    /// The IP address of the client.
    pub address: IpAddr,
    /// The headers of the client's handshake that the route selects, with lower-case names.
    pub headers: Vec<(Box<str>, Box<[u8]>)>,
    /// Data that the target attached to the connection when it granted `connect`.
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
    /// Adds headers that the client sent in its connect command. Headers that the route does not permit in this
    /// command, or that the handshake contains, are not added.
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
    /// Headers are omitted from debug output, since they may contain secrets.
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
    /// The application has no handler for this kind of command. The command continues as without an application.
    Unhandled,
    /// The command is permitted, with these options.
    Granted(Box<HookGrant>),
    /// The command fails with this error.
    Error {
        /// The error code, at least 1; an application's own codes start at 400.
        code: u32,
        /// The error message for people.
        message: Box<str>,
        /// Whether the command may succeed if it is repeated later.
        is_temporary: bool,
    },
    /// The client is disconnected.
    Disconnect {
        /// The close code, from 3000 to 4999; an application's own codes start at 4000. SDKs reconnect unless the
        /// code is from 3500 to 3999 or from 4500 to 4999.
        code: u16,
        /// The close reason for people; the client receives at most 123 bytes of it.
        reason: Box<str>,
    },
    /// The target made no decision, so the command fails with error 100, which is temporary.
    Failed,
}

/// What a hook grants to a client. Fields that do not apply to the kind of request are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookGrant {
    /// For [`HookKind::Connect`]: the user; empty if anonymous.
    pub user: Box<str>,
    /// When the connection or subscription expires, in seconds since 1970; `None`: never.
    pub expires_at_s: Option<u64>,
    /// For the two refresh kinds: whether the connection or subscription has expired and is not extended.
    pub is_expired: bool,
    /// Public data of the client, for the connection or for the channel.
    pub info: Option<Payload>,
    /// Data that the client receives; for [`HookKind::Publish`], data to publish in place of the client's.
    pub data: Option<Payload>,
    /// For [`HookKind::Connect`]: the server-side subscriptions of the client.
    pub channels: Vec<HookSubscription>,
    /// For [`HookKind::Connect`]: data to include in all further requests about the connection.
    pub meta: Option<Payload>,
    /// For [`HookKind::Publish`]: whether the publication is left out of the history.
    pub skips_history: bool,
}

/// A server-side subscription granted at connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookSubscription {
    /// The name of the channel.
    pub channel: Box<str>,
    /// The client's public data in this channel.
    pub info: Option<Payload>,
    /// Data that the client receives with the subscription.
    pub data: Option<Payload>,
    /// When the subscription expires, in seconds since 1970; `None`: never.
    pub expires_at_s: Option<u64>,
}

/// Returns a JSON text as a payload for clients; `None` if it is invalid or nested too deeply.
#[must_use]
pub fn json(text: &str) -> Option<Payload> {
    is_json(text).then(|| Payload {
        kind: PayloadKind::Json,
        bytes: Bytes::copy_from_slice(text.as_bytes()),
    })
}

/// Returns bytes as a payload for clients. Bytes that are valid JSON are marked as JSON, so that JSON clients can
/// receive them too.
#[must_use]
pub fn bytes(bytes: impl Into<Bytes>) -> Payload {
    let bytes = bytes.into();
    let kind = match PublicationData::of_bytes(&bytes) {
        PublicationData::Json(_) => PayloadKind::Json,
        _ => PayloadKind::Binary,
    };
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
