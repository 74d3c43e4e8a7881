//! The push gateway: clients only receive, and their messages are counted and dropped. The channels are determined by
//! the handshake's query and by back ends.

use std::sync::Arc;

use veche_hub::{
    ChannelName, HubReply, Position, Since, SubscribeAccess, SubscribeAction, Ticket, UserAction,
    UserCommand,
};
use veche_proto::http::{Head, Status};
use veche_proto::websocket::MessageKind;

use crate::context::backend_subscribe::BackendSubscribe;
use crate::context::log_note::NoteLevel;
use crate::context::protocol::ClientProtocol;
use crate::context::route::Route;
use crate::context::session::{Flow, Session, SessionContext};
use crate::context::session_info::SessionInfo;
use crate::context::stats::HandshakeOutcome;
use crate::context::worker_context::Context;
use crate::http::protocol::{HandshakeRequest, NewSession, OpenSession};
use crate::http::upgrade::{CHANNELS_MAX, RefusedUpgrade, forbidden};
use crate::outbox::delivery_mode::DeliveryMode;

/// The properties of the protocol for routes and the configuration.
pub(crate) static PROTOCOL: ClientProtocol = ClientProtocol {
    name: "push",
    methods: &["GET"],
    options: &[
        "identity",
        "anonymous",
        "channels",
        "outbox_full",
        "positions",
    ],
};

/// Maximum number of positions in a handshake: one for each requested channel, and one for the user's personal
/// channel.
const SINCE_MAX: usize = CHANNELS_MAX + 1;

/// The first ticket of subscriptions by back ends. The tickets of a handshake are all lower.
const FIRST_TICKET: u32 = 1 << 16;

/// A session of the push gateway.
#[derive(Default)]
pub(crate) struct PushSession {
    /// Subscriptions by back ends that the channels' homes have not answered yet.
    pending: Option<Box<PendingSubscriptions>>,
}

#[derive(Debug, Default)]
struct PendingSubscriptions {
    open: Vec<(Ticket, Arc<str>)>,
    next: u32,
}

impl OpenSession for PushSession {
    fn begin(
        wanted: &HandshakeRequest<'_, '_, '_>,
        shared: &Context,
    ) -> Result<NewSession<Self>, RefusedUpgrade> {
        let HandshakeRequest { head, route, .. } = *wanted;
        Ok(NewSession {
            session: Self::default(),
            channels: channels(head, route, shared)?,
            since: since(head, route)?,
        })
    }

    fn has_user(&self) -> bool {
        true
    }

    fn delivery_mode(&self, route: &Route) -> DeliveryMode {
        route.delivery_mode()
    }
}

impl Session for PushSession {
    fn info(&self) -> SessionInfo<'_> {
        SessionInfo::of(PROTOCOL.name)
    }

    #[inline]
    fn handle_message(&mut self, _: MessageKind, _: &[u8], _: &mut SessionContext<'_>) -> Flow {
        Flow::Continue
    }

    fn handle_answer(
        &mut self,
        ticket: Ticket,
        answer: HubReply,
        cx: &mut SessionContext<'_>,
    ) -> Option<Flow> {
        if let Some(channel) = self.pending.as_mut().and_then(|joins| joins.take(ticket)) {
            finish_subscription(&channel, &answer, cx);
        }
        None
    }

    fn handle_user_command(
        &mut self,
        instruction: &Arc<UserCommand>,
        cx: &mut SessionContext<'_>,
    ) -> Flow {
        match &instruction.action {
            UserAction::Subscribe(wanted) => self.subscribe(wanted, cx),
            UserAction::Unsubscribe { channel } => {
                if let Some(joins) = &mut self.pending {
                    joins.open.retain(|(_, open)| **open != **channel);
                }
                if cx.shared.unsubscribe_by_backend(cx.id, channel) && cx.route().has_positions {
                    cx.shared
                        .requests
                        .outboxes
                        .write_unsubscribed(cx.id, channel);
                }
            }
            UserAction::Disconnect { .. } | UserAction::Refresh { .. } => {}
        }
        Flow::Continue
    }
}

impl PushSession {
    fn subscribe(&mut self, wanted: &SubscribeAction, cx: &mut SessionContext<'_>) {
        let joins = self.pending.get_or_insert_default();
        let ticket = joins.next_ticket();
        match cx.shared.subscribe_by_backend(cx.id, wanted, ticket) {
            BackendSubscribe::Done(answer) => finish_subscription(&wanted.channel, &answer, cx),
            BackendSubscribe::Pending => joins.open.push((ticket, Arc::clone(&wanted.channel))),
            BackendSubscribe::Rejected => {}
        }
    }
}

/// Handles the home worker's answer to a subscription by a back end. If the route sends positions, the client is sent
/// its position in the channel.
fn finish_subscription(channel: &str, answer: &HubReply, cx: &mut SessionContext<'_>) {
    let HubReply::Subscribed(joined) = answer else {
        if *answer == HubReply::Failed {
            let why =
                format!("not subscribed to {channel:?}: the channel is unavailable at the moment");
            cx.shared.log(cx.id, NoteLevel::Info, why);
        }
        return;
    };
    if !cx.route().has_positions {
        return;
    }
    let outboxes = &mut cx.shared.requests.outboxes;
    match joined {
        Some(joined) => {
            let is_whole = outboxes.write_joined(cx.id, channel, joined);
            if joined.recovered.is_some() {
                cx.shared.stats.recovery(is_whole);
            }
        }
        None => outboxes.write_subscribed(cx.id, channel, None, None),
    }
}

impl PendingSubscriptions {
    fn next_ticket(&mut self) -> Ticket {
        let ticket = Ticket(FIRST_TICKET | self.next);
        self.next = (self.next + 1) % FIRST_TICKET;
        ticket
    }

    fn take(&mut self, ticket: Ticket) -> Option<Arc<str>> {
        let place = self.open.iter().position(|(open, _)| *open == ticket)?;
        Some(self.open.swap_remove(place).1)
    }
}

/// Parses the positions from which a client recovers. Each identifies its channel by the epoch. Returns `None` if the
/// query contains no positions.
fn since(head: &Head<'_>, route: &Route) -> Result<Option<Arc<[Since]>>, RefusedUpgrade> {
    let mut all = Vec::new();
    for text in head.query_all("since") {
        let bad =
            |why: &str| RefusedUpgrade::new(Status::BAD_REQUEST, why, HandshakeOutcome::Malformed);
        if !route.has_positions {
            return Err(bad("since: this route sends no positions to its clients"));
        }
        let position = text.parse::<Position>();
        all.push(
            position
                .map_err(|error| bad(&format!("since: {error}")))?
                .into(),
        );
        if all.len() > SINCE_MAX {
            let why = format!("a handshake takes at most {SINCE_MAX} positions");
            return Err(bad(&why));
        }
    }
    Ok((!all.is_empty()).then(|| all.into()))
}

/// Parses the requested channels, removes duplicates, and makes all checks that do not depend on
/// the user. A wildcard subscription would receive more than the route's patterns permit, so it is
/// refused unless the namespace is open to all users.
fn channels(
    head: &Head<'_>,
    route: &Route,
    shared: &Context,
) -> Result<Vec<String>, RefusedUpgrade> {
    let namespaces = &shared.config.namespaces;
    let is_open = |name: &str| {
        namespaces.wildcards().channel_for(name) != Some(name)
            || namespaces.of(name).access.subscribe == SubscribeAccess::Client
    };
    let mut channels = Vec::new();
    for channel in head.query_all("channel") {
        let is_listed = route.lists_channel(&channel) && is_open(&channel);
        if !is_listed || ChannelName::new(&channel).is_err() {
            return Err(forbidden());
        }
        let channel = channel.into_owned();
        if !channels.contains(&channel) {
            channels.push(channel);
        }
        if channels.len() > CHANNELS_MAX {
            return Err(RefusedUpgrade::new(
                Status::BAD_REQUEST,
                &format!("a handshake takes at most {CHANNELS_MAX} channels"),
                HandshakeOutcome::ForbiddenChannel,
            ));
        }
    }
    Ok(channels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_differ_and_are_above_those_of_a_handshake() {
        let mut pending = PendingSubscriptions {
            next: FIRST_TICKET - 2,
            ..PendingSubscriptions::default()
        };
        let tickets = [(); 4].map(|()| pending.next_ticket().0);
        let expected = [0x1_fffe, 0x1_ffff, 0x1_0000, 0x1_0001];
        assert_eq!(tickets, expected);
    }
}
