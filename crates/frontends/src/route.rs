//! A route: which handler answers a path, for whom, and within which limits.
//!
//! It knows names and rules only; finding the route of a request is the [`Router`]'s part, what a handler does is in
//! files of its own.

mod router;

use std::path::PathBuf;
use std::sync::Arc;

use veche_proto::websocket;

use crate::access::Networks;
use crate::app::AppId;
use crate::hooks::Deciders;
use crate::identity::Identity;
use crate::origin;
use crate::outbox::{Hears, Keeping};
use crate::pace::Pacing;

pub use router::{Found, Router};

/// What a route leads to, with that handler's own options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handler {
    /// Users and channels: what the back end pushes reaches the client.
    Push,
    /// Every message comes back to its sender.
    Echo,
    /// Files below `root`.
    Static {
        /// A folder, or `builtin:NAME` for files embedded in the binary.
        root: PathBuf,
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
    /// Clients of Centrifugo's protocol. By what they come is said by the last piece of their path.
    Centrifuge,
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
        matches!(
            self,
            Self::Push | Self::Echo | Self::Api | Self::Lua { .. } | Self::Centrifuge
        )
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
    /// What sessions of this route get of what is published to them.
    pub(crate) fn hears(&self) -> Hears {
        match (self.has_positions, self.keeping) {
            (true, _) => Hears::Positions,
            (false, None) => Hears::Publications,
            (false, Some(keeping)) => Hears::Some(keeping),
        }
    }

    /// Whether `?channel=name` is allowed here. Personal channels (`#user`) never are.
    pub fn allows_channel(&self, name: &str) -> bool {
        !name.starts_with('#')
            && self
                .channels
                .iter()
                .any(|pattern| match pattern.strip_suffix('*') {
                    Some(beginning) => name.starts_with(beginning),
                    None => name == pattern,
                })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_allowed_by_pattern_and_never_personal_ones() {
        let mut r = Route {
            path: "/ws".to_owned(),
            methods: Vec::new(),
            handler: Handler::Push,
            identity: Identity::None,
            channels: vec!["news".into(), "room:*".into()],
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
        for (name, allowed) in [
            ("news", true),
            ("news2", false),
            ("room:", true),
            ("room:7", true),
            ("#ann", false),
        ] {
            assert_eq!(r.allows_channel(name), allowed, "{name}");
        }
        r.channels = vec!["*".into()];
        assert!(r.allows_channel("anything") && !r.allows_channel("#ann"));
    }
}
