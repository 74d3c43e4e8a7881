//! The push gateway: clients only receive, and their messages are counted and dropped. The handshake's query and back
//! ends determine the channels.

use std::sync::Arc;

use veche_hub::{
    Answer, ChannelName, Deed, Instruction, Position, Since, Subscribe, Subscribing, Ticket,
};
use veche_proto::http::{Head, Status};
use veche_proto::websocket::MessageKind;

use crate::context::census::About;
use crate::context::joining::Enrolled;
use crate::context::note::NoteLevel;
use crate::context::protocol::Protocol;
use crate::context::route::Route;
use crate::context::session::{Context, Flow, Session};
use crate::context::shared::Shared;
use crate::context::stats::Handshake;
use crate::http::protocol::{Begun, Opening, Wanted};
use crate::http::upgrade::{CHANNELS_MAX, Refused, forbidden};
use crate::outbox::hears::Hears;

/// Description for routes and the configuration.
pub(crate) static PROTOCOL: Protocol = Protocol {
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

/// Maximum number of positions in a handshake: one for each channel, and one for the user's personal channel.
const SINCE_MAX: usize = CHANNELS_MAX + 1;

/// Tickets of subscriptions by back ends are above those of a handshake.
const FIRST_TICKET: u32 = 1 << 16;

/// A session of the push gateway.
#[derive(Default)]
pub(crate) struct Push {
    /// Subscriptions by back ends, until the channels' homes have answered.
    joins: Option<Box<Joins>>,
}

#[derive(Debug, Default)]
struct Joins {
    open: Vec<(Ticket, Arc<str>)>,
    next: u32,
}

impl Opening for Push {
    fn begin(wanted: &Wanted<'_, '_, '_>, shared: &Shared) -> Result<Begun<Self>, Refused> {
        let Wanted { head, route, .. } = *wanted;
        Ok(Begun {
            session: Self::default(),
            channels: channels(head, route, shared)?,
            since: since(head, route)?,
        })
    }

    fn has_user(&self) -> bool {
        true
    }

    fn hears(&self, route: &Route) -> Hears {
        route.hears()
    }
}

impl Session for Push {
    fn about(&self) -> About<'_> {
        About::of(PROTOCOL.name)
    }

    #[inline]
    fn message(&mut self, _: MessageKind, _: &[u8], _: &mut Context<'_>) -> Flow {
        Flow::GoOn
    }

    fn answered(&mut self, ticket: Ticket, answer: Answer, cx: &mut Context<'_>) -> Option<Flow> {
        if let Some(channel) = self.joins.as_mut().and_then(|joins| joins.take(ticket)) {
            enrolled(&channel, &answer, cx);
        }
        None
    }

    fn instructed(&mut self, instruction: &Arc<Instruction>, cx: &mut Context<'_>) -> Flow {
        match &instruction.deed {
            Deed::Subscribe(wanted) => self.enroll(wanted, cx),
            Deed::Unsubscribe { channel } => {
                if let Some(joins) = &mut self.joins {
                    joins.open.retain(|(_, open)| **open != **channel);
                }
                if cx.shared.dismiss(cx.id, channel) && cx.route().has_positions {
                    cx.shared.ports.outboxes.unsubscribed(cx.id, channel);
                }
            }
            Deed::Disconnect { .. } | Deed::Refresh { .. } => {}
        }
        Flow::GoOn
    }
}

impl Push {
    fn enroll(&mut self, wanted: &Subscribe, cx: &mut Context<'_>) {
        let joins = self.joins.get_or_insert_default();
        let ticket = joins.next_ticket();
        match cx.shared.enroll(cx.id, wanted, ticket) {
            Enrolled::Now(answer) => enrolled(&wanted.channel, &answer, cx),
            Enrolled::Later => joins.open.push((ticket, Arc::clone(&wanted.channel))),
            Enrolled::Not => {}
        }
    }
}

/// Handles the home's answer to a subscription that a back end made: the client gets its position, if its route has positions.
fn enrolled(channel: &str, answer: &Answer, cx: &mut Context<'_>) {
    let Answer::Subscribed(joined) = answer else {
        if *answer == Answer::Failed {
            let why = "not subscribed: the channel is not available now";
            cx.shared.note(cx.id, NoteLevel::Info, why);
        }
        return;
    };
    if !cx.route().has_positions {
        return;
    }
    let outboxes = &mut cx.shared.ports.outboxes;
    match joined {
        Some(joined) => {
            let is_whole = outboxes.joined(cx.id, channel, joined);
            if joined.recovered.is_some() {
                cx.shared.stats.recovery(is_whole);
            }
        }
        None => outboxes.subscribed(cx.id, channel, None, None),
    }
}

impl Joins {
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

/// Parses the positions of a recovering client. Epochs identify their channels.
fn since(head: &Head<'_>, route: &Route) -> Result<Option<Arc<[Since]>>, Refused> {
    let mut all = Vec::new();
    for text in head.query_all("since") {
        let bad = |why: &str| Refused::new(Status::BAD_REQUEST, why, Handshake::Malformed);
        if !route.has_positions {
            return Err(bad("this route has no positions to recover from"));
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

/// Parses the requested channels without duplicates, and checks them as far as possible without the user. A route's
/// patterns are for single channels: a wildcard subscription would receive more than the route permits, unless the
/// namespace is open to all.
fn channels(head: &Head<'_>, route: &Route, shared: &Shared) -> Result<Vec<String>, Refused> {
    let namespaces = &shared.site.namespaces;
    let is_open = |name: &str| {
        namespaces.wildcards().of(name) != Some(name)
            || namespaces.of(name).access.subscribe == Subscribing::Client
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
            return Err(Refused::new(
                Status::BAD_REQUEST,
                &format!("a handshake takes at most {CHANNELS_MAX} channels"),
                Handshake::ForbiddenChannel,
            ));
        }
    }
    Ok(channels)
}
