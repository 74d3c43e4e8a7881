//! A back end that is asked who clients are: what it has said before is kept, the same question is asked once at a time,
//! those who wait are counted, and one that fails is left alone for a while.

mod question;

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tracing::warn;
use veche_calls::{Outcome as CallOutcome, SecretUrl};
use veche_frontends::Now;
use veche_frontends::app::Outcome;
use veche_frontends::identity::hook::{Hook, Question};
use veche_frontends::identity::{Desk, Finding, Unknown};
use veche_hub::ConnectionId;
use veche_outbound::Outbound;

use super::cache::Digest;
use super::ended::Ended;
use super::figures::{Asked, Figures};
use super::questions::{Asking, Questions, Spared};
use crate::asking::{Answer, Breaker, CONNECTIONS_MAX, Request, Seldom};
use crate::config::{self, as_ms, unix_now_ms};
use crate::process::{Clock, now};

/// Longest answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// See the module's text.
#[derive(Debug)]
pub(super) struct BackEnd {
    url: SecretUrl,
    options: config::Hook,
    outbound: Outbound,
    figures: Arc<Figures>,
    clock: Clock,
    state: Mutex<State>,
    /// For what comes later.
    me: Weak<Self>,
}

#[derive(Debug)]
struct State {
    breaker: Breaker,
    questions: Questions,
    warnings: Seldom,
}

impl BackEnd {
    pub(super) fn new(
        url: &SecretUrl,
        options: &config::Hook,
        (outbound, figures, ended): (&Outbound, &Arc<Figures>, &Arc<Ended>),
    ) -> Arc<Self> {
        let pause_ms = as_ms(options.pause);
        Arc::new_cyclic(|me| Self {
            url: url.clone(),
            options: options.clone(),
            outbound: outbound.clone(),
            figures: Arc::clone(figures),
            clock: Clock::new(),
            state: Mutex::new(State {
                breaker: Breaker::new(options.failures, pause_ms),
                questions: Questions::new(options.cache_entries as usize, options.waiting, ended),
                warnings: Seldom::default(),
            }),
            me: Weak::clone(me),
        })
    }

    /// Whether it is asked as a configuration wants it.
    pub(super) fn is_by(&self, options: &config::Hook) -> bool {
        self.options == *options
    }

    pub(super) fn is_left_alone(&self) -> bool {
        self.state.lock().breaker.is_paused()
    }

    /// What is known without asking; otherwise whether the question is a new one.
    fn look_up(&self, digest: Digest, asking: Asking) -> Result<bool, (Asked, Finding)> {
        let now_ms = self.clock.now_ms();
        let mut state = self.state.lock();
        let State {
            breaker, questions, ..
        } = &mut *state;
        let may_wait = |is_new: bool| match !is_new || breaker.may_ask(now_ms) {
            true => Ok(()),
            false => Err(()),
        };
        let looked_up = questions.look_up(digest, asking, now_ms, may_wait);
        let unknown = Finding::Unknown(Unknown::NoAnswer);
        looked_up.map_err(|spared| match spared {
            Spared::Known(finding) => (Asked::Cached, finding),
            Spared::Crowded => (Asked::Crowded, unknown),
            Spared::Barred(()) => (Asked::Paused, unknown),
        })
    }

    fn answered(&self, digest: Digest, outcome: CallOutcome) {
        let mut said = question::read(Answer::of(outcome), self.options.cache_time);
        self.figures.asked(match &said.finding {
            Finding::Named(_) => Asked::Named,
            Finding::Unknown(Unknown::Stranger | Unknown::Unwanted) => Asked::Refused,
            _ => Asked::Failed,
        });
        let now_ms = self.clock.now_ms();
        let mut state = self.state.lock();
        let is_left_alone = state.breaker.answered(said.is_failure, now_ms);
        let asking = state.questions.answered(&digest, &mut said.finding);
        if let Some(kept) = said.kept_for(unix_now_ms()) {
            let until_ms = now_ms.saturating_add(as_ms(kept));
            state.questions.keep(digest, said.finding.clone(), until_ms);
        }
        let warnings = &mut state.warnings;
        let trouble = said
            .trouble
            .filter(|_| warnings.is_due(now_ms) || is_left_alone);
        if trouble.is_some() {
            warnings.said(now_ms);
        }
        drop(state);
        if let Some(trouble) = trouble {
            warn!("hook {}: {trouble}", self.url);
        }
        if is_left_alone {
            let pause = self.options.pause;
            warn!("hook {}: it is left alone for {pause:?}", self.url);
        }
        self.figures.waiting.sub(asking.len() as u64);
        for Asking { id, desk } in asking {
            desk.tell(id, said.finding.clone());
        }
    }
}

impl Hook for BackEnd {
    fn ask(
        &self,
        question: &Question<'_>,
        id: ConnectionId,
        desk: &Arc<dyn Desk>,
        _: Now,
    ) -> Outcome<Finding> {
        let passed = question::passed_on(question, &self.options.headers);
        let digest = question::digest(&passed);
        let desk = Arc::clone(desk);
        // Before it can be answered.
        self.figures.waiting.add(1);
        match self.look_up(digest, Asking { id, desk }) {
            Err((asked, finding)) => {
                self.figures.waiting.sub(1);
                self.figures.asked(asked);
                return Outcome::Now(finding);
            }
            Ok(false) => self.figures.asked(Asked::Joined),
            Ok(true) => {
                let get = Request {
                    url: self.url.expose(),
                    headers: passed,
                    body: None,
                    timeout: self.options.timeout,
                    body_bytes_max: ANSWER_BYTES_MAX,
                    ca: self.options.ca.as_deref(),
                    connections_max: CONNECTIONS_MAX,
                };
                let me = Weak::clone(&self.me);
                let asked_at = now();
                self.outbound.ask(get.into_call(), move |outcome| {
                    if let Some(me) = me.upgrade() {
                        me.figures.took.took(now() - asked_at);
                        me.answered(digest, outcome);
                    }
                });
            }
        }
        Outcome::Later
    }
}
