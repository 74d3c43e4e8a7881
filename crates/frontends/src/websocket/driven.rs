//! Events of a session other than messages: answers, decisions, deadlines, its end.

use std::net::IpAddr;

use veche_hub::{Answer, ConnectionId, Ticket};
use veche_types::codes::CloseCode;

use super::{Phase, Socket};
use crate::context::hooks::{QuestionId, Verdict};
use crate::context::identity::Finding;
use crate::context::note::Decision;
use crate::context::pace::Paced;
use crate::context::relay::Relay;
use crate::context::session::{Flow, Session};
use crate::context::shared::Shared;
use crate::context::step::{Never, Then};

impl<S: Session> Socket<S> {
    /// Returns whether the session belongs to a back end that pushes.
    pub(crate) fn is_back_end(&self) -> bool {
        self.session.is_back_end()
    }

    /// Returns whether messages are parts of a response.
    pub(crate) fn is_response(&self) -> bool {
        self.is_response
    }

    /// Returns whether the opening request contained messages.
    pub(crate) fn has_input(&self) -> bool {
        self.session.has_input()
    }

    /// Sets the client's address.
    pub(crate) fn set_peer(&mut self, peer: IpAddr) {
        self.session.set_peer(peer);
    }

    /// Continues after a wait.
    pub(crate) fn resume(&mut self, id: ConnectionId, shared: &mut Shared) -> Then<Never> {
        self.with_session(id, shared, Session::resume)
    }

    /// Returns whether input that waited for an answer may continue.
    pub(crate) fn answered(
        &mut self,
        id: ConnectionId,
        ticket: Ticket,
        answer: Answer,
        shared: &mut Shared,
    ) -> bool {
        self.if_followed(id, shared, |session, cx| {
            session.answered(ticket, answer, cx)
        })
    }

    /// Returns whether the session waited for that decision and may continue.
    pub(crate) fn judged(
        &mut self,
        id: ConnectionId,
        question: QuestionId,
        verdict: Verdict,
        shared: &mut Shared,
    ) -> bool {
        self.if_followed(id, shared, |session, cx| {
            session.judged(question, verdict, cx)
        })
    }

    fn if_followed(
        &mut self,
        id: ConnectionId,
        shared: &mut Shared,
        work: impl FnOnce(&mut S, &mut super::Context<'_>) -> Option<Flow>,
    ) -> bool {
        let mut is_followed = false;
        self.with_session(id, shared, |session, cx| {
            let flow = work(session, cx);
            is_followed = flow.is_some();
            flow.unwrap_or(Flow::GoOn)
        });
        is_followed
    }

    /// Returns whether the session waited for that result.
    pub(crate) fn found(&mut self, finding: &Finding) -> bool {
        self.session.found(finding)
    }

    /// Handles commands that arrived with another request.
    pub(crate) fn relayed(
        &mut self,
        id: ConnectionId,
        relay: &Relay,
        shared: &mut Shared,
    ) -> Then<Never> {
        if !self.session.is_meant_by(relay) {
            return Then::GoOn;
        }
        if let Some(pace) = &mut self.pace {
            // Its commands are counted when they are processed.
            match pace.relayed_bytes(relay.commands.len(), shared.now.mono_ms) {
                Paced::Drop => {
                    shared.stats.messages_dropped.add(1);
                    return Then::GoOn;
                }
                Paced::Close => {
                    self.outpaced(id, shared);
                    return Then::GoOn;
                }
                Paced::InTime | Paced::ThenWait | Paced::Wait => {}
            }
        }
        self.with_session(id, shared, |session, cx| session.relayed(relay, cx))
    }

    /// Returns the deadline while input waits for an answer.
    pub(crate) fn blocked_deadline_ms(&self, shared: &Shared) -> u64 {
        self.session
            .blocked_deadline_ms(shared.now)
            .min(self.renewal_ms(shared.now))
            .min(self.expiry_ms(shared.now))
    }

    /// Returns the deadline while a hook or application decides.
    pub(crate) fn judged_deadline_ms(&self, shared: &Shared) -> u64 {
        self.session
            .judged_deadline_ms(shared)
            .min(self.renewal_ms(shared.now))
            .min(self.expiry_ms(shared.now))
    }

    /// Handles the deadline while input waits for an answer.
    pub(crate) fn timeout_blocked(&mut self, id: ConnectionId, shared: &mut Shared) {
        self.with_session(id, shared, Session::timeout_blocked);
    }

    /// Handles the deadline while a hook or application decides and input is paused.
    pub(crate) fn ping_while_judged(&mut self, id: ConnectionId, shared: &mut Shared) {
        self.session.heard();
        self.with_session(id, shared, Session::timeout);
    }

    /// Returns and clears whether the deadline may have become earlier.
    pub(crate) fn take_hurry(&mut self) -> bool {
        self.session.take_hurry()
    }

    /// Handles the end of an application handler that was waiting. Returns whether one was.
    pub(crate) fn app_ready(&mut self) -> bool {
        self.session.app_ready()
    }

    /// Handles that the outbox has room again.
    pub(crate) fn drained(&mut self, id: ConnectionId, shared: &mut Shared) {
        self.session.drained(id, shared);
    }

    /// Reports the end to the session; the first call counts.
    pub(crate) fn over(&mut self, id: ConnectionId, code: u16, reason: &str, shared: &mut Shared) {
        self.with_session(id, shared, |session, cx| {
            session.over(code, reason, cx);
            Flow::GoOn
        });
    }

    /// Reports to the decision log that the session ends with this code, by a Close of either side. To be called while
    /// the hub still has the session.
    pub(super) fn parted(&self, id: ConnectionId, code: u16, reason: &str, shared: &Shared) {
        let (user, client) = self.session.names(id, shared);
        shared.decided(&Decision {
            what: "disconnect",
            user,
            client,
            code: code.into(),
            reason,
            ..Decision::default()
        });
    }

    /// Reports a closed transport; has no effect after a Close.
    pub(super) fn vanished(&self, id: ConnectionId, shared: &Shared) {
        if self.phase == Phase::Open && shared.ports.outboxes.takes_publications(id) {
            self.parted(
                id,
                CloseCode::Abnormal.code(),
                "the connection was lost",
                shared,
            );
        }
    }
}
