//! Short constructors of names and sessions for tests.

use veche_hub::{
    ChannelName, ConnectionId, Engine, Hub, HubReply, Outlet, RequestOutcome, SubscribeError,
    SubscribeOptions, Ticket,
};

pub(crate) fn name(channel: &str) -> ChannelName<'_> {
    ChannelName::new(channel).expect("a valid name")
}

/// Returns the first session (generation 0) with this index.
pub(crate) fn session(index: u32) -> ConnectionId {
    ConnectionId {
        index,
        generation: 0,
    }
}

/// Subscribes a session. An immediate outcome is also passed to the outlet as a reply.
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
