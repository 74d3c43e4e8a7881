//! A route: which handler answers a path, for whom, and within which limits.
//!
//! It knows names and rules only; finding the route of a request is the [`Router`]'s part, what a handler does is in
//! files of its own.

mod headers;
mod router;

use std::path::PathBuf;
use std::sync::Arc;

use veche_hub::{Audience, EntryRequirement, Namespaces};
use veche_proto::websocket;
use veche_types::AppId;

use crate::context::access::NetworkRules;
use crate::context::delivery_mode::{DeliveryMode, DropPolicy};
use crate::context::files::ContentCoding;
use crate::context::hooks::{HookKind, HookTarget, HookTargets};
use crate::context::identity::Identity;
use crate::context::origin;
use crate::context::protocol::ClientProtocol;
use crate::context::rate_limiter::RateLimits;

pub use headers::{HeaderError, RouteHeaders};
pub use router::{RouteMatch, Router};

/// What a route leads to, with that handler's own options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteHandler {
    /// Sessions of a client protocol.
    Session(&'static ClientProtocol),
    /// Files below `root`.
    Static {
        /// A folder, or `builtin:NAME` for files embedded in the binary.
        root: PathBuf,
        /// The codings in which files may lie prepared, the preferred one first; each at most once.
        variants: Vec<ContentCoding>,
    },
    /// The back end's HTTP API and its WebSocket.
    Api,
    /// An application: WebSockets and plain HTTP.
    Lua {
        /// Which.
        app: AppId,
        /// How long it may take to answer a request, and from part to part of a response; 0 for as long as it likes.
        request_timeout_ms: u64,
    },
    /// The operator's page, and what it calls.
    Admin,
    /// `GET /health`.
    Health,
    /// `GET /metrics`.
    Metrics,
}

impl RouteHandler {
    /// Whether the handler also takes what lies below its path, without a `/*` at the end.
    pub fn takes_subtree(&self) -> bool {
        matches!(self, Self::Static { .. } | Self::Api | Self::Admin)
    }

    /// Whether a WebSocket may be opened here.
    pub fn takes_websocket(&self) -> bool {
        matches!(self, Self::Session(_) | Self::Api | Self::Lua { .. })
    }

    /// The application that it leads to.
    pub(crate) fn app(&self) -> Option<AppId> {
        match self {
            Self::Lua { app, .. } => Some(*app),
            _ => None,
        }
    }
}

/// One `[[route]]`, checked.
#[derive(Clone, Debug)]
pub struct Route {
    /// As written: `/ws`, `/room/:id`, `/app/*`.
    pub path: String,
    /// Upper-case methods; empty for any that the handler knows.
    pub methods: Vec<String>,
    /// Where it leads.
    pub handler: RouteHandler,
    /// Headers that its answers have in addition, if it leads to files or an application. Answers that open a WebSocket have
    /// none of them.
    pub headers: Option<Arc<RouteHeaders>>,
    /// Who the client is.
    pub identity: Identity,
    /// Channel patterns that a client may ask for by `?channel=`: a name, or a beginning and `*`.
    pub channels: Vec<String>,
    /// Whose requests are answered here, by the client's address.
    pub networks: NetworkRules,
    /// Whose pages may open a WebSocket here.
    pub origins: Vec<origin::OriginCheck>,
    /// What is answered to an offer of permessage-deflate; `Never` refuses it.
    pub compression: Option<websocket::deflate::DeflatePolicy>,
    /// Limits of a client's message.
    pub message_limits: websocket::MessageLimits,
    /// How fast a client may speak; `Never`: as fast as it is worked on.
    pub rate_limits: Option<RateLimits>,
    /// What a client gets that reads too slowly for all; `Never`: it is closed.
    pub drop_policy: Option<DropPolicy>,
    /// Clients are told the place of each publication, and may come back with it. Not beside `drop_policy`.
    pub has_positions: bool,
    /// Who decides on commands of Centrifuge clients; `Never`: the server itself.
    pub hook_targets: Option<Arc<HookTargets>>,
}

impl Route {
    /// Returns what decides on this kind of questions for clients of the route, if anything does.
    pub(crate) fn hook_target(&self, kind: HookKind) -> Option<HookTarget> {
        let deciders = self.hook_targets.as_deref();
        deciders.and_then(|deciders| deciders.of(kind))
    }

    /// What sessions of this route get of what is published to them.
    pub(crate) fn delivery_mode(&self) -> DeliveryMode {
        match (self.has_positions, self.drop_policy) {
            (true, _) => DeliveryMode::WithPositions,
            (false, None) => DeliveryMode::Reliable,
            (false, Some(keeping)) => DeliveryMode::Lossy(keeping),
        }
    }

    /// Whether `?channel=name` may be allowed here to some user.
    pub(crate) fn lists_channel(&self, name: &str) -> bool {
        self.channels
            .iter()
            .any(|pattern| accepts_handshake(pattern, name))
    }

    /// Whether `?channel=name` is allowed here to a user, `""` for an anonymous one: by a pattern where the name leaves
    /// that to patterns, else by the whole name.
    pub fn allows_channel(&self, name: &str, user: &str, namespaces: &Namespaces) -> bool {
        match Audience::of(name, namespaces).entry_requirement(user) {
            EntryRequirement::AnyGrant => self.lists_channel(name),
            EntryRequirement::NamedGrant => self.channels.iter().any(|pattern| pattern == name),
            EntryRequirement::Never => false,
        }
    }
}

/// Whether a pattern, a name or a beginning and `*`, means a channel.
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
