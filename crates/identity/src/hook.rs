//! The identity hook: a back end that identifies users. Responses are cached, identical requests are merged,
//! concurrency is limited, and requests are suspended while the back end fails.

mod question;

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tracing::warn;
use veche_calls::{Outcome as CallOutcome, SecretUrl};
use veche_clock::{Clock, now};
use veche_config::{self as config, unix_now_ms};
use veche_frontends::Now;
use veche_frontends::app::Outcome;
use veche_frontends::identity::hook::{Hook, Question};
use veche_frontends::identity::{Desk, Finding, Unknown};
use veche_hub::ConnectionId;
use veche_logging::Seldom;
use veche_outbound::Outbound;
use veche_terminal::as_ms;
use veche_webhooks::{Answer, Breaker, Gate, Request};

use super::cache::Digest;
use super::ended::Ended;
use super::figures::{Asked, Figures};
use super::questions::{Asking, Questions, Spared};

/// The target of this module's log lines.
const TARGET: &str = "veche::identity::hook";

/// The longest response in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// One hook URL with its cache, queue and breaker.
#[derive(Debug)]
pub(super) struct BackEnd {
    url: SecretUrl,
    options: config::IdentityHook,
    outbound: Outbound,
    figures: Arc<Figures>,
    clock: Clock,
    state: Mutex<State>,
    /// A reference for completions on other threads.
    me: Weak<Self>,
}

#[derive(Debug)]
struct State {
    gate: Gate<Get>,
    questions: Questions,
    warnings: Seldom,
}

/// A request to the back end.
#[derive(Debug)]
struct Get {
    digest: Digest,
    headers: Vec<(String, Vec<u8>)>,
    client: Box<str>,
}

impl BackEnd {
    pub(super) fn new(
        url: &SecretUrl,
        options: &config::IdentityHook,
        (outbound, figures, ended): (&Outbound, &Arc<Figures>, &Arc<Ended>),
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            url: url.clone(),
            options: options.clone(),
            outbound: outbound.clone(),
            figures: Arc::clone(figures),
            clock: Clock::new(),
            state: Mutex::new(State {
                gate: Gate::new(
                    options.concurrency,
                    Breaker::new(options.failures, as_ms(options.pause)),
                ),
                questions: Questions::new(options.cache_entries as usize, options.waiting, ended),
                warnings: Seldom::default(),
            }),
            me: Weak::clone(me),
        })
    }

    /// Returns whether the hook's configuration is unchanged.
    pub(super) fn is_by(&self, options: &config::IdentityHook) -> bool {
        self.options == *options
    }

    pub(super) fn is_left_alone(&self) -> bool {
        self.state.lock().gate.is_open()
    }

    /// Returns a cached result; otherwise whether a request has to be sent.
    fn look_up(&self, digest: Digest, asking: Asking) -> Result<bool, (Asked, Finding)> {
        let now_ms = self.clock.now_ms();
        let mut state = self.state.lock();
        let State {
            gate, questions, ..
        } = &mut *state;
        let may_wait = |is_new: bool| match !is_new || gate.may_ask(now_ms) {
            true => Ok(()),
            false => Err(()),
        };
        let looked_up = questions.look_up(digest, asking, now_ms, may_wait);
        looked_up.map_err(|spared| match spared {
            Spared::Known(finding) => (Asked::Cached, finding),
            Spared::Crowded => (Asked::Crowded, NO_ANSWER),
            Spared::Barred(()) => (Asked::Paused, NO_ANSWER),
        })
    }

    fn send(&self, get: Get) {
        let Get {
            digest,
            headers,
            client,
        } = get;
        let request = Request {
            url: self.url.expose(),
            headers,
            body: None,
            timeout: self.options.timeout,
            body_bytes_max: ANSWER_BYTES_MAX,
            ca: self.options.ca.as_deref(),
            connections_max: self.options.concurrency,
        };
        let me = Weak::clone(&self.me);
        let asked_at = now();
        self.outbound.ask(request.into_call(), move |outcome| {
            if let Some(me) = me.upgrade() {
                me.figures.took.took(now() - asked_at);
                me.answered(digest, &client, outcome);
            }
        });
    }

    fn answered(&self, digest: Digest, client: &str, outcome: CallOutcome) {
        let mut said = question::read(Answer::of(outcome), self.options.cache_time);
        self.figures.asked(match &said.finding {
            Finding::Named(_) => Asked::Named,
            Finding::Unknown(Unknown::Stranger | Unknown::Unwanted) => Asked::Refused,
            _ => Asked::Failed,
        });
        let now_ms = self.clock.now_ms();
        let mut state = self.state.lock();
        let State {
            gate,
            questions,
            warnings,
        } = &mut *state;
        let refused = gate.ended(said.ending, client, now_ms);
        let next = gate.start_next();
        let asking = questions.answered(&digest, &mut said.finding);
        let digests = refused.iter().flatten().map(|get| &get.digest);
        let unanswered = questions.unanswered(digests);
        if let Some(kept) = said.kept_for(unix_now_ms()) {
            let until_ms = now_ms.saturating_add(as_ms(kept));
            questions.keep(digest, said.finding.clone(), until_ms);
        }
        let trouble = said
            .trouble
            .filter(|_| warnings.is_due(now_ms) || refused.is_some());
        if trouble.is_some() {
            warnings.said(now_ms);
        }
        drop(state);
        if let Some(trouble) = trouble {
            warn!(target: TARGET, "identity hook {}: {trouble}", self.url);
        }
        if let Some(refused) = refused {
            let pause = self.options.pause;
            warn!(target: TARGET, "identity hook {}: not asked for {pause:?}", self.url);
            refused
                .iter()
                .for_each(|_| self.figures.asked(Asked::Paused));
        }
        self.tell(asking, &said.finding);
        self.tell(unanswered, &NO_ANSWER);
        if let Some(next) = next {
            self.send(next);
        }
    }

    /// Fails queued requests without sending them.
    pub(super) fn refuse_queued(&self) {
        let mut state = self.state.lock();
        let State {
            gate, questions, ..
        } = &mut *state;
        let queue = gate.take_queue();
        let unanswered = questions.unanswered(queue.iter().map(|get| &get.digest));
        drop(state);
        self.tell(unanswered, &NO_ANSWER);
    }

    fn tell(&self, asking: Vec<Asking>, finding: &Finding) {
        self.figures.waiting.sub(asking.len() as u64);
        for Asking { id, desk } in asking {
            desk.tell(id, finding.clone());
        }
    }
}

/// The result of a request that is not sent.
const NO_ANSWER: Finding = Finding::Unknown(Unknown::NoAnswer);

impl Hook for BackEnd {
    fn ask(
        &self,
        question: &Question<'_>,
        id: ConnectionId,
        desk: &Arc<dyn Desk>,
        _: Now,
    ) -> Outcome<Finding> {
        let headers = question::passed_on(question, &self.options.headers);
        let digest = question::digest(&headers);
        let desk = Arc::clone(desk);
        // Counted before a completion can decrease it.
        self.figures.waiting.add(1);
        match self.look_up(digest, Asking { id, desk }) {
            Err((asked, finding)) => {
                self.figures.waiting.sub(1);
                self.figures.asked(asked);
                return Outcome::Now(finding);
            }
            Ok(false) => self.figures.asked(Asked::Joined),
            Ok(true) => {
                let get = Get {
                    digest,
                    headers,
                    client: question.client.to_canonical().to_string().into(),
                };
                let now = self.state.lock().gate.admit(get);
                if let Some(get) = now {
                    self.send(get);
                }
            }
        }
        Outcome::Later
    }
}
