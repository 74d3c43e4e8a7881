//! Commands that are carried out only if somebody else says so: what is asked, and what a verdict comes to.
//!
//! A command that asks is left as it is and looked at again when the verdict has come ([`crate::context::hooks`] says why). What
//! whoever decides says is checked here, once for all of them.

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
    Credential, HookCaller, HookDecision, HookGrant, HookKind, HookRequest, HookRequestId,
    HookTarget,
};
use crate::context::log_note::NoteLevel;
use crate::context::route::Route;
use crate::context::step::WaitReason;
use crate::context::worker_context::Context;

/// What a session keeps for what it asks.
#[derive(Default)]
pub(super) struct HookState {
    /// As whom it asks; `None` where its route asks nobody.
    caller: Option<Arc<HookCaller>>,
    /// On the next command.
    decision: Option<HookDecision>,
    /// Of the last question.
    last: u32,
    /// So many headers are its request's own.
    pub(super) headers: usize,
    /// When the next command was asked about.
    asked_ms: u64,
    /// The channel to which the next command subscribes, while that is decided on.
    subscribing: Option<PendingSubscribe>,
    /// Whether the connection may stay, which is being asked.
    pub(super) refresh: Option<HookRequestId>,
}

/// A subscribe command that waits for a decision, or for keys.
struct PendingSubscribe {
    channel: Box<str>,
    /// A back end has unsubscribed the client meanwhile, which counts, whatever is decided.
    is_withdrawn: bool,
}

/// What is asked, beside by whom.
#[derive(Default)]
pub(super) struct HookQuery<'a> {
    pub(super) channel: &'a str,
    pub(super) method: &'a str,
    pub(super) token: &'a str,
    pub(super) data: Option<PublicationData<'a>>,
    pub(super) channels: Vec<Box<str>>,
}

/// So often one connection may ask who it is.
const CONNECTS_MAX: u32 = 3;

impl HookState {
    /// The command that asked is done with.
    pub(super) fn forget(&mut self) {
        self.decision = None;
        self.subscribing = None;
    }

    /// Whether the next command has asked, and has its verdict.
    pub(super) fn has_decision(&self) -> bool {
        self.decision.is_some()
    }

    /// The next command waits for a decision on a subscription to that channel.
    pub(super) fn begin_subscribing(&mut self, channel: &str) {
        if self.subscribing.is_none() {
            self.subscribing = Some(PendingSubscribe {
                channel: channel.into(),
                is_withdrawn: false,
            });
        }
    }

    /// The client is unsubscribed from that channel, which may be about to be decided on.
    pub(super) fn withdraw(&mut self, channel: &str) {
        if let Some(pending) = &mut self.subscribing
            && *pending.channel == *channel
        {
            pending.is_withdrawn = true;
        }
    }

    /// Whether the client was unsubscribed while the next command was decided on.
    pub(super) fn is_withdrawn(&self) -> bool {
        let pending = self.subscribing.as_ref();
        pending.is_some_and(|pending| pending.is_withdrawn)
    }

    /// The command that asked could not be carried out now, and will be.
    pub(super) fn put_back(&mut self, grant: Box<HookGrant>) {
        self.decision = Some(HookDecision::Granted(grant));
    }

    fn next(&mut self) -> HookRequestId {
        self.last = self.last.wrapping_add(1);
        HookRequestId(self.last)
    }
}

impl Centrifuge {
    /// Where its route has commands decided on, it asks with what its request says.
    pub(crate) fn may_send_request(
        &mut self,
        transport: &'static str,
        head: &Head<'_>,
        route: &Route,
    ) {
        if let Some(deciders) = &route.hook_targets {
            let asker = HookCaller::new(transport, self.encoding, head, &deciders.headers);
            self.hooks.headers = asker.headers.len();
            self.hooks.caller = Some(Arc::new(asker));
        }
    }

    /// Where it comes from.
    pub(crate) fn set_peer(&mut self, peer: IpAddr) {
        self.update_caller(|asker| asker.address = peer);
    }

    /// Changes as whom it asks from now on.
    pub(super) fn update_caller(&mut self, change: impl FnOnce(&mut HookCaller)) {
        if let Some(asker) = &mut self.hooks.caller {
            change(Arc::make_mut(asker));
        }
    }

    /// What has been decided on the next command; `None` where nobody decides on such.
    ///
    /// # Errors
    /// The command is not carried out, now or at all.
    pub(super) fn log_decision(
        &mut self,
        id: u32,
        kind: HookKind,
        ask: HookQuery<'_>,
        frame: &mut ReplyFrame,
        cx: &mut SessionContext<'_>,
    ) -> Result<Option<Box<HookGrant>>, CommandStatus> {
        // Also where nobody decides on that any more: who was asked has said so.
        let Some(verdict) = self.hooks.decision.take() else {
            let decider = cx
                .route()
                .hook_targets
                .as_deref()
                .and_then(|all| all.of(kind));
            let Some(decider) = decider else {
                return Ok(None);
            };
            // Who is nobody yet may ask a few times, and not keep others from it.
            if kind == HookKind::Connect && self.hooks.last >= CONNECTS_MAX {
                return Err(CommandStatus::Close(DisconnectCode::Stale));
            }
            return Err(self.send_hook_request(decider, kind, ask, cx));
        };
        match check_decision(verdict) {
            Ok(HookDecision::Granted(grant)) => Ok(Some(grant)),
            // Nobody waits for a reply.
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
            Ok(HookDecision::Failed) => Err(refuse(id, ErrorCode::Internal, frame)),
            Err(why) => Err(self.hook_failed(id, kind, why, frame, cx)),
        }
    }

    /// What was decided makes no sense.
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
        decider: HookTarget,
        kind: HookKind,
        ask: HookQuery<'_>,
        cx: &mut SessionContext<'_>,
    ) -> CommandStatus {
        match self.hook_request(decider, kind, ask, cx) {
            Some(question) => {
                self.hooks.asked_ms = cx.shared.now.mono_ms;
                self.waiting = Some(PendingTicket::Verdict(question));
                CommandStatus::Not(WaitReason::HookDecision)
            }
            None => CommandStatus::Close(DisconnectCode::Internal),
        }
    }

    pub(super) fn hook_request(
        &mut self,
        decider: HookTarget,
        kind: HookKind,
        ask: HookQuery<'_>,
        cx: &mut SessionContext<'_>,
    ) -> Option<HookRequestId> {
        self.ensure_client(cx);
        let asker = Arc::clone(self.hooks.caller.as_ref()?);
        let id = self.hooks.next();
        cx.shared.requests.hook_requests.push_back(HookRequest {
            session: cx.id,
            id,
            target: decider,
            kind,
            caller: asker,
            user: self.info.user.clone(),
            channel: ask.channel.into(),
            method: ask.method.into(),
            token: Credential(ask.token.into()),
            data: ask.data.map(|data| writing::payload(data).to_payload()),
            channels: ask.channels,
            disconnect: None,
        });
        Some(id)
    }

    /// It is over; whoever wants to know is told, once.
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
        let deciders = route.hook_targets.as_deref();
        let decider = deciders.and_then(|deciders| deciders.of(HookKind::Disconnect));
        // It asks nothing any more.
        let (Some(decider), Some(asker)) = (decider, self.hooks.caller.take()) else {
            return;
        };
        let (code, reason) = super::close_code_and_reason(code, reason);
        shared.requests.hook_requests.push_back(HookRequest {
            session: id,
            id: self.hooks.next(),
            target: decider,
            kind: HookKind::Disconnect,
            caller: asker,
            user: self.info.user.clone(),
            channel: Box::default(),
            method: Box::default(),
            token: Credential::default(),
            data: None,
            channels: Vec::new(),
            disconnect: Some((code, reason.into())),
        });
    }

    /// It has a name among connections from its first question on.
    pub(super) fn ensure_client(&mut self, cx: &mut SessionContext<'_>) {
        if self.info.client.is_empty() {
            let client = unique(cx.shared.requests.outboxes.masks.bytes());
            Arc::make_mut(&mut self.info).client = client.clone();
            self.update_caller(|asker| asker.client = client);
        }
    }

    /// Something was decided; how it goes on, if anything waited for that.
    pub(crate) fn handle_hook_decision(
        &mut self,
        question: HookRequestId,
        verdict: HookDecision,
        cx: &mut SessionContext<'_>,
    ) -> Option<Flow> {
        if !matches!(self.waiting, Some(PendingTicket::Verdict(open)) if open == question) {
            return self.handle_renewal(question, verdict, cx);
        }
        if self.state == State::Fresh {
            // How long others took does not count against the client.
            self.pinged_ms += cx.shared.now.mono_ms - self.hooks.asked_ms;
        }
        self.waiting = None;
        self.hooks.decision = Some(verdict);
        Some(Flow::Continue)
    }
}

/// Whether a verdict makes sense.
pub(super) fn check_decision(verdict: HookDecision) -> Result<HookDecision, &'static str> {
    match &verdict {
        HookDecision::Error { code: 0, .. } => Err("an error has a code from 1 on"),
        HookDecision::Disconnect { code, .. } if !APPLICATION_CODES.contains(code) => {
            Err("a disconnect has a code from 3000 to 4999")
        }
        _ => Ok(verdict),
    }
}
