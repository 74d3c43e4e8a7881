//! Executes the effects of scripts.

use std::cell::RefCell;
use std::sync::Arc;

use tracing::{debug, error, info, warn};
use veche_calls::CallOutcome;
use veche_frontends::access_log_buffer::SlowEventKind;
use veche_frontends::app::{
    AppAnswer, AppBody, AppFile, AppResponse, AppResponseHead, HandshakeDecision,
};
use veche_frontends::outbox::SendResult;
use veche_frontends::worker_context::TokenRenewal;
use veche_frontends::{AppId, Context};
use veche_hub::{
    self as hub, ChannelName, ConnectionId, Payload, PayloadKind, PayloadRef, SubscribeOptions,
};
use veche_proto::http::Status;
use veche_runtime::{
    Effect, HandshakeReply, Level, LogContext, PositionRequest, Runtime, Token, WaitResult,
};
use veche_types::codes::CloseCode;

use super::app_hosts::{AppHosts, ImmediateAnswer, LOG, deliver_answer};
use super::recorder::RecordedEntry;

/// The result of subscribing a session.
enum AppSubscribeResult {
    Done,
    /// The script has requested the position of the subscription, so the outcome contains it.
    Place(CallOutcome),
}

impl AppHosts {
    /// Executes the effects of a call. Returns the answer to the request of the connection `current`, if the effects
    /// contain it; answers to other connections are delivered here.
    #[inline]
    pub(super) fn execute_effects(
        &mut self,
        id: AppId,
        current: Option<ConnectionId>,
        shared: &mut Context,
    ) -> Option<ImmediateAnswer> {
        // Most calls have no effects. They skip the loop, which has a large stack frame.
        if self.has_effects(id, shared) {
            self.execute_pending(id, current, shared)
        } else {
            None
        }
    }

    /// Returns whether the application has effects to execute. Also logs its slow handler, if
    /// there was one since the last call.
    #[inline]
    fn has_effects(&mut self, id: AppId, shared: &mut Context) -> bool {
        let Some(app) = self.app(id) else {
            return false;
        };
        if let Some(slow) = app.runtime.take_slow() {
            let what = || format!("{}: {}", app.bundle.name(), slow.handler);
            let recorder = &mut shared.requests.outboxes.access_log;
            recorder.record_duration(SlowEventKind::Handler, slow.ms, what);
        }
        app.runtime.has_effects()
    }

    #[inline(never)]
    fn execute_pending(
        &mut self,
        id: AppId,
        current: Option<ConnectionId>,
        shared: &mut Context,
    ) -> Option<ImmediateAnswer> {
        let mut direct = None;
        // Executing effects may resume handlers with answers. The effects of these handlers are executed in the next
        // iteration.
        while self.has_effects(id, shared) {
            let mut effects = std::mem::take(&mut self.spare);
            let app = self.app(id)?;
            app.runtime.take_effects(&mut effects);
            let mut refused = Vec::new();
            let mut joined = Vec::new();
            let (list, bytes) = effects.drain();
            for effect in list {
                match effect {
                    Effect::Send { to, kind, data } => {
                        let outboxes = &mut shared.requests.outboxes;
                        let sending = outboxes.send(to, kind, data.of(bytes));
                        if sending == SendResult::Full
                            && let Some(app) = self.app(id)
                        {
                            app.runtime.mark_full(to);
                        }
                    }
                    Effect::Close { of, code, reason } => {
                        shared.requests.disconnects.push((of, code, reason));
                    }
                    Effect::Subscribe {
                        connection,
                        channel,
                        place,
                        token,
                    } => match self.subscribe(connection, &channel, place, token, shared) {
                        Ok(settled) => joined.extend(settled.map(|settled| (token, settled))),
                        Err(words) => refused.push((token, words)),
                    },
                    Effect::Renew {
                        connection,
                        credential,
                        token,
                    } => shared.requests.renewals.push(TokenRenewal {
                        session: connection,
                        credential: credential.0,
                        app: id,
                        ticket: token.0,
                    }),
                    Effect::Unsubscribe {
                        connection,
                        channel,
                    } => {
                        if let Ok(name) = ChannelName::new(&channel) {
                            shared
                                .hub
                                .unsubscribe(connection, name, &mut shared.requests);
                        }
                        let given_up = self.tickets.drop_waiters(connection, Some(&channel));
                        let words =
                            || "the subscription was cancelled by an unsubscribe".to_owned();
                        refused.extend(given_up.into_iter().map(|token| (token, words())));
                    }
                    Effect::Publish {
                        channel,
                        kind,
                        data,
                    } => {
                        self.publish(channel, kind, data.of(bytes), shared);
                    }
                    Effect::Respond {
                        to,
                        status,
                        headers,
                        body,
                    } => {
                        let response = ImmediateAnswer::Response(AppResponse {
                            status: Status(status),
                            headers,
                            body: AppBody::Bytes(body.of(bytes).to_vec()),
                        });
                        answer(current, to, response, &mut direct, shared);
                    }
                    Effect::RespondFile {
                        to,
                        status,
                        headers,
                        path,
                    } => {
                        let response = match self.file(id, path) {
                            Some(file) => AppResponse {
                                status: Status(status),
                                headers,
                                body: AppBody::File(file),
                            },
                            // A reload of the configuration has removed the folder of files since the handler ran.
                            None => AppResponse {
                                status: Status::NOT_FOUND,
                                headers: Vec::new(),
                                body: AppBody::Bytes(b"not found\n".to_vec()),
                            },
                        };
                        let response = ImmediateAnswer::Response(response);
                        answer(current, to, response, &mut direct, shared);
                    }
                    Effect::Begin {
                        to,
                        status,
                        headers,
                    } => {
                        let status = Status(status);
                        let beginning = AppAnswer::Head(AppResponseHead { status, headers });
                        shared.requests.app_answers.push_back((to, beginning));
                    }
                    Effect::Part { to, data, token } => {
                        let asks = token.is_some();
                        if let Some(token) = token {
                            self.writers.entry(to).or_default().push(token);
                        }
                        let data = data.of(bytes).to_vec();
                        let part = AppAnswer::Chunk { data, asks };
                        shared.requests.app_answers.push_back((to, part));
                    }
                    Effect::End { to, is_whole } => {
                        // Fails the coroutines that still wait to write, since the handler has
                        // ended the response.
                        let late = self.writers.remove(&to).unwrap_or_default();
                        let words = || veche_runtime::GONE.to_owned();
                        refused.extend(late.into_iter().map(|token| (token, words())));
                        let end = AppAnswer::End { is_whole };
                        shared.requests.app_answers.push_back((to, end));
                    }
                    Effect::Handshake { of, reply } => {
                        let handshake = ImmediateAnswer::Handshake(handshake_decision(reply));
                        answer(current, of, handshake, &mut direct, shared);
                    }
                    Effect::SendFar {
                        worker,
                        to,
                        kind,
                        data,
                    } => {
                        self.far.send(worker, id, to, kind, data.of(bytes));
                    }
                    Effect::CloseFar {
                        worker,
                        of,
                        code,
                        reason,
                    } => self.far.close(worker, id, of, code, reason),
                    Effect::Find { user, limit, token } => {
                        self.find(id, token, user, limit, shared);
                    }
                    Effect::Inquire {
                        channel,
                        request,
                        token,
                    } => self.query_channel(id, token, &channel, request, shared),
                    Effect::Command {
                        method,
                        body,
                        token,
                    } => self.command(id, token, method, body.of(bytes), shared),
                    Effect::Call { call, token } => self.calls.submit(id, token, *call),
                    Effect::CancelCall { token } => {
                        self.user_searches.cancel(id, token);
                        self.commands.cancel(id, token);
                        self.calls.cancel(id, token);
                    }
                    Effect::Dial { token, dial } => self.dial(id, token, *dial),
                    Effect::HangUp { token } => self.hang_up(id, token),
                    Effect::Hook { number, response } => {
                        self.hook_answered(number, response, shared)
                    }
                    Effect::Ready { of } => shared.app_ready.push(of),
                    Effect::Failed { of } => {
                        let (code, reason) = CloseCode::Failed.parts();
                        let kick = (of, code, reason.to_owned());
                        shared.requests.disconnects.push(kick);
                    }
                    Effect::Log { level, text, about } => {
                        if level == Level::Error {
                            shared.stats.app_errors.add(1);
                            let app = self.app_name(id);
                            shared.process.script_failed(app, &text);
                        }
                        self.log(id, level, &text, about.as_deref());
                    }
                }
            }
            effects.clear();
            self.spare = effects;
            for (token, words) in refused {
                let words = WaitResult::Failed(words);
                if let Some(Some(app)) = self.apps.get_mut(usize::from(id.0)) {
                    app.runtime.answer(token, &words, shared.now);
                }
            }
            for (token, settled) in joined {
                if let Some(Some(app)) = self.apps.get_mut(usize::from(id.0)) {
                    match settled {
                        AppSubscribeResult::Done => {
                            app.runtime.answer(token, &WaitResult::Done, shared.now)
                        }
                        AppSubscribeResult::Place(outcome) => {
                            app.runtime.handle_outcome(token, outcome, shared.now)
                        }
                    }
                }
            }
        }
        direct
    }

    fn file(&self, id: AppId, relative: String) -> Option<AppFile> {
        let app = self.apps.get(usize::from(id.0))?.as_ref()?;
        let root = app.bundle.files.clone()?;
        Some(AppFile { root, relative })
    }

    /// Subscribes a session. Returns the result if it is available immediately, `None` if it comes later.
    fn subscribe(
        &mut self,
        connection: ConnectionId,
        channel: &str,
        place: Option<PositionRequest>,
        token: Token,
        shared: &mut Context,
    ) -> Result<Option<AppSubscribeResult>, String> {
        let name = ChannelName::new(channel).map_err(|error| error.to_string())?;
        let since = place.and_then(|place| place.since);
        let tells = shared.requests.outboxes.sends_positions(connection);
        if since.is_some() && !tells {
            let why = "since: this route sends no positions to its clients; set positions = true in its [[route]]";
            return Err(why.to_owned());
        }
        let ticket = self
            .tickets
            .issue_with_position(connection, channel, token, place);
        let subscribe_options = SubscribeOptions {
            since: since.map(|since| Arc::from([since])),
            client: shared.member(connection, name),
            ..SubscribeOptions::default()
        };
        let (hub, ports) = (&mut shared.hub, &mut shared.requests);
        let joined = match hub.subscribe(connection, name, ticket, &subscribe_options, ports) {
            Ok(hub::RequestOutcome::Done(joined)) => joined,
            Ok(hub::RequestOutcome::Pending) => return Ok(None),
            Err(error) => {
                self.tickets.take(connection, ticket);
                return Err(error.to_string());
            }
        };
        // A client whose route reports positions must get the position before any publication, so the subscription is
        // completed at once; other subscriptions are completed with the answers at the end of the turn.
        if tells && let Some(waiting) = self.tickets.take(connection, ticket) {
            let outcome = waiting.joined(connection, joined.as_deref(), shared);
            return Ok(Some(
                outcome.map_or(AppSubscribeResult::Done, AppSubscribeResult::Place),
            ));
        }
        let answer = hub::HubReply::Subscribed(joined);
        shared
            .requests
            .answers
            .push_back((connection, ticket, answer));
        Ok(None)
    }

    pub(super) fn publish(
        &mut self,
        channel: String,
        kind: PayloadKind,
        data: &[u8],
        shared: &mut Context,
    ) {
        if let Some(recorder) = &self.recorder {
            let (channel, data) = (channel.clone(), data.to_vec());
            let kind = kind.message_kind();
            recorder.write(RecordedEntry::Published {
                channel,
                kind,
                data,
            });
        }
        let payload = PayloadRef { kind, bytes: data };
        // If earlier publications to the same channel are still deferred, this one is queued
        // behind them, to keep their order.
        if !self.held.has_queued(&channel) {
            let Ok(name) = ChannelName::new(&channel) else {
                return;
            };
            let (hub, ports) = (&mut shared.hub, &mut shared.requests);
            if hub.publish(None, name, payload, None, ports).is_ok() {
                return;
            }
        }
        self.held.push(&channel, payload.to_payload());
    }

    /// Publishes as many deferred publications as the hub accepts, and resumes the sessions that were paused because
    /// of them.
    pub(super) fn publish_deferred(&mut self, shared: &mut Context) {
        if self.held.is_empty() {
            return;
        }
        let Context {
            hub,
            requests: ports,
            ..
        } = shared;
        let hub = RefCell::new(hub);
        let home = |channel: &str| {
            let (name, hub) = (ChannelName::new(channel).ok()?, hub.borrow());
            let home = hub.home_of(name);
            (home != hub.worker()).then_some(home)
        };
        let take = |channel: &str, payload: &Payload| match ChannelName::new(channel) {
            Ok(name) => {
                let mut hub = hub.borrow_mut();
                let result = hub.publish(None, name, payload.borrow(), None, ports);
                result.is_ok()
            }
            // Can't happen: the name was checked before the publication was deferred. The publication is removed.
            Err(_) => true,
        };
        self.held.publish_ready(home, take);
        self.held.take_resumed(&mut shared.app_ready);
        self.deliver_deferred_decisions(shared);
    }

    pub(super) fn app_name(&self, id: AppId) -> &str {
        let app = self.apps.get(usize::from(id.0)).and_then(Option::as_ref);
        app.map_or("", |app| app.bundle.name())
    }

    fn log(&self, id: AppId, level: Level, text: &str, about: Option<&LogContext>) {
        if let Some(recorder) = &self.recorder {
            let text = text.to_owned();
            recorder.write(RecordedEntry::Logged { level, text });
        }
        let (app, worker) = (self.app_name(id), self.worker.0);
        let connection = about.and_then(|about| about.connection.as_deref());
        let user = about.and_then(|about| about.user.as_deref());
        let method = about.and_then(|about| about.method.as_deref());
        let path = about.and_then(|about| about.path.as_deref());
        let process = about.and_then(|about| about.process);
        let (instance, pid) = process.map(|one| (one.instance, one.pid)).unzip();
        let text = text.replace('\t', "  ");
        // Logs one record, including its traceback. The log escapes line breaks, so the text can't imitate another log
        // line.
        macro_rules! record {
            ($level:ident) => {
                $level!(target: LOG, app, worker, instance, pid, connection, user, method, path, "{text}")
            };
        }
        match level {
            Level::Debug => record!(debug),
            Level::Info => record!(info),
            Level::Warn => record!(warn),
            Level::Error => record!(error),
        }
    }
}

/// Stores the response in `direct` if it answers the request that is being delivered (`current`); otherwise delivers it
/// separately.
fn answer(
    current: Option<ConnectionId>,
    to: ConnectionId,
    answer: ImmediateAnswer,
    direct: &mut Option<ImmediateAnswer>,
    shared: &mut Context,
) {
    if current == Some(to) && direct.is_none() {
        *direct = Some(answer);
    } else {
        deliver_answer(to, answer, shared);
    }
}

fn handshake_decision(reply: HandshakeReply) -> HandshakeDecision {
    match reply {
        HandshakeReply::Accept { user, protocol } => HandshakeDecision::Accept { user, protocol },
        HandshakeReply::Refuse {
            status,
            headers,
            body,
        } => HandshakeDecision::Refuse(AppResponse {
            status: Status(status),
            headers,
            body: AppBody::Bytes(body),
        }),
    }
}
