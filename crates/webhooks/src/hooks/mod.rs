//! Hooks over HTTP: asks the back end to decide on clients' commands, as Centrifugo asks its
//! proxies.
//!
//! The hooks are shared by all workers. A worker submits a request and continues; a thread of the
//! outbound crate delivers the decision. Each kind of request at each URL has its own concurrency
//! limit, queue and breaker, so that a slow URL or kind does not delay others. Every request gets
//! exactly one decision, whatever happens to the back end or the configuration. A request that was
//! queued for too long is not sent, since its client has timed out.

mod answer;
mod metrics;
mod request_body;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tracing::warn;
use veche_calls::{CallOutcome, SecretUrl};
use veche_clock::{Clock, now};
use veche_config::{self as config, Config};
use veche_frontends::hooks::{BackEndId, HookDecision, HookKind, HookRequest, HookTarget};
use veche_logging::LogThrottle;
use veche_outbound::Outbound;
use veche_terminal::as_ms;

use crate::{CONNECTIONS_MAX, CircuitBreaker, ConcurrencyLimit, FetchRequest, FetchResponse, sign};

use answer::ParsedAnswer;
pub use metrics::{HookMetrics, WebhookOutcome};

/// The target of this module's log lines.
const TARGET: &str = "veche::hooks";

/// The longest response in bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// The hooks of the process.
#[derive(Debug, Default)]
pub struct HookClient {
    outbound: Outbound,
    figures: Arc<HookMetrics>,
    hooks: Mutex<Vec<RegisteredHook>>,
}

/// A registered hook. Its index is its [`BackEndId`], which clients store when they connect. An id therefore always
/// means the same kind of hook of the same route, even if a reload changes the hook's URL.
#[derive(Debug)]
struct RegisteredHook {
    route: Box<str>,
    kind: HookKind,
    /// The last URL that the route had for this kind of hook.
    url: Option<SecretUrl>,
    /// `None` if the current configuration contains neither this hook nor its last URL.
    endpoint: Option<Arc<HookEndpoint>>,
}

/// One URL for one kind of request.
#[derive(Debug)]
struct HookEndpoint {
    kind: HookKind,
    url: SecretUrl,
    options: Arc<config::HooksConfig>,
    outbound: Outbound,
    figures: Arc<HookMetrics>,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    gate: ConcurrencyLimit<QueuedRequest>,
    warnings: LogThrottle,
}

/// Receives the decision on a request.
pub type OnDecision = Box<dyn FnOnce(HookDecision) + Send>;

/// Maximum time of a request in the queue, in milliseconds. SDKs wait this long for the reply to a command. Without
/// this limit, a back end that is slower than the rate of reconnects would only decide commands whose clients have
/// given up.
const QUEUED_MS_MAX: u64 = 5_000;

/// A request that was not sent yet. Dropping it delivers [`HookDecision::Failed`].
struct QueuedRequest {
    request: HookRequest,
    done: Option<OnDecision>,
    queued_ms: u64,
}

impl QueuedRequest {
    fn has_expired(&self, now_ms: u64) -> bool {
        now_ms >= self.queued_ms + QUEUED_MS_MAX
    }
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done(HookDecision::Failed);
        }
    }
}

impl fmt::Debug for QueuedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request.fmt(f)
    }
}

/// A request that was sent. Dropping it delivers a failure if no decision was delivered before.
struct ActiveRequest {
    back_end: Arc<HookEndpoint>,
    /// The client whose command is decided. Timeouts of one client count as a single failure.
    client: Box<str>,
    asked: Instant,
    /// `None` once the request is answered.
    done: Option<OnDecision>,
}

impl HookClient {
    /// Creates a client without URLs.
    pub fn new(outbound: Outbound) -> Self {
        Self {
            outbound,
            ..Self::default()
        }
    }

    /// Returns the id of a route's hook, by the route's [name](config::RouteConfig::name). It stays the same over reloads.
    pub fn id(&self, route: &str, kind: HookKind) -> BackEndId {
        let mut hooks = self.hooks.lock();
        let found = hooks
            .iter()
            .position(|hook| hook.kind == kind && *hook.route == *route);
        let index = found.unwrap_or_else(|| {
            hooks.push(RegisteredHook {
                route: route.into(),
                kind,
                url: None,
                endpoint: None,
            });
            hooks.len() - 1
        });
        BackEndId(index as u32)
    }

    /// Applies a configuration. Requests in progress are completed with their previous settings.
    pub fn reload(&self, config: &Config) {
        let options = config
            .hooks
            .as_ref()
            .map(|options| Arc::new(options.clone()));
        let urls: Vec<(BackEndId, &SecretUrl)> = config
            .hook_urls()
            .map(|(route, kind, url)| (self.id(&route, kind), url))
            .collect();
        let mut hooks = self.hooks.lock();
        let before: Vec<Arc<HookEndpoint>> = hooks
            .iter_mut()
            .filter_map(|hook| hook.endpoint.take())
            .collect();
        let Some(options) = options else {
            return;
        };
        let mut current: Vec<Arc<HookEndpoint>> = Vec::new();
        for (BackEndId(index), url) in urls {
            let hook = &mut hooks[index as usize];
            // Hooks of one kind with the same URL share an endpoint, with its limits and its circuit breaker.
            let known = current.iter().chain(&before).find(|endpoint| {
                endpoint.kind == hook.kind && endpoint.url == *url && endpoint.options == options
            });
            let endpoint = match known {
                Some(known) => Arc::clone(known),
                None => self.endpoint(hook.kind, url, &options),
            };
            current.push(Arc::clone(&endpoint));
            hook.url = Some(url.clone());
            hook.endpoint = Some(endpoint);
        }
        // Clients of a route that was removed, or whose path has changed, keep the URL of their hook while another
        // route uses it.
        for hook in hooks.iter_mut().filter(|hook| hook.endpoint.is_none()) {
            let same = current.iter().find(|endpoint| {
                endpoint.kind == hook.kind && Some(&endpoint.url) == hook.url.as_ref()
            });
            hook.endpoint = same.cloned();
        }
    }

    fn endpoint(
        &self,
        kind: HookKind,
        url: &SecretUrl,
        options: &Arc<config::HooksConfig>,
    ) -> Arc<HookEndpoint> {
        let breaker = CircuitBreaker::new(options.failures, as_ms(options.pause));
        Arc::new(HookEndpoint {
            kind,
            url: url.clone(),
            options: Arc::clone(options),
            outbound: self.outbound.clone(),
            figures: Arc::clone(&self.figures),
            clock: Clock::new(),
            state: Mutex::new(State {
                gate: ConcurrencyLimit::new(options.concurrency, breaker),
                warnings: LogThrottle::default(),
            }),
        })
    }

    /// Submits a request. Returns the decision if it is available at once; otherwise `done` receives it, on any thread.
    pub fn ask(&self, request: HookRequest, done: OnDecision) -> Option<HookDecision> {
        let HookTarget::BackEnd(BackEndId(index)) = request.target else {
            return Some(HookDecision::Failed);
        };
        let hooks = self.hooks.lock();
        let back_end = hooks
            .get(index as usize)
            .and_then(|hook| hook.endpoint.clone());
        drop(hooks);
        let Some(back_end) = back_end else {
            // A reload removed the hook after the client had connected.
            return Some(HookDecision::Failed);
        };
        if let Err(spared) = back_end.check_admission() {
            back_end.figures.of(back_end.kind).count(spared);
            return Some(HookDecision::Failed);
        }
        let pending = QueuedRequest {
            request,
            done: Some(done),
            queued_ms: back_end.clock.now_ms(),
        };
        let admitted = back_end.state.lock().gate.admit(pending);
        if let Some(pending) = admitted {
            back_end.send(pending);
        }
        None
    }

    /// Returns the counters for `/metrics`.
    pub fn figures(&self) -> &HookMetrics {
        &self.figures
    }

    /// Returns whether requests of a kind are suspended for at least one URL, because its back end fails.
    pub fn is_paused(&self, kind: HookKind) -> bool {
        let hooks = self.hooks.lock();
        let mut of_kind = hooks
            .iter()
            .filter(|hook| hook.kind == kind)
            .filter_map(|hook| hook.endpoint.as_ref());
        of_kind.any(|one| one.state.lock().gate.is_open())
    }
}

impl HookEndpoint {
    /// Checks whether a new request may be sent, and counts it if so.
    ///
    /// # Errors
    /// The request must not be sent, for the given reason.
    fn check_admission(&self) -> Result<(), WebhookOutcome> {
        let now_ms = self.clock.now_ms();
        let mut state = self.state.lock();
        if state.gate.pending() >= self.options.waiting as usize {
            return Err(WebhookOutcome::Crowded);
        }
        if !state.gate.may_ask(now_ms) {
            return Err(WebhookOutcome::Paused);
        }
        self.figures.of(self.kind).waiting.add(1);
        Ok(())
    }

    fn send(self: &Arc<Self>, mut pending: QueuedRequest) {
        let hook_request = &pending.request;
        let body = request_body::body(hook_request);
        let mut headers = request_body::headers(hook_request);
        sign(&mut headers, &self.options.secrets, &body);
        let request = FetchRequest {
            url: self.url.expose(),
            headers,
            body: Some(body),
            timeout: self.options.timeout,
            body_bytes_max: ANSWER_BYTES_MAX,
            ca: self.options.ca.as_deref(),
            // Requests with different connection limits never share connections. Each kind of hook
            // has its own limit, so a slow hook can't occupy connections of another kind of hook.
            connections_max: self.options.concurrency + CONNECTIONS_MAX + 1 + self.kind as u32,
        };
        let client = match &*hook_request.user {
            "" => hook_request
                .caller
                .address
                .to_canonical()
                .to_string()
                .into(),
            user => user.into(),
        };
        let mut open = ActiveRequest {
            back_end: Arc::clone(self),
            client,
            asked: now(),
            done: pending.done.take(),
        };
        self.outbound.ask(request.into_call(), move |outcome| {
            let parsed = answer::read(open.back_end.kind, FetchResponse::of(outcome));
            if let Some(next) = open.answered(parsed) {
                open.back_end.send(next);
            }
        });
    }

    /// Records the end of a request; returns the next request to send.
    fn ended(&self, parsed: &ParsedAnswer, client: &str, asked: Instant) -> Option<QueuedRequest> {
        let figures = self.figures.of(self.kind);
        figures.waiting.sub(1);
        figures.count(parsed.how);
        figures.took.record(asked.elapsed());
        let now_ms = self.clock.now_ms();
        let mut state = self.state.lock();
        let refused = state.gate.ended(parsed.ending, client, now_ms);
        let expired = state.gate.expire(|pending| pending.has_expired(now_ms));
        let next = state.gate.start_next();
        let problem = parsed.problem.as_ref();
        let problem = problem.filter(|_| state.warnings.is_due(now_ms) || refused.is_some());
        drop(state);
        figures.not_asked(WebhookOutcome::Expired, expired.len());
        let (kind, url) = (self.kind.name(), &self.url);
        if let Some(problem) = problem {
            warn!(target: TARGET, "hook {kind} {url}: {problem}");
        }
        if let Some(refused) = refused {
            let pause = self.options.pause;
            warn!(target: TARGET, "hook {kind} {url}: requests are paused for {pause:?}");
            figures.not_asked(WebhookOutcome::Paused, refused.len());
        }
        next
    }
}

impl ActiveRequest {
    /// Delivers the decision, and returns the next request to send. If a decision was delivered before, does nothing and
    /// returns `None`.
    fn answered(&mut self, parsed: ParsedAnswer) -> Option<QueuedRequest> {
        let done = self.done.take()?;
        let next = self.back_end.ended(&parsed, &self.client, self.asked);
        done(parsed.decision);
        next
    }

    /// Delivers a failure and returns the next request to send. If the request was answered, does nothing and returns
    /// `None`.
    fn abandoned(&mut self) -> Option<QueuedRequest> {
        self.done.as_ref()?;
        let parsed = answer::read(self.back_end.kind, FetchResponse::of(gone()));
        self.answered(parsed)
    }
}

impl Drop for ActiveRequest {
    /// If this request was not answered, delivers a failure for it and for each queued request. A
    /// request is dropped unanswered only when the server shuts down.
    fn drop(&mut self) {
        let mut next = self.abandoned();
        while let Some(mut pending) = next {
            let mut open = Self {
                back_end: Arc::clone(&self.back_end),
                client: Box::default(),
                asked: self.asked,
                done: pending.done.take(),
            };
            next = open.abandoned();
        }
    }
}

fn gone() -> CallOutcome {
    Err(veche_calls::CallError::new(
        veche_calls::CallErrorKind::Unreachable,
        "the server is shutting down",
    ))
}
