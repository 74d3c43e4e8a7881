//! The interface of the session to its transport, and the execution of messages: their commands are read and executed
//! one after the other. Most calls have no effect while the session is closing.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use veche_centrifuge::{ClientRequest, Command, DecodeLimits, DisconnectCode, Outcome};
use veche_hub::{ChannelQuery, ConnectionId, HubReply, Ticket, UserCommand};
use veche_proto::websocket::MessageKind;
use veche_types::Now;

use super::frame::ReplyFrame;
use super::{Centrifuge, CommandStatus, Flow, PendingTicket, SessionContext, State};
use crate::context::hooks::{HookDecision, HookRequestId};
use crate::context::identity::IdentityResult;
use crate::context::log_note::NoteLevel;
use crate::context::rate_limiter::RateDecision;
use crate::context::relay::EmulationRequest;
use crate::context::route::Route;
use crate::context::session::Session;
use crate::context::session_info::SessionInfo;
use crate::context::step::WaitReason;
use crate::context::work_budget;
use crate::context::worker_context::Context;
use crate::outbox::ANSWERS_BYTES_HIGH;

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

impl Centrifuge {
    /// Handles a complete message. Its buffer `bytes` is returned to the outboxes' pool once all commands are executed.
    pub(super) fn message(&mut self, bytes: Vec<u8>, cx: &mut SessionContext<'_>) -> Flow {
        debug_assert!(
            self.waiting.is_none(),
            "no input is processed while a command waits"
        );
        self.is_pinged = false;
        self.message = bytes;
        (self.taken, self.commands) = (0, 0);
        self.continue_input(cx)
    }

    /// Continues with the commands that are not executed yet.
    fn continue_input(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        if let State::Refused(code) = self.state {
            return code.into();
        }
        loop {
            let flow = match self.continue_reply(cx) {
                Flow::Continue => self.continue_message(cx),
                flow => return flow,
            };
            if self.answering.is_some() {
                // A command has a long reply, which has to be written before the next command is executed.
                continue;
            }
            if flow != Flow::Continue {
                return flow;
            }
            let Some(commands) = self.relays.next() else {
                return Flow::Continue;
            };
            self.message = commands;
            (self.taken, self.commands) = (0, 0);
        }
    }

    /// Writes the next slices of a long reply.
    fn continue_reply(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        let Some(answering) = &mut self.answering else {
            return Flow::Continue;
        };
        let flow = answering.write_next(self.encoding, cx);
        if !matches!(flow, Flow::Wait(_)) {
            self.answering = None;
        }
        flow
    }

    /// Drops the unwritten part of a long reply, because the session has ended.
    fn end_answer(&mut self) {
        self.answering = None;
    }

    fn continue_message(&mut self, cx: &mut SessionContext<'_>) -> Flow {
        match self.waiting {
            None => {}
            Some(PendingTicket::HookDecision(_)) => return Flow::Wait(WaitReason::HookDecision),
            Some(_) => return Flow::Wait(WaitReason::Answer),
        }
        let message = std::mem::take(&mut self.message);
        if message.capacity() == 0 {
            return Flow::Continue;
        }
        let bytes = cx.shared.requests.outboxes.spare();
        let mut frame = ReplyFrame::new(self.push_encoding(), bytes);
        let mut flow = match self.is_one_way() {
            true => self.listen(&message, &mut frame, cx),
            false => self.process_commands(&message, &mut frame, cx),
        };
        if let Some(code) = frame.end() {
            flow = code.into();
        }
        frame.send(cx.id, &mut cx.shared.requests.outboxes);
        cx.shared.requests.outboxes.recycle(frame.into_bytes());
        match flow {
            Flow::Wait(_) => self.message = message,
            Flow::Continue | Flow::Close(..) => cx.shared.requests.outboxes.recycle(message),
        }
        flow
    }

    fn process_commands(
        &mut self,
        message: &[u8],
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> Flow {
        let limits = DecodeLimits {
            message_bytes_max: usize::MAX,
            commands_max: DecodeLimits::default()
                .commands_max
                .saturating_sub(self.commands),
        };
        let begin = self.taken;
        let mut commands = self.encoding.commands(&message[begin..], limits);
        loop {
            let command = match commands.next() {
                Some(Ok(command)) => command,
                Some(Err(malformed)) => {
                    let what = format!("closed with 3501: {malformed}");
                    cx.shared.log(cx.id, NoteLevel::Info, what);
                    cx.shared.stats.protocol_errors.add(1);
                    return DisconnectCode::BadRequest.into();
                }
                // A message without any command is invalid.
                None if self.commands == 0 => return DisconnectCode::BadRequest.into(),
                None => return Flow::Continue,
            };
            let paced = match self.is_counted {
                true => RateDecision::Allow,
                false => cx.check_command_rate(),
            };
            match paced {
                RateDecision::Allow | RateDecision::AllowThenWait => self.is_counted = true,
                RateDecision::Wait => return Flow::Wait(WaitReason::RateLimit),
                RateDecision::Drop => {
                    cx.shared.stats.messages_dropped.add(1);
                    self.taken = begin + commands.consumed();
                    self.commands += 1;
                    continue;
                }
                RateDecision::Close => {
                    cx.shared.count_rate_limited(cx.id);
                    return DisconnectCode::TooManyRequests.into();
                }
            }
            let done = self.command(&command, frame, cx);
            self.log_outcome(&command.request, &done, frame, cx);
            if let CommandStatus::Not(block) = done {
                return Flow::Wait(block);
            }
            self.taken = begin + commands.consumed();
            self.commands += 1;
            self.is_counted = false;
            self.has_requested_keys = false;
            self.hooks.forget();
            match done {
                CommandStatus::Yes | CommandStatus::Not(_) => {}
                CommandStatus::Waits(waiting) => {
                    self.waiting = Some(waiting);
                    return Flow::Wait(WaitReason::Answer);
                }
                CommandStatus::Answers(answering) => {
                    self.answering = Some(answering);
                    return Flow::Wait(WaitReason::Output);
                }
                CommandStatus::Close(code) => return code.into(),
                CommandStatus::End(code, reason) => return Flow::Close(code, reason),
            }
            cx.shared.work.charge(work_budget::COMMAND);
            if cx.shared.work.is_spent() {
                return Flow::Wait(WaitReason::Turn);
            }
            let queued = cx.shared.requests.outboxes.of(cx.id).queued();
            // Comparisons for deltas are expensive, so there is at most one command with them per turn.
            let has_compared = std::mem::take(&mut self.has_compared);
            if has_compared || queued + frame.len() > ANSWERS_BYTES_HIGH {
                return Flow::Wait(WaitReason::Output);
            }
        }
    }

    fn command(
        &mut self,
        command: &Command<'_>,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> CommandStatus {
        let id = command.id;
        if self.state == State::Fresh {
            return match &command.request {
                ClientRequest::Connect(request) => self.connect(id, request, frame, cx),
                _ => CommandStatus::Close(DisconnectCode::BadRequest),
            };
        }
        self.request(id, &command.request, frame, cx)
    }

    fn request(
        &mut self,
        id: u32,
        request: &ClientRequest<'_>,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> CommandStatus {
        match request {
            ClientRequest::Connect(_) => CommandStatus::Close(DisconnectCode::BadRequest),
            ClientRequest::Subscribe(request) => self.subscribe(id, request, frame, cx),
            ClientRequest::Unsubscribe(request) => {
                self.unsubscribe(id, &request.channel, frame, cx)
            }
            ClientRequest::Publish(request) => self.publish(id, request, frame, cx),
            ClientRequest::Presence(request) => {
                self.query_channel(id, &request.channel, ChannelQuery::Presence, frame, cx)
            }
            ClientRequest::PresenceStats(request) => {
                self.query_channel(id, &request.channel, ChannelQuery::PresenceStats, frame, cx)
            }
            ClientRequest::History(request) => self.history(id, request, frame, cx),
            ClientRequest::Ping => {
                frame.reply(id, Outcome::Ping);
                CommandStatus::Yes
            }
            ClientRequest::Send(request) => self.send(id, request, frame, cx),
            ClientRequest::Rpc(request) => self.rpc(id, request, frame, cx),
            ClientRequest::Refresh(request) => self.refresh(id, request, frame, cx),
            ClientRequest::SubRefresh(request) => self.sub_refresh(id, request, frame, cx),
            // A pong needs no handling, since any message proves that the client is alive.
            ClientRequest::Pong => CommandStatus::Yes,
        }
    }
}
