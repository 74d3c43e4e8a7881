//! A route: which handler answers a path, for whom, and within which limits.
//!
//! It knows names and rules only; finding the route of a request is the [`Router`]'s part, what a handler does is in
//! files of its own.

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

/// What a route leads to, with that handler's own options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handler {
    /// Sessions of a client protocol.
    Session(&'static Protocol),
    /// Files below `root`.
    Static {
        /// A folder, or `builtin:NAME` for files embedded in the binary.
        root: PathBuf,
        /// The codings in which files may lie prepared, the preferred one first; each at most once.
        variants: Vec<Encoding>,
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

impl Handler {
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
    pub handler: Handler,
    /// Headers that its answers have in addition, if it leads to files or an application. Answers that open a WebSocket have
    /// none of them.
    pub headers: Option<Arc<Headers>>,
    /// Who the client is.
    pub identity: Identity,
    /// Channel patterns that a client may ask for by `?channel=`: a name, or a beginning and `*`.
    pub channels: Vec<String>,
    /// Whose requests are answered here, by the client's address.
    pub networks: Networks,
    /// Whose pages may open a WebSocket here.
    pub origins: Vec<origin::Rule>,
    /// What is answered to an offer of permessage-deflate; `None` refuses it.
    pub compression: Option<websocket::deflate::Policy>,
    /// Limits of a client's message.
    pub message_limits: websocket::Limits,
    /// How fast a client may speak; `None`: as fast as it is worked on.
    pub pacing: Option<Pacing>,
    /// What a client gets that reads too slowly for all; `None`: it is closed.
    pub keeping: Option<Keeping>,
    /// Clients are told the place of each publication, and may come back with it. Not beside `keeping`.
    pub has_positions: bool,
    /// Who decides on commands of Centrifuge clients; `None`: the server itself.
    pub deciders: Option<Arc<Deciders>>,
}

impl Route {
    /// Returns what decides on this kind of questions for clients of the route, if anything does.
    pub(crate) fn decider(&self, kind: Kind) -> Option<Decider> {
        let deciders = self.deciders.as_deref();
        deciders.and_then(|deciders| deciders.of(kind))
    }

    /// What sessions of this route get of what is published to them.
    pub(crate) fn hears(&self) -> Hears {
        match (self.has_positions, self.keeping) {
            (true, _) => Hears::Positions,
            (false, None) => Hears::Publications,
            (false, Some(keeping)) => Hears::Some(keeping),
        }
    }

    /// Whether `?channel=name` may be allowed here to some user.
    pub(crate) fn lists_channel(&self, name: &str) -> bool {
        self.channels.iter().any(|pattern| is_meant(pattern, name))
    }

    /// Whether `?channel=name` is allowed here to a user, `""` for an anonymous one: by a pattern where the name leaves
    /// that to patterns, else by the whole name.
    pub fn allows_channel(&self, name: &str, user: &str, namespaces: &Namespaces) -> bool {
        match Audience::of(name, namespaces).entry(user) {
            Entry::Any => self.lists_channel(name),
            Entry::ByName => self.channels.iter().any(|pattern| pattern == name),
            Entry::None => false,
        }
    }
}

/// Whether a pattern, a name or a beginning and `*`, means a channel.
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
