//! The interface of the session to its transport. Most calls have no effect while the session is closing.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use veche_hub::{ConnectionId, HubReply, Ticket, UserCommand};
use veche_proto::websocket::MessageKind;
use veche_types::Now;

use super::{Centrifuge, Flow, SessionContext};
use crate::context::hooks::{HookDecision, HookRequestId};
use crate::context::identity::IdentityResult;
use crate::context::relay::EmulationRequest;
use crate::context::route::Route;
use crate::context::session::Session;
use crate::context::session_info::SessionInfo;
use crate::context::worker_context::Context;

impl Session for Box<Centrifuge> {
    fn info(&self) -> SessionInfo<'_> {
        Centrifuge::about(self)
    }

    fn handle_message(&mut self, _: MessageKind, data: &[u8], cx: &mut SessionContext<'_>) -> Flow {
        let mut message = cx.shared.requests.outboxes.spare();
        message.extend_from_slice(data);
        Centrifuge::message(self, message, cx)
    }

    fn counts_commands(&self) -> bool {
        !self.is_one_way()
    }

    fn has_input(&self) -> bool {
        self.has_commands()
    }

    fn resume(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        match cx.is_open {
            true => self.continue_input(cx),
            false => Flow::Continue,
        }
    }

    fn handle_answer(
        &mut self,
        ticket: Ticket,
        answer: HubReply,
        cx: &mut SessionContext<'_>,
    ) -> Option<Flow> {
        match cx.is_open {
            true => Centrifuge::handle_answer(self, ticket, answer, cx),
            false => Some(Flow::Continue),
        }
    }

    fn handle_hook_decision(
        &mut self,
        request_id: HookRequestId,
        decision: HookDecision,
        cx: &mut SessionContext<'_>,
    ) -> Option<Flow> {
        match cx.is_open {
            true => Centrifuge::handle_hook_decision(self, request_id, decision, cx),
            false => None,
        }
    }

    fn handle_identity(&mut self, identity_result: &IdentityResult) -> bool {
        Centrifuge::handle_identity(self, identity_result)
    }

    fn set_peer(&mut self, peer: IpAddr) {
        Centrifuge::set_peer(self, peer);
    }

    fn accepts_relay(&self, relay: &EmulationRequest) -> bool {
        Centrifuge::accepts_relay(self, relay)
    }

    fn handle_relay(&mut self, relay: &EmulationRequest, cx: &mut SessionContext<'_>) -> Flow {
        match cx.is_open {
            true => Centrifuge::handle_relay(self, relay, cx),
            false => Flow::Continue,
        }
    }

    fn matches_command(&self, instruction: &UserCommand, _: ConnectionId, _: &Context) -> bool {
        Centrifuge::matches_command(self, instruction)
    }

    fn handle_user_command(
        &mut self,
        instruction: &Arc<UserCommand>,
        cx: &mut SessionContext<'_>,
    ) -> Flow {
        match cx.is_open {
            true => Centrifuge::handle_user_command(self, instruction, cx),
            false => Flow::Continue,
        }
    }

    fn handle_lost_history(&mut self, channel: &str, cx: &mut SessionContext<'_>) -> Flow {
        match cx.is_open {
            true => Centrifuge::handle_lost_history(self, channel, cx),
            false => Flow::Continue,
        }
    }

    fn has_pings(&self) -> bool {
        true
    }

    fn deadline_ms(&self, shared: &Context) -> u64 {
        Centrifuge::deadline_ms(self, shared)
    }

    fn blocked_deadline_ms(&self, now: Now) -> u64 {
        Centrifuge::blocked_deadline_ms(self, now)
    }

    fn hook_deadline_ms(&self, shared: &Context) -> u64 {
        Centrifuge::hook_deadline_ms(self, shared)
    }

    fn handle_timeout(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        match cx.is_open {
            true => Centrifuge::timeout(self, cx),
            false => Flow::Continue,
        }
    }

    fn handle_blocked_timeout(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        match cx.is_open {
            true => Centrifuge::timeout_blocked(self, cx),
            false => Flow::Continue,
        }
    }

    fn confirm_alive(&mut self) {
        Centrifuge::confirm_alive(self);
    }

    fn take_deadline_change(&mut self) -> bool {
        Centrifuge::take_deadline_change(self)
    }

    fn renews_token(&self) -> bool {
        true
    }

    fn renews_by_hook(&self, route: &Route) -> bool {
        Centrifuge::renews_by_hook(self, route)
    }

    fn user_and_client<'s>(&'s self, _: ConnectionId, _: &'s Context) -> (&'s str, &'s str) {
        Centrifuge::user_and_client(self)
    }

    fn close_code_and_reason<'r>(&self, code: u16, reason: &'r str) -> (u16, Cow<'r, str>) {
        super::close_code_and_reason(code, reason)
    }

    fn write_close(&mut self, code: u16, reason: &str, cx: &mut SessionContext<'_>) {
        self.end_answer();
        if cx.is_relayed || self.is_one_way() {
            self.write_disconnect(cx.id, code, reason, cx.shared);
        }
    }

    fn handle_closed(&mut self, code: u16, reason: &str, cx: &mut SessionContext<'_>) {
        Centrifuge::report_disconnect(self, cx.id, (code, reason), cx.route(), cx.shared);
    }
}
