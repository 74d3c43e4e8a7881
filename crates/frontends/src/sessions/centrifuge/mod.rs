//! A session of Centrifugo's client protocol: it receives commands and sends replies and pushes.
//!
//! It implements the rules of the protocol on top of the hub. The wire format is in `veche_centrifuge`, and frames
//! are in `websocket`. Commands are executed one at a time in order: while a command waits for a channel's home
//! worker, later commands are stored as unparsed bytes. Replies therefore keep the order of the commands, and a
//! subscription exists when the next command is executed.
//!
//! Publications go directly from the hub to the outbox ([`crate::outbox`]). The reply to a subscribe command is
//! written before the hub is called again, so it precedes the publications of the subscription. While a connect
//! command waits for the home workers of its channels, publications are queued; they are written after its reply.

mod channels;
mod claims;
mod close_codes;
mod commands;
mod connecting;
mod decision_log;
mod frame;
mod hook_requests;
mod long_replies;
mod one_way;
mod opening;
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
use veche_centrifuge::{Disconnect, DisconnectCode, Encoding, ErrorCode, Push, PushBody};
use veche_hub::{ClientInfo, ConnectionId, HubReply, Ticket};
use veche_types::Now;

use crate::context::hooks::HookRequestId;
use crate::context::identity::IdentityResult;
use crate::context::log_note::NoteLevel;
use crate::context::protocol::ClientProtocol;
use crate::context::route::Route;
use crate::context::session::{Flow, SessionContext};
use crate::context::session_info::SessionInfo;
use crate::context::step::WaitReason;
use crate::context::worker_context::Context;
pub(crate) use close_codes::close_code_and_reason;
use close_codes::disconnect;
use connecting::PendingConnect;
use frame::ReplyFrame;
use hook_requests::HookState;
use long_replies::UnfinishedReply;
use one_way::OneWayState;
use subscribing::{ClientSubscriptions, RequestedSubscription};
use tokens::TokenCheck;
use transport::RelayQueue;
use user_commands::{GIVEN, ServerSubscriptions};

use crate::context::relay::{EmulationAddress, EmulationRequest};
use decision_log::WatchedCommand;

/// The properties of the protocol for routes and the configuration.
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

/// Time in milliseconds after which a connection without a connect command is closed.
const STALE_MS: u64 = 10_000;

/// Maximum time in milliseconds to wait for the answer to a ping.
const PONG_MS_MAX: u64 = 8_000;

/// A session of Centrifugo's protocol.
pub(crate) struct Centrifuge {
    encoding: Encoding,
    /// The client's public data. Before the connect command it has at most the user of the handshake.
    info: Arc<ClientInfo>,
    state: State,
    subscriptions: ClientSubscriptions,
    /// Whether a command has computed deltas between missed publications in this turn. Only one command may do so.
    has_compared: bool,
    /// The message whose commands are being executed.
    message: Vec<u8>,
    /// Number of bytes of `message` that were processed.
    taken: usize,
    /// Number of commands in the processed bytes.
    commands: usize,
    /// Whether the next command was already counted against the route's rate.
    is_counted: bool,
    /// Commands that the client sent in separate HTTP requests, in order.
    relays: RelayQueue,
    /// What the next command waits for, if it waits.
    waiting: Option<PendingTicket>,
    /// The long reply that is being written, if there is one; no other message is written before its end.
    answering: Option<Box<UnfinishedReply>>,
    /// The number of the last ticket.
    ticket: u32,
    /// Pending subscriptions by back ends, and deferred commands of back ends.
    server_subscriptions: ServerSubscriptions,
    /// Whether issuer keys were requested for the next command.
    has_requested_keys: bool,
    /// Pending hook requests and decisions.
    hooks: HookState,
    /// The secret address that identifies the client in separate requests with commands.
    address: Option<Box<EmulationAddress>>,
    /// Name and version that the client sent in its connect command.
    kind: [Box<str>; 2],
    /// The state of a one-way client; `None` for other clients.
    one_way: Option<OneWayState>,
    /// The claims of the handshake's token, until the client has connected.
    claims: Option<Box<Map<String, Value>>>,
    /// The [`disconnect_count`](crate::ProcessServices::disconnect_count) when authentication began.
    disconnects_seen: Option<u64>,
    /// Whether the deadline may have become earlier since it was last queried.
    deadline_changed: bool,
    /// Monotonic milliseconds of the session's start or, once connected, of the last ping.
    pinged_ms: u64,
    /// Whether a ping was sent and no data was received since then.
    is_pinged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There was no valid connect command yet.
    Fresh,
    Connected,
    /// The handshake was refused permanently, so the session is closed before any command is executed.
    Refused(DisconnectCode),
}

/// What a command waits for: the answer of a home worker, issuer keys, or a hook decision.
enum PendingTicket {
    Connect(Box<PendingConnect>),
    Subscribe(Box<RequestedSubscription>),
    Publish {
        id: u32,
    },
    Asked {
        id: u32,
    },
    /// Issuer keys that are being fetched.
    Keys,
    /// The hook decision on the next command.
    HookDecision(HookRequestId),
}

/// The result of executing one command.
enum CommandStatus {
    Yes,
    /// The command is not complete, because it waits for this answer or decision.
    Waits(PendingTicket),
    /// The reply to the command is written in slices, after earlier replies.
    Answers(Box<UnfinishedReply>),
    /// The command was not executed and has to be repeated after this wait.
    Not(WaitReason),
    Close(DisconnectCode),
    /// The session has to be closed with a code and reason that a hook decided.
    End(u16, Cow<'static, str>),
}

impl From<DisconnectCode> for Flow {
    fn from(code: DisconnectCode) -> Self {
        Self::Close(code.code(), code.text().into())
    }
}

impl Centrifuge {
    /// Creates a session that has just opened.
    pub(crate) fn new(encoding: Encoding, now: Now) -> Self {
        let anonymous = ClientInfo {
            user: Box::default(),
            client: Box::default(),
            conn_info: None,
            chan_info: None,
        };
        Self {
            encoding,
            info: Arc::new(anonymous),
            state: State::Fresh,
            subscriptions: ClientSubscriptions::default(),
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

    /// Returns a description of the session for back ends.
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

    /// Sets the user that the handshake determined.
    pub(crate) fn set_user(&mut self, user: &str) {
        Arc::make_mut(&mut self.info).user = user.into();
    }

    /// Sets the claims of the handshake's token, and the process's count of disconnect commands at the time when the
    /// authentication began: later commands apply to this session.
    pub(crate) fn set_source(
        &mut self,
        claims: Option<Box<Map<String, Value>>>,
        asked: Option<u64>,
    ) {
        (self.claims, self.disconnects_seen) = (claims, asked);
    }

    /// Begins a session without a WebSocket: `commands` were part of the request that opened it, and later commands
    /// arrive as [relays](EmulationRequest).
    pub(crate) fn begin_emulation(&mut self, address: EmulationAddress, commands: &[u8]) {
        self.address = Some(Box::new(address));
        self.message = commands.to_vec();
        // A non-zero capacity marks that commands were received, even if they are empty.
        self.message.reserve(1);
    }

    /// Returns whether there is input to be processed.
    pub(crate) fn has_commands(&self) -> bool {
        self.message.capacity() > 0
    }

    /// Returns whether commands in another request belong to this client.
    pub(crate) fn accepts_relay(&self, relay: &EmulationRequest) -> bool {
        let address = self.address.as_ref();
        address.is_some_and(|address| address.equals_constant_time(&relay.to))
    }

    /// Handles commands that this client sent in a separate HTTP request.
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
        // Earlier commands wait, so the new ones are queued. Their HTTP request has ended and can't be delayed.
        if !self.relays.keep(&relay.commands) {
            return DisconnectCode::TooManyRequests.into();
        }
        self.is_pinged = false;
        Flow::Continue
    }

    /// Writes a disconnect push, for transports that have no Close frame.
    pub(crate) fn write_disconnect(
        &self,
        id: ConnectionId,
        code: u16,
        reason: &str,
        shared: &mut Context,
    ) {
        let mut frame = ReplyFrame::new(self.push_encoding(), Vec::new());
        let body = PushBody::Disconnect(Disconnect { code, reason });
        // The push has no payload, so no encoding of binary data is needed.
        frame.push(&Push { channel: "", body });
        frame.send(id, &mut shared.requests.outboxes);
    }

    /// Refuses the client permanently, by a terminal close code, since SDKs would retry a refused handshake forever.
    pub(crate) fn refuse(&mut self, code: DisconnectCode) {
        self.state = State::Refused(code);
    }

    /// Handles the answer of a channel's home on another worker. Returns the next step if a command waited for this
    /// answer and no longer has to wait; otherwise `None`.
    pub(crate) fn handle_answer(
        &mut self,
        ticket: Ticket,
        answer: HubReply,
        cx: &mut SessionContext<'_>,
    ) -> Option<Flow> {
        if ticket.0 & GIVEN != 0 {
            // This answer is for a subscription by a back end; the command waits for something else.
            self.handle_subscription_answer(ticket, &answer, cx);
            return None;
        }
        let waiting = self.waiting.take()?;
        let bytes = cx.shared.requests.outboxes.spare();
        let mut frame = ReplyFrame::new(self.push_encoding(), bytes);
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

    /// Handles fetched issuer keys; returns whether a command waited for them.
    pub(crate) fn handle_identity(&mut self, identity_result: &IdentityResult) -> bool {
        let is_it = matches!(self.waiting, Some(PendingTicket::Keys))
            && *identity_result == IdentityResult::KeysFetched;
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

    /// Makes the command wait for new keys.
    fn wait_for_keys(&mut self) -> CommandStatus {
        self.has_requested_keys = true;
        self.waiting = Some(PendingTicket::Keys);
        CommandStatus::Not(WaitReason::Answer)
    }

    /// Returns the channel whose home a subscribe command waits for. That subscription can't be ended meanwhile,
    /// since the answer would then never arrive.
    fn channel_awaited(&self) -> Option<&str> {
        match &self.waiting {
            Some(PendingTicket::Subscribe(asked)) => Some(asked.channel()),
            _ => None,
        }
    }

    /// Returns whether a connect command waits for the homes of its channels.
    fn is_connecting(&self) -> bool {
        matches!(self.waiting, Some(PendingTicket::Connect(_)))
    }

    fn next_ticket(&mut self) -> Ticket {
        self.ticket = (self.ticket + 1) % GIVEN;
        Ticket(self.ticket)
    }

    /// Returns the next deadline in monotonic milliseconds.
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

    /// Returns the deadline while input is paused. The deadline for a pong does not apply, since a client whose input
    /// is not read may have sent one.
    pub(crate) fn blocked_deadline_ms(&self, now: Now) -> u64 {
        match self.state {
            State::Fresh | State::Refused(_) => self.pinged_ms + STALE_MS,
            State::Connected => self.subscriptions.deadline_ms(now, self.channel_awaited()),
        }
    }

    /// Returns the deadline while a hook decision is pending: input is paused, but the client is pinged.
    pub(crate) fn hook_deadline_ms(&self, shared: &Context) -> u64 {
        match self.state {
            State::Fresh | State::Refused(_) => u64::MAX,
            State::Connected => self.deadline_ms(shared),
        }
    }

    /// Handles the deadline that applies while input is paused.
    pub(crate) fn timeout_blocked(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        if self.state == State::Fresh {
            return self.timeout(cx);
        }
        self.request_renewal(cx);
        let mut frame = ReplyFrame::new(self.push_encoding(), cx.shared.requests.outboxes.spare());
        let flow = self.end_expired(&mut frame, cx);
        frame.send(cx.id, &mut cx.shared.requests.outboxes);
        cx.shared.requests.outboxes.recycle(frame.into_bytes());
        flow
    }

    /// Returns whether the deadline may have become earlier since the last call, and clears this flag.
    pub(crate) fn take_deadline_change(&mut self) -> bool {
        std::mem::take(&mut self.deadline_changed)
    }

    /// Treats the client as alive, since data that arrived while input was paused may contain its answer to a ping.
    pub(crate) fn confirm_alive(&mut self) {
        self.is_pinged = false;
    }

    pub(crate) fn timeout(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        let now_ms = cx.shared.now.mono_ms;
        if self.state == State::Fresh {
            return match now_ms >= self.pinged_ms + STALE_MS {
                true => DisconnectCode::Stale.into(),
                false => Flow::Continue,
            };
        }
        self.request_renewal(cx);
        let mut frame = ReplyFrame::new(self.push_encoding(), cx.shared.requests.outboxes.spare());
        let mut flow = self.end_expired(&mut frame, cx);
        let (interval_ms, pong_ms) = ping_times_ms(cx.shared);
        if interval_ms > 0 {
            if self.is_pinged && now_ms >= self.pinged_ms + pong_ms {
                cx.shared.stats.pong_timeouts.add(1);
                cx.shared
                    .log(cx.id, NoteLevel::Info, "closed: no pong arrived in time");
                flow = DisconnectCode::NoPong.into();
            } else if now_ms >= self.pinged_ms + interval_ms {
                frame.ping();
                // The time for the pong begins now, even if the ping is late, for example because the machine was
                // suspended.
                (self.pinged_ms, self.is_pinged) = (now_ms, !self.is_one_way());
            }
        }
        frame.send(cx.id, &mut cx.shared.requests.outboxes);
        cx.shared.requests.outboxes.recycle(frame.into_bytes());
        flow
    }
}

/// Returns the ping interval (0: no pings) and the time to wait for the answer, both in milliseconds.
fn ping_times_ms(shared: &Context) -> (u64, u64) {
    let limits = &shared.config.limits;
    // Clients receive the interval in whole seconds, so it is rounded up.
    let interval_ms = limits.ping_interval_ms.div_ceil(1000) * 1000;
    (interval_ms, limits.pong_timeout_ms.min(PONG_MS_MAX))
}
