//! Passwords checked by PAM. Each service caches its answers briefly; all share the helpers and the brute-force limit.
//!
//! A worker submits a password and continues. A thread of the [`pool`] has its [helper](veche_pam::client) check it and
//! delivers the result to the worker.

mod pool;
mod shares;

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use hmac::{Hmac, KeyInit as _, Mac as _};
use parking_lot::Mutex;
use sha2::Sha256;
use tracing::{debug, warn};
use veche_clock::{Clock, now};
use veche_config as config;
use veche_frontends::Now;
use veche_frontends::app::Outcome;
use veche_frontends::identity::basic::{Credentials, Login};
use veche_frontends::identity::{Desk, Finding, Unknown, Word};
use veche_hub::ConnectionId;
use veche_logging::Seldom;
use veche_pam::{Answer, Question, Service};
use veche_terminal::as_ms;
use zeroize::Zeroizing;

use super::cache::{Cache, Digest};
use super::ended::Ended;
use super::figures::{Asked, Figures};
use super::questions::{Asking, Questions, Spared};
use crate::Guesses;
use pool::{Asker, Job, Pool, Ticket, Trouble};
use shares::Shares;

/// The target of this module's log lines.
const TARGET: &str = "veche::identity::pam";

/// The most cached answers; each is kept for a few seconds.
const CACHE_ENTRIES_MAX: usize = 10_000;

/// The most passwords remembered as wrong: an open page that resends its password is not guessing, and would otherwise
/// lock out its whole address.
const REFUSED_MAX: usize = 1_000;
const REFUSED_MS: u64 = 60_000;

/// The state shared by all services.
#[derive(Debug)]
pub(super) struct Pam {
    options: config::Pam,
    pool: Pool,
    guesses: Guesses,
    figures: Arc<Figures>,
    clock: Clock,
}

impl Pam {
    pub(super) fn new(options: &config::Pam, figures: &Arc<Figures>) -> Arc<Self> {
        Arc::new(Self {
            options: options.clone(),
            pool: Pool::new(options, figures),
            guesses: Guesses::new(options.wrong_per_address),
            figures: Arc::clone(figures),
            clock: Clock::new(),
        })
    }

    /// Returns whether the configuration is unchanged.
    pub(super) fn is_by(&self, options: &config::Pam) -> bool {
        self.options == *options
    }

    /// Returns how long an address has to wait, in seconds, if it has to.
    fn barred(&self, client: IpAddr) -> Option<u32> {
        let wait_ms = self.guesses.wait_ms(client, self.clock.now_ms());
        (wait_ms > 0).then(|| u32::try_from(wait_ms.div_ceil(1000)).unwrap_or(u32::MAX))
    }
}

/// A PAM service that checks passwords of routes.
#[derive(Debug)]
pub(super) struct Passwords {
    service: Service,
    pam: Arc<Pam>,
    /// The key of the digests only.
    key: Zeroizing<[u8; 32]>,
    state: Mutex<State>,
    /// A reference for completions on other threads.
    me: Weak<Self>,
}

#[derive(Debug)]
struct State {
    questions: Questions,
    refused: Cache,
    shares: Shares,
    warnings: Seldom,
}

impl Passwords {
    /// Creates a service without cached answers.
    pub(super) fn new(service: &Service, pam: &Arc<Pam>, ended: &Arc<Ended>) -> Arc<Self> {
        let mut key = Zeroizing::new([0; 32]);
        // The generator worked when the process started.
        getrandom::fill(&mut *key).expect("the system gives random numbers");
        Arc::new_cyclic(|me| Self {
            service: service.clone(),
            pam: Arc::clone(pam),
            key,
            state: Mutex::new(State {
                questions: Questions::new(CACHE_ENTRIES_MAX, pam.options.waiting, ended),
                refused: Cache::new(REFUSED_MAX),
                shares: Shares::new(pam.options.wrong_per_address, pam.options.waiting),
                warnings: Seldom::default(),
            }),
            me: Weak::clone(me),
        })
    }

    /// Returns the cache key. Lengths are included, so that no part can move to the next, and so is the address, which
    /// PAM's rules may use.
    fn digest(&self, credentials: &Credentials, client: &str) -> Digest {
        let mut digest =
            Hmac::<Sha256>::new_from_slice(&*self.key).expect("HMAC takes keys of any length");
        let Credentials { user, password } = credentials;
        for part in [user.as_bytes(), password.as_slice(), client.as_bytes()] {
            digest.update(&(part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        digest.finalize().into_bytes().into()
    }

    /// Returns a cached result; otherwise whether a check has to be submitted.
    fn look_up(
        &self,
        digest: Digest,
        asking: Asking,
        client: IpAddr,
    ) -> Result<bool, (Asked, Finding)> {
        let now_ms = self.pam.clock.now_ms();
        let mut state = self.state.lock();
        let State {
            questions,
            refused,
            shares,
            ..
        } = &mut *state;
        if let Some(finding) = refused.find(&digest, now_ms) {
            return Err((Asked::Cached, finding));
        }
        let may_wait = |is_new: bool| match self.pam.barred(client) {
            Some(wait_s) if is_new => Err((Asked::Throttled, Unknown::Guessing { wait_s })),
            _ if !shares.has_room(client, is_new) => Err((Asked::Crowded, Unknown::Crowded)),
            _ => Ok(()),
        };
        let looked_up = questions.look_up(digest, asking, now_ms, may_wait);
        if let Ok(is_new) = looked_up {
            shares.add(client, is_new);
        }
        looked_up.map_err(|spared| match spared {
            Spared::Known(finding) => (Asked::Cached, finding),
            Spared::Crowded => (Asked::Crowded, Finding::Unknown(Unknown::Crowded)),
            Spared::Barred((asked, why)) => (asked, Finding::Unknown(why)),
        })
    }

    /// Converts an outcome for the client and the log.
    fn read(&self, outcome: Result<Answer, Trouble>) -> (Asked, Finding, Option<String>) {
        let failed = |trouble: String| {
            let finding = Finding::Unknown(Unknown::NoJudge);
            (Asked::Failed, finding, Some(trouble))
        };
        match outcome {
            Ok(Answer::Named(user)) => (Asked::Named, Finding::Named(word(user)), None),
            Ok(Answer::Refused(why)) => {
                debug!(target: TARGET, "pam {}: refused: {why}", self.service);
                let finding = Finding::Unknown(Unknown::WrongPassword);
                (Asked::Refused, finding, None)
            }
            Ok(Answer::Failed(why) | Answer::Unusable(why)) => failed(why),
            Ok(Answer::Ready) => failed("a helper has lost its place".to_owned()),
            Err(Trouble::Barred { wait_s }) => {
                let finding = Finding::Unknown(Unknown::Guessing { wait_s });
                (Asked::Throttled, finding, None)
            }
            Err(Trouble::Late) => {
                failed(format!("no helper within {:?}", self.pam.options.timeout))
            }
            Err(Trouble::Unanswered) => {
                failed(format!("no answer within {:?}", self.pam.options.timeout))
            }
            Err(Trouble::Gone) => {
                failed("the helper has ended in the middle of a check".to_owned())
            }
            Err(Trouble::Helper(why)) => failed(why),
        }
    }
}

impl Login for Passwords {
    fn judge(
        &self,
        credentials: Credentials,
        client: IpAddr,
        id: ConnectionId,
        desk: &Arc<dyn Desk>,
        _: Now,
    ) -> Outcome<Finding> {
        let address = client.to_canonical().to_string();
        let digest = self.digest(&credentials, &address);
        let desk = Arc::clone(desk);
        let figures = &self.pam.figures.passwords;
        // Counted before a completion can decrease it.
        figures.waiting.add(1);
        match self.look_up(digest, Asking { id, desk }, client) {
            Err((asked, finding)) => {
                figures.waiting.sub(1);
                figures.asked(asked);
                return Outcome::Now(finding);
            }
            Ok(false) => figures.asked(Asked::Joined),
            Ok(true) => {
                let asker = self.me.upgrade().expect("it is there while it is called");
                self.pam.pool.submit(Job {
                    question: Question {
                        service: self.service.clone(),
                        user: credentials.user,
                        password: credentials.password,
                        client: address,
                    },
                    until: now() + self.pam.options.timeout,
                    ticket: Ticket { digest, client },
                    asker,
                });
            }
        }
        Outcome::Later
    }

    fn realm(&self) -> &str {
        &self.pam.options.realm
    }
}

impl Asker for Passwords {
    fn barred(&self, client: IpAddr) -> Option<u32> {
        self.pam.barred(client)
    }

    fn judged(&self, ticket: Ticket, outcome: Result<Answer, Trouble>) {
        let is_charged = is_charged(&outcome);
        let (asked, mut finding, trouble) = self.read(outcome);
        let figures = &self.pam.figures.passwords;
        figures.asked(asked);
        let now_ms = self.pam.clock.now_ms();
        if is_charged {
            self.pam.guesses.wrong(ticket.client, now_ms);
        }
        let mut state = self.state.lock();
        let asking = state.questions.answered(&ticket.digest, &mut finding);
        if let (Asked::Named, Some(kept)) = (asked, self.pam.options.cache_time) {
            let until_ms = now_ms.saturating_add(as_ms(kept));
            state
                .questions
                .keep(ticket.digest, finding.clone(), until_ms);
        }
        if asked == Asked::Refused {
            let until_ms = now_ms.saturating_add(REFUSED_MS);
            state.refused.keep(ticket.digest, finding.clone(), until_ms);
        }
        state.shares.remove(ticket.client, asking.len());
        let trouble = trouble.filter(|_| state.warnings.is_due(now_ms));
        drop(state);
        if let Some(trouble) = trouble {
            warn!(target: TARGET, "pam {}: {trouble}", self.service);
        }
        figures.waiting.sub(asking.len() as u64);
        for Asking { id, desk } in asking {
            desk.tell(id, finding.clone());
        }
    }
}

fn word(user: String) -> Word {
    Word {
        user,
        ..Word::default()
    }
}

/// Returns whether an outcome counts as a wrong password: every check that a helper received, except successful ones
/// and those that PAM itself could not decide. If unanswered checks were free, a client could guess without limit by
/// not waiting for the modules' delay.
fn is_charged(outcome: &Result<Answer, Trouble>) -> bool {
    match outcome {
        Ok(Answer::Refused(_)) | Err(Trouble::Unanswered | Trouble::Gone) => true,
        Ok(_) | Err(Trouble::Barred { .. } | Trouble::Late | Trouble::Helper(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use veche_frontends::rate::Rate;

    use super::*;

    pub(super) fn options() -> config::Pam {
        config::Pam {
            realm: "chat".to_owned(),
            helpers: 1,
            helper_idle: Duration::from_secs(1),
            timeout: Duration::from_secs(5),
            waiting: 8,
            cache_time: None,
            wrong_per_address: Some(Rate::new(2, 3_600_000)),
        }
    }

    fn passwords() -> Arc<Passwords> {
        let service = Service::parse("veche").expect("a name");
        let pam = Pam::new(&options(), &Arc::default());
        Passwords::new(&service, &pam, &Arc::default())
    }

    #[derive(Debug)]
    struct Nowhere;

    impl Desk for Nowhere {
        fn tell(&self, _: ConnectionId, _: Finding) {}
    }

    fn ticket(number: u8, client: IpAddr) -> Ticket {
        Ticket {
            digest: [number; 32],
            client,
        }
    }

    #[test]
    fn what_a_helper_had_is_charged() {
        let words = || "why".to_owned();
        for (outcome, is_charged) in [
            (Ok(Answer::Refused(words())), true),
            (Err(Trouble::Unanswered), true),
            (Err(Trouble::Gone), true),
            (Ok(Answer::Named(words())), false),
            (Ok(Answer::Failed(words())), false),
            (Err(Trouble::Late), false),
            (Err(Trouble::Helper(words())), false),
            (Err(Trouble::Barred { wait_s: 1 }), false),
        ] {
            let passwords = passwords();
            let client = IpAddr::from([192, 0, 2, 1]);
            passwords.judged(ticket(0, client), Ok(Answer::Refused(words())));
            assert_eq!(Asker::barred(&*passwords, client), None);
            let shown = format!("{outcome:?}");
            passwords.judged(ticket(1, client), outcome);
            let barred = Asker::barred(&*passwords, client).is_some();
            assert_eq!(barred, is_charged, "{shown}");
        }
    }

    #[test]
    fn one_address_has_not_all_places() {
        let passwords = passwords();
        let [ann, bob] = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
        let look_up = |number: u8, client| {
            let asking = Asking {
                id: ConnectionId {
                    index: 0,
                    generation: 0,
                },
                desk: Arc::new(Nowhere),
            };
            let looked_up = passwords.look_up([number; 32], asking, client);
            looked_up.map_err(|(asked, _)| asked)
        };
        assert_eq!(look_up(1, ann), Ok(true));
        assert_eq!(look_up(2, ann), Ok(true));
        assert_eq!(look_up(3, ann), Err(Asked::Crowded));
        assert_eq!(look_up(1, ann), Ok(false));
        assert_eq!(look_up(1, ann), Ok(false));
        assert_eq!(look_up(1, ann), Err(Asked::Crowded));
        assert_eq!(look_up(4, bob), Ok(true));
        // After an answer there is room, and the same password gets the same result.
        passwords.judged(ticket(1, ann), Ok(Answer::Refused("why".to_owned())));
        assert_eq!(look_up(3, ann), Ok(true));
        for _ in 0..5 {
            assert_eq!(look_up(1, ann), Err(Asked::Cached));
        }
        assert_eq!(Asker::barred(&*passwords, ann), None);
    }
}
