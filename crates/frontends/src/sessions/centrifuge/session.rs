//! The session's interface to its transport. While it is closing, calls have no effect.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use veche_hub::{Answer, ConnectionId, Instruction, Ticket};
use veche_proto::websocket::MessageKind;
use veche_types::Now;

use super::{Centrifuge, Context, Flow};
use crate::context::census::About;
use crate::context::hooks::{QuestionId, Verdict};
use crate::context::identity::Finding;
use crate::context::relay::Relay;
use crate::context::route::Route;
use crate::context::session::Session;
use crate::context::shared::Shared;

impl Session for Box<Centrifuge> {
    fn about(&self) -> About<'_> {
        Centrifuge::about(self)
    }

    fn message(&mut self, _: MessageKind, data: &[u8], cx: &mut Context<'_>) -> Flow {
        let mut message = cx.shared.ports.outboxes.spare();
        message.extend_from_slice(data);
        Centrifuge::message(self, message, cx)
    }

    fn counts_commands(&self) -> bool {
        !self.is_one_way()
    }

    fn has_input(&self) -> bool {
        self.has_commands()
    }

    fn resume(&mut self, cx: &mut Context<'_>) -> Flow {
        match cx.is_open {
            true => self.go_on(cx),
            false => Flow::GoOn,
        }
    }

    fn answered(&mut self, ticket: Ticket, answer: Answer, cx: &mut Context<'_>) -> Option<Flow> {
        match cx.is_open {
            true => Centrifuge::answered(self, ticket, answer, cx),
            false => Some(Flow::GoOn),
        }
    }

    fn judged(
        &mut self,
        question: QuestionId,
        verdict: Verdict,
        cx: &mut Context<'_>,
    ) -> Option<Flow> {
        match cx.is_open {
            true => Centrifuge::judged(self, question, verdict, cx),
            false => None,
        }
    }

    fn found(&mut self, finding: &Finding) -> bool {
        Centrifuge::found(self, finding)
    }

    fn set_peer(&mut self, peer: IpAddr) {
        Centrifuge::set_peer(self, peer);
    }

    fn is_meant_by(&self, relay: &Relay) -> bool {
        Centrifuge::is_meant_by(self, relay)
    }

    fn relayed(&mut self, relay: &Relay, cx: &mut Context<'_>) -> Flow {
        match cx.is_open {
            true => Centrifuge::relayed(self, relay, cx),
            false => Flow::GoOn,
        }
    }

    fn is_meant(&self, instruction: &Instruction, _: ConnectionId, _: &Shared) -> bool {
        Centrifuge::is_meant(self, instruction)
    }

    fn instructed(&mut self, instruction: &Arc<Instruction>, cx: &mut Context<'_>) -> Flow {
        match cx.is_open {
            true => Centrifuge::instructed(self, instruction, cx),
            false => Flow::GoOn,
        }
    }

    fn lost(&mut self, channel: &str, cx: &mut Context<'_>) -> Flow {
        match cx.is_open {
            true => Centrifuge::lost(self, channel, cx),
            false => Flow::GoOn,
        }
    }

    fn has_pings(&self) -> bool {
        true
    }

    fn deadline_ms(&self, shared: &Shared) -> u64 {
        Centrifuge::deadline_ms(self, shared)
    }

    fn blocked_deadline_ms(&self, now: Now) -> u64 {
        Centrifuge::blocked_deadline_ms(self, now)
    }

    fn judged_deadline_ms(&self, shared: &Shared) -> u64 {
        Centrifuge::judged_deadline_ms(self, shared)
    }

    fn timeout(&mut self, cx: &mut Context<'_>) -> Flow {
        match cx.is_open {
            true => Centrifuge::timeout(self, cx),
            false => Flow::GoOn,
        }
    }

    fn timeout_blocked(&mut self, cx: &mut Context<'_>) -> Flow {
        match cx.is_open {
            true => Centrifuge::timeout_blocked(self, cx),
            false => Flow::GoOn,
        }
    }

    fn heard(&mut self) {
        Centrifuge::heard(self);
    }

    fn take_hurry(&mut self) -> bool {
        Centrifuge::take_hurry(self)
    }

    fn renews_token(&self) -> bool {
        true
    }

    fn asks_for_time(&self, route: &Route) -> bool {
        Centrifuge::asks_for_time(self, route)
    }

    fn names<'s>(&'s self, _: ConnectionId, _: &'s Shared) -> (&'s str, &'s str) {
        Centrifuge::names(self)
    }

    fn words<'r>(&self, code: u16, reason: &'r str) -> (u16, Cow<'r, str>) {
        super::words(code, reason)
    }

    fn closing(&mut self, code: u16, reason: &str, cx: &mut Context<'_>) {
        self.end_answer();
        if cx.is_relayed || self.is_one_way() {
            self.write_disconnect(cx.id, code, reason, cx.shared);
        }
    }

    fn over(&mut self, code: u16, reason: &str, cx: &mut Context<'_>) {
        Centrifuge::over(self, cx.id, (code, reason), cx.route(), cx.shared);
    }
}
