//! The applications of one worker. Each has a runtime, such as a Lua VM, and during a reload also the runtime of its
//! previous code.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use veche_calls::CallReply;
use veche_calls::channel::ChannelReply;
use veche_frontends::app::{
    AbandonReason, AppAnswer, AppBody, AppProgress, AppResponse, HandshakeDecision, MaybeDeferred,
    RequestView,
};
use veche_frontends::{AppId, Apps, Context};
use veche_hub::{ConnectionId, HubReply, SubscribeOutcome, Ticket, WorkerId};
use veche_proto::http::Status;
use veche_proto::websocket::{MessageKind, handshake};
use veche_runtime::{
    Effects, Event, EventKind, Host, PositionRequest, Runtime, Token, WorkerWaker,
};

use super::api_calls::ApiCalls;
use super::calls::{CallExecutor, CallQueue};
use super::channel_query::outcome;
use super::deferred_publishes::DeferredPublishes;
use super::dial::DialAction;
use super::events::EventQueue;
use super::handover::ShutdownState;
use super::hooks::{PendingHooks, update_hook_kinds};
use super::hosted::HostedRuntime;
use super::notices::{NoticePublisher, Notices};
use super::recorder::AppRecorder;
use super::registry::{AppBundle, AppSet};
use super::remote_sends::RemoteSends;
use super::requester::Requester;
use super::service::{Lifecycle, ServicePhase};
use super::user_search::UserSearches;

/// The log target of the lines that scripts log.
pub(super) const LOG: &str = "veche::app";

/// The error text for a publication or subscription to which the engine has not replied.
const UNANSWERED: &str = "internal server error: the command may or may not have been executed";

/// The delay in milliseconds before deferred publications, messages to other workers and waiting API calls are retried.
const LOOK_AGAIN_MS: u64 = 1;

/// The applications of one worker.
pub struct AppHosts {
    pub(super) worker: WorkerId,
    pub(super) workers: u16,
    pub(super) apps: Vec<Option<RunningApp>>,
    /// An empty buffer that is swapped with the effects of a call, so that no call allocates a buffer.
    pub(super) spare: Effects,
    pub(super) tickets: PendingSubscribes,
    pub(super) held: DeferredPublishes,
    /// Hook requests of Centrifuge clients that the applications have not decided yet.
    pub(super) pending_hooks: PendingHooks,
    /// The channel and user events that the application has not received yet.
    pub(super) event_queue: EventQueue,
    /// Requests to open or abandon outgoing connections. The worker carries them out because it owns the sockets.
    pub(super) asked: Vec<DialAction>,
    /// Messages to the applications on the other workers.
    pub(super) far: RemoteSends,
    /// The running searches for connections of a user.
    pub(super) user_searches: UserSearches,
    /// The running API calls of applications.
    pub(super) commands: ApiCalls,
    /// The running calls to external services.
    pub(super) calls: CallQueue,
    /// The handlers that wait until the outbox of their connection has room for more of the response.
    pub(super) writers: HashMap<ConnectionId, Vec<Token>>,
    /// Records the applications' actions for a test.
    pub(super) recorder: Option<AppRecorder>,
    /// Whether the server is shutting down and `app.stop` of the applications has been called.
    pub(super) is_stopping: bool,
    /// Whether the services of this worker may run.
    pub(super) phase: ServicePhase,
    /// Publishes developer notices. Set on one worker only, and only under `veche dev`.
    pub(super) notices: Option<NoticePublisher>,
    /// The facilities that this worker provides to the runtimes of applications.
    host: Host,
    now_ms: u64,
}

/// An application on this worker.
pub(super) struct RunningApp {
    pub(super) bundle: Arc<AppBundle>,
    /// The runtime that runs the application's handlers.
    pub(super) runtime: HostedRuntime,
    /// The state of the service's lifecycle, if the application is a service.
    pub(super) lifecycle: Option<Lifecycle>,
    /// The progress of the application's shutdown, once the application is no longer configured.
    pub(super) exit: Option<ShutdownState>,
}

/// Handlers that wait for the hub's answer to a subscription or query.
///
/// If the session closes or unsubscribes before its subscription is registered, the hub sends no
/// reply. The waiting handlers are then found by their session and resumed with an error.
#[derive(Default)]
pub(super) struct PendingSubscribes {
    last: u32,
    waiting: BTreeMap<(ConnectionId, u32), SubscribeWaiter>,
}

/// A handler that waits for a subscription, or for the reply of a channel's home worker to a query.
pub(super) struct SubscribeWaiter {
    pub(super) token: Token,
    pub(super) channel: String,
    /// The handler's request for the position of the subscription; `None` if it did not request the position.
    pub(super) place: Option<PositionRequest>,
}

impl SubscribeWaiter {
    /// Handles a completed subscription: notifies the client if its route reports positions. Returns the outcome for
    /// the waiting handler if the handler requested the position, otherwise `None`.
    pub(super) fn joined(
        &self,
        session: ConnectionId,
        joined: Option<&SubscribeOutcome>,
        shared: &mut Context,
    ) -> Option<veche_calls::CallOutcome> {
        let is_back = self.place.is_some_and(|place| place.since.is_some());
        let recovered = shared.send_subscribed(session, &self.channel, joined, is_back);
        self.place?;
        let position = joined.map(|joined| joined.position);
        Some(Ok(CallReply::Channel(ChannelReply::Joined {
            position: position.map(|at| (at.epoch.to_string(), at.offset)),
            recovered,
        })))
    }
}

impl PendingSubscribes {
    /// Registers a handler, identified by `token`. Returns a ticket; the hub's reply with this ticket resumes the
    /// handler.
    pub(super) fn issue(&mut self, session: ConnectionId, channel: &str, token: Token) -> Ticket {
        self.last = self.last.wrapping_add(1);
        let waiting = SubscribeWaiter {
            token,
            channel: channel.to_owned(),
            place: None,
        };
        self.waiting.insert((session, self.last), waiting);
        Ticket(self.last)
    }

    /// Like [`issue`](Self::issue), but for a handler that may also request the position of its subscription. If `place`
    /// is `None`, the handler does not request it.
    pub(super) fn issue_with_position(
        &mut self,
        session: ConnectionId,
        channel: &str,
        token: Token,
        place: Option<PositionRequest>,
    ) -> Ticket {
        let ticket = self.issue(session, channel, token);
        if let Some(waiting) = self.waiting.get_mut(&(session, ticket.0)) {
            waiting.place = place;
        }
        ticket
    }

    pub(super) fn take(
        &mut self,
        session: ConnectionId,
        ticket: Ticket,
    ) -> Option<SubscribeWaiter> {
        self.waiting.remove(&(session, ticket.0))
    }

    /// Removes handlers of a session, because the hub will not reply to them, and returns their tokens. If `channel` is
    /// `None`, removes all waiting handlers of the session, otherwise only those that wait for this channel.
    pub(super) fn drop_waiters(
        &mut self,
        session: ConnectionId,
        channel: Option<&str>,
    ) -> Vec<Token> {
        let all = self.waiting.range((session, 0)..=(session, u32::MAX));
        let over = all.filter(|(_, waiting)| channel.is_none_or(|name| name == waiting.channel));
        let over: Vec<(ConnectionId, u32)> = over.map(|(key, _)| *key).collect();
        let taken = over.iter().filter_map(|key| self.waiting.remove(key));
        taken.map(|waiting| waiting.token).collect()
    }
}

/// A runtime's answer to a handshake or a request. The call that delivers the request returns the answer; an answer
/// that comes later is queued by [`deliver_answer`].
pub(super) enum ImmediateAnswer {
    Handshake(HandshakeDecision),
    Response(AppResponse),
}

impl AppHosts {
    /// Starts the applications. Must be called on the worker's own thread.
    pub fn start(
        worker: WorkerId,
        workers: u16,
        app_set: &AppSet,
        port: Box<dyn CallExecutor>,
    ) -> Result<Self, String> {
        let held = DeferredPublishes::default();
        let host = Host {
            refused: Rc::clone(held.refused()),
            ..Host::default()
        };
        let mut here = Self {
            worker,
            workers,
            apps: Vec::new(),
            spare: Effects::default(),
            tickets: PendingSubscribes::default(),
            held,
            pending_hooks: PendingHooks::default(),
            event_queue: EventQueue::default(),
            asked: Vec::new(),
            far: RemoteSends::new(workers),
            user_searches: UserSearches::default(),
            commands: ApiCalls::default(),
            calls: CallQueue::new(port),
            writers: HashMap::new(),
            recorder: None,
            is_stopping: false,
            phase: ServicePhase::Open,
            notices: None,
            host,
            now_ms: 0,
        };
        for bundle in app_set.iter() {
            let app = match bundle {
                Some(bundle) if here.is_assigned(bundle) => Some(here.load(bundle)?),
                _ => None,
            };
            here.apps.push(app);
        }
        Ok(here)
    }

    /// Starts recording log lines and publications for a test.
    pub fn record_to(&mut self, recorder: AppRecorder) {
        self.recorder = Some(recorder);
    }

    /// Sets the function that wakes this worker's thread.
    pub fn set_waker(&mut self, wake: WorkerWaker) {
        self.host.wake = Some(wake);
        self.attach();
    }

    /// Sets the function that returns whether the process is short of memory. While it returns `true`, VMs must not
    /// grow.
    pub fn set_is_short(&mut self, is_short: Rc<dyn Fn() -> bool>) {
        self.host.is_short = Some(is_short);
        self.attach();
    }

    fn attach(&mut self) {
        for app in self.apps.iter_mut().flatten() {
            app.runtime.attach(&self.host);
        }
    }

    /// Makes this worker publish notices on the developer's pages.
    pub fn set_notices(&mut self, notices: Arc<dyn Notices>) {
        self.notices = Some(NoticePublisher::new(notices));
    }

    /// Returns whether this worker runs the application. All workers run an application, except that each instance of a
    /// service runs on one worker only.
    pub(super) fn is_assigned(&self, bundle: &AppBundle) -> bool {
        let place = bundle.slot.map(|slot| slot.worker(self.workers));
        place.is_none_or(|place| place == self.worker)
    }

    pub(super) fn load(&self, bundle: &Arc<AppBundle>) -> Result<RunningApp, String> {
        let runtime = HostedRuntime::start(&bundle.program, &self.host, self.worker);
        let runtime = runtime.map_err(|error| bundle.start_error(&error))?;
        update_hook_kinds(&runtime, &bundle.kinds);
        Ok(RunningApp {
            runtime,
            bundle: Arc::clone(bundle),
            lifecycle: bundle.lifecycle(),
            exit: None,
        })
    }

    pub(super) fn app(&mut self, id: AppId) -> Option<&mut RunningApp> {
        self.apps.get_mut(usize::from(id.0))?.as_mut()
    }

    /// Calls the runtime of an application and executes the resulting effects. `current` is the connection whose
    /// request is being delivered, if any. Returns the result of the call, and the immediate answer to that request.
    pub(super) fn run<R>(
        &mut self,
        id: AppId,
        current: Option<ConnectionId>,
        shared: &mut Context,
        call: impl FnOnce(&mut RunningApp, veche_types::Now) -> R,
    ) -> (Option<R>, Option<ImmediateAnswer>) {
        let now = shared.now;
        let result = self.app(id).map(|app| call(app, now));
        let direct = self.execute_effects(id, current, shared);
        (result, direct)
    }

    fn has_event_handler(&self, app: AppId, kind: EventKind) -> bool {
        let app = self.apps.get(usize::from(app.0)).and_then(Option::as_ref);
        app.is_some_and(|app| app.runtime.handles(kind))
    }

    /// Updates the metrics of coroutines, memory and running services.
    fn update_gauges(&self, shared: &Context) {
        let runtimes = || self.apps.iter().flatten().map(|app| &app.runtime);
        let coroutines: usize = runtimes().map(Runtime::all_tasks).sum();
        let bytes: usize = runtimes().map(Runtime::all_memory_bytes).sum();
        shared.stats.app_coroutines.set(coroutines as u64);
        shared.stats.app_memory_bytes.set(bytes as u64);
        let apps = self.apps.iter().flatten();
        let running = apps.filter(|app| app.is_running() && !self.is_idle(app));
        shared.stats.services_running.set(running.count() as u64);
    }

    fn answer(
        &mut self,
        id: AppId,
        session: ConnectionId,
        ticket: Ticket,
        answer: &HubReply,
        shared: &mut Context,
    ) {
        // `Partial` only announces that the reply that follows does not cover all nodes.
        if matches!(answer, HubReply::Partial { .. }) {
            return;
        }
        let Some(waiting) = self.tickets.take(session, ticket) else {
            return;
        };
        let token = waiting.token;
        let answer = match answer {
            HubReply::Subscribed(joined) => {
                let joined = joined.as_deref();
                if let Some(outcome) = waiting.joined(session, joined, shared) {
                    self.run(id, None, shared, |app, now| {
                        app.runtime.handle_outcome(token, outcome, now);
                    });
                    return;
                }
                veche_runtime::WaitResult::Done
            }
            HubReply::Published(published) => match published.receivers {
                Some(handed) => veche_runtime::WaitResult::Number(handed.into()),
                None => veche_runtime::WaitResult::Done,
            },
            HubReply::Failed => veche_runtime::WaitResult::Failed(UNANSWERED.to_owned()),
            asked => {
                if let Some(outcome) = outcome(asked) {
                    self.run(id, None, shared, |app, now| {
                        app.runtime.handle_outcome(token, outcome, now);
                    });
                }
                return;
            }
        };
        self.run(id, None, shared, |app, now| {
            app.runtime.answer(token, &answer, now);
        });
    }
}

impl Apps for AppHosts {
    fn has_handshake(&self, app: AppId) -> bool {
        self.has_event_handler(app, EventKind::Handshake)
    }

    fn handshake(
        &mut self,
        app: AppId,
        id: ConnectionId,
        request: &RequestView<'_>,
        shared: &mut Context,
    ) -> MaybeDeferred<HandshakeDecision> {
        let request = app_request(request);
        let (_, direct) = self.run(app, Some(id), shared, |app, now| {
            app.runtime
                .handle_event(Event::Handshake { id, request }, now)
        });
        match direct {
            Some(ImmediateAnswer::Handshake(decision)) => MaybeDeferred::Ready(decision),
            _ => MaybeDeferred::Deferred,
        }
    }

    fn opened(
        &mut self,
        app: AppId,
        id: ConnectionId,
        request: &RequestView<'_>,
        shared: &mut Context,
    ) -> AppProgress {
        let request = app_request(request);
        let (progress, _) = self.run(app, None, shared, |app, now| {
            app.runtime.handle_event(Event::Open { id, request }, now)
        });
        self::progress(progress)
    }

    fn message(
        &mut self,
        app: AppId,
        id: ConnectionId,
        kind: MessageKind,
        data: &[u8],
        shared: &mut Context,
    ) -> AppProgress {
        let last = self.held.last_number();
        let (progress, _) = self.run(app, None, shared, |app, now| {
            app.runtime
                .handle_event(Event::Message { id, kind, data }, now)
        });
        if self.held.last_number() != last && progress == Some(veche_runtime::HandlerProgress::Done)
        {
            // The hub has not accepted a publication of the handler yet. The session is paused, which slows its client
            // down.
            self.held.pause_session(id);
            return AppProgress::Suspended;
        }
        self::progress(progress)
    }

    fn drained(&mut self, app: AppId, id: ConnectionId, shared: &mut Context) {
        self.run(app, None, shared, |app, now| {
            app.runtime.handle_event(Event::Drain { id }, now)
        });
    }

    fn answered(
        &mut self,
        app: AppId,
        id: ConnectionId,
        ticket: Ticket,
        answer: HubReply,
        shared: &mut Context,
    ) {
        match Requester::of(id) {
            Some(Requester::ApiCall { number, .. }) => {
                self.api_call_answered(number, ticket, answer, shared);
            }
            Some(Requester::Query(_)) | None => self.answer(app, id, ticket, &answer, shared),
        }
    }

    fn closed(
        &mut self,
        app: AppId,
        id: ConnectionId,
        code: u16,
        reason: &str,
        shared: &mut Context,
    ) {
        let given_up = self.tickets.drop_waiters(id, None);
        self.run(app, None, shared, |app, now| {
            app.runtime
                .handle_event(Event::Close { id, code, reason }, now);
            for token in given_up {
                let closed = veche_runtime::WaitResult::Failed(veche_runtime::CLOSED.to_owned());
                app.runtime.answer(token, &closed, now);
            }
        });
    }

    fn request(
        &mut self,
        app: AppId,
        id: ConnectionId,
        request: &RequestView<'_>,
        shared: &mut Context,
    ) -> MaybeDeferred<AppResponse> {
        if !self.has_event_handler(app, EventKind::Request) {
            return MaybeDeferred::Ready(only_websocket());
        }
        let request = app_request(request);
        let (_, direct) = self.run(app, Some(id), shared, |app, now| {
            app.runtime
                .handle_event(Event::Request { id, request }, now)
        });
        match direct {
            Some(ImmediateAnswer::Response(response)) => MaybeDeferred::Ready(response),
            _ => MaybeDeferred::Deferred,
        }
    }

    fn client_opened(
        &mut self,
        app: AppId,
        token: u64,
        id: ConnectionId,
        protocol: Option<&str>,
        shared: &mut Context,
    ) -> Option<()> {
        self.opened_client(app, token, id, protocol, shared)
    }

    fn client_failed(&mut self, app: AppId, token: u64, why: &str, shared: &mut Context) {
        self.failed_client(app, token, why, shared);
    }

    fn written(&mut self, app: AppId, id: ConnectionId, shared: &mut Context) {
        for token in self.writers.remove(&id).unwrap_or_default() {
            self.run(app, None, shared, |app, now| {
                app.runtime
                    .answer(token, &veche_runtime::WaitResult::Done, now);
            });
        }
    }

    fn abandoned(
        &mut self,
        app: AppId,
        id: ConnectionId,
        why: AbandonReason,
        shared: &mut Context,
    ) {
        let writers = self.writers.remove(&id).unwrap_or_default();
        let given_up = self.tickets.drop_waiters(id, None);
        self.run(app, None, shared, |app, now| {
            let is_late = why == AbandonReason::TimedOut;
            app.runtime.handle_event(Event::Gone { id, is_late }, now);
            // Coroutines that still wait, to write the response or for a subscription, are resumed
            // with an error.
            for token in writers.into_iter().chain(given_up) {
                let gone = veche_runtime::WaitResult::Failed(veche_runtime::GONE.to_owned());
                app.runtime.answer(token, &gone, now);
            }
        });
    }

    fn turn(&mut self, shared: &mut Context) {
        self.now_ms = shared.now.mono_ms;
        self.publish_deferred(shared);
        self.resume_api_calls(shared);
        self.expire_hooks(shared);
        self.deliver_call_outcomes(shared);
        self.deliver_searches(shared);
        for index in 0..self.apps.len() {
            let id = AppId(index as u16);
            if self.apps[index]
                .as_ref()
                .is_some_and(|app| self.is_idle(app))
            {
                continue;
            }
            let (retires, _) = self.run(id, None, shared, |app, now| {
                app.runtime.turn(now);
                // The kinds of hooks are updated before the effects are executed, because the effects may respond to
                // hook requests that the new code does not handle.
                if app.runtime.has_new_hooks() {
                    update_hook_kinds(&app.runtime, &app.bundle.kinds);
                }
                app.runtime.has_older()
            });
            if retires == Some(true) {
                self.retire(id, shared);
                self.execute_effects(id, None, shared);
            }
            self.advance_service(id, shared);
            self.replace_broken(id, shared);
            self.continue_shutdown(id, shared);
        }
        self.end_services(shared);
        self.deliver_events(shared);
        self.publish_notices(shared);
        self.calls.flush();
        self.update_gauges(shared);
    }

    fn deadline_ms(&self) -> u64 {
        if !self.asked.is_empty() || self.can_deliver_events() {
            return 0;
        }
        let mut due = self.user_searches.due_ms().min(self.pending_hooks.due_ms());
        if let Some(notices) = &self.notices {
            due = due.min(notices.due_ms());
        }
        if let ServicePhase::Stopping { until_ms } = self.phase {
            due = due.min(until_ms);
        }
        for app in self.apps.iter().flatten().filter(|app| !self.is_idle(app)) {
            let life_due_ms = match self.phase {
                ServicePhase::Open => app.lifecycle_due_ms(),
                _ => u64::MAX,
            };
            let own = app.runtime.deadline_ms().min(life_due_ms);
            due = due.min(own).min(app.shutdown_due_ms());
        }
        if self.calls.is_busy() {
            return 0;
        }
        if self.held.is_empty() && self.far.is_empty() && !self.commands.has_waiting() {
            due
        } else {
            due.min(self.now_ms + LOOK_AGAIN_MS)
        }
    }
}

/// Returns the response to an HTTP request without an upgrade if the application has no request handler (RFC 6455,
/// section 4.4).
fn only_websocket() -> AppResponse {
    AppResponse {
        status: Status::UPGRADE_REQUIRED,
        headers: vec![
            ("Content-Type".into(), "text/plain; charset=utf-8".into()),
            ("Sec-WebSocket-Version".into(), handshake::VERSION.into()),
        ],
        body: AppBody::Bytes(b"this path requires a WebSocket\n".to_vec()),
    }
}

/// Queues a late answer for a connection: the call that passed the request to the runtime has already returned.
pub(super) fn deliver_answer(to: ConnectionId, direct: ImmediateAnswer, shared: &mut Context) {
    let answer = match direct {
        ImmediateAnswer::Handshake(decision) => AppAnswer::Handshake(decision),
        ImmediateAnswer::Response(response) => AppAnswer::Response(response),
    };
    shared.requests.app_answers.push_back((to, answer));
}

fn progress(progress: Option<veche_runtime::HandlerProgress>) -> AppProgress {
    match progress {
        Some(veche_runtime::HandlerProgress::Waits) => AppProgress::Suspended,
        _ => AppProgress::Done,
    }
}

/// Copies a request for the application.
fn app_request(request: &RequestView<'_>) -> Box<veche_runtime::Request> {
    let head = request.head;
    let mut copy =
        veche_runtime::Request::new(head.method.as_str(), &head.path, head.query, request.peer);
    for (name, value) in head.headers() {
        if request.has_password && name.eq_ignore_ascii_case("authorization") {
            continue;
        }
        // Invalid UTF-8 is replaced, because strings with invalid UTF-8 would be of little use to scripts.
        copy.header(name, &String::from_utf8_lossy(value));
    }
    for (name, value) in request.params.iter() {
        copy.param(name, &value);
    }
    if let Some(user) = request.user {
        copy.set_user(user);
    }
    copy.body = request.body.to_vec();
    Box::new(copy)
}
