//! `[hooks]` and `hooks` of routes, checked: the URLs that decide on clients' commands.

use std::path::PathBuf;
use std::time::Duration;

use veche_calls::SecretUrl;
use veche_frontends::hooks::HookKind;

use super::secret::SecretValue;
use super::types::{Config, RouteHandler};

/// How the back end is asked. Without any URL it is not, and an application decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HooksConfig {
    /// By kind; `None`: that is not asked.
    pub urls: [Option<SecretUrl>; HookKind::ALL.len()],
    /// From the question to the whole answer.
    pub timeout: Duration,
    /// What requests are signed with; with none they are not.
    pub secrets: Vec<SecretValue>,
    /// The files that some of them were read from.
    pub files: Vec<PathBuf>,
    /// Headers of the client's request that are passed on, in small letters.
    pub headers: Vec<String>,
    /// Those that it may say in its connect command.
    pub client_headers: Vec<String>,
    /// Requests of one kind to the back end at a time; further ones queue.
    pub concurrency: u32,
    /// Questions of one kind that may wait for answers.
    pub waiting: u32,
    /// As of [`IdentityHook::failures`](super::IdentityHook::failures).
    pub failures: u32,
    /// How long the back end is left alone after errors.
    pub pause: Duration,
    /// As of [`Published::ca`](super::Published::ca).
    pub ca: Option<PathBuf>,
}

/// What `hooks` of a route says about one kind of questions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RouteHook {
    /// `[hooks]` applies.
    #[default]
    Inherited,
    /// That is not asked.
    Off,
    /// That is asked at this URL instead.
    At(SecretUrl),
}

/// The `hooks` of a route, indexed by [`HookKind`].
pub(crate) type RouteHooks = [RouteHook; HookKind::ALL.len()];

impl Config {
    /// Returns the URL that is asked a kind of questions by clients of a route.
    pub fn hook_url<'c>(&'c self, route: &'c RouteHooks, kind: HookKind) -> Option<&'c SecretUrl> {
        match &route[kind as usize] {
            RouteHook::Inherited => self.hooks.as_ref()?.url(kind),
            RouteHook::Off => None,
            RouteHook::At(url) => Some(url),
        }
    }

    /// Returns all URLs that are asked, each with the kind of questions; one may come several times.
    pub fn hook_urls(&self) -> impl Iterator<Item = (HookKind, &SecretUrl)> {
        let of_routes = self.routes.iter().filter_map(|route| match &route.handler {
            RouteHandler::Session {
                protocol, hooks, ..
            } => protocol.accepts_method("hooks").then_some(hooks),
            _ => None,
        });
        let of_kinds =
            |hooks| HookKind::BACKEND_KINDS.map(|kind| Some((kind, self.hook_url(hooks, kind)?)));
        of_routes.flat_map(of_kinds).flatten()
    }
}

impl HooksConfig {
    /// Where that is asked.
    pub fn url(&self, kind: HookKind) -> Option<&SecretUrl> {
        self.urls[kind as usize].as_ref()
    }
}
