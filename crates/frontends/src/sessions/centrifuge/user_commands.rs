//! Commands of back ends for a session: subscribe, unsubscribe and refresh.

use std::sync::Arc;

use veche_centrifuge as wire;
use veche_centrifuge::{DisconnectCode, Push, PushBody, Refresh, UnsubscribeCode};
use veche_hub::{
    ChannelName, HubReply, SubscribeAction, SubscribeOptions, SubscribeOutcome, Ticket, UserAction,
    UserCommand,
};

use super::claims::ChannelClaim;
use super::frame::ReplyFrame;
use super::subscribing::join;
use super::writing::{self, SubscribeReply};
use super::{Centrifuge, Flow, SessionContext, State};
use crate::context::hooks::HookKind;
use crate::context::log_note::NoteLevel;
use crate::context::overrides::PresenceOverrides;
use crate::outbox::SubscriptionOptions;

/// The bit that is set in the tickets of back ends' commands, and not set in those of client commands.
pub(super) const GIVEN: u32 = 1 << 31;

/// Maximum number of deferred commands of a session; a client with more is closed and has to reconnect.
const DEFERRED_MAX: usize = 64;

/// Subscriptions by back ends that the channels' homes have not answered yet, and deferred commands of back ends.
#[derive(Default)]
pub(super) struct ServerSubscriptions {
    open: Vec<(Ticket, Arc<UserCommand>)>,
    next: u32,
    /// Commands of back ends that have to wait for a pending command of the client, and all commands of back ends that
    /// arrived after them.
    deferred: Vec<Arc<UserCommand>>,
}

impl Centrifuge {
    /// Returns whether a back end's command applies to this session.
    pub(crate) fn matches_command(&self, instruction: &UserCommand) -> bool {
        let has_session = |wanted: &str| {
            let address = self.address.as_ref();
            address.is_some_and(|address| address.text() == wanted)
        };
        let session = instruction.session.as_deref();
        instruction.applies_to(&self.info.client) && session.is_none_or(has_session)
    }

    /// Executes a back end's command. Closing the connection and setting its expiry are left to the caller.
    pub(crate) fn handle_user_command(
        &mut self,
        instruction: &Arc<UserCommand>,
        cx: &mut SessionContext<'_>,
    ) -> Flow {
        if self.state != State::Connected {
            return Flow::Continue;
        }
        if !self.server_subscriptions.deferred.is_empty() || self.must_defer(&instruction.action) {
            if self.server_subscriptions.deferred.len() >= DEFERRED_MAX {
                let what = "closed: too many commands of the back end are queued while a command of the client is pending";
                cx.shared.log(cx.id, NoteLevel::Warn, what);
                return DisconnectCode::InsufficientState.into();
            }
            self.server_subscriptions
                .deferred
                .push(Arc::clone(instruction));
            return Flow::Continue;
        }
        self.execute(instruction, cx);
        Flow::Continue
    }

    /// Returns whether a back end's command has to be deferred. Nothing can be sent before the reply to a connect
    /// command. If the client's own subscribe command for the same channel is pending, the home worker's answer to it
    /// would undo the back end's command.
    fn must_defer(&self, action: &UserAction) -> bool {
        let channel = match action {
            _ if self.is_connecting() => return true,
            UserAction::Subscribe(wanted) => &*wanted.channel,
            UserAction::Unsubscribe { channel } => channel,
            UserAction::Disconnect { .. } | UserAction::Refresh { .. } => return false,
        };
        self.channel_awaited() == Some(channel)
    }

    /// Executes the deferred commands, after the client command that they waited for has ended.
    pub(super) fn run_deferred(&mut self, cx: &mut SessionContext<'_>) {
        for instruction in std::mem::take(&mut self.server_subscriptions.deferred) {
            self.execute(&instruction, cx);
        }
    }

    fn execute(&mut self, instruction: &Arc<UserCommand>, cx: &mut SessionContext<'_>) {
        match &instruction.action {
            UserAction::Disconnect { .. } => {}
            UserAction::Subscribe(wanted) => {
                self.begin_server_subscription(wanted, instruction, cx)
            }
            UserAction::Unsubscribe { channel } => self.end_server_subscription(channel, cx),
            UserAction::Refresh { info, .. } => {
                if let Some(info) = info {
                    Arc::make_mut(&mut self.info).conn_info = Some(info.clone());
                }
                self.deadline_changed = true;
                let is_renewed = cx.route().hook_target(HookKind::Refresh).is_some();
                let lease = cx.lease.as_deref();
                let lease = lease.filter(|lease| !is_renewed && !lease.is_final);
                let ttl_s = lease.and_then(|lease| lease.validity.ttl_s(cx.shared.now));
                let refresh = Refresh {
                    expires: ttl_s.is_some(),
                    ttl_s: ttl_s.unwrap_or(0),
                };
                self.push_subscription_change("", PushBody::Refresh(refresh), &[], cx);
            }
        }
    }

    fn begin_server_subscription(
        &mut self,
        wanted: &SubscribeAction,
        instruction: &Arc<UserCommand>,
        cx: &mut SessionContext<'_>,
    ) {
        let Ok(channel) = ChannelName::new(&wanted.channel) else {
            return;
        };
        if self.subscriptions.has(channel.as_str()) {
            return;
        }
        if self.subscriptions.len() >= cx.shared.config.limits.channels_per_client {
            let channel = channel.as_str();
            let what = format!(
                "not subscribed to {channel:?}: the connection has reached its channel limit"
            );
            cx.shared.log(cx.id, NoteLevel::Info, what);
            return;
        }
        let subscribe_options = SubscribeOptions {
            since: wanted.since.map(|since| Arc::from([since])),
            client: (!wanted.is_hidden).then(|| self.info_with(wanted.chan_info.as_ref())),
            ..SubscribeOptions::default()
        };
        let ticket = Ticket(GIVEN | self.server_subscriptions.next);
        let joined = match join(channel, ticket, &subscribe_options, cx) {
            Ok(joined) => joined,
            Err(code) => {
                let what = format!("not subscribed to {:?}: {}", wanted.channel, code.text());
                cx.shared.log(cx.id, NoteLevel::Info, what);
                return;
            }
        };
        let expires_ms = wanted.expires_at_s.map(|at_s| at_s.saturating_mul(1000));
        let info = wanted.chan_info.clone();
        let is_renewed = cx.route().hook_target(HookKind::SubRefresh).is_some();
        let given = ChannelClaim {
            channel: channel.as_str().to_owned(),
            info,
            expires_ms,
            ..ChannelClaim::default()
        };
        self.subscriptions.add_by_server(&given, is_renewed);
        let options = cx.shared.config.namespaces.of(channel.as_str());
        let presence_overrides = PresenceOverrides {
            is_hidden: wanted.is_hidden,
            receives_join_leave: wanted.push_join_leave,
        };
        if presence_overrides.receives_join_leave(&options) {
            let subscription_options = SubscriptionOptions {
                joins: true,
                ..SubscriptionOptions::default()
            };
            cx.shared.requests.outboxes.set_subscription_options(
                cx.id,
                channel.as_str(),
                subscription_options,
            );
        }
        self.deadline_changed |= expires_ms.is_some();
        match joined {
            Some(joined) => self.finish_server_subscription(wanted, joined.as_deref(), cx),
            None => {
                self.server_subscriptions.next = (self.server_subscriptions.next + 1) % GIVEN;
                self.server_subscriptions
                    .open
                    .push((ticket, Arc::clone(instruction)));
            }
        }
    }

    /// Handles the answer of a home worker to a subscription by a back end.
    pub(super) fn handle_subscription_answer(
        &mut self,
        ticket: Ticket,
        answer: &HubReply,
        cx: &mut SessionContext<'_>,
    ) {
        let mut open = self.server_subscriptions.open.iter();
        let Some(place) = open.position(|(open, _)| *open == ticket) else {
            return;
        };
        let (_, instruction) = self.server_subscriptions.open.swap_remove(place);
        match (&instruction.action, answer) {
            (UserAction::Subscribe(wanted), HubReply::Subscribed(joined)) => {
                self.finish_server_subscription(wanted, joined.as_deref(), cx);
            }
            (UserAction::Subscribe(wanted), HubReply::Failed) => {
                self.leave(&wanted.channel, cx);
                let channel = &wanted.channel;
                let what = format!(
                    "not subscribed to {channel:?}: the channel is unavailable at the moment"
                );
                cx.shared.log(cx.id, NoteLevel::Info, what);
            }
            _ => {}
        }
    }

    /// Handles the loss of a channel's publications: the client is unsubscribed, subscribes again
    /// and recovers what is available. If the subscription is server-side, the connection is closed
    /// instead.
    pub(crate) fn handle_lost_history(
        &mut self,
        channel: &str,
        cx: &mut SessionContext<'_>,
    ) -> Flow {
        let is_own = self.subscriptions.has(channel) && !self.subscriptions.is_by_server(channel);
        if !is_own || self.is_connecting() {
            return DisconnectCode::InsufficientState.into();
        }
        self.leave(channel, cx);
        let body = PushBody::Unsubscribe(UnsubscribeCode::InsufficientState.into());
        self.push_subscription_change(channel, body, &[], cx);
        Flow::Continue
    }

    /// Sends the client its position and the missed publications, after a back end has subscribed it.
    fn finish_server_subscription(
        &mut self,
        wanted: &SubscribeAction,
        joined: Option<&SubscribeOutcome>,
        cx: &mut SessionContext<'_>,
    ) {
        let bytes_max = cx.shared.requests.outboxes.outbox_bytes_max();
        let is_back = wanted.since.is_some();
        let welcome = SubscribeReply::new(joined, is_back, self.encoding, (bytes_max, 0));
        if is_back {
            cx.shared.stats.recovery(welcome.is_whole());
        }
        let publications = welcome.publications();
        let result = welcome.result(&publications);
        let data = wanted.data.as_ref();
        // The push carries the position before the recovered publications, which are sent after it.
        let begin = welcome.begin();
        let subscribe = wire::Subscribe {
            recoverable: result.recoverable,
            epoch: result.epoch,
            offset: begin.map_or(result.offset, |begin| begin.offset),
            positioned: result.positioned,
            data: data.map(|data| writing::data(data.borrow())),
        };
        let body = PushBody::Subscribe(subscribe);
        self.push_subscription_change(&wanted.channel, body, &publications, cx);
    }

    fn end_server_subscription(&mut self, channel: &str, cx: &mut SessionContext<'_>) {
        let is_channel = |instruction: &UserCommand| matches!(&instruction.action, UserAction::Subscribe(wanted) if *wanted.channel == *channel);
        self.server_subscriptions
            .open
            .retain(|(_, open)| !is_channel(open));
        self.hooks.withdraw(channel);
        if !self.subscriptions.has(channel) {
            return;
        }
        self.leave(channel, cx);
        let body = PushBody::Unsubscribe(UnsubscribeCode::Server.into());
        self.push_subscription_change(channel, body, &[], cx);
    }

    /// Sends a push about a subscription, and then these publications of the same channel.
    fn push_subscription_change(
        &self,
        channel: &str,
        body: PushBody<'_>,
        publications: &[wire::Publication<'_>],
        cx: &mut SessionContext<'_>,
    ) {
        let outboxes = &mut cx.shared.requests.outboxes;
        let mut frame = ReplyFrame::new(self.push_encoding(), outboxes.spare());
        let publications = publications.iter().copied().map(PushBody::Publication);
        for body in std::iter::once(body).chain(publications) {
            frame.push(&Push { channel, body });
        }
        frame.send(cx.id, outboxes);
        outboxes.recycle(frame.into_bytes());
    }
}
