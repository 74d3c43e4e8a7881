//! Commands of back ends for a session: subscribe, unsubscribe, refresh.

use std::sync::Arc;

use veche_centrifuge as wire;
use veche_centrifuge::{DisconnectCode, Push, PushBody, Refresh, UnsubscribeCode};
use veche_hub::{
    Answer, ChannelName, Deed, Instruction, Joined, Subscribe, SubscribeOptions, Ticket,
};

use super::claims::Granted;
use super::frame::Frame;
use super::manner::Manner;
use super::pushes::forms;
use super::subscribing::join;
use super::writing::Welcome;
use super::{Centrifuge, Context, Flow, State};
use crate::context::hooks::Kind;
use crate::context::note::NoteLevel;
use crate::outbox::Wish;

/// Bit of tickets for back ends' commands; those of client commands lack it.
pub(super) const GIVEN: u32 = 1 << 31;

/// Maximum number of deferred commands; a client with more has to reconnect.
const LATER_MAX: usize = 64;

/// Subscriptions by back ends whose homes have not answered.
#[derive(Default)]
pub(super) struct Givens {
    open: Vec<(Ticket, Arc<Instruction>)>,
    next: u32,
    /// Commands that conflict with a pending client command, and all later ones.
    later: Vec<Arc<Instruction>>,
}

impl Centrifuge {
    /// Returns whether the command applies to this session.
    pub(crate) fn is_meant(&self, instruction: &Instruction) -> bool {
        let has_session = |wanted: &str| {
            let address = self.address.as_ref();
            address.is_some_and(|address| address.text() == wanted)
        };
        let session = instruction.session.as_deref();
        instruction.means(&self.info.client) && session.is_none_or(has_session)
    }

    /// Executes the command, except for closing and connection expiry.
    pub(crate) fn instructed(
        &mut self,
        instruction: &Arc<Instruction>,
        cx: &mut Context<'_>,
    ) -> Flow {
        if self.state != State::Connected {
            return Flow::GoOn;
        }
        if !self.given.later.is_empty() || self.has_to_wait(&instruction.deed) {
            if self.given.later.len() >= LATER_MAX {
                let what = "closed: too many user commands queued while a command is pending";
                cx.shared.note(cx.id, NoteLevel::Warn, what);
                return DisconnectCode::InsufficientState.into();
            }
            self.given.later.push(Arc::clone(instruction));
            return Flow::GoOn;
        }
        self.carry_out(instruction, cx);
        Flow::GoOn
    }

    /// Returns whether a command has to be deferred: nothing can be sent before the connect reply, and the answer to a
    /// pending command on the same channel would undo it.
    fn has_to_wait(&self, deed: &Deed) -> bool {
        let channel = match deed {
            _ if self.is_connecting() => return true,
            Deed::Subscribe(wanted) => &*wanted.channel,
            Deed::Unsubscribe { channel } => channel,
            Deed::Disconnect { .. } | Deed::Refresh { .. } => return false,
        };
        self.channel_awaited() == Some(channel)
    }

    /// Executes deferred commands after a client command has ended.
    pub(super) fn catch_up(&mut self, cx: &mut Context<'_>) {
        for instruction in std::mem::take(&mut self.given.later) {
            self.carry_out(&instruction, cx);
        }
    }

    fn carry_out(&mut self, instruction: &Arc<Instruction>, cx: &mut Context<'_>) {
        match &instruction.deed {
            Deed::Disconnect { .. } => {}
            Deed::Subscribe(wanted) => self.enroll(wanted, instruction, cx),
            Deed::Unsubscribe { channel } => self.dismiss(channel, cx),
            Deed::Refresh { info, .. } => {
                if let Some(info) = info {
                    Arc::make_mut(&mut self.info).conn_info = Some(info.clone());
                }
                self.is_hurried = true;
                let is_renewed = cx.route().decider(Kind::Refresh).is_some();
                let lease = cx.lease.as_deref();
                let lease = lease.filter(|lease| !is_renewed && !lease.is_final);
                let ttl_s = lease.and_then(|lease| lease.term.ttl_s(cx.shared.now));
                let refresh = Refresh {
                    expires: ttl_s.is_some(),
                    ttl_s: ttl_s.unwrap_or(0),
                };
                self.tell("", PushBody::Refresh(refresh), &[], cx);
            }
        }
    }

    fn enroll(&mut self, wanted: &Subscribe, instruction: &Arc<Instruction>, cx: &mut Context<'_>) {
        let Ok(channel) = ChannelName::new(&wanted.channel) else {
            return;
        };
        if self.subscriptions.has(channel.as_str()) {
            return;
        }
        if self.subscriptions.len() >= cx.shared.site.limits.channels_per_client {
            let what = "not subscribed: the connection has reached its channel limit";
            cx.shared.note(cx.id, NoteLevel::Info, what);
            return;
        }
        let joining = SubscribeOptions {
            since: wanted.since.map(|since| Arc::from([since])),
            client: (!wanted.is_hidden).then(|| self.info_with(wanted.chan_info.as_ref())),
            ..SubscribeOptions::default()
        };
        let ticket = Ticket(GIVEN | self.given.next);
        let joined = match join(channel, ticket, &joining, cx) {
            Ok(joined) => joined,
            Err(code) => {
                let what = format!("not subscribed: {}", code.words());
                cx.shared.note(cx.id, NoteLevel::Info, what);
                return;
            }
        };
        let expires_ms = wanted.expires_at_s.map(|at_s| at_s.saturating_mul(1000));
        let info = wanted.chan_info.clone();
        let is_renewed = cx.route().decider(Kind::SubRefresh).is_some();
        let given = Granted {
            channel: channel.as_str().to_owned(),
            info,
            expires_ms,
            ..Granted::default()
        };
        self.subscriptions.give(&given, is_renewed);
        let options = cx.shared.site.namespaces.of(channel.as_str());
        let manner = Manner {
            is_hidden: wanted.is_hidden,
            is_told: wanted.is_told,
        };
        if manner.hears_joins(&options) {
            let wish = Wish {
                joins: true,
                ..Wish::default()
            };
            cx.shared.ports.outboxes.wish(cx.id, channel.as_str(), wish);
        }
        self.is_hurried |= expires_ms.is_some();
        match joined {
            Some(joined) => self.enrolled(wanted, joined.as_deref(), cx),
            None => {
                self.given.next = (self.given.next + 1) % GIVEN;
                self.given.open.push((ticket, Arc::clone(instruction)));
            }
        }
    }

    /// Handles the answer of a home for such a subscription.
    pub(super) fn given_answered(&mut self, ticket: Ticket, answer: &Answer, cx: &mut Context<'_>) {
        let mut open = self.given.open.iter();
        let Some(place) = open.position(|(open, _)| *open == ticket) else {
            return;
        };
        let (_, instruction) = self.given.open.swap_remove(place);
        match (&instruction.deed, answer) {
            (Deed::Subscribe(wanted), Answer::Subscribed(joined)) => {
                self.enrolled(wanted, joined.as_deref(), cx);
            }
            (Deed::Subscribe(wanted), Answer::Failed) => {
                self.leave(&wanted.channel, cx);
                let what = "not subscribed: the channel is not available now";
                cx.shared.note(cx.id, NoteLevel::Info, what);
            }
            _ => {}
        }
    }

    /// Handles lost publications of a channel: the client subscribes again and recovers what is available. For a
    /// server-side subscription the connection ends instead.
    pub(crate) fn lost(&mut self, channel: &str, cx: &mut Context<'_>) -> Flow {
        let is_own = self.subscriptions.has(channel) && !self.subscriptions.is_given(channel);
        if !is_own || self.is_connecting() {
            return DisconnectCode::InsufficientState.into();
        }
        self.leave(channel, cx);
        let body = PushBody::Unsubscribe(UnsubscribeCode::InsufficientState.into());
        self.tell(channel, body, &[], cx);
        Flow::GoOn
    }

    /// Sends the client its position and the missed publications.
    fn enrolled(&mut self, wanted: &Subscribe, joined: Option<&Joined>, cx: &mut Context<'_>) {
        let bytes_max = cx.shared.ports.outboxes.outbox_bytes_max();
        let is_back = wanted.since.is_some();
        let welcome = Welcome::new(joined, is_back, self.encoding, (bytes_max, 0));
        if is_back {
            cx.shared.stats.recovery(welcome.is_whole());
        }
        let publications = welcome.publications();
        let result = welcome.result(&publications);
        let data = wanted.data.as_ref();
        // The recovered publications follow this push.
        let begin = welcome.begin();
        let subscribe = wire::Subscribe {
            recoverable: result.recoverable,
            epoch: result.epoch,
            offset: begin.map_or(result.offset, |begin| begin.offset),
            positioned: result.positioned,
            data: data.map(|data| forms::data(data.borrow())),
        };
        let body = PushBody::Subscribe(subscribe);
        self.tell(&wanted.channel, body, &publications, cx);
    }

    fn dismiss(&mut self, channel: &str, cx: &mut Context<'_>) {
        let is_channel = |instruction: &Instruction| matches!(&instruction.deed, Deed::Subscribe(wanted) if *wanted.channel == *channel);
        self.given.open.retain(|(_, open)| !is_channel(open));
        self.deciding.withdraw(channel);
        if !self.subscriptions.has(channel) {
            return;
        }
        self.leave(channel, cx);
        let body = PushBody::Unsubscribe(UnsubscribeCode::Server.into());
        self.tell(channel, body, &[], cx);
    }

    /// Sends a push, followed by publications of the same channel.
    fn tell(
        &self,
        channel: &str,
        body: PushBody<'_>,
        publications: &[wire::Publication<'_>],
        cx: &mut Context<'_>,
    ) {
        let outboxes = &mut cx.shared.ports.outboxes;
        let mut frame = Frame::new(self.dialect(), outboxes.spare());
        let publications = publications.iter().copied().map(PushBody::Publication);
        for body in std::iter::once(body).chain(publications) {
            frame.push(&Push { channel, body });
        }
        frame.send(cx.id, outboxes);
        outboxes.recycle(frame.into_bytes());
    }
}
