//! What reaches a session beside its messages: answers, decisions, deadlines, its end.

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
    /// Whether it is a back end that pushes.
    pub(crate) fn is_back_end(&self) -> bool {
        self.session.is_back_end()
    }

    /// Whether its messages are parts of a response.
    pub(crate) fn is_response(&self) -> bool {
        self.is_response
    }

    /// Whether the request that has opened it had messages in it.
    pub(crate) fn has_input(&self) -> bool {
        self.session.has_input()
    }

    /// Sets the client's address.
    pub(crate) fn set_peer(&mut self, peer: IpAddr) {
        self.session.set_peer(peer);
    }

    /// Goes on after a wait.
    pub(crate) fn resume(&mut self, id: ConnectionId, shared: &mut Shared) -> Then<Never> {
        self.with_session(id, shared, Session::resume)
    }

    /// Returns whether input that waited for an answer may go on.
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

    /// Returns whether the session waited for that decision, and may go on.
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

    /// Returns whether the session waited for that.
    pub(crate) fn found(&mut self, finding: &Finding) -> bool {
        self.session.found(finding)
    }

    /// Works on commands that came with another request.
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
            // Its commands are counted when they are worked on.
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

    /// When there is something to do while input waits for an answer.
    pub(crate) fn blocked_deadline_ms(&self, shared: &Shared) -> u64 {
        self.session
            .blocked_deadline_ms(shared.now)
            .min(self.renewal_ms(shared.now))
            .min(self.expiry_ms(shared.now))
    }

    /// The same while a hook or an application decides.
    pub(crate) fn judged_deadline_ms(&self, shared: &Shared) -> u64 {
        self.session
            .judged_deadline_ms(shared)
            .min(self.renewal_ms(shared.now))
            .min(self.expiry_ms(shared.now))
    }

    /// Something is due while input waits for an answer.
    pub(crate) fn timeout_blocked(&mut self, id: ConnectionId, shared: &mut Shared) {
        self.with_session(id, shared, Session::timeout_blocked);
    }

    /// Something is due while a hook or an application decides, and nothing of the client can be heard.
    pub(crate) fn ping_while_judged(&mut self, id: ConnectionId, shared: &mut Shared) {
        self.session.heard();
        self.with_session(id, shared, Session::timeout);
    }

    /// Whether something is due earlier than was said last; taken by the call.
    pub(crate) fn take_hurry(&mut self) -> bool {
        self.session.take_hurry()
    }

    /// The handler of an application that waited has ended. Returns whether one waited.
    pub(crate) fn app_ready(&mut self) -> bool {
        self.session.app_ready()
    }

    /// There is room in the outbox again.
    pub(crate) fn drained(&mut self, id: ConnectionId, shared: &mut Shared) {
        self.session.drained(id, shared);
    }

    /// Tells the session that it is over; the first time counts.
    pub(crate) fn over(&mut self, id: ConnectionId, code: u16, reason: &str, shared: &mut Shared) {
        self.with_session(id, shared, |session, cx| {
            session.over(code, reason, cx);
            Flow::GoOn
        });
    }

    /// Reports to watchers that the session ends with that code, by a Close of ours or of the peer's. To be called while
    /// the hub still knows it.
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

    /// The same where the transport is gone; without effect after a Close.
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
