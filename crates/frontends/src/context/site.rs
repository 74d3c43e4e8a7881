//! What the configuration says, as connections need it: listeners, routes, limits, keys.
//!
//! Plain values, checked before they come here. A reload makes a new [`Site`]; open sessions keep the
//! [`Route`] that they were opened on.

use std::borrow::Cow;
use std::sync::Arc;

use subtle::{ConditionallySelectable as _, ConstantTimeEq as _};
use veche_hub::Namespaces;
use veche_proto::http;

use crate::context::access::Access;
use crate::context::publishing::{Publisher, Publishing};
use crate::context::route::{Route, Router};
pub use crate::outbox::CHANNELS_PER_CLIENT_MAX;

/// What a listener's connections speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// HTTP and WebSocket, for browsers and phones.
    Public,
    /// HTTP and WebSocket, for the back end and the operator.
    Internal,
    /// One JSON object a line, for the back end.
    Push,
}

/// One listener.
#[derive(Clone, Debug)]
pub struct Listener {
    /// What it speaks.
    pub role: Role,
    /// Whether what is spoken there is sealed by TLS.
    pub is_tls: bool,
    /// Who may come.
    pub access: Access,
    /// Its routes; empty for [`Role::Push`].
    pub router: Router,
}

/// Limits of every connection. Times are in milliseconds; 0 turns one off where the field says so.
#[derive(Clone, Debug)]
pub struct Limits {
    /// From the first byte of a request, or the accept, to the end of its head.
    pub header_timeout_ms: u64,
    /// From the accept to an open session or the first complete request.
    pub handshake_timeout_ms: u64,
    /// From the end of a request's head to the end of its body.
    pub body_timeout_ms: u64,
    /// Between two requests of a kept-alive connection.
    pub idle_timeout_ms: u64,
    /// Without a message either way on an open session; 0: for ever, as long as it answers pings.
    pub session_idle_timeout_ms: u64,
    /// Without progress while bytes wait to be sent.
    pub write_timeout_ms: u64,
    /// Silence of an open session after which a ping is sent; 0: never.
    pub ping_interval_ms: u64,
    /// Silence after that ping after which the connection is closed.
    pub pong_timeout_ms: u64,
    /// Waiting for the peer's part of a close.
    pub close_timeout_ms: u64,
    /// WebSockets that one user may have; 0: as many as he likes.
    pub connections_per_user: u32,
    /// Channels that one client of Centrifugo's protocol may be subscribed to; at most [`CHANNELS_PER_CLIENT_MAX`].
    pub channels_per_client: usize,
    /// The longest name of a channel that such a client may subscribe to, in bytes.
    pub channel_name_bytes_max: usize,
    /// Longest line of a push listener, in bytes.
    pub line_bytes_max: usize,
    /// Limits of request heads and bodies.
    pub http: http::Limits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_timeout_ms: 10_000,
            handshake_timeout_ms: 15_000,
            body_timeout_ms: 30_000,
            idle_timeout_ms: 75_000,
            session_idle_timeout_ms: 0,
            write_timeout_ms: 30_000,
            ping_interval_ms: 25_000,
            pong_timeout_ms: 10_000,
            close_timeout_ms: 5_000,
            connections_per_user: 0,
            channels_per_client: 128,
            channel_name_bytes_max: veche_hub::NAME_BYTES_MAX,
            line_bytes_max: 1 << 20,
            http: http::Limits::default(),
        }
    }
}

/// The whole of it.
pub struct Site {
    /// By the transport's listener number.
    pub listeners: Vec<Listener>,
    /// By the index that routers give.
    pub routes: Vec<Arc<Route>>,
    /// Of every connection.
    pub limits: Limits,
    /// Keys of the back end's API.
    pub api_keys: Vec<ApiKey>,
    /// Keys of the admin page; without any nobody has one.
    pub admin_keys: Vec<ApiKey>,
    /// Calls of the API may have fields that it does not know.
    pub accepts_unknown_fields: bool,
    /// What their callers may publish.
    pub publishing: Publishing,
    /// What channels remember.
    pub namespaces: Arc<Namespaces>,
    /// What they all may take for that, in bytes; each worker has its part.
    pub history_bytes_max: usize,
    /// How many publications one answer has at most.
    pub history_answer_max: usize,
}

/// A secret that opens the API. It shows itself to nobody.
#[derive(Clone)]
pub struct ApiKey(Box<[u8]>);

impl ApiKey {
    /// Takes a key.
    pub fn new(key: &str) -> Self {
        Self(key.as_bytes().into())
    }
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("ApiKey(…)")
    }
}

impl Site {
    /// Who calls the API; `None` if he may not go on.
    ///
    /// Every key is compared, each in constant time. Without any key only callers that are no browser may: the
    /// listener is on loopback then, and a foreign page that makes a browser call it is told by the headers that
    /// browsers add and pages can't leave out.
    pub fn publisher(&self, head: &http::Head<'_>) -> Option<Publisher> {
        if self.api_keys.is_empty() {
            let is_page = head.header_bytes("origin").is_some()
                || head.header_bytes("sec-fetch-site").is_some();
            return (!is_page).then(Publisher::default);
        }
        let mut shown = api_keys(head);
        // Of two keys one may be right, and the other from a proxy.
        match (shown.next(), shown.next()) {
            (Some(key), None) => number_of(&key, &self.api_keys).map(Publisher::with_key),
            _ => None,
        }
    }

    /// Whether a call of the admin page shows one of its keys.
    pub(crate) fn is_admin(&self, head: &http::Head<'_>) -> bool {
        let mut shown = key_headers(head);
        match (shown.next(), shown.next()) {
            (Some(key), None) => number_of(key, &self.admin_keys).is_some(),
            _ => false,
        }
    }
}

/// Returns all keys that a call of the API shows: in `X-API-Key`, and as Centrifugo's clients show them, in
/// `Authorization: apikey KEY` and as `api_key` in the query.
pub(crate) fn api_keys<'h>(head: &'h http::Head<'_>) -> impl Iterator<Item = Cow<'h, [u8]>> {
    let by_scheme = head.headers().filter_map(|(name, value)| {
        let is_authorization = name.eq_ignore_ascii_case("authorization");
        let (scheme, key) = value.split_at_checked(b"apikey ".len())?;
        let is_key = is_authorization && scheme.eq_ignore_ascii_case(b"apikey ");
        is_key.then(|| key.trim_ascii())
    });
    let by_query = head.query_all("api_key").map(|key| match key {
        Cow::Borrowed(key) => Cow::Borrowed(key.as_bytes()),
        Cow::Owned(key) => Cow::Owned(key.into_bytes()),
    });
    key_headers(head)
        .chain(by_scheme)
        .map(Cow::Borrowed)
        .chain(by_query)
}

fn key_headers<'h>(head: &'h http::Head<'_>) -> impl Iterator<Item = &'h [u8]> {
    let all = head.headers();
    all.filter_map(|(name, value)| name.eq_ignore_ascii_case("x-api-key").then_some(value))
}

/// Which of these keys this is.
fn number_of(given: &[u8], keys: &[ApiKey]) -> Option<u16> {
    // Counted from 1; 0 is none.
    let mut found = 0_u16;
    for (number, key) in (1..).zip(keys) {
        found.conditional_assign(&number, key.0.ct_eq(given));
    }
    found.checked_sub(1)
}
