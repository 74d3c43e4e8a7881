//! Short constructors of names and sessions.

use veche_hub::{
    ChannelName, ConnectionId, Engine, Hub, HubReply, Outlet, RequestOutcome, SubscribeError,
    SubscribeOptions, Ticket,
};

pub(crate) fn name(channel: &str) -> ChannelName<'_> {
    ChannelName::new(channel).expect("a valid name")
}

/// The first session with this index.
pub(crate) fn session(index: u32) -> ConnectionId {
    ConnectionId {
        index,
        generation: 0,
    }
}

/// Subscribes; an outcome at once comes as an answer too.
pub(crate) fn subscribe<E: Engine>(
    hub: &mut Hub<E>,
    session: ConnectionId,
    channel: ChannelName<'_>,
    ticket: Ticket,
    options: &SubscribeOptions,
    outlet: &mut impl Outlet,
) -> Result<(), SubscribeError> {
    let outcome = hub.subscribe(session, channel, ticket, options, outlet)?;
    if let RequestOutcome::Done(joined) = outcome {
        outlet.send_reply(session, ticket, HubReply::Subscribed(joined));
    }
    Ok(())
}
