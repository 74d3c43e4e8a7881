//! An application in worker processes, on one server thread.

use std::collections::HashMap;
use std::mem;

use foldhash::fast::FixedState;
use veche_calls::{Fault, FaultKind, Outcome, Place};
use veche_runtime::hooks::{Hook, HookResponse};
use veche_runtime::wire::{
    Carrier, Desk, EventName, Frame, FromWorker, Handled, Known, Limits, Origin, Outgoing,
    ResultHead, Scope, What, WorkerCall, encode,
};
use veche_runtime::{
    Answer, Attribute, Effect, Effects, Event, EventKind, HandshakeReply, Host, Level, Progress,
    Replacement, Runtime, Service, Slow, Token,
};
use veche_types::codes::CloseCode;
use veche_types::{ConnectionId, Now};

use crate::connections::{Connection, Connections};
use crate::link::Link;
use crate::program::Program;
use crate::shared::{Job, Mail, Order, ProcessKey, Unanswered, Wake};

/// Mail is looked for so often where nothing wakes the server thread.
const POLL_MS: u64 = 1;

/// See the module's text.
#[derive(Debug)]
pub struct Workers {
    program: Program,
    /// The generation that gets events; `None` once the application has ended.
    link: Option<Link>,
    /// A newer generation, which gets them once a process of it is ready.
    newer: Option<Link>,
    /// Generations before, with the events that they have not answered.
    older: Vec<Link>,
    worker: u16,
    wake: WakeOf,
    connections: Connections,
    in_hand: HashMap<u64, InHand, FixedState>,
    /// Effects of accepted handshakes, which count once the connection is open.
    opening: HashMap<ConnectionId, Vec<(Box<[u8]>, usize)>, FixedState>,
    calls: HashMap<u64, Call, FixedState>,
    effects: Effects,
    mail: Vec<Mail>,
    last: u64,
    generation: u64,
    now_ms: u64,
    is_stopping: bool,
}

/// Wakes the server thread, where it can be woken.
#[derive(Clone, Default)]
struct WakeOf(Option<Wake>);

impl std::fmt::Debug for WakeOf {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("WakeOf")
    }
}

/// An event that a process or the queue has.
#[derive(Clone, Copy, Debug)]
struct InHand {
    name: EventName,
    origin: Origin,
    /// Nothing is waiting for the answer any more.
    is_unwanted: bool,
    generation: u64,
}

/// A call of a handler that waits for its result.
#[derive(Clone, Copy, Debug)]
struct Call {
    id: u64,
    process: ProcessKey,
    generation: u64,
}

impl Workers {
    /// Returns all links, the one that gets events first.
    fn links(&self) -> impl Iterator<Item = &Link> {
        let others = self.newer.iter().chain(&self.older);
        self.link.iter().chain(others)
    }

    fn join(&mut self, program: &Program) -> Result<Link, String> {
        self.generation += 1;
        Link::new(program, self.wake.0.clone(), self.generation)
    }

    fn takes(&self, name: EventName) -> bool {
        let link = self.link.as_ref();
        link.is_some_and(|link| link.pool.handles(name))
    }

    /// Has an event handled; `false` where it is not to be.
    fn ask(&mut self, event: &Event<'_>, name: EventName, origin: Origin) -> bool {
        let Some(link) = &self.link else {
            return false;
        };
        if !link.pool.handles(name) {
            return false;
        }
        let connection = match origin {
            Origin::Handshake(of) | Origin::Connection(of) | Origin::Request(of) => Some(of),
            Origin::Hook(_) | Origin::Worker => None,
        };
        let known = connection.and_then(|of| self.connections.get(&of));
        let known = Known {
            worker: self.worker,
            user: known.and_then(|one| one.user.as_deref()),
            attributes: known.and_then(|one| one.attributes.as_deref()),
        };
        let Some(outgoing) = Outgoing::of(event, 0, known) else {
            return false;
        };
        let in_hand = InHand {
            name,
            origin,
            is_unwanted: false,
            generation: link.generation,
        };
        let mut frame = Vec::new();
        let (head, parts) = (&outgoing.head, &outgoing.parts);
        if encode(&mut frame, Limits::default(), head, parts).is_err() {
            self.log(name, "the event is longer than a frame");
            self.fail(origin);
            return true;
        }
        self.last += 1;
        link.pool.order(Order::Job(Job {
            outlet: link.outlet.clone(),
            number: self.last,
            name,
            frame,
        }));
        self.in_hand.insert(self.last, in_hand);
        true
    }

    fn log(&mut self, name: EventName, words: &str) {
        let text = format!("{}: {words}", name.name());
        self.effects.log(Level::Error, text, None);
    }

    /// Takes what pools have for this thread.
    fn take_mail(&mut self, now: Now) {
        self.now_ms = now.mono_ms;
        for place in 0..self.links().count() {
            let link = self.links().nth(place);
            let Some(link) = link.filter(|link| link.outlet.has_mail()) else {
                continue;
            };
            let generation = link.generation;
            let mut mail = mem::take(&mut self.mail);
            if let Some(link) = self.links().nth(place) {
                link.outlet.take(&mut mail);
            }
            for letter in mail.drain(..) {
                self.take_letter(letter, generation);
            }
            self.mail = mail;
        }
    }

    fn take_letter(&mut self, letter: Mail, generation: u64) {
        match letter {
            Mail::Unanswered(number, why, text) => {
                if let Some(in_hand) = self.in_hand.remove(&number) {
                    self.unanswered(in_hand, why, text);
                }
            }
            Mail::Frame {
                process,
                event,
                bytes,
                head_bytes,
            } => {
                let from = Source {
                    process,
                    generation,
                    number: event.map(|(number, _)| number),
                    id: event.map(|(_, id)| id),
                };
                self.take_frame(from, bytes, head_bytes);
            }
        }
    }

    fn take_frame(&mut self, from: Source, bytes: Vec<u8>, head_bytes: usize) {
        let in_hand = from
            .number
            .and_then(|number| self.in_hand.get(&number).copied());
        let read = FromWorker::read(frame_of(&bytes, head_bytes), |id| {
            in_hand.filter(|_| from.id == Some(id)).map(|one| one.name)
        });
        let origin = in_hand.map_or(Origin::Worker, |one| one.origin);
        match read {
            Ok(FromWorker::Handled(handled)) => {
                let is_end = handled.end.is_some();
                let (Some(in_hand), Some(number)) = (in_hand, from.number) else {
                    self.carry(handled, Origin::Worker);
                    return;
                };
                if is_end {
                    self.in_hand.remove(&number);
                }
                if in_hand.is_unwanted {
                    return;
                }
                if let Origin::Handshake(of) = origin {
                    self.handshake(of, handled, is_end, &bytes, head_bytes);
                } else if !self.carry(handled, origin) {
                    self.log(in_hand.name, "too much is sent at once");
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
                Scope::Event(_) => {
                    let Some(in_hand) = from.number.and_then(|one| self.in_hand.remove(&one))
                    else {
                        return;
                    };
                    self.unanswered(in_hand, Unanswered::Failed, Some(error.message));
                }
                Scope::Call(id) => {
                    let fault = Fault::new(FaultKind::Invalid, error.message);
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
                Scope::Frame | Scope::Worker => {
                    self.effects.log(Level::Error, error.message, None);
                }
            },
        }
    }

    /// The handler of a handshake has got so far: what it wants done counts once the connection is open.
    fn handshake(
        &mut self,
        of: ConnectionId,
        mut handled: Handled<'_>,
        is_end: bool,
        bytes: &[u8],
        head_bytes: usize,
    ) {
        if !handled.effects.is_empty() {
            let frames = self.opening.entry(of).or_default();
            frames.push((bytes.into(), head_bytes));
        }
        handled.effects.clear();
        if !is_end {
            return;
        }
        let before = self.effects.list.len();
        self.carry(handled, Origin::Handshake(of));
        let accepted = self.effects.list[before..].iter().find_map(accepted);
        match accepted {
            Some(user) => {
                let connection = self.connections.entry(of).or_default();
                connection.user = user.map(Into::into);
            }
            None => drop(self.opening.remove(&of)),
        }
    }

    /// Carries out what the handler of a handshake wanted, now that the connection is open.
    fn opened(&mut self, of: ConnectionId) {
        for (bytes, head_bytes) in self.opening.remove(&of).unwrap_or_default() {
            let read = FromWorker::read(frame_of(&bytes, head_bytes), |_| Some(EventName::Open));
            if let Ok(FromWorker::Handled(mut handled)) = read {
                handled.end = None;
                if !self.carry(handled, Origin::Connection(of)) {
                    self.effects.list.push(Effect::Failed { of });
                }
            }
        }
    }

    /// Leaves what a handler wants done among the effects; `false` where they have no room.
    fn carry(&mut self, handled: Handled<'_>, origin: Origin) -> bool {
        let carrier = Carrier {
            worker: self.worker,
            origin,
        };
        let mut effects = mem::take(&mut self.effects);
        let has_room = carrier.handled(handled, self, &mut effects).is_ok();
        self.effects = effects;
        has_room
    }

    fn call(&mut self, call: WorkerCall<'_>, origin: Origin, from: Source) {
        let waiting = Call {
            id: call.id,
            process: from.process,
            generation: from.generation,
        };
        if let What::Connection { of } = &call.what {
            let own = match origin {
                Origin::Handshake(id) | Origin::Connection(id) | Origin::Request(id) => Some(id),
                Origin::Hook(_) | Origin::Worker => None,
            };
            let is_here = of.is_none_or(|of| of.worker == self.worker);
            let id = of.map_or(own, |of| Some(id_of(of))).filter(|_| is_here);
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
        let token = self.token();
        let carrier = Carrier {
            worker: self.worker,
            origin,
        };
        match carrier.call(call, token, &mut self.effects) {
            Ok(true) => {
                self.calls.insert(token.0, waiting);
            }
            Ok(false) => {
                let words = "it is not possible here";
                let fault = Fault::new(FaultKind::Invalid, words.to_owned());
                let head = ResultHead::failed(waiting.id, &fault);
                self.result(waiting, &head, &[]);
            }
            Err(error) => {
                let fault = Fault::new(FaultKind::Refused, error.to_string());
                let head = ResultHead::failed(waiting.id, &fault);
                self.result(waiting, &head, &[]);
            }
        }
    }

    /// Sends the result of a call to the process that waits for it.
    fn result(&self, call: Call, head: &ResultHead<'_>, data: &[u8]) {
        let mut frame = Vec::new();
        let parts = [data];
        let parts = if data.is_empty() { &parts[..0] } else { &parts };
        if encode(&mut frame, Limits::default(), head, parts).is_err() {
            let words = "the result is longer than a frame".to_owned();
            let fault = Fault::new(FaultKind::Refused, words);
            let short = ResultHead::failed(call.id, &fault);
            if encode(&mut frame, Limits::default(), &short, &[]).is_err() {
                return;
            }
        }
        let link = self.links().find(|link| link.generation == call.generation);
        if let Some(link) = link {
            link.pool.order(Order::Frame(call.process, frame));
        }
    }

    /// An event ends without an answer.
    fn unanswered(&mut self, in_hand: InHand, why: Unanswered, text: Option<String>) {
        let origin = in_hand.origin;
        let level = match why {
            Unanswered::Failed => Level::Error,
            Unanswered::Busy | Unanswered::Unhandled => Level::Warn,
        };
        if let Some(text) = text {
            self.effects.log(level, text, None);
        }
        if !in_hand.is_unwanted {
            match why {
                Unanswered::Failed => self.fail(origin),
                Unanswered::Busy => {
                    self.refuse(origin, 503, "too busy\n");
                    if let Origin::Connection(of) = origin {
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

    /// Goes on as if the application had no handler, which it has not.
    fn pass(&mut self, origin: Origin) {
        match origin {
            Origin::Handshake(of) => {
                self.connections.entry(of).or_default();
                self.effects.list.push(Effect::Handshake {
                    of,
                    reply: HandshakeReply::Accept {
                        user: None,
                        protocol: None,
                    },
                });
            }
            Origin::Connection(of) => self.effects.list.push(Effect::Ready { of }),
            _ => self.refuse(origin, 426, "this path speaks WebSocket\n"),
        }
    }

    fn fail(&mut self, origin: Origin) {
        self.refuse(origin, 500, "internal error\n");
        if let Origin::Connection(of) = origin {
            self.effects.list.push(Effect::Failed { of });
        }
    }

    /// Answers a handshake, a request or a hook by a refusal.
    fn refuse(&mut self, origin: Origin, status: u16, words: &str) {
        let headers = vec![(
            "Content-Type".to_owned(),
            "text/plain; charset=utf-8".to_owned(),
        )];
        let effect = match origin {
            Origin::Handshake(of) => {
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
            Origin::Request(to) => Effect::Respond {
                to,
                status,
                headers,
                body: self.effects.keep(words.as_bytes()).unwrap_or_default(),
            },
            Origin::Hook(number) => Effect::Hook {
                number,
                response: HookResponse::Failed,
            },
            Origin::Connection(_) | Origin::Worker => return,
        };
        self.effects.list.push(effect);
    }

    /// An event has ended: the one behind it begins.
    fn done(&mut self, origin: Origin) {
        let Origin::Connection(of) = origin else {
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

    /// Hands over the end of a connection, after which the application knows it no more.
    fn close(&mut self, id: ConnectionId, code: u16, reason: &str) {
        let event = Event::Close { id, code, reason };
        self.ask(&event, EventName::Close, Origin::Connection(id));
        self.connections.remove(&id);
    }

    /// Gives up an event whose answer is not wanted any more.
    fn give_up(&mut self, is_it: impl Fn(Origin) -> bool) {
        let found = self.in_hand.iter_mut().find(|(_, one)| is_it(one.origin));
        let Some((&number, in_hand)) = found else {
            return;
        };
        in_hand.is_unwanted = true;
        let generation = in_hand.generation;
        let link = self.links().find(|link| link.generation == generation);
        if let Some(link) = link {
            let outlet = link.outlet.clone();
            link.pool.order(Order::Cancel(number, outlet));
        }
    }

    fn is_used(&self, generation: u64) -> bool {
        let mut events = self.in_hand.values();
        let mut calls = self.calls.values();
        events.any(|one| one.generation == generation)
            || calls.any(|one| one.generation == generation)
    }

    /// Goes over to a newer generation that is ready, and leaves older ones that have nothing in hand.
    fn switch(&mut self) {
        if self.newer.as_ref().is_some_and(|link| link.pool.is_ready()) {
            let newer = self.newer.take();
            self.older.extend(mem::replace(&mut self.link, newer));
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

/// Where a frame came from.
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

fn id_of(place: Place) -> ConnectionId {
    ConnectionId {
        index: place.index,
        generation: place.generation,
    }
}

/// Returns the user that an accepted handshake names, where the effect is one.
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

impl Desk for Workers {
    fn token(&mut self) -> Token {
        self.last += 1;
        Token(self.last)
    }

    fn set_attribute(&mut self, of: Place, name: &str, value: Option<Attribute>) {
        let is_own = of.worker == self.worker;
        let connection = self.connections.get_mut(&id_of(of)).filter(|_| is_own);
        let Some(connection) = connection else {
            return;
        };
        let attributes = connection.attributes.get_or_insert_default();
        if let Err(error) = attributes.set(name, value) {
            let text = format!("attribute {name:?}: {error}");
            self.effects.log(Level::Error, text, None);
        }
    }
}

impl Runtime for Workers {
    type Program = Program;
    type Error = String;

    fn start(program: &Program, host: &Host, worker: u16) -> Result<Self, String> {
        let mut own = Self {
            program: program.clone(),
            link: None,
            newer: None,
            older: Vec::new(),
            worker,
            wake: WakeOf(host.wake.clone()),
            connections: Connections::default(),
            in_hand: HashMap::default(),
            opening: HashMap::default(),
            calls: HashMap::default(),
            effects: Effects::default(),
            mail: Vec::new(),
            last: 0,
            generation: 0,
            now_ms: 0,
            is_stopping: false,
        };
        own.link = Some(own.join(program)?);
        Ok(own)
    }

    fn attach(&mut self, host: &Host) {
        self.wake = WakeOf(host.wake.clone());
        if let Some(wake) = &host.wake {
            self.links()
                .for_each(|link| link.outlet.set_wake(wake.clone()));
        }
    }

    fn replace(&mut self, program: &Program, _: Replacement<'_, '_>) -> Result<(), String> {
        let link = self.join(program)?;
        self.newer = Some(link);
        self.program = program.clone();
        Ok(())
    }

    fn restart(&mut self, program: &Program) -> Result<(), String> {
        self.newer = Some(self.join(program)?);
        Ok(())
    }

    fn handles(&self, kind: EventKind) -> bool {
        match kind {
            EventKind::Handshake => self.takes(EventName::Open),
            EventKind::Request => self.takes(EventName::Request),
            EventKind::Channels => false,
        }
    }

    fn decides_on(&self, hook: Hook) -> bool {
        self.takes(name_of(hook))
    }

    fn handle_event(&mut self, event: Event<'_>, now: Now) -> Progress {
        self.now_ms = now.mono_ms;
        match &event {
            Event::Handshake { id, .. } => {
                let origin = Origin::Handshake(*id);
                if !self.ask(&event, EventName::Open, origin) {
                    self.pass(origin);
                }
                Progress::Waits
            }
            Event::Open { id, request } => {
                let connection = self.connections.entry(*id).or_default();
                if connection.user.is_none() {
                    connection.user = request.user().map(Into::into);
                }
                self.opened(*id);
                Progress::Done
            }
            Event::Message { id, .. } => {
                if !self.ask(&event, EventName::Message, Origin::Connection(*id)) {
                    return Progress::Done;
                }
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.is_busy = true;
                }
                Progress::Waits
            }
            Event::Close { id, code, reason } => {
                self.opening.remove(id);
                match self.connections.get_mut(id) {
                    Some(connection) if connection.is_busy => {
                        connection.is_closing = true;
                        connection.end = Some(Box::new((*code, (*reason).to_owned())));
                    }
                    Some(_) => self.close(*id, *code, reason),
                    None => {}
                }
                Progress::Done
            }
            Event::Request { id, .. } => {
                let origin = Origin::Request(*id);
                if !self.ask(&event, EventName::Request, origin) {
                    self.pass(origin);
                }
                Progress::Waits
            }
            Event::Gone { id, .. } => {
                self.connections.remove(id);
                self.opening.remove(id);
                self.give_up(|origin| {
                    matches!(origin, Origin::Handshake(of) | Origin::Request(of) if of == *id)
                });
                Progress::Done
            }
            Event::Hook { number, request } => {
                let origin = Origin::Hook(*number);
                if !self.ask(&event, name_of(request.hook), origin) {
                    self.fail(origin);
                }
                Progress::Waits
            }
            Event::HookGone { number } => {
                self.give_up(|origin| origin == Origin::Hook(*number));
                Progress::Done
            }
            Event::Stop => {
                self.is_stopping = true;
                Progress::Done
            }
            Event::Drain { .. } | Event::Channels { .. } | Event::Run => Progress::Done,
        }
    }

    fn answer(&mut self, token: Token, answer: &Answer, _: Now) {
        match self.calls.remove(&token.0) {
            Some(call) => self.result(call, &ResultHead::of_answer(call.id, answer), &[]),
            None => {
                if let Answer::Failed(words) | Answer::No(words) = answer {
                    self.effects.log(Level::Error, words.clone(), None);
                }
            }
        }
    }

    fn replied(&mut self, token: Token, outcome: Outcome, _: Now) {
        if let Some(call) = self.calls.remove(&token.0) {
            let (head, data) = ResultHead::of_outcome(call.id, &outcome);
            self.result(call, &head, &data);
        }
    }

    fn client_opened(&mut self, _: Token, _: ConnectionId, _: Option<&str>, _: Now) -> bool {
        false
    }

    fn client_failed(&mut self, _: Token, _: &str, _: Now) {}

    fn full(&mut self, _: ConnectionId) {}

    fn turn(&mut self, now: Now) {
        self.take_mail(now);
        self.switch();
        if self.is_stopping && self.connections.is_empty() && self.in_hand.is_empty() {
            // The last one has the processes end.
            self.newer = None;
            self.older.extend(self.link.take());
            self.older.clear();
        }
    }

    fn deadline_ms(&self) -> u64 {
        if self.links().any(|link| link.outlet.has_mail()) {
            return 0;
        }
        let is_polled = self.wake.0.is_none() || self.newer.is_some();
        match is_polled && (self.newer.is_some() || !self.in_hand.is_empty()) {
            true => self.now_ms + POLL_MS,
            false => u64::MAX,
        }
    }

    fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    fn take_effects(&mut self, empty: &mut Effects) {
        mem::swap(&mut self.effects, empty);
    }

    fn take_slow(&mut self) -> Option<Slow> {
        None
    }

    fn is_open(&self, id: ConnectionId) -> bool {
        let connection = self.connections.get(&id);
        connection.is_some_and(|connection| !connection.is_closing)
    }

    fn closing(&mut self, id: ConnectionId) -> bool {
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

    fn service(&self) -> Service {
        Service::Idle
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping && !self.in_hand.is_empty()
    }

    fn is_at_rest(&self) -> bool {
        self.in_hand.is_empty()
    }

    fn is_deserted(&self) -> bool {
        self.connections.is_empty() && self.in_hand.is_empty()
    }

    fn has_older(&self) -> bool {
        !self.older.is_empty()
    }

    fn is_older_at_rest(&self) -> bool {
        !self.older.iter().any(|link| self.is_used(link.generation))
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
        self.connections.capacity() * size_of::<(ConnectionId, Connection)>()
    }

    fn all_memory_bytes(&self) -> usize {
        self.memory_bytes()
    }

    fn finish(&mut self) {
        let numbers: Vec<u64> = self.in_hand.keys().copied().collect();
        for number in numbers {
            if let Some(in_hand) = self.in_hand.remove(&number) {
                let text = "the application ends".to_owned();
                self.unanswered(in_hand, Unanswered::Failed, Some(text));
            }
        }
    }

    fn abort(&mut self) {
        self.finish();
        self.calls.clear();
    }
}
