//! Who clients are, as far as others have to be asked: issuers for their keys, the back end for its word, PAM for passwords.
//!
//! The process's, shared by all workers: they ask, and go on at once; what has to be waited for is told at the worker's
//! [`Desk`](veche_frontends::identity::Desk) from a thread of the outbound side, or of the helpers'. What is kept (keys,
//! answers, the state of a breaker) stays over a reload as long as it is asked for in the same way; PAM's rules may be others
//! by then, so its answers don't.

mod cache;
mod ended;
mod figures;
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
use veche_frontends::identity::token::Tokens;
use veche_frontends::identity::{Identity, basic::Login, hook::Hook};
use veche_jwt::Keys;
use veche_outbound::Outbound;
use veche_pam::Service;

use crate::config::{self, Config};
use crate::process::now;

use ended::Ended;
pub(crate) use figures::{Asked, Figures};
use hook::BackEnd;
use keyring::Keyring;
pub(crate) use pam::probe;
use pam::{Pam, Passwords};

/// How often is looked whether keys are due.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    outbound: Outbound,
    figures: Arc<Figures>,
    ended: Arc<Ended>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    tokens: Option<Arc<Tokens>>,
    keyring: Option<Arc<Keyring>>,
    /// By their URLs.
    hooks: HashMap<SecretUrl, Arc<BackEnd>>,
    /// `None` where no route asks it.
    pam: Option<Arc<Pam>>,
    passwords: HashMap<Service, Arc<Passwords>>,
}

impl Identities {
    /// Whose questions go out that way.
    pub(crate) fn new(outbound: Outbound) -> Self {
        Self {
            outbound,
            ..Self::default()
        }
    }

    /// Reads the keys that a configuration names. Where that fails no token holds until they are good.
    pub(crate) fn begin(&self, config: &Config) {
        let keys = self.read(config).unwrap_or_else(|why| {
            error!("jwt: no token can be checked: {why}");
            None
        });
        self.reload(config, keys);
    }

    /// Reads the keys that a new configuration names; `None` where there are none to read.
    ///
    /// # Errors
    /// They can't be read, as a line to act on.
    pub(crate) fn read(&self, config: &Config) -> Result<Option<Keys>, String> {
        match &config.jwt {
            Some(jwt) => jwt.keys.read(),
            None => Ok(None),
        }
    }

    /// Takes over a new configuration with the keys that were read.
    pub(crate) fn reload(&self, config: &Config, keys: Option<Keys>) {
        let mut kept = self.kept.lock();
        match &config.jwt {
            None => (kept.tokens, kept.keyring) = (None, None),
            Some(jwt) => {
                let before = kept.keyring.take_if(|before| before.is_of(jwt));
                let keyring =
                    before.unwrap_or_else(|| Keyring::new(jwt, &self.outbound, &self.figures));
                if let Some(keys) = keys {
                    keyring.set(keys);
                }
                kept.set_tokens(jwt, keyring);
            }
        }
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

    /// Has keys fetched that are due; when to look again, if ever.
    pub(crate) fn look(&self) -> Option<Instant> {
        let keyring = self.kept.lock().keyring.clone()?;
        if !keyring.is_published() {
            return None;
        }
        keyring.look();
        Some(now() + LOOK_EVERY)
    }

    /// What a route asks for, by its configuration.
    pub(crate) fn identity(&self, identity: &config::Identity) -> Option<Identity> {
        let kept = self.kept.lock();
        match identity {
            config::Identity::Token => kept.tokens.clone().map(Identity::Token),
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

    /// Whose connections the back end has ended.
    pub(crate) fn ended(&self) -> &Ended {
        &self.ended
    }

    /// For the metrics.
    pub(crate) fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    /// Keys that are in use, and back ends that are left alone for now.
    pub(crate) fn state(&self) -> (usize, usize) {
        let kept = self.kept.lock();
        let keys = kept.keyring.as_ref().map_or(0, |keyring| keyring.count());
        let broken = kept.hooks.values().filter(|hook| hook.is_left_alone());
        (keys, broken.count())
    }
}

/// What the routes ask for.
fn identities_of(config: &Config) -> impl Iterator<Item = &config::Identity> {
    config
        .routes
        .iter()
        .filter_map(|route| route.handler.identity())
}

impl Kept {
    fn set_tokens(&mut self, jwt: &config::Jwt, keyring: Arc<Keyring>) {
        self.tokens = Some(Arc::new(Tokens {
            places: jwt.places.clone(),
            rules: jwt.rules.clone(),
            keys: Arc::clone(&keyring) as _,
        }));
        self.keyring = Some(keyring);
    }
}
