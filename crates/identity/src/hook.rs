//! The identity hook: a back end that identifies users. Responses are cached, identical requests are merged,
//! concurrency is limited, and requests are suspended while the back end fails.

mod exchange;

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tracing::warn;
use veche_calls::{CallOutcome, SecretUrl};
use veche_clock::{Clock, now};
use veche_config::{self as config, unix_now_ms};
use veche_frontends::Now;
use veche_frontends::app::MaybeDeferred;
use veche_frontends::identity::hook::{IdentityBackend, IdentityRequest};
use veche_frontends::identity::{AuthError, CompletionSink, IdentityResult};
use veche_hub::ConnectionId;
use veche_logging::LogThrottle;
use veche_outbound::Outbound;
use veche_terminal::as_ms;
use veche_webhooks::{CircuitBreaker, ConcurrencyLimit, FetchRequest, FetchResponse};

use super::cache::AnswerDigest;
use super::metrics::{IdentityMetrics, LookupOutcome};
use super::pending_lookups::{NotAsked, PendingLookups, WaitingClient};
use super::revoked_sessions::RevokedSessions;

/// The target of this module's log lines.
const TARGET: &str = "veche::identity::hook";

/// Maximum size of a response in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// One hook URL with its cache, queue and breaker.
#[derive(Debug)]
pub(super) struct HookBackend {
    url: SecretUrl,
    options: config::IdentityHookConfig,
    outbound: Outbound,
    figures: Arc<IdentityMetrics>,
    clock: Clock,
    state: Mutex<HookState>,
    /// A reference to this value, for completions on other threads.
    me: Weak<Self>,
}

#[derive(Debug)]
struct HookState {
    gate: ConcurrencyLimit<HookCall>,
    lookups: PendingLookups,
    warnings: LogThrottle,
}

/// A request to the back end.
#[derive(Debug)]
struct HookCall {
    digest: AnswerDigest,
    headers: Vec<(String, Vec<u8>)>,
    client: Box<str>,
}

impl HookBackend {
    pub(super) fn new(
        url: &SecretUrl,
        options: &config::IdentityHookConfig,
        (outbound, figures, ended): (&Outbound, &Arc<IdentityMetrics>, &Arc<RevokedSessions>),
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            url: url.clone(),
            options: options.clone(),
            outbound: outbound.clone(),
            figures: Arc::clone(figures),
            clock: Clock::new(),
            state: Mutex::new(HookState {
                gate: ConcurrencyLimit::new(
                    options.concurrency,
                    CircuitBreaker::new(options.failures, as_ms(options.pause)),
                ),
                lookups: PendingLookups::new(
                    options.cache_entries as usize,
                    options.waiting,
                    ended,
                ),
                warnings: LogThrottle::default(),
            }),
            me: Weak::clone(me),
        })
    }

    /// Returns whether the hook's configuration is unchanged.
    pub(super) fn matches(&self, options: &config::IdentityHookConfig) -> bool {
        self.options == *options
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.state.lock().gate.is_open()
    }

    /// Registers a client that waits for an identity. Returns `true` if the caller must send a request; `false` if a
    /// request in progress will answer this client too. If the result is already known, or no further request is
    /// permitted, returns the result as `Err`.
    fn look_up(
        &self,
        digest: AnswerDigest,
        asking: WaitingClient,
    ) -> Result<bool, (LookupOutcome, IdentityResult)> {
        let now_ms = self.clock.now_ms();
        let mut state = self.state.lock();
        let HookState { gate, lookups, .. } = &mut *state;
        let may_wait = |is_new: bool| match !is_new || gate.may_ask(now_ms) {
            true => Ok(()),
            false => Err(()),
        };
        let looked_up = lookups.look_up(digest, asking, now_ms, may_wait);
        looked_up.map_err(|spared| match spared {
            NotAsked::Known(identity_result) => (LookupOutcome::Cached, identity_result),
            NotAsked::Crowded => (LookupOutcome::Crowded, NO_ANSWER),
            NotAsked::Barred(()) => (LookupOutcome::Paused, NO_ANSWER),
        })
    }

    fn send(&self, get: HookCall) {
        let HookCall {
            digest,
            headers,
            client,
        } = get;
        let request = FetchRequest {
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
                me.figures.took.record(now() - asked_at);
                me.answered(digest, &client, outcome);
            }
        });
    }

    fn answered(&self, digest: AnswerDigest, client: &str, outcome: CallOutcome) {
        let mut parsed = exchange::read(FetchResponse::of(outcome), self.options.cache_time);
        self.figures.count_lookup(match &parsed.identity_result {
            IdentityResult::Verified(_) => LookupOutcome::Named,
            IdentityResult::Failed(AuthError::RejectedByHook | AuthError::ForbiddenByHook) => {
                LookupOutcome::Refused
            }
            _ => LookupOutcome::Failed,
        });
        let now_ms = self.clock.now_ms();
        let mut state = self.state.lock();
        let HookState {
            gate,
            lookups,
            warnings,
        } = &mut *state;
        let refused = gate.ended(parsed.ending, client, now_ms);
        let next = gate.start_next();
        let asking = lookups.answered(&digest, &mut parsed.identity_result);
        let digests = refused.iter().flatten().map(|get| &get.digest);
        let unanswered = lookups.take_unsent(digests);
        if let Some(kept) = parsed.cache_time(unix_now_ms()) {
            let until_ms = now_ms.saturating_add(as_ms(kept));
            lookups.store(digest, parsed.identity_result.clone(), until_ms);
        }
        let problem = parsed
            .problem
            .filter(|_| warnings.is_due(now_ms) || refused.is_some());
        if problem.is_some() {
            warnings.mark_logged(now_ms);
        }
        drop(state);
        if let Some(problem) = problem {
            warn!(target: TARGET, "identity hook {}: {problem}", self.url);
        }
        if let Some(refused) = refused {
            let pause = self.options.pause;
            warn!(target: TARGET, "identity hook {}: requests are paused for {pause:?}", self.url);
            refused
                .iter()
                .for_each(|_| self.figures.count_lookup(LookupOutcome::Paused));
        }
        self.complete(asking, &parsed.identity_result);
        self.complete(unanswered, &NO_ANSWER);
        if let Some(next) = next {
            self.send(next);
        }
    }

    /// Fails queued requests without sending them.
    pub(super) fn refuse_queued(&self) {
        let mut state = self.state.lock();
        let HookState { gate, lookups, .. } = &mut *state;
        let queue = gate.take_queue();
        let unanswered = lookups.take_unsent(queue.iter().map(|get| &get.digest));
        drop(state);
        self.complete(unanswered, &NO_ANSWER);
    }

    fn complete(&self, asking: Vec<WaitingClient>, identity_result: &IdentityResult) {
        self.figures.waiting.sub(asking.len() as u64);
        for WaitingClient { id, sink } in asking {
            sink.complete(id, identity_result.clone());
        }
    }
}

/// The result for clients whose request is not sent to the hook.
const NO_ANSWER: IdentityResult = IdentityResult::Failed(AuthError::HookUnavailable);

impl IdentityBackend for HookBackend {
    fn begin(
        &self,
        request: &IdentityRequest<'_>,
        id: ConnectionId,
        sink: &Arc<dyn CompletionSink>,
        _: Now,
    ) -> MaybeDeferred<IdentityResult> {
        let headers = exchange::forwarded_headers(request, &self.options.headers);
        let digest = exchange::digest(&headers);
        let sink = Arc::clone(sink);
        // The gauge is increased before a completion can decrease it.
        self.figures.waiting.add(1);
        match self.look_up(digest, WaitingClient { id, sink }) {
            Err((asked, identity_result)) => {
                self.figures.waiting.sub(1);
                self.figures.count_lookup(asked);
                return MaybeDeferred::Ready(identity_result);
            }
            Ok(false) => self.figures.count_lookup(LookupOutcome::Joined),
            Ok(true) => {
                let get = HookCall {
                    digest,
                    headers,
                    client: request.client.to_canonical().to_string().into(),
                };
                let now = self.state.lock().gate.admit(get);
                if let Some(get) = now {
                    self.send(get);
                }
            }
        }
        MaybeDeferred::Deferred
    }
}
