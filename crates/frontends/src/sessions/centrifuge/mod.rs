//! A session of Centrifugo's client protocol: commands in, replies and pushes out.
//!
//! It implements the protocol's rules on top of the hub, and knows neither the wire format (`veche_centrifuge`) nor
//! frames (`websocket`). Commands are executed one at a time in order: one that waits for a channel's home delays later
//! ones, which stay as bytes. So replies keep their order, and a subscription exists when the next command is executed.
//!
//! Publications bypass the session, from the hub to the outbox ([`crate::outbox`]). The reply to a subscribe command is
//! written before the hub is called again, so it precedes everything that follows from it; while a connect command
//! waits for the homes of several channels, later messages wait behind its reply.

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
mod opening;
mod pushes;
mod renewing;
mod session;
mod subscribing;
mod tokens;
mod transport;
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
use veche_types::codes::CloseCode;

use crate::context::census::About;
use crate::context::hooks::QuestionId;
use crate::context::identity::{Finding, Unknown};
use crate::context::note::NoteLevel;
use crate::context::pace::Paced;
use crate::context::protocol::Protocol;
use crate::context::route::Route;
use crate::context::session::{Context, Flow};
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

/// Description for routes and the configuration.
pub(crate) static PROTOCOL: Protocol = Protocol {
    name: "centrifuge",
    methods: &["GET", "POST", "OPTIONS"],
    options: &[
        "identity",
        "anonymous",
        "app",
        "script",
        "memory",
        "cpu_budget",
        "request_timeout",
        "options",
        "hooks",
    ],
};

/// Time until a connection without a connect command is closed.
const STALE_MS: u64 = 10_000;

/// Maximum time to wait for the answer to a ping.
const PONG_MS_MAX: u64 = 8_000;

/// A session of Centrifugo's protocol.
pub(crate) struct Centrifuge {
    encoding: Encoding,
    /// The client's public data; empty before it is connected, unless the handshake authenticated it.
    info: Arc<ClientInfo>,
    state: State,
    subscriptions: Subscriptions,
    /// Missed publications were compared for deltas in this turn.
    has_compared: bool,
    /// The unprocessed part of the last message.
    message: Vec<u8>,
    /// Processed bytes of the message, and its processed commands.
    taken: usize,
    commands: usize,
    /// The next command was already counted by the route's rate.
    is_counted: bool,
    /// Commands that arrived in other requests, in order.
    relays: Relays,
    /// What the next command waits for.
    waiting: Option<Waiting>,
    /// The last reply while it is being written; no other message precedes its end.
    answering: Option<Box<Answering>>,
    /// Ticket of the last hub request for a command.
    ticket: u32,
    /// Subscriptions by back ends, until their homes have answered.
    given: Givens,
    /// Keys were requested for the next command.
    has_asked: bool,
    /// Pending hook requests and decisions.
    deciding: Deciding,
    /// The address for commands in other requests, and their proof of belonging to this client.
    address: Option<Box<Address>>,
    /// Name and version that the client sent.
    kind: [Box<str>; 2],
    /// The client is one-way.
    one_way: Option<OneWay>,
    /// The handshake's claims, until the client has connected.
    claims: Option<Box<Map<String, Value>>>,
    /// The [`endings`](crate::Process::endings) when authentication began.
    asked: Option<u64>,
    /// The deadline may have become earlier.
    is_hurried: bool,
    /// Start of the session; after the connect reply, time of the last ping.
    pinged_ms: u64,
    /// Nothing was received since the last ping.
    is_pinged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No valid connect command yet.
    Fresh,
    Connected,
    /// The handshake was refused permanently: the session is closed before any message.
    Refused(DisconnectCode),
}

/// What a command waits for: an answer of a home by command, keys, or a decision.
enum Waiting {
    Connect(Box<Connecting>),
    Subscribe(Box<Asked>),
    Publish {
        id: u32,
    },
    Asked {
        id: u32,
    },
    /// Keys that are being fetched.
    Keys,
    /// A decision on the next command.
    Verdict(QuestionId),
}

/// The status of one command.
enum Done {
    Yes,
    /// It waits for something.
    Waits(Waiting),
    /// Its reply is written in slices, after earlier ones.
    Answers(Box<Answering>),
    /// It was not executed and has to be retried.
    Not(Block),
    Close(DisconnectCode),
    /// The session has to be closed with a code and reason other than the server's.
    End(u16, Cow<'static, str>),
}

impl From<DisconnectCode> for Flow {
    fn from(code: DisconnectCode) -> Self {
        Self::Close(code.code(), code.words().into())
    }
}

/// Converts a close of the server to the protocol's code and reason.
pub(crate) fn words(code: u16, reason: &str) -> (u16, Cow<'_, str>) {
    let known = match CloseCode::with_parts(code, reason) {
        Some(CloseCode::GoingAway | CloseCode::Restarting) => DisconnectCode::Shutdown,
        Some(CloseCode::SlowConsumer) => DisconnectCode::Slow,
        Some(CloseCode::TooFast) => DisconnectCode::TooManyRequests,
        Some(CloseCode::Idle) => DisconnectCode::ConnectionClosed,
        _ => return (code, reason.into()),
    };
    (known.code(), known.words().into())
}

/// Returns the close code for a permanent authentication error.
fn disconnect(why: Unknown) -> Option<DisconnectCode> {
    match why {
        Unknown::Stranger => Some(DisconnectCode::InvalidToken),
        Unknown::Unwanted | Unknown::Blocked => Some(DisconnectCode::PermissionDenied),
        _ => None,
    }
}

impl Centrifuge {
    /// Creates a session that has just opened.
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

    /// Describes the session to back ends.
    pub(crate) fn about(&self) -> About<'_> {
        let [name, version] = &self.kind;
        About {
            client: &self.info.client,
            handler: PROTOCOL.name,
            protocol: match self.encoding {
                Encoding::Json => "json",
                Encoding::Protobuf => "protobuf",
            },
            name,
            version,
            ..About::default()
        }
    }

    /// Sets the user of the handshake.
    pub(crate) fn set_user(&mut self, user: &str) {
        Arc::make_mut(&mut self.info).user = user.into();
    }

    /// Sets how the user was authenticated.
    pub(crate) fn set_source(
        &mut self,
        claims: Option<Box<Map<String, Value>>>,
        asked: Option<u64>,
    ) {
        (self.claims, self.asked) = (claims, asked);
    }

    /// Starts a session without a WebSocket: `commands` came with its request, and later ones arrive as
    /// [relays](Relay).
    pub(crate) fn begin_emulation(&mut self, address: Address, commands: &[u8]) {
        self.address = Some(Box::new(address));
        self.message = commands.to_vec();
        // Also for an empty message.
        self.message.reserve(1);
    }

    /// Returns whether commands are left to be processed.
    pub(crate) fn has_commands(&self) -> bool {
        self.message.capacity() > 0
    }

    /// Returns whether commands of another request belong to this client.
    pub(crate) fn is_meant_by(&self, relay: &Relay) -> bool {
        let address = self.address.as_ref();
        address.is_some_and(|address| address.is(&relay.to))
    }

    /// Handles commands of this client from another request.
    pub(crate) fn relayed(&mut self, relay: &Relay, cx: &mut Context<'_>) -> Flow {
        if !self.has_commands() {
            let mut bytes = cx.shared.ports.outboxes.spare();
            bytes.extend_from_slice(&relay.commands);
            return self.message(bytes, cx);
        }
        // Earlier commands wait; these can't be delayed at their source.
        if !self.relays.keep(&relay.commands) {
            return DisconnectCode::TooManyRequests.into();
        }
        self.is_pinged = false;
        Flow::GoOn
    }

    /// Writes a disconnect push, for transports that have no close frame.
    pub(crate) fn write_disconnect(
        &self,
        id: ConnectionId,
        code: u16,
        reason: &str,
        shared: &mut Shared,
    ) {
        let mut frame = Frame::new(self.dialect(), Vec::new());
        let body = PushBody::Disconnect(Disconnect { code, reason });
        // It contains no data that could be binary.
        frame.push(&Push { channel: "", body });
        frame.send(id, &mut shared.ports.outboxes);
    }

    /// Handles a complete message; `bytes` are returned to the outboxes.
    pub(crate) fn message(&mut self, bytes: Vec<u8>, cx: &mut Context<'_>) -> Flow {
        debug_assert!(self.waiting.is_none(), "what comes meanwhile is not read");
        self.is_pinged = false;
        self.message = bytes;
        (self.taken, self.commands) = (0, 0);
        self.go_on(cx)
    }

    /// Refuses the client. SDKs treat a refused handshake as a network error and retry forever; a terminal close code
    /// stops them.
    pub(crate) fn refuse(&mut self, code: DisconnectCode) {
        self.state = State::Refused(code);
    }

    /// Continues with the remaining commands.
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
                // A command has a long reply, which precedes the next command.
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

    /// Continues an incomplete reply.
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

    /// Drops the rest of a reply, since the session is over.
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
                // An empty message is invalid.
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
            // Expensive comparisons are made once per turn.
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

    /// Handles the answer of another worker's home; returns whether the waiting command may continue.
    pub(crate) fn answered(
        &mut self,
        ticket: Ticket,
        answer: Answer,
        cx: &mut Context<'_>,
    ) -> Option<Flow> {
        if ticket.0 & GIVEN != 0 {
            // The command waits for something else.
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

    /// Handles fetched keys; returns whether a command waited for them.
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

    /// Makes the command wait for new keys.
    fn wait_for_keys(&mut self) -> Done {
        self.has_asked = true;
        self.waiting = Some(Waiting::Keys);
        Done::Not(Block::Answer)
    }

    /// Returns the channel of a pending subscribe command. Its subscription can't be ended meanwhile, since the answer
    /// would never arrive.
    fn channel_awaited(&self) -> Option<&str> {
        match &self.waiting {
            Some(Waiting::Subscribe(asked)) => Some(asked.channel()),
            _ => None,
        }
    }

    /// Returns whether the connect command waits for homes.
    fn is_connecting(&self) -> bool {
        matches!(self.waiting, Some(Waiting::Connect(_)))
    }

    fn next_ticket(&mut self) -> Ticket {
        self.ticket = (self.ticket + 1) % GIVEN;
        Ticket(self.ticket)
    }

    /// Returns the next deadline.
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

    /// Returns the deadline while input is paused, when silence of the client means nothing.
    pub(crate) fn blocked_deadline_ms(&self, now: Now) -> u64 {
        match self.state {
            State::Fresh | State::Refused(_) => self.pinged_ms + STALE_MS,
            State::Connected => self.subscriptions.deadline_ms(now, self.channel_awaited()),
        }
    }

    /// Returns the deadline while a decision is pending: the client is pinged, and its input is paused.
    pub(crate) fn judged_deadline_ms(&self, shared: &Shared) -> u64 {
        match self.state {
            State::Fresh | State::Refused(_) => u64::MAX,
            State::Connected => self.deadline_ms(shared),
        }
    }

    /// Handles the deadline while input is paused.
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

    /// Returns and clears whether the deadline may have become earlier.
    pub(crate) fn take_hurry(&mut self) -> bool {
        std::mem::take(&mut self.is_hurried)
    }

    /// Treats the client as alive: data received while input was paused may have been the answer to a ping.
    pub(crate) fn heard(&mut self) {
        self.is_pinged = false;
    }

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
                // The pong gets its full time even if the ping was late, for example after a suspended machine.
                (self.pinged_ms, self.is_pinged) = (now_ms, !self.is_one_way());
            }
        }
        frame.send(cx.id, &mut cx.shared.ports.outboxes);
        cx.shared.ports.outboxes.recycle(frame.into_bytes());
        flow
    }
}

/// Returns the ping interval, 0 for none, and the time to wait for the answer.
fn ping_times_ms(shared: &Shared) -> (u64, u64) {
    let limits = &shared.site.limits;
    // Clients use whole seconds.
    let interval_ms = limits.ping_interval_ms.div_ceil(1000) * 1000;
    (interval_ms, limits.pong_timeout_ms.min(PONG_MS_MAX))
}
