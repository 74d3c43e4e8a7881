//! A session of Centrifugo's client protocol: commands in, replies and pushes out.
//!
//! It knows the protocol's rules and the hub, and neither the wire (`veche_centrifuge`) nor frames (`socket`). Commands
//! are carried out one by one, in the order in which they come: one that has to wait for a channel's home holds back
//! those behind it, which stay as bytes. So replies never overtake each other, and what a client subscribed to is there
//! when its next command comes.
//!
//! What is published goes past the session, from the hub into the outbox ([`crate::outbox`]). The reply to a subscribe
//! command is written before the hub is called again, so it stands before all that follows from it; while a connect
//! command waits for the homes of several channels, what comes meanwhile waits behind its reply.

mod answering;
mod channels;
mod claims;
mod commands;
mod connecting;
mod deciding;
mod frame;
mod instructed;
pub(crate) mod manner;
mod one_way;
mod renewing;
mod subscribing;
mod tokens;
pub(crate) mod transport;
mod watched;
pub(crate) mod writing;

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};
use veche_centrifuge::{
    Command, Disconnect, DisconnectCode, Encoding, ErrorCode, Limits, Push, PushBody, Request,
};
use veche_hub::{Answer, ClientInfo, ConnectionId, Ticket};
use veche_types::Now;

use crate::context::census::About;
use crate::context::hooks::QuestionId;
use crate::context::identity::{Finding, Lease};
use crate::context::note::NoteLevel;
use crate::context::pace::{Pace, Paced};
use crate::context::route::Route;
use crate::context::shared::Shared;
use crate::context::step::Block;
use crate::context::work;
use crate::outbox::ANSWERS_BYTES_HIGH;
use answering::Answering;
use connecting::Connecting;
use deciding::Deciding;
use frame::Frame;
use instructed::{GIVEN, Givens};
use one_way::OneWay;
use subscribing::{Asked, Subscriptions};
use tokens::Judge;
use transport::Relays;

use crate::context::relay::{Address, Relay};
use watched::Asking;

/// Without a connect command the connection is closed after so long.
const STALE_MS: u64 = 10_000;

/// The longest wait for the answer to a ping.
const PONG_MS_MAX: u64 = 8_000;

/// One client.
pub(crate) struct Centrifuge {
    encoding: Encoding,
    /// As whom others see it. Nobody before it is connected, unless its handshake has said.
    info: Arc<ClientInfo>,
    state: State,
    subscriptions: Subscriptions,
    /// What the client has missed was compared, for deltas.
    has_compared: bool,
    /// What came last, as far as it is not worked on.
    message: Vec<u8>,
    /// Bytes of it that are done with, and commands.
    taken: usize,
    commands: usize,
    /// The next one is counted by the route's rate already.
    is_counted: bool,
    /// What came another way behind it, as it came.
    relays: Relays,
    /// What the next command waits for.
    waiting: Option<Waiting>,
    /// The answer to the last one, while that is being written; nothing else is said before it is whole.
    answering: Option<Box<Answering>>,
    /// Of the last request to the hub on behalf of a command.
    ticket: u32,
    /// Channels to which a back end has subscribed it, until their homes have answered.
    given: Givens,
    /// Other keys were asked for, on behalf of the next command.
    has_asked: bool,
    /// What it asks others, and what they say.
    deciding: Deciding,
    /// Where commands come from another way, and what shows that they are this client's.
    address: Option<Box<Address>>,
    /// What kind of client it says it is, and its version.
    kind: [Box<str>; 2],
    /// It only listens.
    one_way: Option<OneWay>,
    /// What the token of its handshake says, until it has connected.
    claims: Option<Box<Map<String, Value>>>,
    /// The [endings](crate::Process::endings) when the question for the user was asked.
    asked: Option<u64>,
    /// The next thing may be due earlier than was said last.
    is_hurried: bool,
    /// When it began; from the connect reply on, when the last ping went.
    pinged_ms: u64,
    /// Nothing has come since the last ping.
    is_pinged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Of a connect command no good one has come.
    Fresh,
    Connected,
    /// Its handshake was refused for good: it is closed before it can say anything.
    Refused(DisconnectCode),
}

/// What has been asked of a home elsewhere, and on behalf of which command.
enum Waiting {
    Connect(Box<Connecting>),
    Subscribe(Box<Asked>),
    Publish {
        id: u32,
    },
    Asked {
        id: u32,
    },
    /// Keys that are fetched.
    Keys,
    /// Somebody decides on the next command.
    Verdict(QuestionId),
}

/// What a session works with, for one call.
pub(crate) struct Context<'a> {
    pub(crate) id: ConnectionId,
    pub(crate) route: &'a Route,
    /// What its token is good for.
    pub(crate) lease: &'a mut Option<Box<Lease>>,
    /// Where the client may not speak as fast as it likes.
    pub(crate) pace: Option<&'a mut Pace>,
    /// Its commands come with requests of their own, which can't be made to wait.
    pub(crate) is_relayed: bool,
    pub(crate) shared: &'a mut Shared,
}

impl Context<'_> {
    /// Whether the next command keeps to the route's rate.
    fn paced(&mut self) -> Paced {
        let now_ms = self.shared.now.mono_ms;
        match &mut self.pace {
            None => Paced::InTime,
            Some(pace) if self.is_relayed => pace.relayed_command(now_ms),
            Some(pace) => pace.command(now_ms),
        }
    }
}

/// How it goes on with what has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    GoOn,
    Wait(Block),
    /// The session is to be closed so.
    Close(u16, Cow<'static, str>),
}

/// What became of one command.
enum Done {
    Yes,
    /// It has asked for something, and ends when that comes.
    Waits(Waiting),
    /// It has an answer that is written in slices, behind those before it.
    Answers(Box<Answering>),
    /// Nothing of it was done: it is to be tried again.
    Not(Block),
    Close(DisconnectCode),
    /// The session is to be closed with a code and words that are not the server's.
    End(u16, Cow<'static, str>),
}

impl From<DisconnectCode> for Flow {
    fn from(code: DisconnectCode) -> Self {
        Self::Close(code.code(), code.words().into())
    }
}

/// The code and the words of the protocol for a close that is the server's own.
pub(crate) fn words(code: u16, reason: &str) -> (u16, Cow<'_, str>) {
    use crate::context::close::{GOING_AWAY, IDLE, RESTARTING, SLOW_CONSUMER, TOO_FAST};
    let known = match (code, reason) {
        GOING_AWAY | RESTARTING => DisconnectCode::Shutdown,
        SLOW_CONSUMER => DisconnectCode::Slow,
        TOO_FAST => DisconnectCode::TooManyRequests,
        IDLE => DisconnectCode::ConnectionClosed,
        _ => return (code, reason.into()),
    };
    (known.code(), known.words().into())
}

impl Centrifuge {
    /// A session that has just opened; `user` as the handshake says.
    pub(crate) fn new(encoding: Encoding, now: Now) -> Self {
        let nobody = ClientInfo {
            user: Box::default(),
            client: Box::default(),
            conn_info: None,
            chan_info: None,
        };
        Self {
            encoding,
            info: Arc::new(nobody),
            state: State::Fresh,
            subscriptions: Subscriptions::default(),
            has_compared: false,
            message: Vec::new(),
            taken: 0,
            commands: 0,
            is_counted: false,
            relays: Relays::default(),
            waiting: None,
            answering: None,
            ticket: 0,
            given: Givens::default(),
            has_asked: false,
            deciding: Deciding::default(),
            address: None,
            kind: Default::default(),
            one_way: None,
            claims: None,
            asked: None,
            is_hurried: false,
            pinged_ms: now.mono_ms,
            is_pinged: false,
        }
    }

    /// What a back end is told of it.
    pub(crate) fn about(&self) -> About<'_> {
        let [name, version] = &self.kind;
        About {
            client: &self.info.client,
            handler: "centrifuge",
            protocol: match self.encoding {
                Encoding::Json => "json",
                Encoding::Protobuf => "protobuf",
            },
            name,
            version,
            ..About::default()
        }
    }

    /// Who the client is by its handshake.
    pub(crate) fn set_user(&mut self, user: &str) {
        Arc::make_mut(&mut self.info).user = user.into();
    }

    /// How that is known.
    pub(crate) fn set_source(
        &mut self,
        claims: Option<Box<Map<String, Value>>>,
        asked: Option<u64>,
    ) {
        (self.claims, self.asked) = (claims, asked);
    }

    /// The client has no WebSocket: it has said this with its request, and the rest comes as [relays](Relay).
    pub(crate) fn begin_emulation(&mut self, address: Address, commands: &[u8]) {
        self.address = Some(Box::new(address));
        self.message = commands.to_vec();
        // Also of nothing.
        self.message.reserve(1);
    }

    /// Whether there are commands to go on with.
    pub(crate) fn has_commands(&self) -> bool {
        self.message.capacity() > 0
    }

    /// Whether commands that came another way are this client's.
    pub(crate) fn is_meant_by(&self, relay: &Relay) -> bool {
        let address = self.address.as_ref();
        address.is_some_and(|address| address.is(&relay.to))
    }

    /// Commands of this client that came another way.
    pub(crate) fn relayed(&mut self, relay: &Relay, cx: &mut Context<'_>) -> Flow {
        if !self.has_commands() {
            let mut bytes = cx.shared.ports.outboxes.spare();
            bytes.extend_from_slice(&relay.commands);
            return self.message(bytes, cx);
        }
        // Those before it wait for something; nothing holds back these.
        if !self.relays.keep(&relay.commands) {
            return DisconnectCode::TooManyRequests.into();
        }
        self.is_pinged = false;
        Flow::GoOn
    }

    /// The last words on a transport that has no other way to say them.
    pub(crate) fn write_disconnect(
        &self,
        id: ConnectionId,
        code: u16,
        reason: &str,
        shared: &mut Shared,
    ) {
        let mut frame = Frame::new(self.dialect(), Vec::new());
        let body = PushBody::Disconnect(Disconnect { code, reason });
        // It has no data that could be binary.
        frame.push(&Push { channel: "", body });
        frame.send(id, &mut shared.ports.outboxes);
    }

    /// A whole message; `bytes` go back to the outboxes.
    pub(crate) fn message(&mut self, bytes: Vec<u8>, cx: &mut Context<'_>) -> Flow {
        debug_assert!(self.waiting.is_none(), "what comes meanwhile is not read");
        self.is_pinged = false;
        self.message = bytes;
        (self.taken, self.commands) = (0, 0);
        self.go_on(cx)
    }

    /// Refuses the client. SDKs take a refused handshake for a network error and try for ever; after a terminal code
    /// they give up.
    pub(crate) fn refuse(&mut self, code: DisconnectCode) {
        self.state = State::Refused(code);
    }

    /// Goes on with the commands there are.
    pub(crate) fn go_on(&mut self, cx: &mut Context<'_>) -> Flow {
        if let State::Refused(code) = self.state {
            return code.into();
        }
        loop {
            let flow = match self.go_on_with_answer(cx) {
                Flow::GoOn => self.go_on_with_message(cx),
                flow => return flow,
            };
            if self.answering.is_some() {
                // A command has just had a long answer, which comes before the next command.
                continue;
            }
            if flow != Flow::GoOn {
                return flow;
            }
            let Some(commands) = self.relays.next() else {
                return Flow::GoOn;
            };
            self.message = commands;
            (self.taken, self.commands) = (0, 0);
        }
    }

    /// Goes on with an answer that is not whole.
    fn go_on_with_answer(&mut self, cx: &mut Context<'_>) -> Flow {
        let Some(answering) = &mut self.answering else {
            return Flow::GoOn;
        };
        let flow = answering.go_on(self.encoding, cx);
        if !matches!(flow, Flow::Wait(_)) {
            self.answering = None;
        }
        flow
    }

    /// Drops the rest of an answer, since the session is over.
    pub(crate) fn end_answer(&mut self) {
        self.answering = None;
    }

    fn go_on_with_message(&mut self, cx: &mut Context<'_>) -> Flow {
        match self.waiting {
            None => {}
            Some(Waiting::Verdict(_)) => return Flow::Wait(Block::Verdict),
            Some(_) => return Flow::Wait(Block::Answer),
        }
        let message = std::mem::take(&mut self.message);
        if message.capacity() == 0 {
            return Flow::GoOn;
        }
        let bytes = cx.shared.ports.outboxes.spare();
        let mut frame = Frame::new(self.dialect(), bytes);
        let mut flow = match self.is_one_way() {
            true => self.listen(&message, &mut frame, cx),
            false => self.work(&message, &mut frame, cx),
        };
        if let Some(code) = frame.end() {
            flow = code.into();
        }
        frame.send(cx.id, &mut cx.shared.ports.outboxes);
        cx.shared.ports.outboxes.recycle(frame.into_bytes());
        match flow {
            Flow::Wait(_) => self.message = message,
            Flow::GoOn | Flow::Close(..) => cx.shared.ports.outboxes.recycle(message),
        }
        flow
    }

    fn work(&mut self, message: &[u8], frame: &mut Frame, cx: &mut Context<'_>) -> Flow {
        let limits = Limits {
            message_bytes_max: usize::MAX,
            commands_max: Limits::default().commands_max.saturating_sub(self.commands),
        };
        let begin = self.taken;
        let mut commands = self.encoding.commands(&message[begin..], limits);
        loop {
            let command = match commands.next() {
                Some(Ok(command)) => command,
                Some(Err(malformed)) => {
                    let what = format!("closed with 3501: {malformed}");
                    cx.shared.note(cx.id, NoteLevel::Info, what);
                    cx.shared.stats.protocol_errors.add(1);
                    return DisconnectCode::BadRequest.into();
                }
                // A message says something.
                None if self.commands == 0 => return DisconnectCode::BadRequest.into(),
                None => return Flow::GoOn,
            };
            let paced = match self.is_counted {
                true => Paced::InTime,
                false => cx.paced(),
            };
            match paced {
                Paced::InTime | Paced::ThenWait => self.is_counted = true,
                Paced::Wait => return Flow::Wait(Block::Pace),
                Paced::Drop => {
                    cx.shared.stats.messages_dropped.add(1);
                    self.taken = begin + commands.taken();
                    self.commands += 1;
                    continue;
                }
                Paced::Close => {
                    cx.shared.count_outpaced(cx.id);
                    return DisconnectCode::TooManyRequests.into();
                }
            }
            let done = self.command(&command, frame, cx);
            self.tell_outcome(&command.request, &done, frame, cx);
            if let Done::Not(block) = done {
                return Flow::Wait(block);
            }
            self.taken = begin + commands.taken();
            self.commands += 1;
            self.is_counted = false;
            self.has_asked = false;
            self.deciding.forget();
            match done {
                Done::Yes | Done::Not(_) => {}
                Done::Waits(waiting) => {
                    self.waiting = Some(waiting);
                    return Flow::Wait(Block::Answer);
                }
                Done::Answers(answering) => {
                    self.answering = Some(answering);
                    return Flow::Wait(Block::Output);
                }
                Done::Close(code) => return code.into(),
                Done::End(code, reason) => return Flow::Close(code, reason),
            }
            cx.shared.work.charge(work::COMMAND);
            if cx.shared.work.is_spent() {
                return Flow::Wait(Block::Turn);
            }
            let queued = cx.shared.ports.outboxes.of(cx.id).queued();
            // What takes long is done once a turn.
            let has_compared = std::mem::take(&mut self.has_compared);
            if has_compared || queued + frame.len() > ANSWERS_BYTES_HIGH {
                return Flow::Wait(Block::Output);
            }
        }
    }

    fn command(&mut self, command: &Command<'_>, frame: &mut Frame, cx: &mut Context<'_>) -> Done {
        let id = command.id;
        if self.state == State::Fresh {
            return match &command.request {
                Request::Connect(request) => self.connect(id, request, frame, cx),
                _ => Done::Close(DisconnectCode::BadRequest),
            };
        }
        self.request(id, &command.request, frame, cx)
    }

    /// A home elsewhere has answered; whether what waited for that may go on.
    pub(crate) fn answered(
        &mut self,
        ticket: Ticket,
        answer: Answer,
        cx: &mut Context<'_>,
    ) -> Option<Flow> {
        if ticket.0 & GIVEN != 0 {
            // What a command waits for is something else.
            self.given_answered(ticket, &answer, cx);
            return None;
        }
        let waiting = self.waiting.take()?;
        let bytes = cx.shared.ports.outboxes.spare();
        let mut frame = Frame::new(self.dialect(), bytes);
        let asking = cx.shared.process.is_watched().then(|| Asking::of(&waiting));
        let done = match (waiting, answer) {
            (Waiting::Connect(connecting), Answer::Subscribed(joined)) => {
                self.connect_answered(connecting, ticket, joined, &mut frame, cx)
            }
            (Waiting::Connect(_), Answer::Failed) => Done::Close(DisconnectCode::Internal),
            (waiting, _) if ticket != Ticket(self.ticket) => Done::Waits(waiting),
            (Waiting::Subscribe(asked), Answer::Subscribed(joined)) => {
                self.subscribed(&asked, joined.as_deref(), &mut frame, cx)
            }
            (Waiting::Subscribe(asked), Answer::Failed) => {
                self.leave(asked.channel(), cx);
                commands::refuse(asked.id(), ErrorCode::Internal, &mut frame)
            }
            (Waiting::Publish { id }, Answer::Published(_)) => commands::published(id, &mut frame),
            (Waiting::Publish { id }, Answer::Failed) => {
                commands::refuse(id, ErrorCode::Internal, &mut frame)
            }
            (Waiting::Asked { id }, answer) => commands::answered(id, answer, &mut frame, cx),
            (waiting, _) => Done::Waits(waiting),
        };
        if let Some(asking) = asking {
            self.tell_late_outcome(&asking, &done, &mut frame, cx);
        }
        frame.send(cx.id, &mut cx.shared.ports.outboxes);
        let end = frame.end();
        cx.shared.ports.outboxes.recycle(frame.into_bytes());
        match done {
            Done::Yes => Some(match end {
                Some(code) => code.into(),
                None => {
                    self.catch_up(cx);
                    Flow::GoOn
                }
            }),
            Done::Answers(answering) => {
                self.answering = Some(answering);
                Some(Flow::GoOn)
            }
            Done::Close(code) => Some(code.into()),
            Done::Waits(waiting) => {
                self.waiting = Some(waiting);
                None
            }
            Done::End(code, reason) => Some(Flow::Close(code, reason)),
            Done::Not(_) => None,
        }
    }

    /// Keys have come, or will not; whether somebody waited for them.
    pub(crate) fn found(&mut self, finding: &Finding) -> bool {
        let is_it = matches!(self.waiting, Some(Waiting::Keys)) && *finding == Finding::Keys;
        if is_it {
            self.waiting = None;
        }
        is_it
    }

    fn judge<'a>(&self, id: ConnectionId, route: &'a Route) -> Judge<'a> {
        Judge {
            id,
            route,
            has_asked: self.has_asked,
        }
    }

    /// The command has to be looked at again when other keys are there.
    fn wait_for_keys(&mut self) -> Done {
        self.has_asked = true;
        self.waiting = Some(Waiting::Keys);
        Done::Not(Block::Answer)
    }

    /// The channel whose home is to count the session on behalf of a command. While it is asked the subscription can't
    /// be ended: the answer would never come.
    fn channel_awaited(&self) -> Option<&str> {
        match &self.waiting {
            Some(Waiting::Subscribe(asked)) => Some(asked.channel()),
            _ => None,
        }
    }

    /// Whether homes have yet to answer before the connect command is.
    fn is_connecting(&self) -> bool {
        matches!(self.waiting, Some(Waiting::Connect(_)))
    }

    fn next_ticket(&mut self) -> Ticket {
        self.ticket = (self.ticket + 1) % GIVEN;
        Ticket(self.ticket)
    }

    /// When there is something to do, whether something comes or not.
    pub(crate) fn deadline_ms(&self, shared: &Shared) -> u64 {
        if self.state == State::Fresh {
            return self.pinged_ms + STALE_MS;
        }
        let (interval_ms, pong_ms) = ping_times_ms(shared);
        let ping_ms = match (interval_ms, self.is_pinged) {
            (0, _) => u64::MAX,
            (_, true) => self.pinged_ms + pong_ms,
            (interval_ms, false) => self.pinged_ms + interval_ms,
        };
        let awaited = self.channel_awaited();
        ping_ms.min(self.subscriptions.deadline_ms(shared.now, awaited))
    }

    /// The same while what comes is not read: who can't speak has not gone silent.
    pub(crate) fn blocked_deadline_ms(&self, now: Now) -> u64 {
        match self.state {
            State::Fresh | State::Refused(_) => self.pinged_ms + STALE_MS,
            State::Connected => self.subscriptions.deadline_ms(now, self.channel_awaited()),
        }
    }

    /// The same while somebody decides: its client is pinged, and nothing of it is heard.
    pub(crate) fn judged_deadline_ms(&self, shared: &Shared) -> u64 {
        match self.state {
            State::Fresh | State::Refused(_) => u64::MAX,
            State::Connected => self.deadline_ms(shared),
        }
    }

    /// Looks at what is due while what comes is not read.
    pub(crate) fn timeout_blocked(&mut self, cx: &mut Context<'_>) -> Flow {
        if self.state == State::Fresh {
            return self.timeout(cx);
        }
        self.ask_for_time(cx);
        let mut frame = Frame::new(self.dialect(), cx.shared.ports.outboxes.spare());
        let flow = self.end_expired(&mut frame, cx);
        frame.send(cx.id, &mut cx.shared.ports.outboxes);
        cx.shared.ports.outboxes.recycle(frame.into_bytes());
        flow
    }

    /// Whether the next thing may be due earlier than was said last; that is known then.
    pub(crate) fn take_hurry(&mut self) -> bool {
        std::mem::take(&mut self.is_hurried)
    }

    /// What came while nobody listened may have been the answer to a ping.
    pub(crate) fn heard(&mut self) {
        self.is_pinged = false;
    }

    /// Looks at what is due.
    pub(crate) fn timeout(&mut self, cx: &mut Context<'_>) -> Flow {
        let now_ms = cx.shared.now.mono_ms;
        if self.state == State::Fresh {
            return match now_ms >= self.pinged_ms + STALE_MS {
                true => DisconnectCode::Stale.into(),
                false => Flow::GoOn,
            };
        }
        self.ask_for_time(cx);
        let mut frame = Frame::new(self.dialect(), cx.shared.ports.outboxes.spare());
        let mut flow = self.end_expired(&mut frame, cx);
        let (interval_ms, pong_ms) = ping_times_ms(cx.shared);
        if interval_ms > 0 {
            if self.is_pinged && now_ms >= self.pinged_ms + pong_ms {
                cx.shared.stats.silent_closed.add(1);
                cx.shared.note(cx.id, NoteLevel::Info, "closed: no pong");
                flow = DisconnectCode::NoPong.into();
            } else if now_ms >= self.pinged_ms + interval_ms {
                frame.ping();
                // The pong has its full time also where the ping is late: after a pause of the whole machine, say.
                (self.pinged_ms, self.is_pinged) = (now_ms, !self.is_one_way());
            }
        }
        frame.send(cx.id, &mut cx.shared.ports.outboxes);
        cx.shared.ports.outboxes.recycle(frame.into_bytes());
        flow
    }
}

/// How often clients are pinged, 0 for never, and how long is waited for the answer.
fn ping_times_ms(shared: &Shared) -> (u64, u64) {
    let limits = &shared.site.limits;
    // Clients count in whole seconds.
    let interval_ms = limits.ping_interval_ms.div_ceil(1000) * 1000;
    (interval_ms, limits.pong_timeout_ms.min(PONG_MS_MAX))
}
