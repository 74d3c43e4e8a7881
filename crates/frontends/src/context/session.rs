//! The seam between transports and client protocols: a session, whatever carries its messages.
//!
//! A session knows neither HTTP nor frames. Its transport (`websocket` for WebSockets and endless responses) hands it
//! messages, answers and deadlines, and carries out the [`Flow`] that it returns. How a session begins is the business of
//! `http`; [`sessions/README.md`](../../sessions/README.md) describes both.

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

/// What a session works with, for one call.
pub(crate) struct Context<'a> {
    pub(crate) id: ConnectionId,
    /// `None` on a connection that an application has dialed.
    pub(crate) route: Option<&'a Arc<Route>>,
    /// How long the token holds that has opened the session.
    pub(crate) lease: &'a mut Option<Box<Lease>>,
    /// Where the client may not speak as fast as it likes.
    pub(crate) pace: Option<&'a mut Pace>,
    /// Its messages come with requests of their own, which can't be made to wait.
    pub(crate) is_relayed: bool,
    /// The session is not being closed.
    pub(crate) is_open: bool,
    pub(crate) shared: &'a mut Shared,
}

impl<'a> Context<'a> {
    /// The route of a session that a client has opened.
    pub(crate) fn route(&self) -> &'a Arc<Route> {
        match self.route {
            Some(route) => route,
            None => unreachable!("clients of a protocol have come by a route"),
        }
    }

    /// Whether the next command keeps to the route's rate.
    pub(crate) fn paced(&mut self) -> Paced {
        let now_ms = self.shared.now.mono_ms;
        match &mut self.pace {
            None => Paced::InTime,
            Some(pace) if self.is_relayed => pace.relayed_command(now_ms),
            Some(pace) => pace.command(now_ms),
        }
    }
}

/// What becomes of the session and of its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    GoOn,
    Wait(Block),
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
    fn about(&self) -> About<'_>;

    /// Works on a whole message, which is lent for the call.
    fn message(&mut self, kind: MessageKind, data: &[u8], cx: &mut Context<'_>) -> Flow;

    /// Returns what has to come before another message is read.
    fn is_full(&self) -> Option<Block> {
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
    fn resume(&mut self, cx: &mut Context<'_>) -> Flow {
        let _ = cx;
        Flow::GoOn
    }

    /// A home has answered one of the session's tickets. Returns what follows, or `None` if input that waits for an answer
    /// still waits.
    fn answered(&mut self, ticket: Ticket, answer: Answer, cx: &mut Context<'_>) -> Option<Flow> {
        let _ = (ticket, answer, cx);
        None
    }

    /// A hook or an application has decided on a question of the session. Returns what follows, or `None` if nothing
    /// waited for that.
    fn judged(
        &mut self,
        question: QuestionId,
        verdict: Verdict,
        cx: &mut Context<'_>,
    ) -> Option<Flow> {
        let _ = (question, verdict, cx);
        None
    }

    /// An issuer's keys were fetched. Returns whether the session waited for them.
    fn found(&mut self, finding: &Finding) -> bool {
        let _ = finding;
        false
    }

    /// Sets the client's address.
    fn set_peer(&mut self, peer: IpAddr) {
        let _ = peer;
    }

    /// Whether commands that came with another request are this client's.
    fn is_meant_by(&self, relay: &Relay) -> bool {
        let _ = relay;
        false
    }

    /// Works on such commands.
    fn relayed(&mut self, relay: &Relay, cx: &mut Context<'_>) -> Flow {
        let _ = (relay, cx);
        Flow::GoOn
    }

    /// Whether an instruction of a back end means this session: by default, if it has the name that back ends see.
    fn is_meant(&self, instruction: &Instruction, id: ConnectionId, shared: &Shared) -> bool {
        let name = || shared.connection_id(id);
        instruction.session.is_none() && instruction.means(&name())
    }

    /// Carries out an instruction. Closing, and how long the session may last, is done already.
    fn instructed(&mut self, instruction: &Arc<Instruction>, cx: &mut Context<'_>) -> Flow {
        let _ = (instruction, cx);
        Flow::GoOn
    }

    /// Handles the loss of publications of a channel that can't be recovered. By default the client has to reconnect.
    fn lost(&mut self, channel: &str, cx: &mut Context<'_>) -> Flow {
        let _ = (channel, cx);
        Flow::close(CloseCode::InsufficientState.parts())
    }

    /// Whether the protocol has pings of its own, by messages. Then the transport sends none, the session is never idle,
    /// and [`Session::timeout`] is called at [`Session::deadline_ms`].
    fn has_pings(&self) -> bool {
        false
    }

    /// When something is due.
    fn deadline_ms(&self, shared: &Shared) -> u64 {
        let _ = shared;
        u64::MAX
    }

    /// The same while input waits, so that silence means nothing.
    fn blocked_deadline_ms(&self, now: Now) -> u64 {
        let _ = now;
        u64::MAX
    }

    /// The same while a question is open, and the client is pinged.
    fn judged_deadline_ms(&self, shared: &Shared) -> u64 {
        let _ = shared;
        u64::MAX
    }

    /// Handles the deadline that [`Session::deadline_ms`] returned.
    fn timeout(&mut self, cx: &mut Context<'_>) -> Flow {
        let _ = cx;
        Flow::GoOn
    }

    /// The same while input waits.
    fn timeout_blocked(&mut self, cx: &mut Context<'_>) -> Flow {
        let _ = cx;
        Flow::GoOn
    }

    /// What came while nothing was read may have been the answer to a ping.
    fn heard(&mut self) {}

    /// Whether something may be due earlier than [`Session::deadline_ms`] said last; taken by the call.
    fn take_hurry(&mut self) -> bool {
        false
    }

    /// Whether the client renews its token by itself and has some time for that.
    fn renews_token(&self) -> bool {
        false
    }

    /// Whether the session asks a hook to prolong it when its token ends.
    fn asks_for_time(&self, route: &Route) -> bool {
        let _ = route;
        false
    }

    /// Names of user and client for the log of decisions.
    fn names<'s>(&'s self, id: ConnectionId, shared: &'s Shared) -> (&'s str, &'s str) {
        (shared.hub.user_of(id).unwrap_or_default(), "")
    }

    /// Translates a close of the server's into the protocol's words.
    fn words<'r>(&self, code: u16, reason: &'r str) -> (u16, Cow<'r, str>) {
        (code, reason.into())
    }

    /// The session is being closed: writes last words, where the transport's own Close does not reach the client.
    fn closing(&mut self, code: u16, reason: &str, cx: &mut Context<'_>) {
        let _ = (code, reason, cx);
    }

    /// Whether [`Session::over`] comes at once when the peer has broken the protocol or its rate, and not only when the
    /// transport has ended.
    fn hears_faults(&self) -> bool {
        false
    }

    /// The session is over, by a Close of either side or without one. May come several times; the first counts.
    fn over(&mut self, code: u16, reason: &str, cx: &mut Context<'_>) {
        let _ = (code, reason, cx);
    }

    /// The handler of an application that waited has ended. Returns whether one waited.
    fn app_ready(&mut self) -> bool {
        false
    }

    /// An outbox that was full has room again.
    fn drained(&mut self, id: ConnectionId, shared: &mut Shared) {
        let _ = (id, shared);
    }

    /// Whether it is a back end that pushes.
    fn is_back_end(&self) -> bool {
        false
    }
}
