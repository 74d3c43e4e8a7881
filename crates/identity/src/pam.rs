//! Passwords checked by PAM. Each service caches its answers briefly; all services share the helpers and the brute-force
//! limit.
//!
//! A worker submits a password and continues. A thread of the [`pool`] passes the password to its
//! [helper](veche_pam::client) and delivers the result to the worker.

mod per_address_quota;
mod pool;

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use hmac::{Hmac, KeyInit as _, Mac as _};
use parking_lot::Mutex;
use sha2::Sha256;
use tracing::{debug, warn};
use veche_clock::{Clock, now};
use veche_config as config;
use veche_frontends::Now;
use veche_frontends::app::MaybeDeferred;
use veche_frontends::identity::basic::{Credentials, PasswordVerifier};
use veche_frontends::identity::{AuthError, CompletionSink, IdentityResult, VerifiedUser};
use veche_hub::ConnectionId;
use veche_logging::LogThrottle;
use veche_pam::{PamReply, PamRequest, PamService};
use veche_terminal::as_ms;
use zeroize::Zeroizing;

use super::cache::{AnswerCache, AnswerDigest};
use super::metrics::{IdentityMetrics, LookupOutcome};
use super::pending_lookups::{NotAsked, PendingLookups, WaitingClient};
use super::revoked_sessions::RevokedSessions;
use crate::BruteForceLimit;
use per_address_quota::PerAddressQuota;
use pool::{CheckError, CheckObserver, CheckTicket, HelperPool, PasswordCheck};

/// The target of this module's log lines.
const TARGET: &str = "veche::identity::pam";

/// The maximum number of cached answers; each is kept for a few seconds.
const CACHE_ENTRIES_MAX: usize = 10_000;

/// Maximum number of passwords remembered as wrong. A remembered password does not count as a failure again: an open
/// page that resends a wrong password is not guessing, and must not lock out its whole address.
const REFUSED_MAX: usize = 1_000;
const REFUSED_MS: u64 = 60_000;

/// The state shared by all PAM services.
#[derive(Debug)]
pub(super) struct PamContext {
    options: config::PamConfig,
    pool: HelperPool,
    brute_force_limit: BruteForceLimit,
    figures: Arc<IdentityMetrics>,
    clock: Clock,
}

impl PamContext {
    pub(super) fn new(options: &config::PamConfig, figures: &Arc<IdentityMetrics>) -> Arc<Self> {
        Arc::new(Self {
            options: options.clone(),
            pool: HelperPool::new(options, figures),
            brute_force_limit: BruteForceLimit::new(options.wrong_per_address),
            figures: Arc::clone(figures),
            clock: Clock::new(),
        })
    }

    /// Returns whether the configuration is unchanged.
    pub(super) fn matches(&self, options: &config::PamConfig) -> bool {
        self.options == *options
    }

    /// Returns how long an address has to wait, in seconds; `None` if it does not have to wait.
    fn barred(&self, client: IpAddr) -> Option<u32> {
        let wait_ms = self.brute_force_limit.wait_ms(client, self.clock.now_ms());
        (wait_ms > 0).then(|| u32::try_from(wait_ms.div_ceil(1000)).unwrap_or(u32::MAX))
    }
}

/// One PAM service, which checks the passwords of the routes that use it.
#[derive(Debug)]
pub(super) struct PasswordService {
    service: PamService,
    pam: Arc<PamContext>,
    /// The key of the digests, used for nothing else.
    key: Zeroizing<[u8; 32]>,
    state: Mutex<PamState>,
    /// A reference to this value, for completions on other threads.
    me: Weak<Self>,
}

#[derive(Debug)]
struct PamState {
    lookups: PendingLookups,
    refused: AnswerCache,
    quota: PerAddressQuota,
    warnings: LogThrottle,
}

impl PasswordService {
    /// Creates a service without cached answers.
    pub(super) fn new(
        service: &PamService,
        pam: &Arc<PamContext>,
        ended: &Arc<RevokedSessions>,
    ) -> Arc<Self> {
        let mut key = Zeroizing::new([0; 32]);
        // The system's random number generator worked when the process started.
        getrandom::fill(&mut *key).expect("the system must provide random numbers");
        Arc::new_cyclic(|me| Self {
            service: service.clone(),
            pam: Arc::clone(pam),
            key,
            state: Mutex::new(PamState {
                lookups: PendingLookups::new(CACHE_ENTRIES_MAX, pam.options.waiting, ended),
                refused: AnswerCache::new(REFUSED_MAX),
                quota: PerAddressQuota::new(pam.options.wrong_per_address, pam.options.waiting),
                warnings: LogThrottle::default(),
            }),
            me: Weak::clone(me),
        })
    }

    /// Returns the cache key. The digest includes the lengths of all parts, so that different credentials never give
    /// the same input. It includes the client's address, because PAM's rules may depend on it.
    fn digest(&self, credentials: &Credentials, client: &str) -> AnswerDigest {
        let mut digest =
            Hmac::<Sha256>::new_from_slice(&*self.key).expect("HMAC accepts keys of any length");
        let Credentials { user, password } = credentials;
        for part in [user.as_bytes(), password.as_slice(), client.as_bytes()] {
            digest.update(&(part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        digest.finalize().into_bytes().into()
    }

    /// Registers a client that waits for a result, and returns whether the caller must submit a
    /// check. If the result is available without a check, it is returned as the error.
    fn look_up(
        &self,
        digest: AnswerDigest,
        asking: WaitingClient,
        client: IpAddr,
    ) -> Result<bool, (LookupOutcome, IdentityResult)> {
        let now_ms = self.pam.clock.now_ms();
        let mut state = self.state.lock();
        let PamState {
            lookups,
            refused,
            quota,
            ..
        } = &mut *state;
        if let Some(identity_result) = refused.find(&digest, now_ms) {
            return Err((LookupOutcome::Cached, identity_result));
        }
        let may_wait = |is_new: bool| match self.pam.barred(client) {
            Some(wait_s) if is_new => Err((
                LookupOutcome::Throttled,
                AuthError::TooManyAttempts {
                    retry_after_s: wait_s,
                },
            )),
            _ if !quota.has_room(client, is_new) => {
                Err((LookupOutcome::Crowded, AuthError::VerifierBusy))
            }
            _ => Ok(()),
        };
        let looked_up = lookups.look_up(digest, asking, now_ms, may_wait);
        if let Ok(is_new) = looked_up {
            quota.add(client, is_new);
        }
        looked_up.map_err(|spared| match spared {
            NotAsked::Known(identity_result) => (LookupOutcome::Cached, identity_result),
            NotAsked::Crowded => (
                LookupOutcome::Crowded,
                IdentityResult::Failed(AuthError::VerifierBusy),
            ),
            NotAsked::Barred((asked, why)) => (asked, IdentityResult::Failed(why)),
        })
    }

    /// Converts the outcome of a check. Returns the [`LookupOutcome`] for the metrics, the result for the client, and a
    /// text for the log if there is a problem.
    fn read(
        &self,
        outcome: Result<PamReply, CheckError>,
    ) -> (LookupOutcome, IdentityResult, Option<String>) {
        let failed = |problem: String| {
            let identity_result = IdentityResult::Failed(AuthError::VerifierUnavailable);
            (LookupOutcome::Failed, identity_result, Some(problem))
        };
        match outcome {
            Ok(PamReply::Accepted(user)) => (
                LookupOutcome::Named,
                IdentityResult::Verified(user_answer(user)),
                None,
            ),
            Ok(PamReply::Refused(why)) => {
                debug!(target: TARGET, "pam {}: refused: {why}", self.service);
                let identity_result = IdentityResult::Failed(AuthError::WrongCredentials);
                (LookupOutcome::Refused, identity_result, None)
            }
            Ok(PamReply::Failed(why) | PamReply::Unusable(why)) => failed(why),
            Ok(PamReply::Ready) => {
                failed("the helper sent a start message instead of an answer".to_owned())
            }
            Err(CheckError::Barred { wait_s }) => {
                let identity_result = IdentityResult::Failed(AuthError::TooManyAttempts {
                    retry_after_s: wait_s,
                });
                (LookupOutcome::Throttled, identity_result, None)
            }
            Err(CheckError::Late) => failed(format!(
                "no helper was free within {:?}",
                self.pam.options.timeout
            )),
            Err(CheckError::Unanswered) => failed(format!(
                "the helper did not answer within {:?}",
                self.pam.options.timeout
            )),
            Err(CheckError::Gone) => failed("the helper ended during the check".to_owned()),
            Err(CheckError::Helper(why)) => failed(why),
        }
    }
}

impl PasswordVerifier for PasswordService {
    fn verify(
        &self,
        credentials: Credentials,
        client: IpAddr,
        id: ConnectionId,
        sink: &Arc<dyn CompletionSink>,
        _: Now,
    ) -> MaybeDeferred<IdentityResult> {
        let address = client.to_canonical().to_string();
        let digest = self.digest(&credentials, &address);
        let sink = Arc::clone(sink);
        let figures = &self.pam.figures.passwords;
        // The gauge is increased before a completion can decrease it.
        figures.waiting.add(1);
        match self.look_up(digest, WaitingClient { id, sink }, client) {
            Err((asked, identity_result)) => {
                figures.waiting.sub(1);
                figures.asked(asked);
                return MaybeDeferred::Ready(identity_result);
            }
            Ok(false) => figures.asked(LookupOutcome::Joined),
            Ok(true) => {
                let observer = self
                    .me
                    .upgrade()
                    .expect("the value must exist while its method runs");
                self.pam.pool.submit(PasswordCheck {
                    request: PamRequest {
                        service: self.service.clone(),
                        user: credentials.user,
                        password: credentials.password,
                        client: address,
                    },
                    until: now() + self.pam.options.timeout,
                    ticket: CheckTicket { digest, client },
                    observer,
                });
            }
        }
        MaybeDeferred::Deferred
    }

    fn realm(&self) -> &str {
        &self.pam.options.realm
    }
}

impl CheckObserver for PasswordService {
    fn retry_after_s(&self, client: IpAddr) -> Option<u32> {
        self.pam.barred(client)
    }

    fn checked(&self, ticket: CheckTicket, outcome: Result<PamReply, CheckError>) {
        let is_charged = counts_as_failure(&outcome);
        let (asked, mut identity_result, problem) = self.read(outcome);
        let figures = &self.pam.figures.passwords;
        figures.asked(asked);
        let now_ms = self.pam.clock.now_ms();
        if is_charged {
            self.pam
                .brute_force_limit
                .record_failure(ticket.client, now_ms);
        }
        let mut state = self.state.lock();
        let asking = state.lookups.answered(&ticket.digest, &mut identity_result);
        if let (LookupOutcome::Named, Some(kept)) = (asked, self.pam.options.cache_time) {
            let until_ms = now_ms.saturating_add(as_ms(kept));
            state
                .lookups
                .store(ticket.digest, identity_result.clone(), until_ms);
        }
        if asked == LookupOutcome::Refused {
            let until_ms = now_ms.saturating_add(REFUSED_MS);
            state
                .refused
                .insert(ticket.digest, identity_result.clone(), until_ms);
        }
        state.quota.remove(ticket.client, asking.len());
        let problem = problem.filter(|_| state.warnings.is_due(now_ms));
        drop(state);
        if let Some(problem) = problem {
            warn!(target: TARGET, "pam {}: {problem}", self.service);
        }
        figures.waiting.sub(asking.len() as u64);
        for WaitingClient { id, sink } in asking {
            sink.complete(id, identity_result.clone());
        }
    }
}

fn user_answer(user: String) -> VerifiedUser {
    VerifiedUser {
        user,
        ..VerifiedUser::default()
    }
}

/// Returns whether an outcome counts as a wrong password: every check that a helper received,
/// except those that succeeded and those that PAM could not decide. Unanswered checks count too,
/// because otherwise a client could guess without limit and skip the delay that PAM modules impose
/// after a wrong password.
fn counts_as_failure(outcome: &Result<PamReply, CheckError>) -> bool {
    match outcome {
        Ok(PamReply::Refused(_)) | Err(CheckError::Unanswered | CheckError::Gone) => true,
        Ok(_) | Err(CheckError::Barred { .. } | CheckError::Late | CheckError::Helper(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use veche_frontends::rate::Rate;

    use super::*;

    pub(super) fn options() -> config::PamConfig {
        config::PamConfig {
            realm: "chat".to_owned(),
            helpers: 1,
            helper_idle: Duration::from_secs(1),
            timeout: Duration::from_secs(5),
            waiting: 8,
            cache_time: None,
            wrong_per_address: Some(Rate::new(2, 3_600_000)),
        }
    }

    fn passwords() -> Arc<PasswordService> {
        let service = PamService::parse("veche").expect("a name");
        let pam = PamContext::new(&options(), &Arc::default());
        PasswordService::new(&service, &pam, &Arc::default())
    }

    #[derive(Debug)]
    struct NullSink;

    impl CompletionSink for NullSink {
        fn complete(&self, _: ConnectionId, _: IdentityResult) {}
    }

    fn ticket(number: u8, client: IpAddr) -> CheckTicket {
        CheckTicket {
            digest: [number; 32],
            client,
        }
    }

    #[test]
    fn what_a_helper_had_is_charged() {
        let words = || "why".to_owned();
        for (outcome, is_charged) in [
            (Ok(PamReply::Refused(words())), true),
            (Err(CheckError::Unanswered), true),
            (Err(CheckError::Gone), true),
            (Ok(PamReply::Accepted(words())), false),
            (Ok(PamReply::Failed(words())), false),
            (Err(CheckError::Late), false),
            (Err(CheckError::Helper(words())), false),
            (Err(CheckError::Barred { wait_s: 1 }), false),
        ] {
            let passwords = passwords();
            let client = IpAddr::from([192, 0, 2, 1]);
            passwords.checked(ticket(0, client), Ok(PamReply::Refused(words())));
            assert_eq!(CheckObserver::retry_after_s(&*passwords, client), None);
            let shown = format!("{outcome:?}");
            passwords.checked(ticket(1, client), outcome);
            let barred = CheckObserver::retry_after_s(&*passwords, client).is_some();
            assert_eq!(barred, is_charged, "{shown}");
        }
    }

    #[test]
    fn one_address_has_not_all_places() {
        let passwords = passwords();
        let [ann, bob] = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
        let look_up = |number: u8, client| {
            let asking = WaitingClient {
                id: ConnectionId {
                    index: 0,
                    generation: 0,
                },
                sink: Arc::new(NullSink),
            };
            let looked_up = passwords.look_up([number; 32], asking, client);
            looked_up.map_err(|(asked, _)| asked)
        };
        assert_eq!(look_up(1, ann), Ok(true));
        assert_eq!(look_up(2, ann), Ok(true));
        assert_eq!(look_up(3, ann), Err(LookupOutcome::Crowded));
        assert_eq!(look_up(1, ann), Ok(false));
        assert_eq!(look_up(1, ann), Ok(false));
        assert_eq!(look_up(1, ann), Err(LookupOutcome::Crowded));
        assert_eq!(look_up(4, bob), Ok(true));
        // The answer makes room for another check. Further requests with the checked password get the cached result.
        passwords.checked(ticket(1, ann), Ok(PamReply::Refused("why".to_owned())));
        assert_eq!(look_up(3, ann), Ok(true));
        for _ in 0..5 {
            assert_eq!(look_up(1, ann), Err(LookupOutcome::Cached));
        }
        assert_eq!(CheckObserver::retry_after_s(&*passwords, ann), None);
    }
}
