//! The configuration of the front ends: listeners, routes, limits and keys.
//!
//! All values are plain data and validated. A reload creates a new [`FrontendConfig`]; open sessions keep the
//! [`Route`] on which they were opened.

use std::borrow::Cow;
use std::sync::Arc;

use subtle::{ConditionallySelectable as _, ConstantTimeEq as _};
use veche_hub::Namespaces;
use veche_proto::http;

use crate::context::access::ListenerAccess;
use crate::context::publish_limiter::{PublishLimiter, PublisherKey};
use crate::context::route::{Route, Router};
pub use crate::outbox::CHANNELS_PER_CLIENT_MAX;

/// The protocol of a listener's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerRole {
    /// HTTP and WebSocket, for browsers and phones.
    Public,
    /// HTTP and WebSocket, for the back end and the operator.
    Internal,
    /// One JSON object per line, for the back end.
    Push,
}

/// The configuration of one listener.
#[derive(Clone, Debug)]
pub struct FrontendListener {
    /// Protocol of the listener's connections.
    pub role: ListenerRole,
    /// Whether connections use TLS.
    pub is_tls: bool,
    /// The peers that may connect.
    pub access: ListenerAccess,
    /// The listener's routes; empty for [`ListenerRole::Push`].
    pub router: Router,
}

/// Limits that apply to every connection. Times are in milliseconds; 0 disables a limit only where its field says so.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// Time from the first byte of a request (from the accept for the first one) to the end of its head.
    pub header_timeout_ms: u64,
    /// Time from the accept to an open session or the first complete request.
    pub handshake_timeout_ms: u64,
    /// Time from the end of a request's head to the end of its body.
    pub body_timeout_ms: u64,
    /// Time between two requests of a kept-alive connection.
    pub idle_timeout_ms: u64,
    /// Time without a message in either direction on an open session; 0: unlimited, as long as the client answers
    /// pings.
    pub session_idle_timeout_ms: u64,
    /// Time after which a connection is closed if bytes wait to be sent and none is sent.
    pub write_timeout_ms: u64,
    /// Time without input on an open session after which a ping is sent; 0: never.
    pub ping_interval_ms: u64,
    /// Time from a ping until the connection is closed, unless input arrives.
    pub pong_timeout_ms: u64,
    /// Time to wait for the peer's Close frame and the end of the connection after the server has begun to close it.
    pub close_timeout_ms: u64,
    /// Maximum number of sessions per user (WebSockets and streaming responses); 0: unlimited.
    pub connections_per_user: u32,
    /// Maximum number of channels of a client of Centrifugo's protocol. This limit is at most
    /// [`CHANNELS_PER_CLIENT_MAX`].
    pub channels_per_client: usize,
    /// Maximum length in bytes of the name of a channel that a client of Centrifugo's protocol subscribes to.
    pub channel_name_bytes_max: usize,
    /// Maximum length of a line on a push listener, in bytes.
    pub line_bytes_max: usize,
    /// Limits of request heads and bodies.
    pub http: http::HeadLimits,
}

impl Default for ConnectionLimits {
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
            http: http::HeadLimits::default(),
        }
    }
}

/// The configuration of the front ends.
pub struct FrontendConfig {
    /// Listeners in the order of their indexes.
    pub listeners: Vec<FrontendListener>,
    /// The routes, by the index that routers return.
    pub routes: Vec<Arc<Route>>,
    /// Limits of every connection.
    pub limits: ConnectionLimits,
    /// Keys of the back end's API.
    pub api_keys: Vec<ApiKey>,
    /// Keys of the admin page. Without any key the page is disabled.
    pub admin_keys: Vec<ApiKey>,
    /// Whether API calls may have unknown fields; if false, such a call is an error.
    pub accepts_unknown_fields: bool,
    /// The rate limit of API publishers.
    pub publish_rate: PublishLimiter,
    /// Options of channels by namespace.
    pub namespaces: Arc<Namespaces>,
    /// Maximum memory for history in bytes, divided among the workers.
    pub history_bytes_max: usize,
    /// Maximum number of publications in one answer to a history query.
    pub history_answer_max: usize,
}

/// A secret that opens the API, masked in debug output.
#[derive(Clone)]
pub struct ApiKey(Box<[u8]>);

impl ApiKey {
    /// Creates a key from its text.
    pub fn new(key: &str) -> Self {
        Self(key.as_bytes().into())
    }
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("ApiKey(…)")
    }
}

impl FrontendConfig {
    /// Returns the caller of the API that the request's key identifies; `None` without a valid key.
    ///
    /// Every key is compared in constant time. Without configured keys, which is permitted only for listeners on
    /// loopback, any program except a browser may call. A call by a page is recognised by headers that browsers add and
    /// pages can't suppress.
    pub fn publisher(&self, head: &http::Head<'_>) -> Option<PublisherKey> {
        if self.api_keys.is_empty() {
            let is_page = head.header_bytes("origin").is_some()
                || head.header_bytes("sec-fetch-site").is_some();
            return (!is_page).then(PublisherKey::default);
        }
        let mut shown = api_keys(head);
        // With two keys it is unclear which one counts: a proxy may have added one of them.
        match (shown.next(), shown.next()) {
            (Some(key), None) => number_of(&key, &self.api_keys).map(PublisherKey::with_key),
            _ => None,
        }
    }

    /// Returns whether a call of the admin page has a valid key.
    pub(crate) fn is_admin(&self, head: &http::Head<'_>) -> bool {
        let mut shown = key_headers(head);
        match (shown.next(), shown.next()) {
            (Some(key), None) => number_of(key, &self.admin_keys).is_some(),
            _ => false,
        }
    }
}

/// Returns all keys that an API call contains. A key may be in `X-API-Key` or, as Centrifugo's clients send it, in
/// `Authorization: apikey KEY` or the query's `api_key`.
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

/// Returns the index of the configured key that is equal to the given one, if any.
fn number_of(given: &[u8], keys: &[ApiKey]) -> Option<u16> {
    // The index plus 1; 0 means that no key matches.
    let mut found = 0_u16;
    for (number, key) in (1..).zip(keys) {
        found.conditional_assign(&number, key.0.ct_eq(given));
    }
    found.checked_sub(1)
}
