//! A socket whose session speaks Centrifugo's protocol: what its commands lead to, and what it has instead of pings.

use std::net::IpAddr;
use std::sync::Arc;

use veche_hub::{Answer, ConnectionId, Instruction, Ticket};

use super::{Phase, Session, Side, Socket};
use crate::context::hooks::{QuestionId, Verdict};
use crate::context::identity::Finding;
use crate::context::pace::Paced;
use crate::context::relay::Relay;
use crate::context::shared::Shared;
use crate::context::step::{Never, Then};
use crate::sessions::centrifuge::{Centrifuge, Context, Flow};

impl Socket {
    /// Has the session do something, and closes it where that comes of it.
    fn with_centrifuge(
        &mut self,
        id: ConnectionId,
        shared: &mut Shared,
        work: impl FnOnce(&mut Centrifuge, &mut Context<'_>) -> Flow,
    ) -> Then<Never> {
        let (Session::Centrifuge(session), Side::Server(route)) = (&mut self.session, &self.side)
        else {
            return Then::GoOn;
        };
        if self.phase != Phase::Open {
            return Then::GoOn;
        }
        let mut context = Context {
            id,
            route,
            lease: &mut self.lease,
            pace: self.pace.as_deref_mut(),
            is_relayed: self.is_response,
            shared,
        };
        match work(session, &mut context) {
            Flow::GoOn => Then::GoOn,
            Flow::Wait(block) => Then::Wait(block),
            Flow::Close(code, reason) => {
                self.close(id, code, &reason, shared);
                Then::GoOn
            }
        }
    }

    /// A whole message.
    pub(super) fn commands(
        &mut self,
        id: ConnectionId,
        message: Vec<u8>,
        shared: &mut Shared,
    ) -> Then<Never> {
        self.with_centrifuge(id, shared, |session, context| {
            session.message(message, context)
        })
    }

    /// What was waited for may have come.
    pub(super) fn go_on_with_commands(
        &mut self,
        id: ConnectionId,
        shared: &mut Shared,
    ) -> Then<Never> {
        self.with_centrifuge(id, shared, Centrifuge::go_on)
    }

    /// Returns whether commands that waited may go on.
    pub(super) fn command_answered(
        &mut self,
        id: ConnectionId,
        ticket: Ticket,
        answer: Answer,
        shared: &mut Shared,
    ) -> bool {
        let mut goes_on = true;
        self.with_centrifuge(id, shared, |session, context| {
            let flow = session.answered(ticket, answer, context);
            goes_on = flow.is_some();
            flow.unwrap_or(Flow::GoOn)
        });
        goes_on
    }

    /// Returns whether a command waited for that verdict, and may go on.
    pub(crate) fn judged(
        &mut self,
        id: ConnectionId,
        question: QuestionId,
        verdict: Verdict,
        shared: &mut Shared,
    ) -> bool {
        let mut goes_on = false;
        self.with_centrifuge(id, shared, |session, context| {
            let flow = session.judged(question, verdict, context);
            goes_on = flow.is_some();
            flow.unwrap_or(Flow::GoOn)
        });
        goes_on
    }

    /// Where its client is, for whoever decides.
    pub(crate) fn set_peer(&mut self, peer: IpAddr) {
        if let Session::Centrifuge(session) = &mut self.session {
            session.set_peer(peer);
        }
    }

    /// Returns whether a command waited for that.
    pub(crate) fn found(&mut self, finding: &Finding) -> bool {
        match &mut self.session {
            Session::Centrifuge(session) => session.found(finding),
            _ => false,
        }
    }

    /// Its messages are parts of a response.
    pub(crate) fn without_frames(mut self) -> Self {
        self.is_response = true;
        self
    }

    /// Whether its messages are parts of a response.
    pub(crate) fn is_response(&self) -> bool {
        self.is_response
    }

    /// Whether it has begun with commands.
    pub(crate) fn has_commands(&self) -> bool {
        matches!(&self.session, Session::Centrifuge(session) if session.has_commands())
    }

    /// Commands that came another way.
    pub(crate) fn relayed(
        &mut self,
        id: ConnectionId,
        relay: &Relay,
        shared: &mut Shared,
    ) -> Then<Never> {
        let Session::Centrifuge(session) = &self.session else {
            return Then::GoOn;
        };
        if !session.is_meant_by(relay) {
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
        self.with_centrifuge(id, shared, |session, context| {
            session.relayed(relay, context)
        })
    }

    /// Something that a back end wants.
    pub(super) fn centrifuge_instructed(
        &mut self,
        id: ConnectionId,
        instruction: &Arc<Instruction>,
        shared: &mut Shared,
    ) {
        self.with_centrifuge(id, shared, |session, context| {
            session.instructed(instruction, context)
        });
    }

    /// Publications of a channel were lost for the session.
    pub(super) fn centrifuge_lost(&mut self, id: ConnectionId, channel: &str, shared: &mut Shared) {
        self.with_centrifuge(id, shared, |session, context| {
            session.lost(channel, context)
        });
    }

    /// Something of the session is due.
    pub(super) fn centrifuge_due(&mut self, id: ConnectionId, shared: &mut Shared) {
        self.with_centrifuge(id, shared, Centrifuge::timeout);
    }

    /// The same while input waits for an answer: whoever can't speak has not gone silent.
    pub(crate) fn timeout_blocked(&mut self, id: ConnectionId, shared: &mut Shared) {
        self.with_centrifuge(id, shared, Centrifuge::timeout_blocked);
    }

    /// When there is something to do while input waits for an answer.
    pub(crate) fn blocked_deadline_ms(&self, shared: &Shared) -> u64 {
        let deadline_ms = match &self.session {
            Session::Centrifuge(session) => session.blocked_deadline_ms(shared.now),
            _ => u64::MAX,
        };
        deadline_ms
            .min(self.renewal_ms(shared.now))
            .min(self.expiry_ms(shared.now))
    }

    /// When there is something to do while somebody decides on a command.
    pub(crate) fn judged_deadline_ms(&self, shared: &Shared) -> u64 {
        let deadline_ms = match &self.session {
            Session::Centrifuge(session) => session.judged_deadline_ms(shared),
            _ => u64::MAX,
        };
        deadline_ms
            .min(self.renewal_ms(shared.now))
            .min(self.expiry_ms(shared.now))
    }

    /// Something is due while somebody decides, and nothing of the client can be heard.
    pub(crate) fn ping_while_judged(&mut self, id: ConnectionId, shared: &mut Shared) {
        if let Session::Centrifuge(session) = &mut self.session {
            session.heard();
        }
        self.centrifuge_due(id, shared);
    }

    /// Whether something is due earlier than was said last; that is known then.
    pub(crate) fn take_hurry(&mut self) -> bool {
        match &mut self.session {
            Session::Centrifuge(session) => session.take_hurry(),
            _ => false,
        }
    }
}
