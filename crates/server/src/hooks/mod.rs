//! The back end that decides on clients' commands, asked over HTTP as Centrifugo asks its proxies.
//!
//! The process's, shared by all workers: they hand in a question and go on at once; the verdict is told from a thread of the
//! outbound side. Each kind has a URL of its own, a bound of questions that wait, and a breaker, so that one that hangs does
//! not hold up the others. Every question is answered exactly once, whatever becomes of the back end, the configuration
//! or the client.

mod answer;
mod figures;
mod question;

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tracing::warn;
use veche_calls::{Outcome, SecretUrl};
use veche_frontends::hooks::{Kind, Question, Verdict};
use veche_outbound::Outbound;

use crate::asking::{Answer, Breaker, CONNECTIONS_MAX, Request, Seldom, sign};
use crate::config::{self, as_ms};
use crate::process::{Clock, now};

use answer::Said;
pub(crate) use figures::{Asked, Figures};

/// Longest answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    outbound: Outbound,
    figures: Arc<Figures>,
    /// By kind; `None` where nobody is asked.
    back_ends: Mutex<[Option<Arc<BackEnd>>; Kind::ALL.len()]>,
}

/// The back end as far as one kind of questions goes.
#[derive(Debug)]
struct BackEnd {
    kind: Kind,
    url: SecretUrl,
    options: Arc<config::Hooks>,
    figures: Arc<Figures>,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    breaker: Breaker,
    /// Questions that are out.
    waiting: u32,
    warnings: Seldom,
}

/// A question that is out. It is answered when this goes, at the latest.
struct Open<D: FnOnce(Verdict)> {
    back_end: Arc<BackEnd>,
    asked: Instant,
    /// `None` once it is answered.
    done: Option<D>,
}

impl Hooks {
    /// Whose questions go out that way.
    pub(crate) fn new(outbound: Outbound) -> Self {
        Self {
            outbound,
            ..Self::default()
        }
    }

    /// Whoever is asked from now on; what is out is answered as it was asked.
    pub(crate) fn reload(&self, options: Option<&config::Hooks>) {
        let mut back_ends = self.back_ends.lock();
        let options = options.map(|options| Arc::new(options.clone()));
        for (kind, place) in Kind::OF_BACK_ENDS.into_iter().zip(back_ends.iter_mut()) {
            let wanted = options.as_ref().and_then(|options| {
                let url = options.url(kind)?;
                Some((url, options))
            });
            let Some((url, options)) = wanted else {
                *place = None;
                continue;
            };
            let is_same = |before: &&Arc<BackEnd>| before.url == *url && before.options == *options;
            if place.as_ref().filter(is_same).is_none() {
                *place = Some(Arc::new(BackEnd {
                    kind,
                    url: url.clone(),
                    options: Arc::clone(options),
                    figures: Arc::clone(&self.figures),
                    clock: Clock::new(),
                    state: Mutex::new(State {
                        breaker: Breaker::new(options.failures, as_ms(options.pause)),
                        waiting: 0,
                        warnings: Seldom::default(),
                    }),
                }));
            }
        }
    }

    /// Asks. The verdict is there at once, or it is told exactly once, from any thread.
    pub(crate) fn ask(
        &self,
        question: &Question,
        done: impl FnOnce(Verdict) + Send + 'static,
    ) -> Option<Verdict> {
        let back_end = self.back_ends.lock()[question.kind as usize].clone();
        let Some(back_end) = back_end else {
            // It was asked by a session that knows an older configuration.
            return Some(Verdict::Failed);
        };
        if let Err(spared) = back_end.begin() {
            back_end.figures.of(back_end.kind).asked(spared);
            return Some(Verdict::Failed);
        }
        let request = back_end.request(question);
        let mut open = Open {
            back_end,
            asked: now(),
            done: Some(done),
        };
        self.outbound.ask(request, move |outcome| {
            let said = answer::read(open.back_end.kind, Answer::of(outcome));
            open.answered(said);
        });
        None
    }

    /// For the metrics.
    pub(crate) fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Whether a kind's back end is left alone for now.
    pub(crate) fn is_paused(&self, kind: Kind) -> bool {
        let back_ends = self.back_ends.lock();
        let back_end = back_ends[kind as usize].as_ref();
        back_end.is_some_and(|one| one.state.lock().breaker.is_paused())
    }
}

impl BackEnd {
    /// Counts one more question; why it is not asked.
    fn begin(&self) -> Result<(), Asked> {
        let now_ms = self.clock.now_ms();
        let mut state = self.state.lock();
        if state.waiting >= self.options.waiting {
            return Err(Asked::Crowded);
        }
        if !state.breaker.may_ask(now_ms) {
            return Err(Asked::Paused);
        }
        state.waiting += 1;
        drop(state);
        self.figures.of(self.kind).waiting.add(1);
        Ok(())
    }

    fn request(&self, question: &Question) -> veche_calls::Call {
        let body = question::body(question);
        let mut headers = question::headers(question);
        sign(&mut headers, &self.options.secrets, &body);
        let request = Request {
            url: self.url.expose(),
            headers,
            body: Some(body),
            timeout: self.options.timeout,
            body_bytes_max: ANSWER_BYTES_MAX,
            ca: self.options.ca.as_deref(),
            // Each kind has another limit and so its own connections: one that hangs takes none of the others'.
            connections_max: CONNECTIONS_MAX + 1 + self.kind as u32,
        };
        request.into_call()
    }

    fn ended(&self, said: &Said, asked: Instant) {
        let figures = self.figures.of(self.kind);
        figures.waiting.sub(1);
        figures.asked(said.how);
        figures.took.took(asked.elapsed());
        let now_ms = self.clock.now_ms();
        let mut state = self.state.lock();
        state.waiting -= 1;
        let is_left_alone = match said.is_failure {
            Some(is_failure) => state.breaker.answered(is_failure, now_ms),
            None => {
                state.breaker.not_asked();
                false
            }
        };
        let trouble = said.trouble.as_ref();
        let trouble = trouble.filter(|_| state.warnings.is_due(now_ms) || is_left_alone);
        drop(state);
        let (kind, url) = (self.kind.name(), &self.url);
        if let Some(trouble) = trouble {
            warn!("hook {kind} {url}: {trouble}");
        }
        if is_left_alone {
            let pause = self.options.pause;
            warn!("hook {kind} {url}: it is left alone for {pause:?}");
        }
    }
}

impl<D: FnOnce(Verdict)> Open<D> {
    fn answered(&mut self, said: Said) {
        if let Some(done) = self.done.take() {
            self.back_end.ended(&said, self.asked);
            done(said.verdict);
        }
    }
}

impl<D: FnOnce(Verdict)> Drop for Open<D> {
    /// Nobody will answer any more: the server is ending.
    fn drop(&mut self) {
        if self.done.is_some() {
            let said = answer::read(self.back_end.kind, Answer::of(gone()));
            self.answered(said);
        }
    }
}

fn gone() -> Outcome {
    Err(veche_calls::Fault::new(
        veche_calls::FaultKind::Unreachable,
        "the server is ending",
    ))
}
