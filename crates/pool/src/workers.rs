//! One server thread's part of an application that runs in worker processes.

mod about;
mod runtime;

use std::collections::HashMap;
use std::mem;

use foldhash::fast::FixedState;
use veche_calls::{CallError, CallErrorKind, CallOutcome, WorkerConnection};
use veche_runtime::hooks::{Hook, HookResponse};
use veche_runtime::wire::{
    CallBridge, CallRequest, EffectBuilder, EffectsFull, ErrorScope, EventConnection, EventName,
    EventOrigin, Frame, FrameLimits, FromWorker, HandlerOutput, OutgoingEvent, ResultHead,
    WorkerCall, encode, encode_message,
};
use veche_runtime::{
    Attribute, Effect, Effects, Event, EventKind, HandlerProgress, HandshakeReply, Host, Level,
    LogProcess, Replacement, Runtime, ServiceState, SlowHandler, Token, WaitResult, WorkerWaker,
};
use veche_types::codes::CloseCode;
use veche_types::{ConnectionId, Now, WorkerId};

use self::about::LoggedClient;
use crate::connections::{KnownConnection, KnownConnections};
use crate::link::PoolHandle;
use crate::program::Program;
use crate::shared::{EventJob, PoolMessage, PoolOrder, ProcessKey, Unanswered};

/// The interval, in milliseconds, at which messages are polled if the server thread can't be woken.
const POLL_MS: u64 = 1;

/// The runtime of one application on one server thread.
#[derive(Debug)]
pub struct Workers {
    program: Program,
    /// The generation that gets events; `None` once the application has ended.
    link: Option<PoolHandle>,
    /// A newer generation, which gets events once one of its processes is ready.
    newer: Option<PoolHandle>,
    /// Older generations, which still have unanswered events.
    older: Vec<PoolHandle>,
    worker: WorkerId,
    wake: WakeOf,
    connections: KnownConnections,
    in_hand: HashMap<u64, InHand, FixedState>,
    /// The clients whose commands wait for a hook handler, by the number of the hook request.
    hook_callers: HashMap<u64, LoggedClient, FixedState>,
    /// The effects of accepted handshakes. They are applied once the connection is open.
    #[expect(
        clippy::type_complexity,
        reason = "each entry is an effect with the frame that contained it"
    )]
    opening: HashMap<ConnectionId, Vec<(Box<[u8]>, usize)>, FixedState>,
    calls: HashMap<u64, Call, FixedState>,
    effects: Effects,
    messages: Vec<PoolMessage>,
    last: u64,
    generation: u64,
    now_ms: u64,
    is_stopping: bool,
    /// Whether the set of hooks that the application handles may have changed.
    has_new_hooks: bool,
}

/// Wakes the server thread, if it can be woken.
#[derive(Clone, Default)]
struct WakeOf(Option<WorkerWaker>);

impl std::fmt::Debug for WakeOf {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("WakeOf")
    }
}

/// An event assigned to a process or queued.
#[derive(Clone, Copy, Debug)]
struct InHand {
    name: EventName,
    origin: EventOrigin,
    /// Whether the answer is no longer needed.
    is_unwanted: bool,
    generation: u64,
}

/// A handler's call that waits for its result.
#[derive(Clone, Copy, Debug)]
struct Call {
    id: u64,
    process: ProcessKey,
    generation: u64,
}

impl Workers {
    /// Returns the handles of all generations, starting with the generation that gets events.
    fn links(&self) -> impl Iterator<Item = &PoolHandle> {
        let others = self.newer.iter().chain(&self.older);
        self.link.iter().chain(others)
    }

    fn join(&mut self, program: &Program) -> Result<PoolHandle, String> {
        self.generation += 1;
        PoolHandle::new(program, self.wake.0.clone(), self.generation)
    }

    fn takes(&self, name: EventName) -> bool {
        let link = self.link.as_ref();
        link.is_some_and(|link| link.pool.handles(name))
    }

    /// Starts the handling of an event; returns `false` if the application has ended or has no handler for the event.
    fn ask(&mut self, event: &Event<'_>, name: EventName, origin: EventOrigin) -> bool {
        let Some(link) = &self.link else {
            return false;
        };
        if !link.pool.handles(name) {
            return false;
        }
        let connection = match origin {
            EventOrigin::Handshake(of) | EventOrigin::Connection(of) | EventOrigin::Request(of) => {
                Some(of)
            }
            EventOrigin::Hook(_) | EventOrigin::Worker => None,
        };
        let known = connection.and_then(|of| self.connections.get(&of));
        let known = EventConnection {
            worker: self.worker,
            user: known.and_then(|one| one.user.as_deref()),
            attributes: known.and_then(|one| one.attributes.as_deref()),
        };
        let in_hand = InHand {
            name,
            origin,
            is_unwanted: false,
            generation: link.generation,
        };
        let (mut frame, limits) = (Vec::new(), FrameLimits::default());
        let encoded = encode_message(&mut frame, limits, event, known).or_else(|| {
            let outgoing = OutgoingEvent::of(event, 0, known)?;
            Some(encode(&mut frame, limits, &outgoing.head, &outgoing.parts))
        });
        let Some(encoded) = encoded else {
            return false;
        };
        if let Err(error) = encoded {
            self.log(
                name,
                &format!("the event can't be sent to a process: {error}"),
            );
            self.fail(origin);
            return true;
        }
        self.last += 1;
        link.order(PoolOrder::Job(EventJob {
            outlet: link.outlet.clone(),
            number: self.last,
            name,
            frame,
        }));
        self.in_hand.insert(self.last, in_hand);
        self.hook_callers.extend(LoggedClient::of(event));
        true
    }

    fn log(&mut self, name: EventName, words: &str) {
        let text = format!("{}: {words}", name.name());
        self.effects.log(Level::Error, text, None);
    }

    /// Takes the messages of pools for this thread.
    fn take_messages(&mut self, now: Now) {
        self.now_ms = now.mono_ms;
        for place in 0..self.links().count() {
            let link = self.links().nth(place);
            let Some(link) = link.filter(|link| link.outlet.messages.is_announced()) else {
                continue;
            };
            let generation = link.generation;
            let mut messages = mem::take(&mut self.messages);
            if let Some(link) = self.links().nth(place) {
                link.outlet.messages.take(&mut messages);
            }
            for message in messages.drain(..) {
                self.handle_message(message, generation);
            }
            self.messages = messages;
        }
    }

    fn handle_message(&mut self, message: PoolMessage, generation: u64) {
        match message {
            PoolMessage::Unanswered {
                number,
                why,
                text,
                process,
            } => {
                if let Some(in_hand) = self.in_hand.remove(&number) {
                    self.unanswered(in_hand, why, text, process);
                }
            }
            PoolMessage::Ready => self.has_new_hooks = true,
            PoolMessage::NotStarted(text) => self.effects.log(Level::Error, text, None),
            PoolMessage::Frames(batch) => {
                for (event, frame) in batch.frames() {
                    let from = Source {
                        process: batch.process,
                        generation,
                        number: event.map(|(number, _)| number),
                        id: event.map(|(_, id)| id),
                    };
                    self.take_frame(from, frame);
                }
            }
        }
    }

    fn take_frame(&mut self, from: Source, frame: Frame<'_>) {
        let in_hand = from
            .number
            .and_then(|number| self.in_hand.get(&number).copied());
        let read = FromWorker::read(frame, |id| {
            in_hand.filter(|_| from.id == Some(id)).map(|one| one.name)
        });
        let origin = in_hand.map_or(EventOrigin::Worker, |one| one.origin);
        match read {
            Ok(FromWorker::Handled(handled)) => {
                let is_end = handled.end.is_some();
                let (Some(in_hand), Some(number)) = (in_hand, from.number) else {
                    self.carry(handled, EventOrigin::Worker);
                    return;
                };
                if is_end {
                    self.in_hand.remove(&number);
                }
                if in_hand.is_unwanted {
                    return;
                }
                if let EventOrigin::Handshake(of) = origin {
                    self.handshake(of, handled, is_end, frame);
                } else if !self.carry(handled, origin) {
                    self.log(in_hand.name, &EffectsFull.to_string());
                    if is_end {
                        self.fail(origin);
                    }
                }
                if is_end {
                    self.done(origin);
                }
            }
            Ok(FromWorker::Call(call)) => self.call(call, origin, from),
            Ok(FromWorker::Hello(_) | FromWorker::Cancel(_)) => {}
            Err(error) => match error.scope {
                ErrorScope::Event(_) => {
                    let Some(in_hand) = from.number.and_then(|one| self.in_hand.remove(&one))
                    else {
                        return;
                    };
                    self.unanswered(in_hand, Unanswered::Failed, Some(error.message), None);
                }
                ErrorScope::Call(id) => {
                    let fault = CallError::new(CallErrorKind::Invalid, error.message);
                    self.result(
                        Call {
                            id,
                            process: from.process,
                            generation: from.generation,
                        },
                        &ResultHead::failed(id, &fault),
                        &[],
                    );
                }
                ErrorScope::Frame | ErrorScope::Worker => {
                    self.effects.log(Level::Error, error.message, None);
                }
            },
        }
    }

    /// Stores the effects of a handshake's handler until the connection is open; replies when the handler ends.
    fn handshake(
        &mut self,
        of: ConnectionId,
        mut handled: HandlerOutput<'_>,
        is_end: bool,
        frame: Frame<'_>,
    ) {
        if !handled.effects.is_empty() {
            let frames = self.opening.entry(of).or_default();
            let bytes = [frame.head, frame.payload].concat();
            frames.push((bytes.into(), frame.head.len()));
        }
        handled.effects.clear();
        if !is_end {
            return;
        }
        let before = self.effects.list.len();
        self.carry(handled, EventOrigin::Handshake(of));
        let accepted = self.effects.list[before..].iter().find_map(accepted);
        match accepted {
            Some(user) => {
                let connection = self.connections.entry(of).or_default();
                connection.user = user.map(Into::into);
            }
            None => drop(self.opening.remove(&of)),
        }
    }

    /// Applies the effects of a handshake's handler, now that the connection is open.
    fn opened(&mut self, of: ConnectionId) {
        for (bytes, head_bytes) in self.opening.remove(&of).unwrap_or_default() {
            let read = FromWorker::read(frame_of(&bytes, head_bytes), |_| Some(EventName::Open));
            if let Ok(FromWorker::Handled(mut handled)) = read {
                handled.end = None;
                if !self.carry(handled, EventOrigin::Connection(of)) {
                    self.effects.list.push(Effect::Failed { of });
                }
            }
        }
    }

    /// Adds a handler's effects; returns `false` if they exceed the limits.
    fn carry(&mut self, handled: HandlerOutput<'_>, origin: EventOrigin) -> bool {
        let carrier = EffectBuilder {
            worker: self.worker,
            origin,
        };
        let mut effects = mem::take(&mut self.effects);
        let before = effects.list.len();
        let has_room = carrier.add_effects(handled, self, &mut effects).is_ok();
        self.effects = effects;
        self.name_in_log(before, origin);
        has_room
    }

    fn call(&mut self, call: WorkerCall<'_>, origin: EventOrigin, from: Source) {
        let waiting = Call {
            id: call.id,
            process: from.process,
            generation: from.generation,
        };
        if let CallRequest::Connection { of } = &call.request {
            let own = match origin {
                EventOrigin::Handshake(id)
                | EventOrigin::Connection(id)
                | EventOrigin::Request(id) => Some(id),
                EventOrigin::Hook(_) | EventOrigin::Worker => None,
            };
            let is_here = of.is_none_or(|of| of.worker == self.worker);
            let id = of.map_or(own, |of| Some(of.connection)).filter(|_| is_here);
            let found = id.and_then(|id| self.connections.get(&id));
            let found = found.filter(|one| !one.is_closing);
            let mut head = ResultHead::new(call.id);
            head.open = Some(found.is_some());
            head.user = found
                .and_then(|one| one.user.clone())
                .map(|user| user.into_string().into());
            let attributes = found.and_then(|one| one.attributes.as_deref());
            let attributes = attributes
                .into_iter()
                .flat_map(veche_runtime::Attributes::iter);
            head.attributes = attributes
                .map(|(name, value)| (name.to_owned(), value.into()))
                .collect();
            self.result(waiting, &head, &[]);
            return;
        }
        if let CallRequest::Outside(outside) = call.request {
            match outside.call(&self.program.options().databases) {
                Ok(call) => {
                    let (token, call) = (self.token(), Box::new(call));
                    self.effects.list.push(Effect::Call { call, token });
                    self.calls.insert(token.0, waiting);
                }
                Err(error) => self.result(waiting, &ResultHead::failed(waiting.id, &error), &[]),
            }
            return;
        }
        let token = self.token();
        let carrier = EffectBuilder {
            worker: self.worker,
            origin,
        };
        match carrier.add_call(call, token, &mut self.effects) {
            Ok(true) => {
                self.calls.insert(token.0, waiting);
            }
            Ok(false) => {
                let words = "the connection belongs to another worker thread";
                let fault = CallError::new(CallErrorKind::Invalid, words.to_owned());
                let head = ResultHead::failed(waiting.id, &fault);
                self.result(waiting, &head, &[]);
            }
            Err(error) => {
                let fault = CallError::new(CallErrorKind::Refused, error.to_string());
                let head = ResultHead::full(waiting.id, &fault);
                self.result(waiting, &head, &[]);
            }
        }
    }

    /// Sends the result of a call to the process that waits for it.
    fn result(&self, call: Call, head: &ResultHead<'_>, data: &[u8]) {
        let mut frame = Vec::new();
        let parts = [data];
        let parts = if data.is_empty() { &parts[..0] } else { &parts };
        if let Err(error) = encode(&mut frame, FrameLimits::default(), head, parts) {
            let words = format!("the result can't be sent to the process: {error}");
            let fault = CallError::new(CallErrorKind::Refused, words);
            let short = ResultHead::failed(call.id, &fault);
            if encode(&mut frame, FrameLimits::default(), &short, &[]).is_err() {
                return;
            }
        }
        let link = self.links().find(|link| link.generation == call.generation);
        if let Some(link) = link {
            link.order(PoolOrder::Frame(call.process, frame));
        }
    }

    /// Handles an event that ended without an answer.
    fn unanswered(
        &mut self,
        in_hand: InHand,
        why: Unanswered,
        text: Option<String>,
        process: Option<LogProcess>,
    ) {
        let origin = in_hand.origin;
        let level = match why {
            Unanswered::Failed => Level::Error,
            Unanswered::Busy | Unanswered::Unhandled => Level::Warn,
        };
        if let Some(text) = text {
            let about = self.about(origin, process);
            self.effects.log(level, text, about);
        }
        if !in_hand.is_unwanted {
            match why {
                Unanswered::Failed => self.fail(origin),
                Unanswered::Busy => {
                    self.refuse(origin, 503, "too busy\n");
                    if let EventOrigin::Connection(of) = origin {
                        let (code, reason) = CloseCode::AppBusy.parts();
                        let reason = reason.to_owned();
                        self.effects.list.push(Effect::Close { of, code, reason });
                    }
                }
                Unanswered::Unhandled => self.pass(origin),
            }
        }
        self.done(origin);
    }

    /// Completes an event as if no application were configured, since the application has no handler for it.
    fn pass(&mut self, origin: EventOrigin) {
        match origin {
            EventOrigin::Handshake(of) => {
                self.connections.entry(of).or_default();
                self.effects.list.push(Effect::Handshake {
                    of,
                    reply: HandshakeReply::Accept {
                        user: None,
                        protocol: None,
                    },
                });
            }
            EventOrigin::Connection(of) => self.effects.list.push(Effect::Ready { of }),
            EventOrigin::Hook(number) => self.effects.list.push(Effect::Hook {
                number,
                response: HookResponse::Unhandled,
            }),
            _ => self.refuse(origin, 426, "this path requires a WebSocket\n"),
        }
    }

    fn fail(&mut self, origin: EventOrigin) {
        self.refuse(origin, 500, "internal error\n");
        if let EventOrigin::Connection(of) = origin {
            self.effects.list.push(Effect::Failed { of });
        }
    }

    /// Refuses a handshake, a request or a hook.
    fn refuse(&mut self, origin: EventOrigin, status: u16, words: &str) {
        let headers = vec![(
            "Content-Type".to_owned(),
            "text/plain; charset=utf-8".to_owned(),
        )];
        let effect = match origin {
            EventOrigin::Handshake(of) => {
                self.opening.remove(&of);
                Effect::Handshake {
                    of,
                    reply: HandshakeReply::Refuse {
                        status,
                        headers,
                        body: words.into(),
                    },
                }
            }
            EventOrigin::Request(to) => Effect::Respond {
                to,
                status,
                headers,
                body: self.effects.store(words.as_bytes()).unwrap_or_default(),
            },
            EventOrigin::Hook(number) => Effect::Hook {
                number,
                response: HookResponse::Failed,
            },
            EventOrigin::Connection(_) | EventOrigin::Worker => return,
        };
        self.effects.list.push(effect);
    }

    /// Ends an event and starts the next one of its connection.
    fn done(&mut self, origin: EventOrigin) {
        if let EventOrigin::Hook(number) = origin {
            self.hook_callers.remove(&number);
        }
        let EventOrigin::Connection(of) = origin else {
            return;
        };
        let Some(connection) = self.connections.get_mut(&of) else {
            return;
        };
        connection.is_busy = false;
        if let Some(end) = connection.end.take() {
            self.close(of, end.0, &end.1);
        }
    }

    /// Reports the end of a connection to the application and forgets the connection.
    fn close(&mut self, id: ConnectionId, code: u16, reason: &str) {
        let event = Event::Close { id, code, reason };
        self.ask(&event, EventName::Close, EventOrigin::Connection(id));
        self.connections.remove(&id);
    }

    /// Cancels an event whose answer is no longer needed.
    fn give_up(&mut self, is_it: impl Fn(EventOrigin) -> bool) {
        let found = self.in_hand.iter_mut().find(|(_, one)| is_it(one.origin));
        let Some((&number, in_hand)) = found else {
            return;
        };
        in_hand.is_unwanted = true;
        let generation = in_hand.generation;
        let link = self.links().find(|link| link.generation == generation);
        if let Some(link) = link {
            let outlet = link.outlet.clone();
            link.order(PoolOrder::Cancel(number, outlet));
        }
    }

    /// Returns whether the pools must be released, because the server is shutting down and nothing
    /// needs them any more.
    fn leaves(&self) -> bool {
        let is_idle = self.connections.is_empty() && self.in_hand.is_empty();
        self.is_stopping && is_idle && self.links().next().is_some()
    }

    fn is_used(&self, generation: u64) -> bool {
        let mut events = self.in_hand.values();
        let mut calls = self.calls.values();
        events.any(|one| one.generation == generation)
            || calls.any(|one| one.generation == generation)
    }

    /// Switches to a newer generation that is ready, and drops older ones without pending events.
    fn switch(&mut self) {
        if self.newer.as_ref().is_some_and(|link| link.pool.is_ready()) {
            let newer = self.newer.take();
            self.older.extend(mem::replace(&mut self.link, newer));
            self.has_new_hooks = true;
        }
        if !self.older.is_empty() {
            let older = mem::take(&mut self.older);
            let kept = older
                .into_iter()
                .filter(|link| self.is_used(link.generation));
            self.older = kept.collect();
        }
    }
}

/// The process that a frame came from.
#[derive(Clone, Copy, Debug)]
struct Source {
    process: ProcessKey,
    generation: u64,
    number: Option<u64>,
    id: Option<u64>,
}

fn frame_of(bytes: &[u8], head_bytes: usize) -> Frame<'_> {
    let (head, payload) = bytes.split_at(head_bytes);
    Frame { head, payload }
}

/// Returns the user name in an accepted handshake, or `Some(None)` if it contains none; `None` for
/// any other effect.
fn accepted(effect: &Effect) -> Option<Option<String>> {
    match effect {
        Effect::Handshake {
            reply: HandshakeReply::Accept { user, .. },
            ..
        } => Some(user.clone()),
        _ => None,
    }
}

fn name_of(hook: Hook) -> EventName {
    match hook {
        Hook::Connect => EventName::Connect,
        Hook::Refresh => EventName::Refresh,
        Hook::Subscribe => EventName::Subscribe,
        Hook::SubRefresh => EventName::SubRefresh,
        Hook::Publish => EventName::Publish,
        Hook::Rpc => EventName::Rpc,
        Hook::Message => EventName::ClientMessage,
        Hook::Disconnect => EventName::Disconnect,
    }
}
