//! Commands that need a hook decision: requests, and the evaluation of decisions.
//!
//! A command that needs a decision stays unparsed and is processed again once the decision arrives
//! ([`crate::context::hooks`] explains why). Decisions are validated here for all targets.

use std::net::IpAddr;
use std::sync::Arc;

use veche_centrifuge::{CommandError, Data, DisconnectCode, ErrorCode, Outcome};
use veche_hub::ConnectionId;
use veche_proto::http::Head;
use veche_types::codes::CHOSEN;

use super::commands::refuse;
use super::connecting::unique;
use super::frame::Frame;
use super::{Centrifuge, Context, Done, Flow, State, Waiting, writing};
use crate::context::hooks::{
    Asker, Credential, Decider, Grant, Kind, Question, QuestionId, Verdict,
};
use crate::context::note::NoteLevel;
use crate::context::route::Route;
use crate::context::shared::Shared;
use crate::context::step::Block;

/// The hook state of a session.
#[derive(Default)]
pub(super) struct Deciding {
    /// The client's properties for requests; `None` if its route has no hooks.
    asker: Option<Arc<Asker>>,
    /// The decision on the next command.
    verdict: Option<Verdict>,
    /// Number of the last request.
    last: u32,
    /// Number of headers from the handshake.
    pub(super) headers: usize,
    /// When the pending request was sent.
    asked_ms: u64,
    /// The channel of a pending subscribe command.
    subscribing: Option<Subscribing>,
    /// The pending request to extend the connection.
    pub(super) refresh: Option<QuestionId>,
}

/// A subscribe command that waits for a decision or for keys.
struct Subscribing {
    channel: Box<str>,
    /// A back end has unsubscribed the client in the meantime, which takes precedence over any decision.
    is_withdrawn: bool,
}

/// The content of a request without its target.
#[derive(Default)]
pub(super) struct Ask<'a> {
    pub(super) channel: &'a str,
    pub(super) method: &'a str,
    pub(super) token: &'a str,
    pub(super) data: Option<Data<'a>>,
    pub(super) channels: Vec<Box<str>>,
}

/// Maximum number of connect requests per connection.
const CONNECTS_MAX: u32 = 3;

impl Deciding {
    /// Clears the state of a completed command.
    pub(super) fn forget(&mut self) {
        self.verdict = None;
        self.subscribing = None;
    }

    /// Returns whether the decision on the next command is available.
    pub(super) fn has_verdict(&self) -> bool {
        self.verdict.is_some()
    }

    /// Records that the next command waits for a decision on a subscription to this channel.
    pub(super) fn begin_subscribing(&mut self, channel: &str) {
        if self.subscribing.is_none() {
            self.subscribing = Some(Subscribing {
                channel: channel.into(),
                is_withdrawn: false,
            });
        }
    }

    /// Records that the client is unsubscribed from a channel on which a decision is pending.
    pub(super) fn withdraw(&mut self, channel: &str) {
        if let Some(pending) = &mut self.subscribing
            && *pending.channel == *channel
        {
            pending.is_withdrawn = true;
        }
    }

    /// Returns whether the client was unsubscribed while the decision on the next command was pending.
    pub(super) fn is_withdrawn(&self) -> bool {
        let pending = self.subscribing.as_ref();
        pending.is_some_and(|pending| pending.is_withdrawn)
    }

    /// Returns a grant whose command could not be executed now and will be retried.
    pub(super) fn put_back(&mut self, grant: Box<Grant>) {
        self.verdict = Some(Verdict::Granted(grant));
    }

    fn next(&mut self) -> QuestionId {
        self.last = self.last.wrapping_add(1);
        QuestionId(self.last)
    }
}

impl Centrifuge {
    /// Prepares hook requests with the handshake's data, if the route has hooks.
    pub(crate) fn may_ask(&mut self, transport: &'static str, head: &Head<'_>, route: &Route) {
        if let Some(deciders) = &route.deciders {
            let asker = Asker::new(transport, self.encoding, head, &deciders.headers);
            self.deciding.headers = asker.headers.len();
            self.deciding.asker = Some(Arc::new(asker));
        }
    }

    /// Sets the client's address.
    pub(crate) fn set_peer(&mut self, peer: IpAddr) {
        self.change_asker(|asker| asker.address = peer);
    }

    /// Changes the client's properties in later requests.
    pub(super) fn change_asker(&mut self, change: impl FnOnce(&mut Asker)) {
        if let Some(asker) = &mut self.deciding.asker {
            change(Arc::make_mut(asker));
        }
    }

    /// Returns the decision on the next command; `None` without a hook.
    ///
    /// # Errors
    /// The command is not executed, now or at all.
    pub(super) fn decided(
        &mut self,
        id: u32,
        kind: Kind,
        ask: Ask<'_>,
        frame: &mut Frame,
        cx: &mut Context<'_>,
    ) -> Result<Option<Box<Grant>>, Done> {
        // Also if the hook was removed: its decision still counts.
        let Some(verdict) = self.deciding.verdict.take() else {
            let decider = cx.route().deciders.as_deref().and_then(|all| all.of(kind));
            let Some(decider) = decider else {
                return Ok(None);
            };
            // Limits connect attempts of unauthenticated clients, so that they can't starve the hook.
            if kind == Kind::Connect && self.deciding.last >= CONNECTS_MAX {
                return Err(Done::Close(DisconnectCode::Stale));
            }
            return Err(self.ask(decider, kind, ask, cx));
        };
        match checked(verdict) {
            Ok(Verdict::Granted(grant)) => Ok(Some(grant)),
            // The client expects no reply.
            Ok(Verdict::Error { .. } | Verdict::Failed) if kind == Kind::Message => Err(Done::Yes),
            Ok(Verdict::Error {
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
                Err(Done::Yes)
            }
            Ok(Verdict::Disconnect { code, reason }) => {
                Err(Done::End(code, String::from(reason).into()))
            }
            Ok(Verdict::Failed) => Err(refuse(id, ErrorCode::Internal, frame)),
            Err(why) => Err(self.undecided(id, kind, why, frame, cx)),
        }
    }

    /// Handles an invalid decision.
    pub(super) fn undecided(
        &self,
        id: u32,
        kind: Kind,
        why: &str,
        frame: &mut Frame,
        cx: &mut Context<'_>,
    ) -> Done {
        let what = format!("hook {}: {why}", kind.name());
        cx.shared.note(cx.id, NoteLevel::Warn, what);
        match kind {
            Kind::Message => Done::Yes,
            _ => refuse(id, ErrorCode::Internal, frame),
        }
    }

    fn ask(&mut self, decider: Decider, kind: Kind, ask: Ask<'_>, cx: &mut Context<'_>) -> Done {
        match self.question(decider, kind, ask, cx) {
            Some(question) => {
                self.deciding.asked_ms = cx.shared.now.mono_ms;
                self.waiting = Some(Waiting::Verdict(question));
                Done::Not(Block::Verdict)
            }
            None => Done::Close(DisconnectCode::Internal),
        }
    }

    pub(super) fn question(
        &mut self,
        decider: Decider,
        kind: Kind,
        ask: Ask<'_>,
        cx: &mut Context<'_>,
    ) -> Option<QuestionId> {
        self.ensure_client(cx);
        let asker = Arc::clone(self.deciding.asker.as_ref()?);
        let id = self.deciding.next();
        cx.shared.ports.questions.push_back(Question {
            session: cx.id,
            id,
            decider,
            kind,
            asker,
            user: self.info.user.clone(),
            channel: ask.channel.into(),
            method: ask.method.into(),
            token: Credential(ask.token.into()),
            data: ask.data.map(|data| writing::payload(data).to_payload()),
            channels: ask.channels,
            end: None,
        });
        Some(id)
    }

    /// Reports the end of the session once to a hook that handles it.
    pub(crate) fn over(
        &mut self,
        id: ConnectionId,
        (code, reason): (u16, &str),
        route: &Route,
        shared: &mut Shared,
    ) {
        if self.state != State::Connected {
            return;
        }
        let deciders = route.deciders.as_deref();
        let decider = deciders.and_then(|deciders| deciders.of(Kind::Disconnect));
        // It sends no further requests.
        let (Some(decider), Some(asker)) = (decider, self.deciding.asker.take()) else {
            return;
        };
        let (code, reason) = super::words(code, reason);
        shared.ports.questions.push_back(Question {
            session: id,
            id: self.deciding.next(),
            decider,
            kind: Kind::Disconnect,
            asker,
            user: self.info.user.clone(),
            channel: Box::default(),
            method: Box::default(),
            token: Credential::default(),
            data: None,
            channels: Vec::new(),
            end: Some((code, reason.into())),
        });
    }

    /// Assigns the client's id, at the latest with its first request.
    pub(super) fn ensure_client(&mut self, cx: &mut Context<'_>) {
        if self.info.client.is_empty() {
            let client = unique(cx.shared.ports.outboxes.masks.bytes());
            Arc::make_mut(&mut self.info).client = client.clone();
            self.change_asker(|asker| asker.client = client);
        }
    }

    /// Handles a decision; returns what happens next if something waited for it.
    pub(crate) fn judged(
        &mut self,
        question: QuestionId,
        verdict: Verdict,
        cx: &mut Context<'_>,
    ) -> Option<Flow> {
        if !matches!(self.waiting, Some(Waiting::Verdict(open)) if open == question) {
            return self.renewed(question, verdict, cx);
        }
        if self.state == State::Fresh {
            // The time that a hook takes does not count against the client.
            self.pinged_ms += cx.shared.now.mono_ms - self.deciding.asked_ms;
        }
        self.waiting = None;
        self.deciding.verdict = Some(verdict);
        Some(Flow::GoOn)
    }
}

pub(super) fn checked(verdict: Verdict) -> Result<Verdict, &'static str> {
    match &verdict {
        Verdict::Error { code: 0, .. } => Err("an error code must be at least 1"),
        Verdict::Disconnect { code, .. } if !CHOSEN.contains(code) => {
            Err("a disconnect code must be from 3000 to 4999")
        }
        _ => Ok(verdict),
    }
}
