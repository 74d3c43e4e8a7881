//! The seam between transports and client protocols: a session, whatever carries its messages.
//!
//! A session knows neither HTTP nor frames. Its transport (`websocket` for WebSockets and endless responses) hands it
//! messages, answers and deadlines, and carries out the [`Flow`] that it returns. How a session begins is the business of
//! `http`; [`sessions/README.md`](../../sessions/README.md) describes both.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use veche_hub::{ConnectionId, HubReply, Ticket, UserCommand};
use veche_proto::websocket::MessageKind;
use veche_types::Now;
use veche_types::codes::CloseCode;

use crate::context::hooks::{HookDecision, HookRequestId};
use crate::context::identity::{IdentityLease, IdentityResult};
use crate::context::members::connection_id;
use crate::context::rate_limiter::{RateDecision, RateLimiter};
use crate::context::relay::EmulationRequest;
use crate::context::route::Route;
use crate::context::session_info::SessionInfo;
use crate::context::step::WaitReason;
use crate::context::worker_context::Context;

/// What a session works with, for one call.
pub(crate) struct SessionContext<'a> {
    pub(crate) id: ConnectionId,
    /// `None` on a connection that an application has dialed.
    pub(crate) route: Option<&'a Arc<Route>>,
    /// How long the token holds that has opened the session.
    pub(crate) lease: &'a mut Option<Box<IdentityLease>>,
    /// Where the client may not speak as fast as it likes.
    pub(crate) rate_limiter: Option<&'a mut RateLimiter>,
    /// Its messages come with requests of their own, which can't be made to wait.
    pub(crate) is_relayed: bool,
    /// The session is not being closed.
    pub(crate) is_open: bool,
    pub(crate) shared: &'a mut Context,
}

impl<'a> SessionContext<'a> {
    /// The route of a session that a client has opened.
    pub(crate) fn route(&self) -> &'a Arc<Route> {
        match self.route {
            Some(route) => route,
            None => unreachable!("clients of a protocol have come by a route"),
        }
    }

    /// Whether the next command keeps to the route's rate.
    pub(crate) fn check_command_rate(&mut self) -> RateDecision {
        let now_ms = self.shared.now.mono_ms;
        match &mut self.rate_limiter {
            None => RateDecision::Allow,
            Some(pace) if self.is_relayed => pace.relayed_command(now_ms),
            Some(pace) => pace.command(now_ms),
        }
    }
}

/// What becomes of the session and of its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    Wait(WaitReason),
    /// The session is to be closed with this code and reason.
    Close(u16, Cow<'static, str>),
}

impl Flow {
    pub(crate) fn close((code, reason): (u16, &'static str)) -> Self {
        Self::Close(code, reason.into())
    }
}

/// An open session of a client protocol. A method without a body of its own has one that suits protocols without that
/// feature.
pub(crate) trait Session {
    /// Describes the session to back ends; transport and route are filled in by the caller.
    fn info(&self) -> SessionInfo<'_>;

    /// Works on a whole message, which is lent for the call.
    fn handle_message(
        &mut self,
        kind: MessageKind,
        data: &[u8],
        cx: &mut SessionContext<'_>,
    ) -> Flow;

    /// Returns what has to come before another message is read.
    fn input_block(&self) -> Option<WaitReason> {
        None
    }

    /// Whether a message is several things, each of which the session counts against the route's rate by itself.
    fn counts_commands(&self) -> bool {
        false
    }

    /// Whether the request that has opened the session had messages in it; they are worked on by [`Session::resume`].
    fn has_input(&self) -> bool {
        false
    }

    /// Goes on after a wait, with what was kept.
    fn resume(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        let _ = cx;
        Flow::Continue
    }

    /// A home has answered one of the session's tickets. Returns what follows, or `None` if input that waits for an answer
    /// still waits.
    fn handle_answer(
        &mut self,
        ticket: Ticket,
        answer: HubReply,
        cx: &mut SessionContext<'_>,
    ) -> Option<Flow> {
        let _ = (ticket, answer, cx);
        None
    }

    /// A hook or an application has decided on a question of the session. Returns what follows, or `None` if nothing
    /// waited for that.
    fn handle_hook_decision(
        &mut self,
        question: HookRequestId,
        verdict: HookDecision,
        cx: &mut SessionContext<'_>,
    ) -> Option<Flow> {
        let _ = (question, verdict, cx);
        None
    }

    /// An issuer's keys were fetched. Returns whether the session waited for them.
    fn handle_identity(&mut self, finding: &IdentityResult) -> bool {
        let _ = finding;
        false
    }

    /// Sets the client's address.
    fn set_peer(&mut self, peer: IpAddr) {
        let _ = peer;
    }

    /// Whether commands that came with another request are this client's.
    fn accepts_relay(&self, relay: &EmulationRequest) -> bool {
        let _ = relay;
        false
    }

    /// Works on such commands.
    fn handle_relay(&mut self, relay: &EmulationRequest, cx: &mut SessionContext<'_>) -> Flow {
        let _ = (relay, cx);
        Flow::Continue
    }

    /// Whether an instruction of a back end means this session: by default, if it has the name that back ends see.
    fn matches_command(
        &self,
        instruction: &UserCommand,
        id: ConnectionId,
        shared: &Context,
    ) -> bool {
        let name = || connection_id(shared.hub.worker(), id);
        instruction.session.is_none() && instruction.applies_to(&name())
    }

    /// Carries out an instruction. Closing, and how long the session may last, is done already.
    fn handle_user_command(
        &mut self,
        instruction: &Arc<UserCommand>,
        cx: &mut SessionContext<'_>,
    ) -> Flow {
        let _ = (instruction, cx);
        Flow::Continue
    }

    /// Handles the loss of publications of a channel that can't be recovered. By default the client has to reconnect.
    fn handle_lost_history(&mut self, channel: &str, cx: &mut SessionContext<'_>) -> Flow {
        let _ = (channel, cx);
        Flow::close(CloseCode::InsufficientState.parts())
    }

    /// Whether the protocol has pings of its own, by messages. Then the transport sends none, the session is never idle,
    /// and [`Session::handle_timeout`] is called at [`Session::deadline_ms`].
    fn has_pings(&self) -> bool {
        false
    }

    /// When something is due.
    fn deadline_ms(&self, shared: &Context) -> u64 {
        let _ = shared;
        u64::MAX
    }

    /// The same while input waits, so that silence means nothing.
    fn blocked_deadline_ms(&self, now: Now) -> u64 {
        let _ = now;
        u64::MAX
    }

    /// The same while a question is open, and the client is pinged.
    fn hook_deadline_ms(&self, shared: &Context) -> u64 {
        let _ = shared;
        u64::MAX
    }

    /// Handles the deadline that [`Session::deadline_ms`] returned.
    fn handle_timeout(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        let _ = cx;
        Flow::Continue
    }

    /// The same while input waits.
    fn handle_blocked_timeout(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        let _ = cx;
        Flow::Continue
    }

    /// What came while nothing was read may have been the answer to a ping.
    fn confirm_alive(&mut self) {}

    /// Whether something may be due earlier than [`Session::deadline_ms`] said last; taken by the call.
    fn take_deadline_change(&mut self) -> bool {
        false
    }

    /// Whether the client renews its token by itself and has some time for that.
    fn renews_token(&self) -> bool {
        false
    }

    /// Whether the session asks a hook to prolong it when its token ends.
    fn renews_by_hook(&self, route: &Route) -> bool {
        let _ = route;
        false
    }

    /// Names of user and client for the log of decisions.
    fn log_names<'s>(&'s self, id: ConnectionId, shared: &'s Context) -> (&'s str, &'s str) {
        (shared.hub.user_of(id).unwrap_or_default(), "")
    }

    /// Translates a close of the server's into the protocol's words.
    fn close_code_and_reason<'r>(&self, code: u16, reason: &'r str) -> (u16, Cow<'r, str>) {
        (code, reason.into())
    }

    /// The session is being closed: writes last words, where the transport's own Close does not reach the client.
    fn write_close(&mut self, code: u16, reason: &str, cx: &mut SessionContext<'_>) {
        let _ = (code, reason, cx);
    }

    /// Whether [`Session::handle_closed`] comes at once when the peer has broken the protocol or its rate, and not only when the
    /// transport has ended.
    fn closes_on_fault(&self) -> bool {
        false
    }

    /// The session is over, by a Close of either side or without one. May come several times; the first counts.
    fn handle_closed(&mut self, code: u16, reason: &str, cx: &mut SessionContext<'_>) {
        let _ = (code, reason, cx);
    }

    /// The handler of an application that waited has ended. Returns whether one waited.
    fn handle_app_ready(&mut self) -> bool {
        false
    }

    /// An outbox that was full has room again.
    fn handle_drained(&mut self, id: ConnectionId, shared: &mut Context) {
        let _ = (id, shared);
    }

    /// Whether it is a back end that pushes.
    fn is_back_end(&self) -> bool {
        false
    }
}
