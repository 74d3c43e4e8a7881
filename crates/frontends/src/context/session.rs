//! The interface between transports and client protocols. A session does not depend on what carries its messages.
//!
//! A session handles neither HTTP nor frames. Its transport (`websocket` for WebSockets and endless responses) passes
//! messages, answers and deadlines to it, and executes the [`Flow`] that it returns. `http` opens sessions;
//! [`sessions/README.md`](../../sessions/README.md) describes both.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use veche_hub::{ConnectionId, HubReply, Ticket, UserCommand};
use veche_proto::websocket::MessageKind;
use veche_types::Now;
use veche_types::codes::CloseCode;

use crate::context::hooks::{HookDecision, HookRequestId};
use crate::context::identity::{IdentityLease, IdentityResult};
use crate::context::rate_limiter::{RateDecision, RateLimiter};
use crate::context::relay::EmulationRequest;
use crate::context::route::Route;
use crate::context::session_info::SessionInfo;
use crate::context::step::WaitReason;
use crate::context::worker_context::Context;

/// What a session can access during one call.
pub(crate) struct SessionContext<'a> {
    pub(crate) id: ConnectionId,
    /// The route of the session; `None` on connections that an application dialed.
    pub(crate) route: Option<&'a Arc<Route>>,
    /// The identity with which the session was opened, if it can expire.
    pub(crate) lease: &'a mut Option<Box<IdentityLease>>,
    /// The meters of the client's rate limits, if it has any.
    pub(crate) rate_limiter: Option<&'a mut RateLimiter>,
    /// Whether each message arrives in an HTTP request of its own rather than on this connection. Reading the connection
    /// later does not delay such messages.
    pub(crate) is_relayed: bool,
    /// Whether the session is open and not closing.
    pub(crate) is_open: bool,
    pub(crate) shared: &'a mut Context,
}

impl<'a> SessionContext<'a> {
    /// Returns the route of a session opened by a client.
    pub(crate) fn route(&self) -> &'a Arc<Route> {
        match self.route {
            Some(route) => route,
            None => unreachable!("every client of a protocol must have a route"),
        }
    }

    /// Counts the next command against the route's rate limit.
    pub(crate) fn check_command_rate(&mut self) -> RateDecision {
        let now_ms = self.shared.now.mono_ms;
        match &mut self.rate_limiter {
            None => RateDecision::Allow,
            Some(pace) if self.is_relayed => pace.relayed_command(now_ms),
            Some(pace) => pace.command(now_ms),
        }
    }
}

/// How a session and its input continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    Wait(WaitReason),
    /// Close the session with this code and reason.
    Close(u16, Cow<'static, str>),
}

impl Flow {
    pub(crate) fn close((code, reason): (u16, &'static str)) -> Self {
        Self::Close(code, reason.into())
    }
}

/// An open session of a client protocol. The default implementation of a method suits protocols that lack the feature
/// in question.
pub(crate) trait Session {
    /// Returns a description of the session for back ends; the caller adds transport and route.
    fn info(&self) -> SessionInfo<'_>;

    /// Handles a complete message, which is borrowed for the call.
    fn handle_message(
        &mut self,
        kind: MessageKind,
        data: &[u8],
        cx: &mut SessionContext<'_>,
    ) -> Flow;

    /// Returns what has to happen before the next message is read; `None`: it can be read now.
    fn input_block(&self) -> Option<WaitReason> {
        None
    }

    /// Returns whether a message contains several commands, each counted separately against the route's rate.
    fn counts_commands(&self) -> bool {
        false
    }

    /// Returns whether the request that opened the session contained messages, which [`Session::resume`] has to
    /// process.
    fn has_input(&self) -> bool {
        false
    }

    /// Continues with stored input after a wait has ended.
    fn resume(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        let _ = cx;
        Flow::Continue
    }

    /// Handles a home worker's reply to one of the session's tickets. Returns the next step, or `None` if the
    /// session's input still waits for a reply.
    fn handle_answer(
        &mut self,
        ticket: Ticket,
        answer: HubReply,
        cx: &mut SessionContext<'_>,
    ) -> Option<Flow> {
        let _ = (ticket, answer, cx);
        None
    }

    /// Handles the decision of a hook or application on one of the session's requests. Returns the next step, or
    /// `None` if no input waited for this decision.
    fn handle_hook_decision(
        &mut self,
        request_id: HookRequestId,
        decision: HookDecision,
        cx: &mut SessionContext<'_>,
    ) -> Option<Flow> {
        let _ = (request_id, decision, cx);
        None
    }

    /// Handles newly fetched issuer keys. Returns whether the session waited for them.
    fn handle_identity(&mut self, identity_result: &IdentityResult) -> bool {
        let _ = identity_result;
        false
    }

    /// Sets the client's address.
    fn set_peer(&mut self, peer: IpAddr) {
        let _ = peer;
    }

    /// Returns whether commands in a request on another connection belong to the client of this session.
    fn accepts_relay(&self, relay: &EmulationRequest) -> bool {
        let _ = relay;
        false
    }

    fn handle_relay(&mut self, relay: &EmulationRequest, cx: &mut SessionContext<'_>) -> Flow {
        let _ = (relay, cx);
        Flow::Continue
    }

    /// Returns whether a back end's command applies to this session. By default, a command applies if it names this
    /// connection or none, does not exclude this connection, and names no session.
    fn matches_command(
        &self,
        instruction: &UserCommand,
        id: ConnectionId,
        shared: &Context,
    ) -> bool {
        let name = || shared.connection_id(id);
        instruction.session.is_none() && instruction.applies_to(&name())
    }

    /// Executes a back end's command, except for closing and for the expiry of the session, which the caller handles.
    fn handle_user_command(
        &mut self,
        instruction: &Arc<UserCommand>,
        cx: &mut SessionContext<'_>,
    ) -> Flow {
        let _ = (instruction, cx);
        Flow::Continue
    }

    /// Handles a loss of publications that the client can't recover. By default the session is closed, so that the
    /// client reconnects.
    fn handle_lost_history(&mut self, channel: &str, cx: &mut SessionContext<'_>) -> Flow {
        let _ = (channel, cx);
        Flow::close(CloseCode::InsufficientState.parts())
    }

    /// Returns whether the protocol sends its own pings, as messages. If so, the transport sends none, the session is
    /// never considered idle, and [`Session::handle_timeout`] is called at [`Session::deadline_ms`].
    fn has_pings(&self) -> bool {
        false
    }

    /// Returns the next deadline in monotonic milliseconds.
    fn deadline_ms(&self, shared: &Context) -> u64 {
        let _ = shared;
        u64::MAX
    }

    /// Returns the deadline while the session's input waits, in monotonic milliseconds. A client's silence is then no
    /// sign that it is gone, since its input is not read.
    fn blocked_deadline_ms(&self, now: Now) -> u64 {
        let _ = now;
        u64::MAX
    }

    /// Returns the deadline while a hook request is pending, in monotonic milliseconds. The client is pinged
    /// meanwhile.
    fn hook_deadline_ms(&self, shared: &Context) -> u64 {
        let _ = shared;
        u64::MAX
    }

    /// Handles the deadline that [`Session::deadline_ms`] returned.
    fn handle_timeout(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        let _ = cx;
        Flow::Continue
    }

    /// Handles the deadline that [`Session::blocked_deadline_ms`] returned.
    fn handle_blocked_timeout(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        let _ = cx;
        Flow::Continue
    }

    /// Treats the client as alive, since data that arrived while input was not read may contain its answer to a ping.
    fn confirm_alive(&mut self) {}

    /// Returns whether the deadline may have become earlier since the last call of
    /// [`Session::deadline_ms`] or of this function.
    fn take_deadline_change(&mut self) -> bool {
        false
    }

    /// Returns whether the client renews its token itself and has a grace period for it.
    fn renews_token(&self) -> bool {
        false
    }

    /// Returns whether the session requests an extension from a hook when its token expires.
    fn renews_by_hook(&self, route: &Route) -> bool {
        let _ = route;
        false
    }

    /// Returns the names of user and client for the decision log.
    fn user_and_client<'s>(&'s self, id: ConnectionId, shared: &'s Context) -> (&'s str, &'s str) {
        (shared.hub.user_of(id).unwrap_or_default(), "")
    }

    /// Converts the server's close code and reason to the code and reason that the protocol defines for them.
    fn close_code_and_reason<'r>(&self, code: u16, reason: &'r str) -> (u16, Cow<'r, str>) {
        (code, reason.into())
    }

    /// Writes a final message while the session is closing, for transports whose own Close does not reach the client.
    fn write_close(&mut self, code: u16, reason: &str, cx: &mut SessionContext<'_>) {
        let _ = (code, reason, cx);
    }

    /// Returns when [`Session::handle_closed`] is called after the peer violates the protocol or exceeds
    /// its rate limit: immediately if true, only when the transport has ended if false.
    fn closes_on_fault(&self) -> bool {
        false
    }

    /// Handles the end of the session, with a Close frame of either side or without one. May be called several times;
    /// only the first call has an effect.
    fn handle_closed(&mut self, code: u16, reason: &str, cx: &mut SessionContext<'_>) {
        let _ = (code, reason, cx);
    }

    /// Handles the end of a suspended application handler. Returns whether the session waited for
    /// this end.
    fn handle_app_ready(&mut self) -> bool {
        false
    }

    /// Called when the session's full outbox has room again.
    fn handle_drained(&mut self, id: ConnectionId, shared: &mut Context) {
        let _ = (id, shared);
    }

    /// Returns whether the peer is a back end that uses the API through this session.
    fn is_back_end(&self) -> bool {
        false
    }
}
