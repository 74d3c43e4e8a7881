//! Commands that need a hook decision: requests for decisions, and checks of the decisions.
//!
//! A command that needs a decision is kept as bytes, and is parsed again and executed when the
//! decision arrives ([`crate::context::hooks`] explains why). Decisions of all targets are
//! validated here.

use std::net::IpAddr;
use std::sync::Arc;

use veche_centrifuge::{CommandError, DisconnectCode, ErrorCode, Outcome, PublicationData};
use veche_hub::ConnectionId;
use veche_proto::http::Head;
use veche_types::codes::APPLICATION_CODES;

use super::commands::refuse;
use super::connecting::unique;
use super::frame::ReplyFrame;
use super::{Centrifuge, CommandStatus, Flow, PendingTicket, SessionContext, State, writing};
use crate::context::hooks::{
    HookCaller, HookDecision, HookGrant, HookKind, HookRequest, HookRequestId, HookTarget,
    MaskedToken,
};
use crate::context::log_note::NoteLevel;
use crate::context::route::Route;
use crate::context::step::WaitReason;
use crate::context::worker_context::Context;

/// The hook requests and decisions of one session.
#[derive(Default)]
pub(super) struct HookState {
    /// The client's properties for hook requests; `None` if its route has no hooks.
    caller: Option<Arc<HookCaller>>,
    /// The decision on the next command, once it has arrived.
    decision: Option<HookDecision>,
    /// The number of the last hook request.
    last: u32,
    /// Number of the headers in `caller` that came from the handshake.
    pub(super) headers: usize,
    /// Monotonic time in milliseconds at which the pending request was sent.
    asked_ms: u64,
    /// The subscribe command that waits for a hook's decision or for the keys that verify its token, if there is
    /// one.
    subscribing: Option<PendingSubscribe>,
    /// The pending request to extend the connection, if there is one.
    pub(super) refresh: Option<HookRequestId>,
}

/// A subscribe command that waits for a hook's decision or for the keys that verify its token.
struct PendingSubscribe {
    channel: Box<str>,
    /// Whether a back end has unsubscribed the client since the command arrived; this takes precedence over any
    /// decision.
    is_withdrawn: bool,
}

/// The content of a hook request, without its target.
#[derive(Default)]
pub(super) struct HookQuery<'a> {
    pub(super) channel: &'a str,
    pub(super) method: &'a str,
    pub(super) token: &'a str,
    pub(super) data: Option<PublicationData<'a>>,
    pub(super) channels: Vec<Box<str>>,
}

/// Maximum number of hook requests for connect commands per connection.
const CONNECTS_MAX: u32 = 3;

impl HookState {
    /// Clears the stored decision and the pending subscribe command, because their command was executed.
    pub(super) fn forget(&mut self) {
        self.decision = None;
        self.subscribing = None;
    }

    /// Returns whether the decision on the next command has arrived.
    pub(super) fn has_decision(&self) -> bool {
        self.decision.is_some()
    }

    /// Records that the next command subscribes to this channel and waits for a hook's decision or for the keys
    /// that verify its token.
    pub(super) fn begin_subscribing(&mut self, channel: &str) {
        if self.subscribing.is_none() {
            self.subscribing = Some(PendingSubscribe {
                channel: channel.into(),
                is_withdrawn: false,
            });
        }
    }

    /// Records that a back end has unsubscribed the client from a channel while the decision on its subscription is
    /// pending.
    pub(super) fn withdraw(&mut self, channel: &str) {
        if let Some(pending) = &mut self.subscribing
            && *pending.channel == *channel
        {
            pending.is_withdrawn = true;
        }
    }

    /// Returns whether a back end has unsubscribed the client since its pending subscribe command arrived.
    pub(super) fn is_withdrawn(&self) -> bool {
        let pending = self.subscribing.as_ref();
        pending.is_some_and(|pending| pending.is_withdrawn)
    }

    /// Stores the grant of a command again, because the command could not be executed now and will
    /// be retried.
    pub(super) fn put_back(&mut self, grant: Box<HookGrant>) {
        self.decision = Some(HookDecision::Granted(grant));
    }

    fn next(&mut self) -> HookRequestId {
        self.last = self.last.wrapping_add(1);
        HookRequestId(self.last)
    }
}

impl Centrifuge {
    /// Prepares hook requests with the data of the handshake, if the route has hooks.
    pub(crate) fn prepare_hook_requests(
        &mut self,
        transport: &'static str,
        head: &Head<'_>,
        route: &Route,
    ) {
        if let Some(targets) = &route.hook_targets {
            let caller = HookCaller::new(transport, self.encoding, head, &targets.headers);
            self.hooks.headers = caller.headers.len();
            self.hooks.caller = Some(Arc::new(caller));
        }
    }

    /// Sets the client's address.
    pub(crate) fn set_peer(&mut self, peer: IpAddr) {
        self.update_caller(|caller| caller.address = peer);
    }

    /// Changes the client's properties for later hook requests.
    pub(super) fn update_caller(&mut self, change: impl FnOnce(&mut HookCaller)) {
        if let Some(caller) = &mut self.hooks.caller {
            change(Arc::make_mut(caller));
        }
    }

    /// Returns the grant for the next command; `None` if no hook decides on it.
    ///
    /// # Errors
    /// The command is not executed: it waits for a decision, or the decision is an error or a disconnect.
    pub(super) fn next_decision(
        &mut self,
        id: u32,
        kind: HookKind,
        ask: HookQuery<'_>,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> Result<Option<Box<HookGrant>>, CommandStatus> {
        // A decision that has arrived is applied even if a reload has removed the hook.
        let decision = self.hooks.decision.take();
        let is_unhandled = matches!(decision, Some(HookDecision::Unhandled));
        let Some(decision) = decision.filter(|_| !is_unhandled) else {
            let targets = cx.route().hook_targets.as_deref();
            let target = targets.and_then(|all| match is_unhandled {
                true => all.beside_app(kind),
                false => all.of(kind),
            });
            let Some(target) = target else {
                return Ok(None);
            };
            // Limits connect attempts of unauthenticated clients, so that they can't starve the hook.
            if kind == HookKind::Connect && self.hooks.last >= CONNECTS_MAX {
                return Err(CommandStatus::Close(DisconnectCode::Stale));
            }
            return Err(self.send_hook_request(target, kind, ask, cx));
        };
        match check_decision(decision) {
            Ok(HookDecision::Granted(grant)) => Ok(Some(grant)),
            // A `send` command has no reply, so the client receives no error.
            Ok(HookDecision::Error { .. } | HookDecision::Failed) if kind == HookKind::Message => {
                Err(CommandStatus::Yes)
            }
            Ok(HookDecision::Error {
                code,
                message,
                is_temporary,
            }) => {
                let error = CommandError {
                    code,
                    message: &message,
                    is_temporary,
                };
                frame.reply(id, Outcome::Error(error));
                Err(CommandStatus::Yes)
            }
            Ok(HookDecision::Disconnect { code, reason }) => {
                Err(CommandStatus::End(code, String::from(reason).into()))
            }
            Ok(HookDecision::Failed | HookDecision::Unhandled) => {
                Err(refuse(id, ErrorCode::Internal, frame))
            }
            Err(why) => Err(self.hook_failed(id, kind, why, frame, cx)),
        }
    }

    /// Logs an invalid decision and treats it as a failure of the hook.
    pub(super) fn hook_failed(
        &self,
        id: u32,
        kind: HookKind,
        why: &str,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> CommandStatus {
        let what = format!("hook {}: {why}", kind.name());
        cx.shared.log(cx.id, NoteLevel::Warn, what);
        match kind {
            HookKind::Message => CommandStatus::Yes,
            _ => refuse(id, ErrorCode::Internal, frame),
        }
    }

    fn send_hook_request(
        &mut self,
        target: HookTarget,
        kind: HookKind,
        ask: HookQuery<'_>,
        cx: &mut SessionContext<'_>,
    ) -> CommandStatus {
        match self.hook_request(target, kind, ask, cx) {
            Some(request_id) => {
                self.hooks.asked_ms = cx.shared.now.mono_ms;
                self.waiting = Some(PendingTicket::HookDecision(request_id));
                CommandStatus::Not(WaitReason::HookDecision)
            }
            None => CommandStatus::Close(DisconnectCode::Internal),
        }
    }

    pub(super) fn hook_request(
        &mut self,
        target: HookTarget,
        kind: HookKind,
        ask: HookQuery<'_>,
        cx: &mut SessionContext<'_>,
    ) -> Option<HookRequestId> {
        self.ensure_client(cx);
        let caller = Arc::clone(self.hooks.caller.as_ref()?);
        let id = self.hooks.next();
        cx.shared.requests.hook_requests.push_back(HookRequest {
            session: cx.id,
            id,
            target,
            kind,
            caller,
            user: self.info.user.clone(),
            channel: ask.channel.into(),
            method: ask.method.into(),
            token: MaskedToken(ask.token.into()),
            data: ask.data.map(|data| writing::payload(data).to_payload()),
            channels: ask.channels,
            disconnect: None,
        });
        Some(id)
    }

    /// Reports the end of the session to the route's disconnect hook, if there is one; at most
    /// once.
    pub(crate) fn report_disconnect(
        &mut self,
        id: ConnectionId,
        (code, reason): (u16, &str),
        route: &Route,
        shared: &mut Context,
    ) {
        if self.state != State::Connected {
            return;
        }
        let targets = route.hook_targets.as_deref();
        let target = targets.and_then(|targets| targets.of(HookKind::Disconnect));
        // Taking the caller prevents further hook requests of the session.
        let (Some(target), Some(caller)) = (target, self.hooks.caller.take()) else {
            return;
        };
        let (code, reason) = super::close_code_and_reason(code, reason);
        shared.requests.hook_requests.push_back(HookRequest {
            session: id,
            id: self.hooks.next(),
            target,
            kind: HookKind::Disconnect,
            caller,
            user: self.info.user.clone(),
            channel: Box::default(),
            method: Box::default(),
            token: MaskedToken::default(),
            data: None,
            channels: Vec::new(),
            disconnect: Some((code, reason.into())),
        });
    }

    /// Assigns the client's id if it has none yet. Has to be called before the first hook request.
    pub(super) fn ensure_client(&mut self, cx: &mut SessionContext<'_>) {
        if self.info.client.is_empty() {
            let client = unique(cx.shared.requests.outboxes.masks.bytes());
            Arc::make_mut(&mut self.info).client = client.clone();
            self.update_caller(|caller| caller.client = client);
        }
    }

    /// Handles a decision; returns the next step if a command waited for it, otherwise `None`.
    pub(crate) fn handle_hook_decision(
        &mut self,
        request_id: HookRequestId,
        decision: HookDecision,
        cx: &mut SessionContext<'_>,
    ) -> Option<Flow> {
        if !matches!(self.waiting, Some(PendingTicket::HookDecision(open)) if open == request_id) {
            return self.handle_renewal(request_id, decision, cx);
        }
        if self.state == State::Fresh {
            // The time that the hook took does not count against the time within which the client has to connect.
            self.pinged_ms += cx.shared.now.mono_ms - self.hooks.asked_ms;
        }
        self.waiting = None;
        self.hooks.decision = Some(decision);
        Some(Flow::Continue)
    }
}

pub(super) fn check_decision(decision: HookDecision) -> Result<HookDecision, &'static str> {
    match &decision {
        HookDecision::Error { code: 0, .. } => Err("an error code must be at least 1"),
        HookDecision::Disconnect { code, .. } if !APPLICATION_CODES.contains(code) => {
            Err("a disconnect code must be from 3000 to 4999")
        }
        _ => Ok(decision),
    }
}
