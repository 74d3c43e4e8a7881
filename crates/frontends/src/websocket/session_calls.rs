//! Events, other than messages, that the transport passes to its session: answers, decisions, deadlines, and the end.

use std::net::IpAddr;

use veche_hub::{ConnectionId, HubReply, Ticket};
use veche_types::codes::CloseCode;

use super::{Phase, WebSocketStage};
use crate::context::hooks::{HookDecision, HookRequestId};
use crate::context::identity::IdentityResult;
use crate::context::log_note::AuthDecision;
use crate::context::rate_limiter::RateDecision;
use crate::context::relay::EmulationRequest;
use crate::context::session::{Flow, Session};
use crate::context::step::{NextStep, NoNextStage};
use crate::context::worker_context::Context;

impl<S: Session> WebSocketStage<S> {
    /// Returns whether the peer is a back end that uses the API through this session.
    pub(crate) fn is_back_end(&self) -> bool {
        self.session.is_back_end()
    }

    /// Returns whether the session sends its messages as parts of an HTTP response.
    pub(crate) fn is_response(&self) -> bool {
        self.is_response
    }

    /// Returns whether the request that opened the session contained messages.
    pub(crate) fn has_input(&self) -> bool {
        self.session.has_input()
    }

    /// Sets the client's address.
    pub(crate) fn set_peer(&mut self, peer: IpAddr) {
        self.session.set_peer(peer);
    }

    /// Continues the session's input after a wait.
    pub(crate) fn resume(
        &mut self,
        id: ConnectionId,
        shared: &mut Context,
    ) -> NextStep<NoNextStage> {
        self.with_session(id, shared, Session::resume)
    }

    /// Handles a home worker's answer; returns whether input that waited for the answer may
    /// continue.
    pub(crate) fn handle_answer(
        &mut self,
        id: ConnectionId,
        ticket: Ticket,
        answer: HubReply,
        shared: &mut Context,
    ) -> bool {
        self.unless_blocked(id, shared, |session, cx| {
            session.handle_answer(ticket, answer, cx)
        })
    }

    /// Handles a hook decision; returns whether input that waited for the decision may continue.
    pub(crate) fn handle_hook_decision(
        &mut self,
        id: ConnectionId,
        request_id: HookRequestId,
        decision: HookDecision,
        shared: &mut Context,
    ) -> bool {
        self.unless_blocked(id, shared, |session, cx| {
            session.handle_hook_decision(request_id, decision, cx)
        })
    }

    fn unless_blocked(
        &mut self,
        id: ConnectionId,
        shared: &mut Context,
        work: impl FnOnce(&mut S, &mut super::SessionContext<'_>) -> Option<Flow>,
    ) -> bool {
        let mut is_followed = false;
        self.with_session(id, shared, |session, cx| {
            let flow = work(session, cx);
            is_followed = flow.is_some();
            flow.unwrap_or(Flow::Continue)
        });
        is_followed
    }

    /// Handles the result of a key fetch; returns whether the session waited for it.
    pub(crate) fn handle_identity(&mut self, identity_result: &IdentityResult) -> bool {
        self.session.handle_identity(identity_result)
    }

    /// Handles commands that the client sent in another request.
    pub(crate) fn handle_relay(
        &mut self,
        id: ConnectionId,
        relay: &EmulationRequest,
        shared: &mut Context,
    ) -> NextStep<NoNextStage> {
        if !self.session.accepts_relay(relay) {
            return NextStep::Continue;
        }
        if let Some(pace) = &mut self.rate_limiter {
            // Only the bytes are counted here; each command is counted when it is processed.
            match pace.relayed_bytes(relay.commands.len(), shared.now.mono_ms) {
                RateDecision::Drop => {
                    shared.stats.messages_dropped.add(1);
                    return NextStep::Continue;
                }
                RateDecision::Close => {
                    self.close_rate_limited(id, shared);
                    return NextStep::Continue;
                }
                RateDecision::Allow | RateDecision::AllowThenWait | RateDecision::Wait => {}
            }
        }
        self.with_session(id, shared, |session, cx| session.handle_relay(relay, cx))
    }

    /// Returns the session's next deadline while its input waits for an answer, in monotonic milliseconds.
    pub(crate) fn blocked_deadline_ms(&self, shared: &Context) -> u64 {
        self.session
            .blocked_deadline_ms(shared.now)
            .min(self.renewal_ms(shared.now))
            .min(self.expiry_ms(shared.now))
    }

    /// Returns the session's next deadline while a hook or application decides, in monotonic milliseconds.
    pub(crate) fn hook_deadline_ms(&self, shared: &Context) -> u64 {
        self.session
            .hook_deadline_ms(shared)
            .min(self.renewal_ms(shared.now))
            .min(self.expiry_ms(shared.now))
    }

    /// Handles a deadline that passes while the session's input waits for an answer.
    pub(crate) fn timeout_blocked(&mut self, id: ConnectionId, shared: &mut Context) {
        self.with_session(id, shared, Session::handle_blocked_timeout);
    }

    /// Handles a deadline that passes while a hook or application decides and the session's input is paused.
    pub(crate) fn ping_while_hook_pending(&mut self, id: ConnectionId, shared: &mut Context) {
        self.session.confirm_alive();
        self.with_session(id, shared, Session::handle_timeout);
    }

    /// Returns whether the session's deadline may have become earlier since the last call, and clears this flag.
    pub(crate) fn take_deadline_change(&mut self) -> bool {
        self.session.take_deadline_change()
    }

    /// Handles the end of a suspended application handler. Returns whether the session waited for
    /// this end.
    pub(crate) fn app_ready(&mut self) -> bool {
        self.session.handle_app_ready()
    }

    /// Called when a full outbox has room again.
    pub(crate) fn drained(&mut self, id: ConnectionId, shared: &mut Context) {
        self.session.handle_drained(id, shared);
    }

    /// Notifies the session that it has ended; only the first call has an effect.
    pub(crate) fn handle_closed(
        &mut self,
        id: ConnectionId,
        code: u16,
        reason: &str,
        shared: &mut Context,
    ) {
        self.with_session(id, shared, |session, cx| {
            session.handle_closed(code, reason, cx);
            Flow::Continue
        });
    }

    /// Reports to the decision log that the session ends with this code, after a Close frame of either side. Has to
    /// be called while the hub still has the session.
    pub(super) fn handle_server_close(
        &self,
        id: ConnectionId,
        code: u16,
        reason: &str,
        shared: &Context,
    ) {
        let (user, client) = self.session.user_and_client(id, shared);
        shared.log_decision(&AuthDecision {
            what: "disconnect",
            user,
            client,
            code: code.into(),
            reason,
            ..AuthDecision::default()
        });
    }

    /// Reports to the decision log that the transport was closed. Has no effect after a Close frame.
    pub(super) fn handle_connection_lost(&self, id: ConnectionId, shared: &Context) {
        if self.phase == Phase::Open && shared.requests.outboxes.takes_publications(id) {
            self.handle_server_close(
                id,
                CloseCode::Abnormal.code(),
                "the connection was lost",
                shared,
            );
        }
    }
}
