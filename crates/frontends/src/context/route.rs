//! A route: the handler of a path, its access rules and limits.
//!
//! [`Router`] finds the route of a request. Handlers are implemented in other modules.

mod headers;
mod router;

use std::path::PathBuf;
use std::sync::Arc;

use veche_hub::{Audience, EntryRequirement, Namespaces};
use veche_proto::websocket;
use veche_types::AppId;

use crate::context::access::NetworkRules;
use crate::context::files::ContentCoding;
use crate::context::hooks::{HookKind, HookTarget, HookTargets};
use crate::context::identity::Identity;
use crate::context::origin;
use crate::context::protocol::ClientProtocol;
use crate::context::rate_limiter::RateLimits;
use crate::outbox::delivery_mode::{DeliveryMode, DropPolicy};

pub use headers::{HeaderError, RouteHeaders};
pub use router::{RouteMatch, Router};

/// The handler of a route with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteHandler {
    /// Sessions of this client protocol.
    Session(&'static ClientProtocol),
    /// Static files below `root`.
    Static {
        /// A folder, or `builtin:NAME` for embedded files.
        root: PathBuf,
        /// Codings of precompressed files in order of preference, without duplicates.
        variants: Vec<ContentCoding>,
    },
    /// The back end's HTTP API and its WebSocket.
    Api,
    /// An application, which handles WebSockets and HTTP requests.
    App {
        /// The id of the application.
        app: AppId,
        /// Time limit for a response and between parts of a response, in milliseconds; 0: none.
        request_timeout_ms: u64,
    },
    /// The admin page and its calls.
    Admin,
    /// The readiness check, `GET /health`.
    Health,
    /// The metrics, `GET /metrics`.
    Metrics,
}

impl RouteHandler {
    /// Returns whether the handler serves all paths below the route's path, even if the route's path does not end in
    /// `/*`.
    pub fn takes_subtree(&self) -> bool {
        matches!(self, Self::Static { .. } | Self::Api | Self::Admin)
    }

    /// Returns whether WebSockets may be opened on the route.
    pub fn takes_websocket(&self) -> bool {
        matches!(self, Self::Session(_) | Self::Api | Self::App { .. })
    }

    /// Returns the application that handles the route, if any.
    pub(crate) fn app(&self) -> Option<AppId> {
        match self {
            Self::App { app, .. } => Some(*app),
            _ => None,
        }
    }
}

/// A validated `[[route]]` of the configuration.
#[derive(Clone, Debug)]
pub struct Route {
    /// The path as configured: `/ws`, `/room/:id`, `/app/*`.
    pub path: String,
    /// Upper-case HTTP methods; empty: all that the handler supports.
    pub methods: Vec<String>,
    /// The handler of the route's requests.
    pub handler: RouteHandler,
    /// Headers added to responses of files and applications, but not to the response that opens a WebSocket.
    pub headers: Option<Arc<RouteHeaders>>,
    /// How the user is determined.
    pub identity: Identity,
    /// The channels that `?channel=` may name: each pattern is a channel name, or a prefix and `*`.
    pub channels: Vec<String>,
    /// Rules for client addresses.
    pub networks: NetworkRules,
    /// Rules for origins of pages that open a WebSocket.
    pub origins: Vec<origin::OriginCheck>,
    /// How offers of permessage-deflate are answered; `None`: compression is declined.
    pub compression: Option<websocket::deflate::DeflatePolicy>,
    /// Limits on a client's messages.
    pub message_limits: websocket::MessageLimits,
    /// Rate limits of each client; `None`: unlimited.
    pub rate_limits: Option<RateLimits>,
    /// How publications are dropped for clients that read too slowly; `None`: such clients are disconnected.
    pub drop_policy: Option<DropPolicy>,
    /// Whether clients receive the position of each publication and may recover from it. Only possible if
    /// `drop_policy` is `None`.
    pub has_positions: bool,
    /// Hook targets of Centrifuge clients; `None`: the server decides without hooks.
    pub hook_targets: Option<Arc<HookTargets>>,
}

impl Route {
    /// Returns the hook target of this kind for the route's clients, if any.
    pub(crate) fn hook_target(&self, kind: HookKind) -> Option<HookTarget> {
        let targets = self.hook_targets.as_deref();
        targets.and_then(|targets| targets.of(kind))
    }

    /// Returns how publications are delivered to sessions on this route.
    pub(crate) fn delivery_mode(&self) -> DeliveryMode {
        match (self.has_positions, self.drop_policy) {
            (true, _) => DeliveryMode::WithPositions,
            (false, None) => DeliveryMode::Reliable,
            (false, Some(drop_policy)) => DeliveryMode::Lossy(drop_policy),
        }
    }

    /// Returns whether one of the route's patterns matches the channel of `?channel=name`.
    pub(crate) fn lists_channel(&self, name: &str) -> bool {
        self.channels
            .iter()
            .any(|pattern| accepts_handshake(pattern, name))
    }

    /// Returns whether a user (`""` if anonymous) may subscribe to the channel `name` from `?channel=`. The channel's
    /// name determines whether a pattern with `*` is sufficient, or the route's list must contain the whole name.
    pub fn allows_channel(&self, name: &str, user: &str, namespaces: &Namespaces) -> bool {
        match Audience::of(name, namespaces).entry_requirement(user) {
            EntryRequirement::AnyGrant => self.lists_channel(name),
            EntryRequirement::NamedGrant => self.channels.iter().any(|pattern| pattern == name),
            EntryRequirement::Never => false,
        }
    }
}

/// Returns whether a pattern (a channel name, or a prefix and `*`) matches a channel.
fn accepts_handshake(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_allowed_by_pattern_as_far_as_their_names_let() {
        let mut r = Route {
            path: "/ws".to_owned(),
            methods: Vec::new(),
            handler: RouteHandler::Api,
            headers: None,
            identity: Identity::None,
            channels: vec![
                "news".into(),
                "room:*".into(),
                "vault:$1".into(),
                "vault:$9*".into(),
                "talk#ann".into(),
            ],
            networks: NetworkRules::default(),
            origins: vec![origin::OriginCheck::SameHost],
            compression: None,
            message_limits: websocket::MessageLimits {
                message_bytes_max: 1 << 16,
                fragments_max: 1024,
                inflate_ratio_max: 0,
            },
            rate_limits: None,
            drop_policy: None,
            has_positions: false,
            hook_targets: None,
        };
        let namespaces = Namespaces::new();
        for (name, user, allowed) in [
            ("news", "", true),
            ("news2", "", false),
            ("room:", "", true),
            ("room:7", "", true),
            ("room:$7", "ann", false),
            ("room:7#ann,bob", "ann", true),
            ("room:7#ann,bob", "eve", false),
            ("room:7#ann,bob", "", false),
            ("vault:$1", "", true),
            ("vault:$9", "", false),
            ("talk#ann", "ann", true),
            ("talk#ann", "eve", false),
            ("#ann", "ann", false),
        ] {
            let is_allowed = r.allows_channel(name, user, &namespaces);
            assert_eq!(is_allowed, allowed, "{name} {user}");
        }
        r.channels = vec!["*".into()];
        assert!(r.allows_channel("anything", "", &namespaces));
        assert!(!r.allows_channel("#ann", "ann", &namespaces));
    }
}
