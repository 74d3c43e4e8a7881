//! The checked `[hooks]` section and `hooks` of routes: the URLs of the hooks that decide on clients' commands.

use std::path::PathBuf;
use std::time::Duration;

use veche_calls::SecretUrl;
use veche_frontends::hooks::HookKind;

use super::secret::SecretValue;
use super::types::{Config, RouteHandler};

/// The `[hooks]` section: hook requests to the back end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HooksConfig {
    /// The URL of each kind of hook; `None`: the back end gets no requests of the kind.
    pub urls: [Option<SecretUrl>; HookKind::ALL.len()],
    /// The time limit from the request to the complete response.
    pub timeout: Duration,
    /// The secrets that requests are signed with; empty for none.
    pub secrets: Vec<SecretValue>,
    /// The files that secrets were read from.
    pub files: Vec<PathBuf>,
    /// Client headers that are passed on, in lower case.
    pub headers: Vec<String>,
    /// Headers that a client may set in its connect command.
    pub client_headers: Vec<String>,
    /// Maximum number of concurrent requests of one kind; further requests are queued.
    pub concurrency: u32,
    /// Maximum number of requests of one kind that wait for a response.
    pub waiting: u32,
    /// The number of failures after which requests are suspended, as in
    /// [`IdentityHookConfig::failures`](super::IdentityHookConfig::failures).
    pub failures: u32,
    /// How long requests are suspended after failures.
    pub pause: Duration,
    /// The certificates to trust, as in [`PublishedKeySet::ca`](super::PublishedKeySet::ca).
    pub ca: Option<PathBuf>,
}

/// A route's setting for one kind of hook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RouteHook {
    /// The URL in `[hooks]` applies, if there is one.
    #[default]
    Inherited,
    /// The hook is disabled.
    Off,
    /// The route has its own URL for the hook.
    At(SecretUrl),
}

/// The `hooks` of a route, indexed by [`HookKind`].
pub(crate) type RouteHooks = [RouteHook; HookKind::ALL.len()];

impl Config {
    /// Returns the URL of a hook for clients of a route.
    pub fn hook_url<'c>(&'c self, route: &'c RouteHooks, kind: HookKind) -> Option<&'c SecretUrl> {
        match &route[kind as usize] {
            RouteHook::Inherited => self.hooks.as_ref()?.url(kind),
            RouteHook::Off => None,
            RouteHook::At(url) => Some(url),
        }
    }

    /// Returns the hooks of all routes: the route's [name](super::types::RouteConfig::name), the kind of hook, and the
    /// URL. A URL may occur several times.
    pub fn hook_urls(&self) -> impl Iterator<Item = (String, HookKind, &SecretUrl)> {
        let of_routes = self.routes.iter().filter_map(|route| match &route.handler {
            RouteHandler::Session {
                protocol, hooks, ..
            } => protocol
                .accepts_method("hooks")
                .then_some((route.name(), hooks)),
            _ => None,
        });
        let of_kinds = |(name, hooks): (String, _)| {
            HookKind::BACKEND_KINDS
                .map(|kind| Some((name.clone(), kind, self.hook_url(hooks, kind)?)))
        };
        of_routes.flat_map(of_kinds).flatten()
    }
}

impl HooksConfig {
    /// Returns the URL of a kind.
    pub fn url(&self, kind: HookKind) -> Option<&SecretUrl> {
        self.urls[kind as usize].as_ref()
    }
}
