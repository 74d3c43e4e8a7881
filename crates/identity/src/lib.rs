//! The external sources of client identity: token keys of issuers, identity hooks of back ends, and
//! passwords checked by PAM.
//!
//! All workers share these sources. Requests never block a worker; results are delivered to its
//! [`CompletionSink`](veche_frontends::identity::CompletionSink) from a thread of the outbound
//! crate or of the helper pool. State (keys, answers, breakers) survives a reload while its
//! configuration is unchanged. PAM's answers do not survive a reload, since PAM's rules may have
//! changed.
//!
//! The crate handles keys, logins, requests to identity hooks, and the caching of their answers. It
//! depends neither on workers nor on how the front ends handle the requests of clients.

#![forbid(unsafe_code)]

mod brute_force_limit;
mod cache;
mod hook;
mod keyring;
mod metrics;
mod pam;
mod pending_lookups;
mod revoked_sessions;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::error;
use veche_calls::SecretUrl;
use veche_clock::now;
use veche_config::{self as config, Config};
use veche_frontends::identity::token::{Anonymous, TokenAuth, TokenVerifier};
use veche_frontends::identity::{Identity, basic::PasswordVerifier, hook::IdentityBackend};
use veche_jwt::Keys;
use veche_outbound::Outbound;
use veche_pam::PamService;

pub use brute_force_limit::BruteForceLimit;
use hook::HookBackend;
use keyring::Keyring;
pub use metrics::{IdentityMetrics, LookupOutcome};
use pam::{PamContext, PasswordService};
use revoked_sessions::RevokedSessions;

/// The target of this module's log lines.
const TARGET: &str = "veche::identity";

/// The interval between checks for keys that must be refreshed.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// All identity providers of the process.
#[derive(Debug, Default)]
pub struct IdentityProviders {
    outbound: Outbound,
    figures: Arc<IdentityMetrics>,
    ended: Arc<RevokedSessions>,
    kept: Mutex<ProviderState>,
}

#[derive(Debug, Default)]
struct ProviderState {
    tokens: Option<TokenAuth>,
    /// The keys of connection tokens; then the keys of subscription tokens, if they are separate.
    keyrings: [Option<Arc<Keyring>>; 2],
    /// The identity hooks by URL.
    hooks: HashMap<SecretUrl, Arc<HookBackend>>,
    /// PAM; `None` if no route uses it.
    pam: Option<Arc<PamContext>>,
    passwords: HashMap<PamService, Arc<PasswordService>>,
}

impl IdentityProviders {
    /// Creates the providers, which send their requests through `outbound`.
    pub fn new(outbound: Outbound) -> Self {
        Self {
            outbound,
            ..Self::default()
        }
    }

    /// Reads the configured keys. If that fails, all tokens are rejected until the keys are valid.
    pub fn begin(&self, config: &Config) {
        let keys = self.read(config).unwrap_or_else(|why| {
            error!(target: TARGET, "jwt: no tokens can be verified: {why}");
            [None, None]
        });
        self.reload(config, keys);
    }

    /// Reads the keys for connection tokens and for subscription tokens from a new configuration;
    /// `None` where there are no keys to read.
    ///
    /// # Errors
    /// The keys can't be read. The message tells the administrator what to do.
    pub fn read(&self, config: &Config) -> Result<[Option<Keys>; 2], String> {
        let [connections, subscriptions] = sections_of(config).map(|jwt| match jwt {
            Some(jwt) => jwt.read(),
            None => Ok(None),
        });
        Ok([connections?, subscriptions?])
    }

    /// Applies a new configuration with the keys that were read.
    pub fn reload(&self, config: &Config, keys: [Option<Keys>; 2]) {
        let mut kept = self.kept.lock();
        let sections = sections_of(config).into_iter().zip(keys);
        for (place, (jwt, keys)) in sections.enumerate() {
            let Some(jwt) = jwt else {
                kept.keyrings[place] = None;
                continue;
            };
            let before = kept.keyrings[place].take_if(|before| before.matches(jwt));
            let keyring =
                before.unwrap_or_else(|| Keyring::new(jwt, &self.outbound, &self.figures));
            if let Some(keys) = keys {
                keyring.set_keys(keys);
            }
            kept.keyrings[place] = Some(keyring);
        }
        kept.set_tokens(config);
        drop(kept);
        self.reload_hooks(config);
        self.reload_passwords(config);
        self.fetch_due_keys();
    }

    fn reload_hooks(&self, config: &Config) {
        let urls = identities_of(config).filter_map(|identity| match identity {
            config::IdentitySource::Hook(url) => Some(url),
            _ => None,
        });
        let mut kept = self.kept.lock();
        let mut hooks = HashMap::new();
        for url in urls {
            let before = kept.hooks.remove(url);
            let hook = before.filter(|before| before.matches(&config.identity_hook));
            let hook = hook.unwrap_or_else(|| {
                let asks = (&self.outbound, &self.figures, &self.ended);
                HookBackend::new(url, &config.identity_hook, asks)
            });
            hooks.entry(url.clone()).or_insert(hook);
        }
        kept.hooks = hooks;
    }

    fn reload_passwords(&self, config: &Config) {
        let mut services = identities_of(config)
            .filter_map(|identity| match identity {
                config::IdentitySource::Pam(service) => Some(service),
                _ => None,
            })
            .peekable();
        let mut kept = self.kept.lock();
        kept.passwords.clear();
        if services.peek().is_none() {
            kept.pam = None;
            return;
        }
        let before = kept.pam.take().filter(|before| before.matches(&config.pam));
        let pam = before.unwrap_or_else(|| PamContext::new(&config.pam, &self.figures));
        for service in services {
            let passwords = kept.passwords.entry(service.clone());
            passwords.or_insert_with(|| PasswordService::new(service, &pam, &self.ended));
        }
        kept.pam = Some(pam);
    }

    /// Refreshes the published key sets that are due. Returns the time of the next check; `None` if
    /// no issuer publishes keys.
    pub fn fetch_due_keys(&self) -> Option<Instant> {
        let keyrings = self.kept.lock().keyrings.clone();
        let published = keyrings.iter().flatten();
        let mut published = published
            .filter(|keyring| keyring.is_published())
            .peekable();
        published.peek()?;
        published.for_each(|keyring| keyring.fetch_if_due());
        Some(now() + LOOK_EVERY)
    }

    /// Returns the provider of a route's identity; `None` if the configuration in use has no such provider.
    pub fn identity(&self, identity: &config::IdentitySource) -> Option<Identity> {
        let kept = self.kept.lock();
        match identity {
            config::IdentitySource::Token(anonymous) => {
                let tokens = kept.tokens.clone()?;
                Some(Identity::Token(Arc::new(TokenAuth {
                    anonymous: *anonymous,
                    ..tokens
                })))
            }
            config::IdentitySource::Hook(url) => {
                let hook = kept.hooks.get(url)?;
                Some(Identity::Hook(Arc::clone(hook) as Arc<dyn IdentityBackend>))
            }
            config::IdentitySource::Pam(service) => {
                let passwords = kept.passwords.get(service)?;
                Some(Identity::Basic(
                    Arc::clone(passwords) as Arc<dyn PasswordVerifier>
                ))
            }
            _ => None,
        }
    }

    /// Fails handshakes whose requests are queued for a back end. The process is draining, so it would reject these
    /// handshakes even after a response from the back end.
    pub fn refuse_queued(&self) {
        let back_ends: Vec<_> = self.kept.lock().hooks.values().cloned().collect();
        for back_end in back_ends {
            back_end.refuse_queued();
        }
    }

    /// Returns the sessions that the back end has ended.
    pub fn revoked_sessions(&self) -> &RevokedSessions {
        &self.ended
    }

    /// Returns the counters for `/metrics`.
    pub fn metrics(&self) -> &Arc<IdentityMetrics> {
        &self.figures
    }

    /// Returns the number of keys in use and the number of suspended back ends.
    pub fn state(&self) -> (usize, usize) {
        let kept = self.kept.lock();
        let keyrings = kept.keyrings.iter().flatten();
        let keys = keyrings.map(|keyring| keyring.count()).sum();
        let broken = kept.hooks.values().filter(|hook| hook.is_suspended());
        (keys, broken.count())
    }
}

/// Returns the identity sources of all routes.
fn identities_of(config: &Config) -> impl Iterator<Item = &config::IdentitySource> {
    config
        .routes
        .iter()
        .filter_map(|route| route.handler.identity())
}

/// Returns the configuration sections for connection tokens and for subscription tokens.
fn sections_of(config: &Config) -> [Option<&config::JwtConfig>; 2] {
    [config.jwt.as_ref(), config.subscription_jwt.as_ref()]
}

impl ProviderState {
    fn set_tokens(&mut self, config: &Config) {
        let verifiers = sections_of(config).into_iter().zip(&self.keyrings);
        let mut verifiers = verifiers.map(|(jwt, keyring)| {
            Some(TokenVerifier {
                rules: jwt?.rules.clone(),
                keys: Arc::clone(keyring.as_ref()?) as _,
            })
        });
        let (connections, subscriptions) = (verifiers.next(), verifiers.next());
        self.tokens = connections.flatten().map(|connections| TokenAuth {
            sources: config
                .jwt
                .as_ref()
                .map_or_else(Vec::new, |jwt| jwt.places.clone()),
            connections,
            subscriptions: subscriptions.flatten(),
            anonymous: Anonymous::None,
        });
    }
}
