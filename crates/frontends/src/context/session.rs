//! The interface between transports and client protocols: a session, independent of what carries its messages.
//!
//! A session knows neither HTTP nor frames. Its transport (`websocket` for WebSockets and endless responses) passes it
//! messages, answers and deadlines, and executes the [`Flow`] that it returns. `http` opens sessions;
//! [`sessions/README.md`](../../sessions/README.md) describes both.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use veche_hub::{Answer, ConnectionId, Instruction, Ticket};
use veche_proto::websocket::MessageKind;
use veche_types::Now;
use veche_types::codes::CloseCode;

use crate::context::census::About;
use crate::context::hooks::{QuestionId, Verdict};
use crate::context::identity::{Finding, Lease};
use crate::context::pace::{Pace, Paced};
use crate::context::relay::Relay;
use crate::context::route::Route;
use crate::context::shared::Shared;
use crate::context::step::Block;

/// The context of one call of a session.
pub(crate) struct Context<'a> {
    pub(crate) id: ConnectionId,
    /// `None` for connections dialed by an application.
    pub(crate) route: Option<&'a Arc<Route>>,
    /// The identity that opened the session, and how long it is valid.
    pub(crate) lease: &'a mut Option<Box<Lease>>,
    /// The rate limits of the client, if it has any.
    pub(crate) pace: Option<&'a mut Pace>,
    /// Messages arrive in separate requests, which can't be delayed.
    pub(crate) is_relayed: bool,
    /// The session is not closing.
    pub(crate) is_open: bool,
    pub(crate) shared: &'a mut Shared,
}

impl<'a> Context<'a> {
    /// Returns the route of a session opened by a client.
    pub(crate) fn route(&self) -> &'a Arc<Route> {
        match self.route {
            Some(route) => route,
            None => unreachable!("clients of a protocol have come by a route"),
        }
    }

    /// Checks the next command against the route's rate.
    pub(crate) fn paced(&mut self) -> Paced {
        let now_ms = self.shared.now.mono_ms;
        match &mut self.pace {
            None => Paced::InTime,
            Some(pace) if self.is_relayed => pace.relayed_command(now_ms),
            Some(pace) => pace.command(now_ms),
        }
    }
}

/// What happens next with the session and its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    GoOn,
    Wait(Block),
    /// Close the session with this code and reason.
    Close(u16, Cow<'static, str>),
}

impl Flow {
    pub(crate) fn close((code, reason): (u16, &'static str)) -> Self {
        Self::Close(code, reason.into())
    }
}

/// An open session of a client protocol. Default methods suit protocols without the feature.
pub(crate) trait Session {
    /// Describes the session to back ends; the caller fills in transport and route.
    fn about(&self) -> About<'_>;

    /// Handles a complete message, borrowed for the call.
    fn message(&mut self, kind: MessageKind, data: &[u8], cx: &mut Context<'_>) -> Flow;

    /// Returns what must happen before another message is read.
    fn is_full(&self) -> Option<Block> {
        None
    }

    /// Returns whether a message contains several commands, each counted separately against the route's rate.
    fn counts_commands(&self) -> bool {
        false
    }

    /// Returns whether the opening request contained messages, to be processed by [`Session::resume`].
    fn has_input(&self) -> bool {
        false
    }

    /// Continues with stored input after a wait.
    fn resume(&mut self, cx: &mut Context<'_>) -> Flow {
        let _ = cx;
        Flow::GoOn
    }

    /// Handles a home worker's answer to one of the session's tickets. Returns what happens next, or `None` if input
    /// that waits for an answer still waits.
    fn answered(&mut self, ticket: Ticket, answer: Answer, cx: &mut Context<'_>) -> Option<Flow> {
        let _ = (ticket, answer, cx);
        None
    }

    /// Handles the decision of a hook or application on one of the session's requests. Returns what happens next, or
    /// `None` if nothing waited for it.
    fn judged(
        &mut self,
        question: QuestionId,
        verdict: Verdict,
        cx: &mut Context<'_>,
    ) -> Option<Flow> {
        let _ = (question, verdict, cx);
        None
    }

    /// Handles fetched issuer keys. Returns whether the session waited for them.
    fn found(&mut self, finding: &Finding) -> bool {
        let _ = finding;
        false
    }

    /// Sets the client's address.
    fn set_peer(&mut self, peer: IpAddr) {
        let _ = peer;
    }

    /// Returns whether commands relayed from another request belong to this client.
    fn is_meant_by(&self, relay: &Relay) -> bool {
        let _ = relay;
        false
    }

    fn relayed(&mut self, relay: &Relay, cx: &mut Context<'_>) -> Flow {
        let _ = (relay, cx);
        Flow::GoOn
    }

    /// Returns whether a back end's command applies to this session: by default, if it names the connection id that
    /// back ends see.
    fn is_meant(&self, instruction: &Instruction, id: ConnectionId, shared: &Shared) -> bool {
        let name = || shared.connection_id(id);
        instruction.session.is_none() && instruction.means(&name())
    }

    /// Executes a back end's command. Closing and session expiry are handled by the caller.
    fn instructed(&mut self, instruction: &Arc<Instruction>, cx: &mut Context<'_>) -> Flow {
        let _ = (instruction, cx);
        Flow::GoOn
    }

    /// Handles unrecoverable loss of a channel's publications. By default the client has to reconnect.
    fn lost(&mut self, channel: &str, cx: &mut Context<'_>) -> Flow {
        let _ = (channel, cx);
        Flow::close(CloseCode::InsufficientState.parts())
    }

    /// Returns whether the protocol has its own pings, sent as messages. The transport then sends none, the session is
    /// never idle, and [`Session::timeout`] is called at [`Session::deadline_ms`].
    fn has_pings(&self) -> bool {
        false
    }

    /// Returns the next deadline in monotonic milliseconds.
    fn deadline_ms(&self, shared: &Shared) -> u64 {
        let _ = shared;
        u64::MAX
    }

    /// Returns the deadline while input waits, when silence of the client means nothing.
    fn blocked_deadline_ms(&self, now: Now) -> u64 {
        let _ = now;
        u64::MAX
    }

    /// Returns the deadline while a hook request is pending and the client is pinged.
    fn judged_deadline_ms(&self, shared: &Shared) -> u64 {
        let _ = shared;
        u64::MAX
    }

    /// Handles the deadline that [`Session::deadline_ms`] returned.
    fn timeout(&mut self, cx: &mut Context<'_>) -> Flow {
        let _ = cx;
        Flow::GoOn
    }

    /// Handles the deadline while input waits.
    fn timeout_blocked(&mut self, cx: &mut Context<'_>) -> Flow {
        let _ = cx;
        Flow::GoOn
    }

    /// Treats the client as alive: data received while input was paused may have been the answer to a ping.
    fn heard(&mut self) {}

    /// Returns and clears whether the deadline may have become earlier since the last [`Session::deadline_ms`].
    fn take_hurry(&mut self) -> bool {
        false
    }

    /// Returns whether the client renews its token itself and has a grace period for it.
    fn renews_token(&self) -> bool {
        false
    }

    /// Returns whether the session asks a hook to extend it when its token expires.
    fn asks_for_time(&self, route: &Route) -> bool {
        let _ = route;
        false
    }

    /// Returns the names of user and client for the decision log.
    fn names<'s>(&'s self, id: ConnectionId, shared: &'s Shared) -> (&'s str, &'s str) {
        (shared.hub.user_of(id).unwrap_or_default(), "")
    }

    /// Converts the server's close code and reason to those of the protocol.
    fn words<'r>(&self, code: u16, reason: &'r str) -> (u16, Cow<'r, str>) {
        (code, reason.into())
    }

    /// Writes a final message while the session is closing, where the transport's own Close does not reach the client.
    fn closing(&mut self, code: u16, reason: &str, cx: &mut Context<'_>) {
        let _ = (code, reason, cx);
    }

    /// Returns whether [`Session::over`] is called immediately when the peer violates the protocol or its rate, not
    /// only when the transport has ended.
    fn hears_faults(&self) -> bool {
        false
    }

    /// Handles the end of the session, by a Close of either side or without one. May be called several times; the first
    /// call counts.
    fn over(&mut self, code: u16, reason: &str, cx: &mut Context<'_>) {
        let _ = (code, reason, cx);
    }

    /// Handles the end of an application handler that was waiting. Returns whether one was.
    fn app_ready(&mut self) -> bool {
        false
    }

    /// Handles that a full outbox has room again.
    fn drained(&mut self, id: ConnectionId, shared: &mut Shared) {
        let _ = (id, shared);
    }

    /// Returns whether the session belongs to a back end that pushes.
    fn is_back_end(&self) -> bool {
        false
    }
}
