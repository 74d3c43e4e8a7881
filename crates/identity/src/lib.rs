//! The identity of clients as far as it is determined elsewhere: token keys of issuers, identity hooks of back ends,
//! and passwords checked by PAM.
//!
//! Shared by all workers. Requests never block a worker; results are delivered to its
//! [`Desk`](veche_frontends::identity::Desk) from a thread of the outbound crate or of the helper pool. State (keys,
//! answers, breakers) survives a reload while its configuration is unchanged. PAM's answers do not, since its rules may
//! have changed.
//!
//! The crate knows keys, logins, requests to an identity hook and the caching of their answers. It does not know
//! clients' requests, which are in the front ends, or workers.

#![forbid(unsafe_code)]

mod cache;
mod ended;
mod figures;
mod guesses;
mod hook;
mod keyring;
mod pam;
mod questions;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::error;
use veche_calls::SecretUrl;
use veche_clock::now;
use veche_config::{self as config, Config};
use veche_frontends::identity::token::{Anonymous, Tokens, Verifier};
use veche_frontends::identity::{Identity, basic::Login, hook::Hook};
use veche_jwt::Keys;
use veche_outbound::Outbound;
use veche_pam::Service;

use ended::Ended;
pub use figures::{Asked, Figures};
pub use guesses::Guesses;
use hook::BackEnd;
use keyring::Keyring;
use pam::{Pam, Passwords};

/// The target of this module's log lines.
const TARGET: &str = "veche::identity";

/// The interval of checks for due keys.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// All identity providers of the process.
#[derive(Debug, Default)]
pub struct Identities {
    outbound: Outbound,
    figures: Arc<Figures>,
    ended: Arc<Ended>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    tokens: Option<Tokens>,
    /// The keys of connection tokens, and those of subscription tokens if they are separate.
    keyrings: [Option<Arc<Keyring>>; 2],
    /// The identity hooks by URL.
    hooks: HashMap<SecretUrl, Arc<BackEnd>>,
    /// PAM; `None` if no route uses it.
    pam: Option<Arc<Pam>>,
    passwords: HashMap<Service, Arc<Passwords>>,
}

impl Identities {
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
            error!(target: TARGET, "jwt: no token can be checked: {why}");
            [None, None]
        });
        self.reload(config, keys);
    }

    /// Reads the keys of a new configuration, of connection tokens and of subscription tokens; `None` for those without
    /// keys to read.
    ///
    /// # Errors
    /// The keys can't be read, as an actionable line.
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
            let before = kept.keyrings[place].take_if(|before| before.is_of(jwt));
            let keyring =
                before.unwrap_or_else(|| Keyring::new(jwt, &self.outbound, &self.figures));
            if let Some(keys) = keys {
                keyring.set(keys);
            }
            kept.keyrings[place] = Some(keyring);
        }
        kept.set_tokens(config);
        drop(kept);
        self.reload_hooks(config);
        self.reload_passwords(config);
        self.look();
    }

    fn reload_hooks(&self, config: &Config) {
        let urls = identities_of(config).filter_map(|identity| match identity {
            config::Identity::Hook(url) => Some(url),
            _ => None,
        });
        let mut kept = self.kept.lock();
        let mut hooks = HashMap::new();
        for url in urls {
            let before = kept.hooks.remove(url);
            let hook = before.filter(|before| before.is_by(&config.identity_hook));
            let hook = hook.unwrap_or_else(|| {
                let asks = (&self.outbound, &self.figures, &self.ended);
                BackEnd::new(url, &config.identity_hook, asks)
            });
            hooks.entry(url.clone()).or_insert(hook);
        }
        kept.hooks = hooks;
    }

    fn reload_passwords(&self, config: &Config) {
        let mut services = identities_of(config)
            .filter_map(|identity| match identity {
                config::Identity::Pam(service) => Some(service),
                _ => None,
            })
            .peekable();
        let mut kept = self.kept.lock();
        kept.passwords.clear();
        if services.peek().is_none() {
            kept.pam = None;
            return;
        }
        let before = kept.pam.take().filter(|before| before.is_by(&config.pam));
        let pam = before.unwrap_or_else(|| Pam::new(&config.pam, &self.figures));
        for service in services {
            let passwords = kept.passwords.entry(service.clone());
            passwords.or_insert_with(|| Passwords::new(service, &pam, &self.ended));
        }
        kept.pam = Some(pam);
    }

    /// Refreshes keys that are due; returns when to check again, if ever.
    pub fn look(&self) -> Option<Instant> {
        let keyrings = self.kept.lock().keyrings.clone();
        let published = keyrings.iter().flatten();
        let mut published = published
            .filter(|keyring| keyring.is_published())
            .peekable();
        published.peek()?;
        published.for_each(|keyring| keyring.look());
        Some(now() + LOOK_EVERY)
    }

    /// Returns the provider of a route's identity.
    pub fn identity(&self, identity: &config::Identity) -> Option<Identity> {
        let kept = self.kept.lock();
        match identity {
            config::Identity::Token(anonymous) => {
                let tokens = kept.tokens.clone()?;
                Some(Identity::Token(Arc::new(Tokens {
                    anonymous: *anonymous,
                    ..tokens
                })))
            }
            config::Identity::Hook(url) => {
                let hook = kept.hooks.get(url)?;
                Some(Identity::Hook(Arc::clone(hook) as Arc<dyn Hook>))
            }
            config::Identity::Pam(service) => {
                let passwords = kept.passwords.get(service)?;
                Some(Identity::Basic(Arc::clone(passwords) as Arc<dyn Login>))
            }
            _ => None,
        }
    }

    /// Fails handshakes whose requests are queued for a back end: the process is draining and would reject them after
    /// the response anyway.
    pub fn refuse_queued(&self) {
        let back_ends: Vec<_> = self.kept.lock().hooks.values().cloned().collect();
        for back_end in back_ends {
            back_end.refuse_queued();
        }
    }

    /// Returns the sessions that the back end has ended.
    pub fn ended(&self) -> &Ended {
        &self.ended
    }

    /// Returns the counters.
    pub fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    /// Returns the number of keys in use, and of suspended back ends.
    pub fn state(&self) -> (usize, usize) {
        let kept = self.kept.lock();
        let keyrings = kept.keyrings.iter().flatten();
        let keys = keyrings.map(|keyring| keyring.count()).sum();
        let broken = kept.hooks.values().filter(|hook| hook.is_left_alone());
        (keys, broken.count())
    }
}

/// Returns the identity sources of all routes.
fn identities_of(config: &Config) -> impl Iterator<Item = &config::Identity> {
    config
        .routes
        .iter()
        .filter_map(|route| route.handler.identity())
}

/// Returns the section of connection tokens and that of subscription tokens.
fn sections_of(config: &Config) -> [Option<&config::Jwt>; 2] {
    [config.jwt.as_ref(), config.subscription_jwt.as_ref()]
}

impl Kept {
    fn set_tokens(&mut self, config: &Config) {
        let verifiers = sections_of(config).into_iter().zip(&self.keyrings);
        let mut verifiers = verifiers.map(|(jwt, keyring)| {
            Some(Verifier {
                rules: jwt?.rules.clone(),
                keys: Arc::clone(keyring.as_ref()?) as _,
            })
        });
        let (connections, subscriptions) = (verifiers.next(), verifiers.next());
        self.tokens = connections.flatten().map(|connections| Tokens {
            places: config
                .jwt
                .as_ref()
                .map_or_else(Vec::new, |jwt| jwt.places.clone()),
            connections,
            subscriptions: subscriptions.flatten(),
            anonymous: Anonymous::None,
        });
    }
}
