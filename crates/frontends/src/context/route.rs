//! A route: the handler of a path, its access rules and limits.
//!
//! [`Router`] finds the route of a request; handlers are implemented elsewhere.

mod headers;
mod router;

use std::path::PathBuf;
use std::sync::Arc;

use veche_hub::{Audience, Entry, Namespaces};
use veche_proto::websocket;
use veche_types::AppId;

use crate::context::access::Networks;
use crate::context::files::Encoding;
use crate::context::hooks::{Decider, Deciders, Kind};
use crate::context::identity::Identity;
use crate::context::origin;
use crate::context::pace::Pacing;
use crate::context::protocol::Protocol;
use crate::outbox::hears::{Hears, Keeping};

pub use headers::{BadHeader, Headers};
pub use router::{Found, Router};

/// The handler of a route with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handler {
    /// Sessions of a client protocol.
    Session(&'static Protocol),
    /// Static files below `root`.
    Static {
        /// A folder, or `builtin:NAME` for embedded files.
        root: PathBuf,
        /// Codings of precompressed files in order of preference, without duplicates.
        variants: Vec<Encoding>,
    },
    /// The back end's HTTP API and its WebSocket.
    Api,
    /// An application: WebSockets and HTTP requests.
    Lua {
        /// The id of the application.
        app: AppId,
        /// Time limit for a response and between its parts, in milliseconds; 0: none.
        request_timeout_ms: u64,
    },
    /// The admin page and its calls.
    Admin,
    /// Readiness at `GET /health`.
    Health,
    /// Metrics at `GET /metrics`.
    Metrics,
}

impl Handler {
    /// Returns whether the handler also serves paths below its own, without `/*` at the end.
    pub fn takes_subtree(&self) -> bool {
        matches!(self, Self::Static { .. } | Self::Api | Self::Admin)
    }

    /// Returns whether WebSockets may be opened on the route.
    pub fn takes_websocket(&self) -> bool {
        matches!(self, Self::Session(_) | Self::Api | Self::Lua { .. })
    }

    /// Returns the application of the route.
    pub(crate) fn app(&self) -> Option<AppId> {
        match self {
            Self::Lua { app, .. } => Some(*app),
            _ => None,
        }
    }
}

/// A validated `[[route]]` of the configuration.
#[derive(Clone, Debug)]
pub struct Route {
    /// As written: `/ws`, `/room/:id`, `/app/*`.
    pub path: String,
    /// Upper-case methods; empty for all that the handler supports.
    pub methods: Vec<String>,
    /// The handler of its requests.
    pub handler: Handler,
    /// Headers added to responses of files and applications, except those that open a WebSocket.
    pub headers: Option<Arc<Headers>>,
    /// How the user is determined.
    pub identity: Identity,
    /// Channel patterns for `?channel=`: a name, or a prefix and `*`.
    pub channels: Vec<String>,
    /// Rules for client addresses.
    pub networks: Networks,
    /// Rules for origins of pages that open a WebSocket.
    pub origins: Vec<origin::Rule>,
    /// How offers of permessage-deflate are answered; `None` rejects them.
    pub compression: Option<websocket::deflate::Policy>,
    /// Limits on a client's messages.
    pub message_limits: websocket::Limits,
    /// Rate limits of clients; `None`: unlimited.
    pub pacing: Option<Pacing>,
    /// What happens with clients that read too slowly; `None`: they are disconnected.
    pub keeping: Option<Keeping>,
    /// Clients receive the position of each publication and may recover with it. Excludes `keeping`.
    pub has_positions: bool,
    /// Hook targets of Centrifuge clients; `None`: the server decides itself.
    pub deciders: Option<Arc<Deciders>>,
}

impl Route {
    /// Returns the hook target of this kind for the route's clients, if any.
    pub(crate) fn decider(&self, kind: Kind) -> Option<Decider> {
        let deciders = self.deciders.as_deref();
        deciders.and_then(|deciders| deciders.of(kind))
    }

    /// Returns how publications are delivered to sessions of this route.
    pub(crate) fn hears(&self) -> Hears {
        match (self.has_positions, self.keeping) {
            (true, _) => Hears::Positions,
            (false, None) => Hears::Publications,
            (false, Some(keeping)) => Hears::Some(keeping),
        }
    }

    /// Returns whether `?channel=name` is allowed for some user.
    pub(crate) fn lists_channel(&self, name: &str) -> bool {
        self.channels.iter().any(|pattern| is_meant(pattern, name))
    }

    /// Returns whether `?channel=name` is allowed for a user, `""` for an anonymous one: by a pattern if the name
    /// permits patterns, otherwise by the whole name.
    pub fn allows_channel(&self, name: &str, user: &str, namespaces: &Namespaces) -> bool {
        match Audience::of(name, namespaces).entry(user) {
            Entry::Any => self.lists_channel(name),
            Entry::ByName => self.channels.iter().any(|pattern| pattern == name),
            Entry::None => false,
        }
    }
}

/// Returns whether a pattern, a name or a prefix and `*`, matches a channel.
fn is_meant(pattern: &str, name: &str) -> bool {
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
            handler: Handler::Api,
            headers: None,
            identity: Identity::None,
            channels: vec![
                "news".into(),
                "room:*".into(),
                "vault:$1".into(),
                "vault:$9*".into(),
                "talk#ann".into(),
            ],
            networks: Networks::default(),
            origins: vec![origin::Rule::SameHost],
            compression: None,
            message_limits: websocket::Limits {
                message_bytes_max: 1 << 16,
                fragments_max: 1024,
                inflate_ratio_max: 0,
            },
            pacing: None,
            keeping: None,
            has_positions: false,
            deciders: None,
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
