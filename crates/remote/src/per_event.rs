//! An application that handles each event by a separate request.

use std::collections::HashMap;
use std::convert::Infallible;
use std::mem;
use std::net::IpAddr;

use foldhash::fast::FixedState;
use veche_calls::{
    Call, CallError, CallErrorKind, CallOutcome, CallReply, FastcgiClient, FastcgiReply,
    WorkerConnection,
};
use veche_runtime::hooks::{Hook, HookResponse};
use veche_runtime::wire::{
    CallBridge, EffectBuilder, EffectsFull, EventConnection, EventName, EventOrigin, Frame,
    FrameDecoder, FrameLimits, FromWorker, OutgoingEvent, encode,
};
use veche_runtime::{
    Attribute, Effect, Effects, Event, EventKind, HandlerProgress, HandshakeReply, Host, Level,
    Replacement, Request, Runtime, ServiceState, SlowHandler, Token, WaitResult,
};
use veche_types::codes::CloseCode;
use veche_types::{ConnectionId, Now, WorkerId};

use crate::connections::{KnownConnection, KnownConnections};
use crate::program::Program;

/// The maximum size of one response's log lines, in bytes.
const LOG_BYTES_MAX: usize = 16 << 10;

/// The state, on one worker, of an application that gets each event in a separate request.
///
/// Requests leave as [`Effect::Call`], and their outcomes arrive in [`Runtime::handle_outcome`].
#[derive(Debug)]
pub struct PerEvent {
    program: Program,
    worker: WorkerId,
    connections: KnownConnections,
    /// The events that are being handled, by id. The id of an event is the token of its call.
    in_hand: HashMap<u64, InHand, FixedState>,
    /// For each accepted handshake, the event's id and the frames of the response as received. Their effects are executed once
    /// the connection is open.
    opening: HashMap<ConnectionId, (u64, Vec<u8>), FixedState>,
    effects: Effects,
    last: u64,
    is_stopping: bool,
}

/// An event that is being handled.
#[derive(Clone, Debug)]
struct InHand {
    name: EventName,
    origin: EventOrigin,
    /// For a close event, a copy of the call, which is sent again if all processes are busy. `None` for
    /// other events.
    call: Option<Box<Call>>,
}

impl PerEvent {
    /// Starts the handling of an event.
    fn ask(
        &mut self,
        event: &Event<'_>,
        name: EventName,
        origin: EventOrigin,
        client: FastcgiClient,
    ) {
        self.last += 1;
        let id = self.last;
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
            attributes: known.map(|one| &one.attributes),
        };
        let Some(outgoing) = OutgoingEvent::of(event, id, known) else {
            return;
        };
        let mut frame = Vec::new();
        let in_hand = InHand {
            name,
            origin,
            call: None,
        };
        let limits = FrameLimits::default();
        if let Err(error) = encode(&mut frame, limits, &outgoing.head, &outgoing.parts) {
            let words = format!("the event can't be sent to the script: {error}");
            self.fail(&in_hand, &words);
            return;
        }
        let request = self.program.request(client, frame);
        let call = Box::new(Call::Fastcgi(Box::new(request)));
        // A close is never dropped, so the call is stored for another attempt.
        let again = (name == EventName::Close).then(|| call.clone());
        self.in_hand.insert(
            id,
            InHand {
                call: again,
                ..in_hand
            },
        );
        let token = Token(id);
        self.effects.list.push(Effect::Call { call, token });
    }

    /// Handles the outcome of an event's request.
    fn settle(&mut self, id: u64, in_hand: InHand, outcome: CallOutcome) {
        match outcome {
            Ok(CallReply::Fastcgi(reply)) => self.answered(id, &in_hand, reply),
            Ok(_) => self.fail(
                &in_hand,
                "the FastCGI request got a reply of another protocol",
            ),
            Err(fault) if fault.kind == CallErrorKind::PoolFull => self.busy(id, in_hand, &fault),
            Err(fault) => self.fail(&in_hand, &fault.words),
        }
    }

    fn answered(&mut self, id: u64, in_hand: &InHand, reply: FastcgiReply) {
        self.log(&reply.log);
        if reply.status != 200 {
            let body = String::from_utf8_lossy(&reply.body);
            let start: String = body.trim().chars().take(200).collect();
            let words = format!("the script responded with status {}: {start}", reply.status);
            self.fail(in_hand, &words);
            return;
        }
        match frames(&reply.body, id, in_hand.name) {
            Err(words) => self.fail(in_hand, &words),
            Ok(()) => self.carry(id, in_hand, reply.body),
        }
    }

    /// Executes validated frames.
    fn carry(&mut self, id: u64, in_hand: &InHand, body: Vec<u8>) {
        let before = self.effects.list.len();
        let is_handshake = matches!(in_hand.origin, EventOrigin::Handshake(_));
        let part = if is_handshake { Parts::End } else { Parts::All };
        if !self.carry_frames(&body, id, in_hand, part) {
            self.effects.list.truncate(before);
            self.fail(in_hand, &EffectsFull.to_string());
            return;
        }
        if let EventOrigin::Handshake(of) = in_hand.origin {
            let reply = self.effects.list[before..].iter().find_map(accepted);
            if let Some(user) = reply {
                let connection = self.connections.entry(of).or_default();
                connection.user = user.or(connection.user.take());
                self.opening.insert(of, (id, body));
            }
        }
        self.done(in_hand.origin);
    }

    /// Converts frames to effects. Returns `false` if the effects exceed their limits.
    fn carry_frames(&mut self, body: &[u8], id: u64, in_hand: &InHand, part: Parts) -> bool {
        let carrier = EffectBuilder {
            worker: self.worker,
            origin: in_hand.origin,
        };
        let mut decoder = FrameDecoder::new(FrameLimits::default());
        let mut input = body;
        let mut effects = mem::take(&mut self.effects);
        let mut has_room = true;
        while let Ok(Some(frame)) = decoder.decode(&mut input) {
            let Ok(FromWorker::Handled(mut handled)) = read(frame, id, in_hand.name) else {
                continue;
            };
            match part {
                Parts::All => {}
                Parts::End => handled.effects.clear(),
                Parts::Effects => handled.end = None,
            }
            has_room &= carrier.add_effects(handled, self, &mut effects).is_ok();
        }
        self.effects = effects;
        has_room
    }

    /// Ends an event whose handler has failed.
    fn fail(&mut self, in_hand: &InHand, words: &str) {
        let text = format!("{}: {words}", in_hand.name.name());
        self.effects.log(Level::Error, text, None);
        self.refuse(in_hand.origin, 500, "internal error\n");
        if let EventOrigin::Connection(of) = in_hand.origin {
            self.effects.list.push(Effect::Failed { of });
        }
        self.done(in_hand.origin);
    }

    /// Handles an event for which no process was free. A close event is sent again; any other event is refused.
    fn busy(&mut self, id: u64, in_hand: InHand, fault: &CallError) {
        if let Some(call) = in_hand.call.clone() {
            // Sends the request again, which puts it at the end of the queue for a process.
            self.in_hand.insert(id, in_hand);
            let token = Token(id);
            self.effects.list.push(Effect::Call { call, token });
            return;
        }
        let text = format!("{}: {}", in_hand.name.name(), fault.words);
        self.effects.log(Level::Warn, text, None);
        self.refuse(in_hand.origin, 503, "too busy\n");
        if let EventOrigin::Connection(of) = in_hand.origin {
            let (code, reason) = CloseCode::AppBusy.parts();
            let reason = reason.to_owned();
            self.effects.list.push(Effect::Close { of, code, reason });
        }
        self.done(in_hand.origin);
    }

    /// Responds to an event with an error. Does nothing for events without a response.
    fn refuse(&mut self, origin: EventOrigin, status: u16, words: &str) {
        let headers = vec![("Content-Type".into(), "text/plain; charset=utf-8".into())];
        let effect = match origin {
            EventOrigin::Handshake(of) => Effect::Handshake {
                of,
                reply: HandshakeReply::Refuse {
                    status,
                    headers,
                    body: words.into(),
                },
            },
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

    /// Ends an event. If its connection has closed in the meantime, starts the close event.
    fn done(&mut self, origin: EventOrigin) {
        let EventOrigin::Connection(of) = origin else {
            return;
        };
        let Some(connection) = self.connections.get_mut(&of) else {
            return;
        };
        connection.is_busy = false;
        if let Some((code, reason)) = connection.end.take() {
            self.close(of, code, &reason);
        }
    }

    /// Reports the end of a connection to the application and forgets the connection.
    fn close(&mut self, id: ConnectionId, code: u16, reason: &str) {
        if self.program.handles(EventName::Close) {
            let event = Event::Close { id, code, reason };
            self.ask(
                &event,
                EventName::Close,
                EventOrigin::Connection(id),
                FastcgiClient::default(),
            );
        }
        self.connections.remove(&id);
    }

    fn log(&mut self, log: &[u8]) {
        let text = String::from_utf8_lossy(&log[..log.len().min(LOG_BYTES_MAX)]);
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let line = line.strip_prefix("PHP message: ").unwrap_or(line);
            self.effects.log(Level::Warn, line.to_owned(), None);
        }
    }

    /// Cancels the call of an event whose answer is no longer needed.
    fn give_up(&mut self, is_it: impl Fn(EventOrigin) -> bool) {
        let found = self.in_hand.iter().find(|(_, one)| is_it(one.origin));
        if let Some((&id, _)) = found {
            self.in_hand.remove(&id);
            self.effects
                .list
                .push(Effect::CancelCall { token: Token(id) });
        }
    }
}

/// Which content of a response's frames is executed.
#[derive(Clone, Copy, Debug)]
enum Parts {
    All,
    /// Only the end of the handler: its reply or failure.
    End,
    /// Only the effects, once the connection of an accepted handshake is open.
    Effects,
}

/// Returns the user name in an accepted handshake, or `Some(None)` if it contains none; `None` for any other effect.
fn accepted(effect: &Effect) -> Option<Option<String>> {
    match effect {
        Effect::Handshake {
            reply: HandshakeReply::Accept { user, .. },
            ..
        } => Some(user.as_deref().map(str::to_owned)),
        _ => None,
    }
}

fn read(frame: Frame<'_>, id: u64, name: EventName) -> Result<FromWorker<'_>, String> {
    FromWorker::read(frame, |one| (one == id).then_some(name)).map_err(|error| error.message)
}

/// Checks that a response consists of frames of this event and that the last frame is the answer.
fn frames(body: &[u8], id: u64, name: EventName) -> Result<(), String> {
    let mut decoder = FrameDecoder::new(FrameLimits::default());
    let mut input = body;
    let mut has_ended = false;
    loop {
        let frame = decoder.decode(&mut input).map_err(|error| {
            let start: String = String::from_utf8_lossy(body).chars().take(80).collect();
            format!("the response does not follow the runtime protocol: {error}; it begins with {start:?}")
        })?;
        let Some(frame) = frame else { break };
        if has_ended {
            return Err("the response has more frames after the end of the answer".to_owned());
        }
        match read(frame, id, name)? {
            FromWorker::Handled(handled) => has_ended = handled.end.is_some(),
            FromWorker::Hello(_) | FromWorker::Call(_) | FromWorker::Cancel(_) => {
                return Err("the response has a frame that is not allowed in a response".to_owned());
            }
        }
    }
    if has_ended && !decoder.is_within_frame() {
        Ok(())
    } else {
        Err("the response has no complete answer".to_owned())
    }
}

/// Returns the client's request in the form that is passed to a script.
fn client(request: &Request) -> FastcgiClient {
    let headers = request.headers();
    FastcgiClient {
        path: request.path().to_owned(),
        query: request.query().to_owned(),
        remote: Some(IpAddr::to_canonical(&request.remote)),
        headers: headers
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
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

impl CallBridge for PerEvent {
    fn token(&mut self) -> Token {
        self.last += 1;
        Token(self.last)
    }

    fn set_attribute(&mut self, of: WorkerConnection, name: &str, value: Option<Attribute>) {
        let is_own = of.worker == self.worker;
        let connection = self.connections.get_mut(&of.connection).filter(|_| is_own);
        let Some(connection) = connection else {
            return;
        };
        if let Err(error) = connection.attributes.set(name, value) {
            let text = format!("attribute {name:?}: {error}");
            self.effects.log(Level::Error, text, None);
        }
    }
}

impl Runtime for PerEvent {
    type Program = Program;
    type Error = Infallible;

    fn start(program: &Program, _: &Host, worker: WorkerId) -> Result<Self, Infallible> {
        Ok(Self {
            program: program.clone(),
            worker,
            connections: KnownConnections::default(),
            in_hand: HashMap::default(),
            opening: HashMap::default(),
            effects: Effects::default(),
            last: 0,
            is_stopping: false,
        })
    }

    fn attach(&mut self, _: &Host) {}

    /// Replaces only the configuration of the program, since each request runs the current file of the script. Requests that
    /// were already sent are unaffected.
    fn replace(&mut self, program: &Program, _: Replacement<'_, '_>) -> Result<(), Infallible> {
        self.program = program.clone();
        Ok(())
    }

    fn restart(&mut self, program: &Program) -> Result<(), Infallible> {
        self.program = program.clone();
        Ok(())
    }

    fn handles(&self, kind: EventKind) -> bool {
        match kind {
            EventKind::Handshake => self.program.handles(EventName::Open),
            EventKind::Request => self.program.handles(EventName::Request),
            EventKind::Channels => false,
        }
    }

    fn decides_on(&self, hook: Hook) -> bool {
        self.program.handles(name_of(hook))
    }

    fn handle_event(&mut self, event: Event<'_>, _: Now) -> HandlerProgress {
        match &event {
            Event::Handshake { id, request } => {
                let client = client(request);
                self.ask(&event, EventName::Open, EventOrigin::Handshake(*id), client);
                HandlerProgress::Waits
            }
            Event::Open { id, request } => {
                let connection = self.connections.entry(*id).or_default();
                connection.user = request.user().map(str::to_owned).or(connection.user.take());
                if let Some((number, body)) = self.opening.remove(id) {
                    let in_hand = InHand {
                        name: EventName::Open,
                        origin: EventOrigin::Connection(*id),
                        call: None,
                    };
                    if !self.carry_frames(&body, number, &in_hand, Parts::Effects) {
                        self.effects.list.push(Effect::Failed { of: *id });
                    }
                }
                HandlerProgress::Done
            }
            Event::Message { id, .. } => {
                if !self.program.handles(EventName::Message) {
                    return HandlerProgress::Done;
                }
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.is_busy = true;
                }
                let client = FastcgiClient::default();
                self.ask(
                    &event,
                    EventName::Message,
                    EventOrigin::Connection(*id),
                    client,
                );
                HandlerProgress::Waits
            }
            Event::Close { id, code, reason } => {
                self.opening.remove(id);
                match self.connections.get_mut(id) {
                    Some(connection) if connection.is_busy => {
                        connection.is_closing = true;
                        connection.end = Some((*code, (*reason).to_owned()));
                    }
                    Some(_) => self.close(*id, *code, reason),
                    None => {}
                }
                HandlerProgress::Done
            }
            Event::Request { id, request } => {
                let client = client(request);
                self.ask(
                    &event,
                    EventName::Request,
                    EventOrigin::Request(*id),
                    client,
                );
                HandlerProgress::Waits
            }
            Event::Gone { id, .. } => {
                self.connections.remove(id);
                self.opening.remove(id);
                self.give_up(|origin| {
                    matches!(origin, EventOrigin::Handshake(of) | EventOrigin::Request(of) if of == *id)
                });
                HandlerProgress::Done
            }
            Event::Hook { number, request } => {
                let name = name_of(request.hook);
                let client = FastcgiClient {
                    remote: Some(request.caller.remote.to_canonical()),
                    ..FastcgiClient::default()
                };
                self.ask(&event, name, EventOrigin::Hook(*number), client);
                HandlerProgress::Waits
            }
            Event::HookGone { number } => {
                self.give_up(|origin| origin == EventOrigin::Hook(*number));
                HandlerProgress::Done
            }
            Event::Stop => {
                self.is_stopping = true;
                HandlerProgress::Done
            }
            Event::Drain { .. } | Event::Channels { .. } | Event::Run => HandlerProgress::Done,
        }
    }

    fn answer(&mut self, _: Token, _: &WaitResult, _: Now) {}

    fn handle_outcome(&mut self, Token(id): Token, outcome: CallOutcome, _: Now) {
        if let Some(in_hand) = self.in_hand.remove(&id) {
            self.settle(id, in_hand, outcome);
        }
    }

    fn client_opened(&mut self, _: Token, _: ConnectionId, _: Option<&str>, _: Now) -> bool {
        false
    }

    fn client_failed(&mut self, _: Token, _: &str, _: Now) {}

    fn mark_full(&mut self, _: ConnectionId) {}

    fn turn(&mut self, _: Now) {}

    fn deadline_ms(&self) -> u64 {
        u64::MAX
    }

    fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    fn take_effects(&mut self, empty: &mut Effects) {
        mem::swap(&mut self.effects, empty);
    }

    fn take_slow(&mut self) -> Option<SlowHandler> {
        None
    }

    fn is_open(&self, id: ConnectionId) -> bool {
        let connection = self.connections.get(&id);
        connection.is_some_and(|connection| !connection.is_closing)
    }

    fn mark_closing(&mut self, id: ConnectionId) -> bool {
        let connection = self.connections.get_mut(&id);
        connection.is_some_and(|connection| !mem::replace(&mut connection.is_closing, true))
    }

    fn connections(&self) -> Vec<ConnectionId> {
        let open = self.connections.iter();
        let open = open.filter(|(_, connection)| !connection.is_closing);
        open.map(|(id, _)| *id).collect()
    }

    fn takes_channel_events(&self) -> bool {
        false
    }

    fn is_starting(&self) -> bool {
        false
    }

    fn service_state(&self) -> ServiceState {
        ServiceState::Idle
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping && !self.in_hand.is_empty()
    }

    fn is_idle(&self) -> bool {
        self.in_hand.is_empty()
    }

    fn has_no_clients(&self) -> bool {
        self.connections.is_empty() && self.in_hand.is_empty()
    }

    fn has_older(&self) -> bool {
        false
    }

    fn is_older_idle(&self) -> bool {
        true
    }

    fn retire(&mut self, _: Now) -> Vec<usize> {
        Vec::new()
    }

    fn is_broken(&self) -> bool {
        false
    }

    fn tasks(&self) -> usize {
        self.in_hand.len()
    }

    fn all_tasks(&self) -> usize {
        self.in_hand.len()
    }

    fn memory_bytes(&self) -> usize {
        self.connections.capacity() * size_of::<(ConnectionId, KnownConnection)>()
    }

    fn all_memory_bytes(&self) -> usize {
        self.memory_bytes()
    }

    fn fail_waiting(&mut self) {
        for (_, in_hand) in mem::take(&mut self.in_hand) {
            self.fail(&in_hand, "the application ends");
        }
    }

    fn abort(&mut self) {
        let tokens: Vec<u64> = self.in_hand.keys().copied().collect();
        self.fail_waiting();
        for id in tokens {
            self.effects
                .list
                .push(Effect::CancelCall { token: Token(id) });
        }
    }
}
