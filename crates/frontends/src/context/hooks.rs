//! What clients' commands need leave for: questions that leave a session, and the verdicts that come back.
//!
//! A session of Centrifugo's protocol asks before it carries out a command where its route says so ([`HookTargets`]). The
//! [`HookRequest`] is plain data: it leaves through [`Ports::questions`](crate::Ports::questions), and the worker takes it to
//! whoever decides, after the call. The [`HookDecision`] comes back by the session, which may be gone by then, and the question's
//! number, by [`Connection::judged`](crate::Connection::judged). Meanwhile the command waits as bytes, with those behind it
//! ([`Block::HookDecision`](crate::Block::Verdict)); then it is looked at again, with the verdict in hand. So nothing is held for
//! it, and what has changed in between counts. Nobody else waits.
//!
//! # Another decider
//!
//! One variant of [`HookTarget`]; routes name it in their [`HookTargets`], by kind; the worker has a line for it where it takes
//! questions. Whoever decides
//!
//! - gives exactly one verdict for each question, also where it fails ([`HookDecision::Failed`]) and when it ends: the session
//!   waits as long as it takes, and pings its client meanwhile;
//! - leaves it in [`Ports::verdicts`](crate::Ports::verdicts) where it runs on the worker's thread, at once or in a later
//!   turn, and else tells it to the worker as the back end's do;
//! - need not know whether the client is still there: a verdict for a session that is gone, or for a question that is not
//!   waited for any more, is dropped;
//! - need not check what it says: channels, codes and users are looked at by the session, and what is no good counts as
//!   [`HookDecision::Failed`], with a line in the log.

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

/// What a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HookKind {
    /// Who a client is that has come without a token, and which channels it is given.
    Connect,
    /// Whether a connection whose time is over may stay.
    Refresh,
    /// Whether it may hear a channel.
    Subscribe,
    /// Whether it may still hear a channel.
    SubRefresh,
    /// Whether it may publish, and what.
    Publish,
    /// What a method gives.
    Rpc,
    /// What a client says without waiting for a reply: it learns nothing of the verdict, unless that closes it.
    Message,
    /// That a client is gone that was connected. Nothing comes of the verdict.
    Disconnect,
}

impl HookKind {
    /// All of them.
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

    /// Those that a back end can be asked about.
    pub const BACKEND_KINDS: [Self; 6] = [
        Self::Connect,
        Self::Refresh,
        Self::Subscribe,
        Self::SubRefresh,
        Self::Publish,
        Self::Rpc,
    ];

    /// As directives and metrics call it.
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

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookTarget {
    /// The back end, by HTTP.
    BackEnd(BackEndId),
    /// An application of this worker.
    App {
        /// Which.
        app: AppId,
        /// How long it may take, in milliseconds; 0: as long as it likes.
        timeout_ms: u64,
    },
}

/// A back end that decides on one kind of questions, by a number that the process has given it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackEndId(pub u32);

/// What an application decides on. This changes with its code, for connections that are there too.
#[derive(Debug)]
pub struct HookKinds(AtomicU8);

impl Default for HookKinds {
    /// All of them, so that nobody passes by an application whose code is not there yet.
    fn default() -> Self {
        Self(AtomicU8::new(u8::MAX))
    }
}

impl HookKinds {
    /// From now on it decides on these, and on no others.
    pub fn set(&self, kinds: impl Iterator<Item = HookKind>) {
        let bits = kinds.fold(0, |bits, kind| bits | Self::bit(kind));
        self.0.store(bits, Ordering::Relaxed);
    }

    /// Whether it decides on that.
    #[must_use]
    pub fn has(&self, kind: HookKind) -> bool {
        self.0.load(Ordering::Relaxed) & Self::bit(kind) != 0
    }

    fn bit(kind: HookKind) -> u8 {
        1 << kind as u8
    }
}

/// Who decides what on a route, and what it gets to see.
#[derive(Clone, Debug, Default)]
pub struct HookTargets {
    kinds: [Option<HookTarget>; HookKind::ALL.len()],
    app: Option<(HookTarget, Arc<HookKinds>)>,
    /// Lower-case names of the headers of the client's request that come with questions.
    pub headers: Vec<String>,
    /// Of those the ones that a client may also say in its connect command, since pages can't set headers of a WebSocket.
    /// What stands in the request itself counts.
    pub emulated: Vec<String>,
}

impl HookTargets {
    /// Has this one decide on that.
    pub fn set(&mut self, kind: HookKind, decider: HookTarget) {
        self.kinds[kind as usize] = Some(decider);
    }

    /// Has an application decide on these, before anybody else.
    pub fn set_app(&mut self, app: AppId, timeout_ms: u64, kinds: Arc<HookKinds>) {
        self.app = Some((HookTarget::App { app, timeout_ms }, kinds));
    }

    /// Who decides on that, if anybody.
    #[must_use]
    pub fn of(&self, kind: HookKind) -> Option<HookTarget> {
        let app = self.app.as_ref().filter(|(_, kinds)| kinds.has(kind));
        app.map_or(self.kinds[kind as usize], |(app, _)| Some(*app))
    }
}

/// Which question of a session; each has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HookRequestId(pub u32);

/// Something that is to be decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookRequest {
    /// Whose.
    pub session: ConnectionId,
    /// Which of its questions.
    pub id: HookRequestId,
    /// By whom.
    pub target: HookTarget,
    /// About what.
    pub kind: HookKind,
    /// Who asks.
    pub caller: Arc<HookCaller>,
    /// As whom it is known; empty if it is not.
    pub user: Box<str>,
    /// The channel, where it is about one.
    pub channel: Box<str>,
    /// The method, of [`HookKind::Rpc`].
    pub method: Box<str>,
    /// The token that came with the command, where the server itself has no use for tokens.
    pub token: Credential,
    /// What the client has sent along.
    pub data: Option<Payload>,
    /// The channels of which a client that comes back says that it was given them, of [`HookKind::Connect`].
    pub channels: Vec<Box<str>>,
    /// The code and the words with which it ended, of [`HookKind::Disconnect`].
    pub disconnect: Option<(u16, Box<str>)>,
}

/// A client, as far as it is the same for all that it asks.
#[derive(Clone, PartialEq, Eq)]
pub struct HookCaller {
    /// The connection's id.
    pub client: Box<str>,
    /// What carries its messages: `websocket`, `http_stream` or `sse`.
    pub transport: &'static str,
    /// What they are written in.
    pub encoding: Encoding,
    /// The kind of client, as it says, and its version.
    pub name: Box<str>,
    /// See `name`.
    pub version: Box<str>,
    /// Where it comes from.
    pub address: IpAddr,
    /// The chosen ones of its request, with lower-case names.
    pub headers: Vec<(Box<str>, Box<[u8]>)>,
    /// What the decider has said of the connection for itself.
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
    /// What the client says in place of headers, as far as it may and its request has not said it.
    pub(crate) fn add_headers(
        &mut self,
        chosen: &[String],
        said: &[(Cow<'_, str>, veche_centrifuge::SecretText<'_>)],
    ) {
        for (name, value) in said {
            let name = name.to_ascii_lowercase();
            let is_known = self.headers.iter().any(|(known, _)| **known == *name);
            if !is_known && chosen.contains(&name) {
                self.headers.push((name.into(), value.as_bytes().into()));
            }
        }
    }
}

impl fmt::Debug for HookCaller {
    /// Headers hold what is nobody's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker")
            .field("client", &self.client)
            .field("transport", &self.transport)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// A token. It shows itself to nobody.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credential(pub Box<str>);

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookDecision {
    /// So be it.
    Granted(Box<HookGrant>),
    /// The command fails, and the client is told this.
    Error {
        /// From 1; an application's own from 400 on.
        code: u32,
        /// For people.
        message: Box<str>,
        /// Whether the same command may succeed later.
        is_temporary: bool,
    },
    /// The client is closed.
    Disconnect {
        /// From 3000 to 4999, an application's own from 4000 on. SDKs come back but for 3500 to 3999 and 4500 to 4999.
        code: u16,
        /// For people; at most 123 bytes reach the client.
        reason: Box<str>,
    },
    /// Nobody knows: the command fails with error 100, which is temporary.
    Failed,
}

/// What is granted; each kind has its own fields, the others mean nothing to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookGrant {
    /// [`HookKind::Connect`]: who it is; empty for nobody.
    pub user: Box<str>,
    /// Until when it holds, in seconds since 1970; `None`: for ever. Of connections and subscriptions.
    pub expires_at_s: Option<u64>,
    /// Of refreshes: it does not hold any more.
    pub is_expired: bool,
    /// Of the client, for others to see: of the connection, or in the channel.
    pub info: Option<Payload>,
    /// What the client is told; [`HookKind::Publish`]: what is published in place of what it has sent.
    pub data: Option<Payload>,
    /// [`HookKind::Connect`]: channels that it is given.
    pub channels: Vec<HookSubscription>,
    /// [`HookKind::Connect`]: comes back with each further question of the connection.
    pub meta: Option<Payload>,
    /// [`HookKind::Publish`]: it is not kept.
    pub skips_history: bool,
}

/// A channel that a client is given as it connects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookSubscription {
    /// Which.
    pub channel: Box<str>,
    /// Of the client in it, for others to see.
    pub info: Option<Payload>,
    /// What the client is told.
    pub data: Option<Payload>,
    /// Until when it is, in seconds since 1970; `None`: for ever.
    pub expires_at_s: Option<u64>,
}

/// What clients can be told as JSON: one value of it. `None` for what is none, or is nested too deep.
#[must_use]
pub fn json(text: &str) -> Option<Payload> {
    is_json(text).then(|| Payload {
        kind: PayloadKind::Json,
        bytes: Bytes::copy_from_slice(text.as_bytes()),
    })
}

/// What clients can be told as bytes. JSON is known as such, so that clients that speak JSON can be told it too.
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
    fn an_application_decides_before_the_back_end_on_what_it_has_handlers_for() {
        let kinds = Arc::new(HookKinds::default());
        let mut deciders = HookTargets::default();
        let by_back_end = HookTarget::BackEnd(BackEndId(1));
        deciders.set(HookKind::Rpc, by_back_end);
        deciders.set(HookKind::Connect, by_back_end);
        let (app, timeout_ms) = (AppId(7), 1000);
        deciders.set_app(app, timeout_ms, Arc::clone(&kinds));
        let of = |deciders: &HookTargets| HookKind::ALL.map(|kind| deciders.of(kind));
        let (none, back_end) = (None, Some(by_back_end));
        let by_app = Some(HookTarget::App { app, timeout_ms });
        assert_eq!(of(&deciders), [by_app; 8]);
        kinds.set(std::iter::empty());
        let expected = [back_end, none, none, none, none, back_end, none, none];
        assert_eq!(of(&deciders), expected);
        kinds.set([HookKind::Rpc, HookKind::Message].into_iter());
        let expected = [back_end, none, none, none, none, by_app, by_app, none];
        assert_eq!(of(&deciders), expected);
        kinds.set(HookKind::ALL.into_iter());
        assert_eq!(of(&deciders), [by_app; 8]);
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

    fn asker(chosen: &[&str]) -> HookCaller {
        let request = b"GET / HTTP/1.1\r\nHost: a\r\nCookie: c=1\r\nX-Custom: from the request\r\n\
                        X-Other: not chosen\r\n\r\n";
        let head = veche_proto::http::parse_head(request, &Default::default()).expect("a head");
        let chosen: Vec<String> = chosen.iter().map(|&name| name.to_owned()).collect();
        HookCaller::new("websocket", Encoding::Protobuf, &head, &chosen)
    }

    fn header<'a>(asker: &'a HookCaller, name: &str) -> Vec<&'a [u8]> {
        let headers = asker.headers.iter();
        let of_name = headers.filter(|(one, _)| **one == *name);
        of_name.map(|(_, value)| &**value).collect()
    }

    #[test]
    fn only_chosen_headers_are_told_and_those_of_the_request_come_first() {
        let mut asker = asker(&["cookie", "x-custom", "x-said"]);
        assert_eq!(asker.headers.len(), 2, "{:?}", asker.headers);
        assert_eq!(header(&asker, "cookie"), [b"c=1"]);
        assert_eq!(header(&asker, "x-custom"), [b"from the request"]);
        assert_eq!(
            (asker.transport, asker.encoding, &*asker.client),
            ("websocket", Encoding::Protobuf, "")
        );
        let chosen = ["x-custom", "x-said"].map(str::to_owned);
        let said = [
            ("X-Custom", "from the client"),
            ("X-Said", "once"),
            ("x-said", "twice"),
            ("Cookie", "c=2"),
            ("X-Other", "not chosen"),
        ];
        let said = said.map(|(name, value)| {
            (
                Cow::from(name),
                veche_centrifuge::SecretText(Cow::from(value)),
            )
        });
        asker.add_headers(&chosen, &said);
        assert_eq!(header(&asker, "x-custom"), [b"from the request"]);
        assert_eq!(header(&asker, "x-said"), [b"once"]);
        assert_eq!(header(&asker, "cookie"), [b"c=1"]);
        assert_eq!(asker.headers.len(), 3, "{:?}", asker.headers);
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!("{:?}", asker(&["cookie"]));
        assert!(
            shown.contains("websocket") && !shown.contains("c=1"),
            "{shown}"
        );
        let credential = Credential("a.secret.token".into());
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
