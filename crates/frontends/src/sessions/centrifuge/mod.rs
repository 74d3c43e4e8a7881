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

mod channels;
mod claims;
mod commands;
mod connecting;
mod decision_log;
mod frame;
mod hook_requests;
mod long_replies;
mod one_way;
mod opening;
pub(crate) mod overrides;
mod pushes;
mod renewing;
mod session;
mod subscribing;
mod tokens;
mod transport;
mod user_commands;
pub(crate) mod writing;

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};
use veche_centrifuge::{
    Command, DecodeLimits, Disconnect, DisconnectCode, Encoding, ErrorCode, Push, PushBody, Request,
};
use veche_hub::{ClientInfo, ConnectionId, HubReply, Ticket};
use veche_types::Now;
use veche_types::codes::CloseCode;

use crate::context::hooks::HookRequestId;
use crate::context::identity::{AuthError, IdentityResult};
use crate::context::log_note::NoteLevel;
use crate::context::protocol::ClientProtocol;
use crate::context::rate_limiter::RateDecision;
use crate::context::route::Route;
use crate::context::session::{Flow, SessionContext};
use crate::context::session_info::SessionInfo;
use crate::context::step::WaitReason;
use crate::context::work_budget;
use crate::context::worker_context::Context;
use crate::outbox::ANSWERS_BYTES_HIGH;
use connecting::PendingConnect;
use frame::ReplyFrame;
use hook_requests::HookState;
use long_replies::UnfinishedReply;
use one_way::OneWayState;
use subscribing::{RequestedSubscription, Subscriptions};
use tokens::TokenCheck;
use transport::RelayQueue;
use user_commands::{GIVEN, ServerSubscriptions};

use crate::context::relay::{EmulationAddress, EmulationRequest};
use decision_log::WatchedCommand;

/// As routes and the configuration know it.
pub(crate) static PROTOCOL: ClientProtocol = ClientProtocol {
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
    relays: RelayQueue,
    /// What the next command waits for.
    waiting: Option<PendingTicket>,
    /// The answer to the last one, while that is being written; nothing else is said before it is whole.
    answering: Option<Box<UnfinishedReply>>,
    /// Of the last request to the hub on behalf of a command.
    ticket: u32,
    /// Channels to which a back end has subscribed it, until their homes have answered.
    server_subscriptions: ServerSubscriptions,
    /// Other keys were asked for, on behalf of the next command.
    has_requested_keys: bool,
    /// What it asks others, and what they say.
    hooks: HookState,
    /// Where commands come from another way, and what shows that they are this client's.
    address: Option<Box<EmulationAddress>>,
    /// What kind of client it says it is, and its version.
    kind: [Box<str>; 2],
    /// It only listens.
    one_way: Option<OneWayState>,
    /// What the token of its handshake says, until it has connected.
    claims: Option<Box<Map<String, Value>>>,
    /// The [endings](crate::Process::endings) when the question for the user was asked.
    disconnects_seen: Option<u64>,
    /// The next thing may be due earlier than was said last.
    deadline_changed: bool,
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
enum PendingTicket {
    Connect(Box<PendingConnect>),
    Subscribe(Box<RequestedSubscription>),
    Publish {
        id: u32,
    },
    Asked {
        id: u32,
    },
    /// Keys that are fetched.
    Keys,
    /// Somebody decides on the next command.
    Verdict(HookRequestId),
}

/// What became of one command.
enum CommandStatus {
    Yes,
    /// It has asked for something, and ends when that comes.
    Waits(PendingTicket),
    /// It has an answer that is written in slices, behind those before it.
    Answers(Box<UnfinishedReply>),
    /// Nothing of it was done: it is to be tried again.
    Not(WaitReason),
    Close(DisconnectCode),
    /// The session is to be closed with a code and words that are not the server's.
    End(u16, Cow<'static, str>),
}

impl From<DisconnectCode> for Flow {
    fn from(code: DisconnectCode) -> Self {
        Self::Close(code.code(), code.text().into())
    }
}

/// The code and the words of the protocol for a close that is the server's own.
pub(crate) fn close_code_and_reason(code: u16, reason: &str) -> (u16, Cow<'_, str>) {
    let known = match CloseCode::with_parts(code, reason) {
        Some(CloseCode::GoingAway | CloseCode::Restarting) => DisconnectCode::Shutdown,
        Some(CloseCode::SlowConsumer) => DisconnectCode::Slow,
        Some(CloseCode::TooFast) => DisconnectCode::TooManyRequests,
        Some(CloseCode::Idle) => DisconnectCode::ConnectionClosed,
        _ => return (code, reason.into()),
    };
    (known.code(), known.text().into())
}

/// The code by which a client learns that another try will not do.
fn disconnect(why: AuthError) -> Option<DisconnectCode> {
    match why {
        AuthError::RejectedByHook => Some(DisconnectCode::InvalidToken),
        AuthError::ForbiddenByHook | AuthError::Blocked => Some(DisconnectCode::PermissionDenied),
        _ => None,
    }
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
            relays: RelayQueue::default(),
            waiting: None,
            answering: None,
            ticket: 0,
            server_subscriptions: ServerSubscriptions::default(),
            has_requested_keys: false,
            hooks: HookState::default(),
            address: None,
            kind: Default::default(),
            one_way: None,
            claims: None,
            disconnects_seen: None,
            deadline_changed: false,
            pinged_ms: now.mono_ms,
            is_pinged: false,
        }
    }

    /// What a back end is told of it.
    pub(crate) fn about(&self) -> SessionInfo<'_> {
        let [name, version] = &self.kind;
        SessionInfo {
            client: &self.info.client,
            handler: PROTOCOL.name,
            protocol: match self.encoding {
                Encoding::Json => "json",
                Encoding::Protobuf => "protobuf",
            },
            name,
            version,
            ..SessionInfo::default()
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
        (self.claims, self.disconnects_seen) = (claims, asked);
    }

    /// The client has no WebSocket: it has said this with its request, and the rest comes as [relays](EmulationRequest).
    pub(crate) fn begin_emulation(&mut self, address: EmulationAddress, commands: &[u8]) {
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
    pub(crate) fn accepts_relay(&self, relay: &EmulationRequest) -> bool {
        let address = self.address.as_ref();
        address.is_some_and(|address| address.equals_constant_time(&relay.to))
    }

    /// Commands of this client that came another way.
    pub(crate) fn handle_relay(
        &mut self,
        relay: &EmulationRequest,
        cx: &mut SessionContext<'_>,
    ) -> Flow {
        if !self.has_commands() {
            let mut bytes = cx.shared.requests.outboxes.spare();
            bytes.extend_from_slice(&relay.commands);
            return self.message(bytes, cx);
        }
        // Those before it wait for something; nothing holds back these.
        if !self.relays.keep(&relay.commands) {
            return DisconnectCode::TooManyRequests.into();
        }
        self.is_pinged = false;
        Flow::Continue
    }

    /// The last words on a transport that has no other way to say them.
    pub(crate) fn write_disconnect(
        &self,
        id: ConnectionId,
        code: u16,
        reason: &str,
        shared: &mut Context,
    ) {
        let mut frame = ReplyFrame::new(self.dialect(), Vec::new());
        let body = PushBody::Disconnect(Disconnect { code, reason });
        // It has no data that could be binary.
        frame.push(&Push { channel: "", body });
        frame.send(id, &mut shared.requests.outboxes);
    }

    /// A whole message; `bytes` go back to the outboxes.
    pub(crate) fn message(&mut self, bytes: Vec<u8>, cx: &mut SessionContext<'_>) -> Flow {
        debug_assert!(self.waiting.is_none(), "what comes meanwhile is not read");
        self.is_pinged = false;
        self.message = bytes;
        (self.taken, self.commands) = (0, 0);
        self.continue_input(cx)
    }

    /// Refuses the client. SDKs take a refused handshake for a network error and try for ever; after a terminal code
    /// they give up.
    pub(crate) fn refuse(&mut self, code: DisconnectCode) {
        self.state = State::Refused(code);
    }

    /// Goes on with the commands there are.
    pub(crate) fn continue_input(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        if let State::Refused(code) = self.state {
            return code.into();
        }
        loop {
            let flow = match self.continue_reply(cx) {
                Flow::Continue => self.continue_message(cx),
                flow => return flow,
            };
            if self.answering.is_some() {
                // A command has just had a long answer, which comes before the next command.
                continue;
            }
            if flow != Flow::Continue {
                return flow;
            }
            let Some(commands) = self.relays.next() else {
                return Flow::Continue;
            };
            self.message = commands;
            (self.taken, self.commands) = (0, 0);
        }
    }

    /// Goes on with an answer that is not whole.
    fn continue_reply(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        let Some(answering) = &mut self.answering else {
            return Flow::Continue;
        };
        let flow = answering.write_next(self.encoding, cx);
        if !matches!(flow, Flow::Wait(_)) {
            self.answering = None;
        }
        flow
    }

    /// Drops the rest of an answer, since the session is over.
    pub(crate) fn end_answer(&mut self) {
        self.answering = None;
    }

    fn continue_message(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        match self.waiting {
            None => {}
            Some(PendingTicket::Verdict(_)) => return Flow::Wait(WaitReason::HookDecision),
            Some(_) => return Flow::Wait(WaitReason::Answer),
        }
        let message = std::mem::take(&mut self.message);
        if message.capacity() == 0 {
            return Flow::Continue;
        }
        let bytes = cx.shared.requests.outboxes.spare();
        let mut frame = ReplyFrame::new(self.dialect(), bytes);
        let mut flow = match self.is_one_way() {
            true => self.listen(&message, &mut frame, cx),
            false => self.process_commands(&message, &mut frame, cx),
        };
        if let Some(code) = frame.end() {
            flow = code.into();
        }
        frame.send(cx.id, &mut cx.shared.requests.outboxes);
        cx.shared.requests.outboxes.recycle(frame.into_bytes());
        match flow {
            Flow::Wait(_) => self.message = message,
            Flow::Continue | Flow::Close(..) => cx.shared.requests.outboxes.recycle(message),
        }
        flow
    }

    fn process_commands(
        &mut self,
        message: &[u8],
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> Flow {
        let limits = DecodeLimits {
            message_bytes_max: usize::MAX,
            commands_max: DecodeLimits::default()
                .commands_max
                .saturating_sub(self.commands),
        };
        let begin = self.taken;
        let mut commands = self.encoding.commands(&message[begin..], limits);
        loop {
            let command = match commands.next() {
                Some(Ok(command)) => command,
                Some(Err(malformed)) => {
                    let what = format!("closed with 3501: {malformed}");
                    cx.shared.log(cx.id, NoteLevel::Info, what);
                    cx.shared.stats.protocol_errors.add(1);
                    return DisconnectCode::BadRequest.into();
                }
                // A message says something.
                None if self.commands == 0 => return DisconnectCode::BadRequest.into(),
                None => return Flow::Continue,
            };
            let paced = match self.is_counted {
                true => RateDecision::Allow,
                false => cx.check_command_rate(),
            };
            match paced {
                RateDecision::Allow | RateDecision::AllowThenWait => self.is_counted = true,
                RateDecision::Wait => return Flow::Wait(WaitReason::RateLimit),
                RateDecision::Drop => {
                    cx.shared.stats.messages_dropped.add(1);
                    self.taken = begin + commands.consumed();
                    self.commands += 1;
                    continue;
                }
                RateDecision::Close => {
                    cx.shared.count_rate_limited(cx.id);
                    return DisconnectCode::TooManyRequests.into();
                }
            }
            let done = self.command(&command, frame, cx);
            self.log_outcome(&command.request, &done, frame, cx);
            if let CommandStatus::Not(block) = done {
                return Flow::Wait(block);
            }
            self.taken = begin + commands.consumed();
            self.commands += 1;
            self.is_counted = false;
            self.has_requested_keys = false;
            self.hooks.forget();
            match done {
                CommandStatus::Yes | CommandStatus::Not(_) => {}
                CommandStatus::Waits(waiting) => {
                    self.waiting = Some(waiting);
                    return Flow::Wait(WaitReason::Answer);
                }
                CommandStatus::Answers(answering) => {
                    self.answering = Some(answering);
                    return Flow::Wait(WaitReason::Output);
                }
                CommandStatus::Close(code) => return code.into(),
                CommandStatus::End(code, reason) => return Flow::Close(code, reason),
            }
            cx.shared.work.charge(work_budget::COMMAND);
            if cx.shared.work.is_spent() {
                return Flow::Wait(WaitReason::Turn);
            }
            let queued = cx.shared.requests.outboxes.of(cx.id).queued();
            // What takes long is done once a turn.
            let has_compared = std::mem::take(&mut self.has_compared);
            if has_compared || queued + frame.len() > ANSWERS_BYTES_HIGH {
                return Flow::Wait(WaitReason::Output);
            }
        }
    }

    fn command(
        &mut self,
        command: &Command<'_>,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> CommandStatus {
        let id = command.id;
        if self.state == State::Fresh {
            return match &command.request {
                Request::Connect(request) => self.connect(id, request, frame, cx),
                _ => CommandStatus::Close(DisconnectCode::BadRequest),
            };
        }
        self.request(id, &command.request, frame, cx)
    }

    /// A home elsewhere has answered; whether what waited for that may go on.
    pub(crate) fn handle_answer(
        &mut self,
        ticket: Ticket,
        answer: HubReply,
        cx: &mut SessionContext<'_>,
    ) -> Option<Flow> {
        if ticket.0 & GIVEN != 0 {
            // What a command waits for is something else.
            self.handle_subscription_answer(ticket, &answer, cx);
            return None;
        }
        let waiting = self.waiting.take()?;
        let bytes = cx.shared.requests.outboxes.spare();
        let mut frame = ReplyFrame::new(self.dialect(), bytes);
        let asking = cx
            .shared
            .process
            .watches_decisions()
            .then(|| WatchedCommand::of(&waiting));
        let done = match (waiting, answer) {
            (PendingTicket::Connect(connecting), HubReply::Subscribed(joined)) => {
                self.connect_answered(connecting, ticket, joined, &mut frame, cx)
            }
            (PendingTicket::Connect(_), HubReply::Failed) => {
                CommandStatus::Close(DisconnectCode::Internal)
            }
            (waiting, _) if ticket != Ticket(self.ticket) => CommandStatus::Waits(waiting),
            (PendingTicket::Subscribe(asked), HubReply::Subscribed(joined)) => {
                self.subscribed(&asked, joined.as_deref(), &mut frame, cx)
            }
            (PendingTicket::Subscribe(asked), HubReply::Failed) => {
                self.leave(asked.channel(), cx);
                commands::refuse(asked.id(), ErrorCode::Internal, &mut frame)
            }
            (PendingTicket::Publish { id }, HubReply::Published(_)) => {
                commands::published(id, &mut frame)
            }
            (PendingTicket::Publish { id }, HubReply::Failed) => {
                commands::refuse(id, ErrorCode::Internal, &mut frame)
            }
            (PendingTicket::Asked { id }, answer) => commands::answered(id, answer, &mut frame, cx),
            (waiting, _) => CommandStatus::Waits(waiting),
        };
        if let Some(asking) = asking {
            self.log_deferred_outcome(&asking, &done, &mut frame, cx);
        }
        frame.send(cx.id, &mut cx.shared.requests.outboxes);
        let end = frame.end();
        cx.shared.requests.outboxes.recycle(frame.into_bytes());
        match done {
            CommandStatus::Yes => Some(match end {
                Some(code) => code.into(),
                None => {
                    self.run_deferred(cx);
                    Flow::Continue
                }
            }),
            CommandStatus::Answers(answering) => {
                self.answering = Some(answering);
                Some(Flow::Continue)
            }
            CommandStatus::Close(code) => Some(code.into()),
            CommandStatus::Waits(waiting) => {
                self.waiting = Some(waiting);
                None
            }
            CommandStatus::End(code, reason) => Some(Flow::Close(code, reason)),
            CommandStatus::Not(_) => None,
        }
    }

    /// Keys have come, or will not; whether somebody waited for them.
    pub(crate) fn handle_identity(&mut self, finding: &IdentityResult) -> bool {
        let is_it = matches!(self.waiting, Some(PendingTicket::Keys))
            && *finding == IdentityResult::KeysFetched;
        if is_it {
            self.waiting = None;
        }
        is_it
    }

    fn token_verifier<'a>(&self, id: ConnectionId, route: &'a Route) -> TokenCheck<'a> {
        TokenCheck {
            id,
            route,
            has_asked: self.has_requested_keys,
        }
    }

    /// The command has to be looked at again when other keys are there.
    fn wait_for_keys(&mut self) -> CommandStatus {
        self.has_requested_keys = true;
        self.waiting = Some(PendingTicket::Keys);
        CommandStatus::Not(WaitReason::Answer)
    }

    /// The channel whose home is to count the session on behalf of a command. While it is asked the subscription can't
    /// be ended: the answer would never come.
    fn channel_awaited(&self) -> Option<&str> {
        match &self.waiting {
            Some(PendingTicket::Subscribe(asked)) => Some(asked.channel()),
            _ => None,
        }
    }

    /// Whether homes have yet to answer before the connect command is.
    fn is_connecting(&self) -> bool {
        matches!(self.waiting, Some(PendingTicket::Connect(_)))
    }

    fn next_ticket(&mut self) -> Ticket {
        self.ticket = (self.ticket + 1) % GIVEN;
        Ticket(self.ticket)
    }

    /// When there is something to do, whether something comes or not.
    pub(crate) fn deadline_ms(&self, shared: &Context) -> u64 {
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
    pub(crate) fn hook_deadline_ms(&self, shared: &Context) -> u64 {
        match self.state {
            State::Fresh | State::Refused(_) => u64::MAX,
            State::Connected => self.deadline_ms(shared),
        }
    }

    /// Looks at what is due while what comes is not read.
    pub(crate) fn timeout_blocked(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        if self.state == State::Fresh {
            return self.timeout(cx);
        }
        self.request_renewal(cx);
        let mut frame = ReplyFrame::new(self.dialect(), cx.shared.requests.outboxes.spare());
        let flow = self.end_expired(&mut frame, cx);
        frame.send(cx.id, &mut cx.shared.requests.outboxes);
        cx.shared.requests.outboxes.recycle(frame.into_bytes());
        flow
    }

    /// Whether the next thing may be due earlier than was said last; that is known then.
    pub(crate) fn take_deadline_change(&mut self) -> bool {
        std::mem::take(&mut self.deadline_changed)
    }

    /// What came while nobody listened may have been the answer to a ping.
    pub(crate) fn confirm_alive(&mut self) {
        self.is_pinged = false;
    }

    /// Looks at what is due.
    pub(crate) fn timeout(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        let now_ms = cx.shared.now.mono_ms;
        if self.state == State::Fresh {
            return match now_ms >= self.pinged_ms + STALE_MS {
                true => DisconnectCode::Stale.into(),
                false => Flow::Continue,
            };
        }
        self.request_renewal(cx);
        let mut frame = ReplyFrame::new(self.dialect(), cx.shared.requests.outboxes.spare());
        let mut flow = self.end_expired(&mut frame, cx);
        let (interval_ms, pong_ms) = ping_times_ms(cx.shared);
        if interval_ms > 0 {
            if self.is_pinged && now_ms >= self.pinged_ms + pong_ms {
                cx.shared.stats.pong_timeouts.add(1);
                cx.shared.log(cx.id, NoteLevel::Info, "closed: no pong");
                flow = DisconnectCode::NoPong.into();
            } else if now_ms >= self.pinged_ms + interval_ms {
                frame.ping();
                // The pong has its full time also where the ping is late: after a pause of the whole machine, say.
                (self.pinged_ms, self.is_pinged) = (now_ms, !self.is_one_way());
            }
        }
        frame.send(cx.id, &mut cx.shared.requests.outboxes);
        cx.shared.requests.outboxes.recycle(frame.into_bytes());
        flow
    }
}

/// How often clients are pinged, 0 for never, and how long is waited for the answer.
fn ping_times_ms(shared: &Context) -> (u64, u64) {
    let limits = &shared.config.limits;
    // Clients count in whole seconds.
    let interval_ms = limits.ping_interval_ms.div_ceil(1000) * 1000;
    (interval_ms, limits.pong_timeout_ms.min(PONG_MS_MAX))
}
