//! The keys of `[jwt]`: read from a file, or published by the issuer and refreshed periodically.
//!
//! Keys stay in use until new ones have been read, so tokens with known keys are accepted while an
//! issuer is unreachable. A token with an unknown key triggers a refresh, but at most one per
//! [`ASK_EVERY`], so a flood of invented keys causes no flood of requests.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tracing::{info, warn};
use veche_calls::CallOutcome;
use veche_clock::now;
use veche_config::{JwtConfig, KeySource, PublishedKeySet};
use veche_frontends::identity::token::KeyProvider;
use veche_frontends::identity::{CompletionSink, IdentityResult};
use veche_hub::ConnectionId;
use veche_jwt::Keys;
use veche_outbound::Outbound;
use veche_webhooks::{CONNECTIONS_MAX, FetchRequest, FetchResponse};

use super::metrics::IdentityMetrics;

/// The target of this module's log lines.
const TARGET: &str = "veche::identity::keyring";

/// The minimum interval of refreshes caused by unknown keys.
const ASK_EVERY: Duration = Duration::from_secs(10);

/// The delay after a failed refresh. It doubles with each further failure, up to the regular
/// refresh interval.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Maximum number of times that the delay doubles.
const RETRY_DOUBLINGS_MAX: u32 = 6;

/// The timeout of a request to the issuer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum size of a key set in bytes.
const SET_BYTES_MAX: u64 = 256 << 10;

/// Maximum number of handshakes that wait for a refresh. Further handshakes are checked with the
/// existing keys.
const WAITING_MAX: usize = 4096;

/// The keys of one issuer.
#[derive(Debug)]
pub(super) struct Keyring {
    source: KeySource,
    outbound: Outbound,
    figures: Arc<IdentityMetrics>,
    keys: RwLock<Option<Arc<Keys>>>,
    fetching: Mutex<FetchState>,
    /// A reference to this value, for completions on other threads.
    me: Weak<Self>,
}

/// The refresh state of a published key set.
#[derive(Debug, Default)]
struct FetchState {
    is_under_way: bool,
    /// The handshakes that wait for the result of the next refresh, with the sinks that notify them.
    waiting: Vec<(ConnectionId, Arc<dyn CompletionSink>)>,
    /// The time of the next refresh; `None` if it is due now.
    due: Option<Instant>,
    /// The time of the last refresh caused by an unknown key; `None` before the first one.
    asked: Option<Instant>,
    failures: u32,
}

impl Keyring {
    /// Creates a keyring without keys.
    pub(super) fn new(
        jwt: &JwtConfig,
        outbound: &Outbound,
        figures: &Arc<IdentityMetrics>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            source: jwt.keys.clone(),
            outbound: outbound.clone(),
            figures: Arc::clone(figures),
            keys: RwLock::default(),
            fetching: Mutex::default(),
            me: Weak::clone(me),
        })
    }

    /// Returns whether this keyring has the source of keys that `jwt` configures.
    pub(super) fn matches(&self, jwt: &JwtConfig) -> bool {
        self.source == jwt.keys
    }

    pub(super) fn set_keys(&self, keys: Keys) {
        *self.keys.write() = Some(Arc::new(keys));
    }

    pub(super) fn is_published(&self) -> bool {
        matches!(self.source, KeySource::Published(_))
    }

    pub(super) fn count(&self) -> usize {
        self.keys.read().as_ref().map_or(0, |keys| keys.len())
    }

    /// Starts a refresh of the published keys if it is due and none is in progress.
    pub(super) fn fetch_if_due(&self) {
        let KeySource::Published(published) = &self.source else {
            return;
        };
        let mut fetching = self.fetching.lock();
        if !fetching.is_under_way && fetching.due.is_none_or(|due| now() >= due) {
            fetching.is_under_way = true;
            drop(fetching);
            self.send_fetch(published);
        }
    }

    /// Starts a refresh; the caller has marked it as in progress.
    fn send_fetch(&self, published: &PublishedKeySet) {
        let get = FetchRequest {
            body: None,
            url: published.url.expose(),
            headers: vec![(
                "accept".to_owned(),
                b"application/jwk-set+json, application/json".to_vec(),
            )],
            timeout: TIMEOUT,
            body_bytes_max: SET_BYTES_MAX,
            ca: published.ca.as_deref(),
            connections_max: CONNECTIONS_MAX,
        };
        let me = Weak::clone(&self.me);
        self.outbound.ask(get.into_call(), move |outcome| {
            if let Some(me) = me.upgrade() {
                me.fetched(outcome);
            }
        });
    }

    fn fetched(&self, outcome: CallOutcome) {
        let KeySource::Published(published) = &self.source else {
            return;
        };
        let answer = FetchResponse::of(outcome).map_err(|fault| fault.words);
        let read = answer.and_then(|answer| match answer.status {
            200 => Keys::published(&answer.body).map_err(|why| why.to_string()),
            status => Err(format!("the server responded with status {status}")),
        });
        self.figures.count_fetch(read.is_ok());
        let mut fetching = self.fetching.lock();
        let wait = match read {
            Ok(keys) => {
                fetching.failures = 0;
                let is_new = self.keys.read().as_deref() != Some(&keys);
                if is_new {
                    info!(target: TARGET, keys = keys.len(), "jwt: loaded new keys from {}", published.url);
                    self.set_keys(keys);
                }
                published.refresh
            }
            Err(why) => {
                let doublings = fetching.failures.min(RETRY_DOUBLINGS_MAX);
                fetching.failures += 1;
                let stays = match self.count() {
                    0 => "no tokens can be verified",
                    _ => "the old keys stay in use",
                };
                warn!(target: TARGET, "jwt: can't load keys from {}; {stays}: {why}", published.url);
                (RETRY_AFTER * (1 << doublings)).min(published.refresh)
            }
        };
        fetching.is_under_way = false;
        fetching.due = Some(now() + wait);
        let waiting = std::mem::take(&mut fetching.waiting);
        drop(fetching);
        for (id, sink) in waiting {
            sink.complete(id, IdentityResult::KeysFetched);
        }
    }
}

impl KeyProvider for Keyring {
    fn keys(&self) -> Option<Arc<Keys>> {
        self.keys.read().clone()
    }

    fn fetch(
        &self,
        id: ConnectionId,
        sink: &Arc<dyn CompletionSink>,
        seen: Option<&Arc<Keys>>,
    ) -> bool {
        let KeySource::Published(published) = &self.source else {
            return false;
        };
        let mut fetching = self.fetching.lock();
        if self.keys().as_ref().map(Arc::as_ptr) != seen.map(Arc::as_ptr) {
            drop(fetching);
            sink.complete(id, IdentityResult::KeysFetched);
            return true;
        }
        let now = now();
        let is_fair = fetching.asked.is_none_or(|asked| now >= asked + ASK_EVERY);
        if !fetching.is_under_way && !is_fair || fetching.waiting.len() >= WAITING_MAX {
            return false;
        }
        fetching.waiting.push((id, Arc::clone(sink)));
        if !std::mem::replace(&mut fetching.is_under_way, true) {
            // The time is recorded to limit refreshes caused by unknown keys. It is not recorded for the first refresh,
            // which would happen without a token too; `due` is `None` until that refresh ends.
            if fetching.due.is_some() {
                fetching.asked = Some(now);
            }
            drop(fetching);
            self.send_fetch(published);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use veche_calls::SecretUrl;
    use veche_frontends::identity::token::TokenSource;
    use veche_jwt::ClaimRules;

    use super::*;

    const ID: ConnectionId = ConnectionId {
        index: 0,
        generation: 0,
    };

    #[derive(Debug, Default)]
    struct RecordedResults(Mutex<Vec<IdentityResult>>);

    impl CompletionSink for RecordedResults {
        fn complete(&self, _: ConnectionId, identity_result: IdentityResult) {
            self.0.lock().push(identity_result);
        }
    }

    #[test]
    fn keys_that_came_during_the_check_need_no_second_fetch() {
        let published = PublishedKeySet {
            url: SecretUrl::new("http://127.0.0.1:9/keys".into()),
            refresh: Duration::from_secs(3600),
            ca: None,
        };
        let jwt = JwtConfig {
            keys: KeySource::Published(published),
            previous: None,
            refuses_short_secrets: false,
            rules: ClaimRules::default(),
            places: vec![TokenSource::Bearer],
        };
        let keyring = Keyring::new(&jwt, &Outbound::default(), &Arc::default());
        let seen = keyring.keys();
        assert_eq!(seen, None);
        keyring
            .set_keys(Keys::secret(b"a secret that is long enough for it").expect("long enough"));
        keyring.fetching.lock().due = Some(now());

        let results = Arc::new(RecordedResults::default());
        let sink = Arc::clone(&results) as Arc<dyn CompletionSink>;
        assert!(keyring.fetch(ID, &sink, seen.as_ref()));
        assert!(matches!(
            results.0.lock()[..],
            [IdentityResult::KeysFetched]
        ));
        let fetching = keyring.fetching.lock();
        assert!(!fetching.is_under_way);
        assert_eq!(fetching.asked, None);
    }
}
