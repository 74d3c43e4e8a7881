//! Commands that are carried out only if somebody else says so: what is asked, and what a verdict comes to.
//!
//! A command that asks is left as it is and looked at again when the verdict has come ([`crate::context::hooks`] says why). What
//! whoever decides says is checked here, once for all of them.

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

/// What a session keeps for what it asks.
#[derive(Default)]
pub(super) struct Deciding {
    /// As whom it asks; `None` where its route asks nobody.
    asker: Option<Arc<Asker>>,
    /// On the next command.
    verdict: Option<Verdict>,
    /// Of the last question.
    last: u32,
    /// So many headers are its request's own.
    pub(super) headers: usize,
    /// When the next command was asked about.
    asked_ms: u64,
    /// The channel to which the next command subscribes, while that is decided on.
    subscribing: Option<Subscribing>,
    /// Whether the connection may stay, which is being asked.
    pub(super) refresh: Option<QuestionId>,
}

/// A subscribe command that waits for a decision, or for keys.
struct Subscribing {
    channel: Box<str>,
    /// A back end has unsubscribed the client meanwhile, which counts, whatever is decided.
    is_withdrawn: bool,
}

/// What is asked, beside by whom.
#[derive(Default)]
pub(super) struct Ask<'a> {
    pub(super) channel: &'a str,
    pub(super) method: &'a str,
    pub(super) token: &'a str,
    pub(super) data: Option<Data<'a>>,
    pub(super) channels: Vec<Box<str>>,
}

/// So often one connection may ask who it is.
const CONNECTS_MAX: u32 = 3;

impl Deciding {
    /// The command that asked is done with.
    pub(super) fn forget(&mut self) {
        self.verdict = None;
        self.subscribing = None;
    }

    /// Whether the next command has asked, and has its verdict.
    pub(super) fn has_verdict(&self) -> bool {
        self.verdict.is_some()
    }

    /// The next command waits for a decision on a subscription to that channel.
    pub(super) fn begin_subscribing(&mut self, channel: &str) {
        if self.subscribing.is_none() {
            self.subscribing = Some(Subscribing {
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
    pub(super) fn put_back(&mut self, grant: Box<Grant>) {
        self.verdict = Some(Verdict::Granted(grant));
    }

    fn next(&mut self) -> QuestionId {
        self.last = self.last.wrapping_add(1);
        QuestionId(self.last)
    }
}

impl Centrifuge {
    /// Where its route has commands decided on, it asks with what its request says.
    pub(crate) fn may_ask(&mut self, transport: &'static str, head: &Head<'_>, route: &Route) {
        if let Some(deciders) = &route.deciders {
            let asker = Asker::new(transport, self.encoding, head, &deciders.headers);
            self.deciding.headers = asker.headers.len();
            self.deciding.asker = Some(Arc::new(asker));
        }
    }

    /// Where it comes from.
    pub(crate) fn set_peer(&mut self, peer: IpAddr) {
        self.change_asker(|asker| asker.address = peer);
    }

    /// Changes as whom it asks from now on.
    pub(super) fn change_asker(&mut self, change: impl FnOnce(&mut Asker)) {
        if let Some(asker) = &mut self.deciding.asker {
            change(Arc::make_mut(asker));
        }
    }

    /// What has been decided on the next command; `None` where nobody decides on such.
    ///
    /// # Errors
    /// The command is not carried out, now or at all.
    pub(super) fn decided(
        &mut self,
        id: u32,
        kind: Kind,
        ask: Ask<'_>,
        frame: &mut Frame,
        cx: &mut Context<'_>,
    ) -> Result<Option<Box<Grant>>, Done> {
        // Also where nobody decides on that any more: who was asked has said so.
        let Some(verdict) = self.deciding.verdict.take() else {
            let decider = cx.route().deciders.as_deref().and_then(|all| all.of(kind));
            let Some(decider) = decider else {
                return Ok(None);
            };
            // Who is nobody yet may ask a few times, and not keep others from it.
            if kind == Kind::Connect && self.deciding.last >= CONNECTS_MAX {
                return Err(Done::Close(DisconnectCode::Stale));
            }
            return Err(self.ask(decider, kind, ask, cx));
        };
        match checked(verdict) {
            Ok(Verdict::Granted(grant)) => Ok(Some(grant)),
            // Nobody waits for a reply.
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

    /// What was decided makes no sense.
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

    /// It is over; whoever wants to know is told, once.
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
        // It asks nothing any more.
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

    /// It has a name among connections from its first question on.
    pub(super) fn ensure_client(&mut self, cx: &mut Context<'_>) {
        if self.info.client.is_empty() {
            let client = unique(cx.shared.ports.outboxes.masks.bytes());
            Arc::make_mut(&mut self.info).client = client.clone();
            self.change_asker(|asker| asker.client = client);
        }
    }

    /// Something was decided; how it goes on, if anything waited for that.
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
            // How long others took does not count against the client.
            self.pinged_ms += cx.shared.now.mono_ms - self.deciding.asked_ms;
        }
        self.waiting = None;
        self.deciding.verdict = Some(verdict);
        Some(Flow::GoOn)
    }
}

/// Whether a verdict makes sense.
pub(super) fn checked(verdict: Verdict) -> Result<Verdict, &'static str> {
    match &verdict {
        Verdict::Error { code: 0, .. } => Err("an error code must be at least 1"),
        Verdict::Disconnect { code, .. } if !CHOSEN.contains(code) => {
            Err("a disconnect code must be from 3000 to 4999")
        }
        _ => Ok(verdict),
    }
}
