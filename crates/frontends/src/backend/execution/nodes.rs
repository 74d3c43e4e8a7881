//! Commands and queries for all nodes of a cluster. They are sent through the lane to the other nodes, and a single
//! answer combines the answers of all nodes.

use std::sync::Arc;

use veche_hub::{
    Caller, ChannelList, ChannelName, ChannelQuery, CommandDispatch, ConnectionId, Glob,
    HubMessage, HubReply, NameError, Outlet as _, RequestOutcome, Ticket, UserAction, UserCommand,
    WorkerId,
};
use veche_nodes::BanRequest;

use crate::context::issued_token::Ban;
use crate::context::process::ProcessServices;
use crate::context::worker_context::{Context, Requests};

/// Applies a user command to decisions in progress. If the command ends connections, a client that
/// is still authenticating is refused or closed when its authentication completes. If the command
/// unsubscribes, a subscription that a hook still decides on is refused. Open sessions receive the
/// command themselves.
pub fn bind_undecided(process: &dyn ProcessServices, user: &str, instruction: &UserCommand) {
    let is_end = matches!(
        instruction.action,
        UserAction::Disconnect { .. }
            | UserAction::Refresh {
                is_expired: true,
                ..
            }
    );
    // The connect hook was given the id of the connection, so a back end may name a connection that is not open yet.
    let client = instruction.client.as_deref();
    match client {
        _ if !is_end => {}
        Some(client) => process.disconnect_client(user, client),
        // Only an open session has a session id.
        None if instruction.session.is_some() => {}
        None => process.disconnect_user(user, &instruction.except),
    }
    if let UserAction::Unsubscribe { channel } = &instruction.action
        && instruction.session.is_none()
    {
        process.unsubscribe_user(user, channel, client);
    }
}

pub(super) fn instruct(
    from: (ConnectionId, Ticket),
    user: &str,
    instruction: UserCommand,
    nodes: WorkerId,
    shared: &mut Context,
) -> Result<RequestOutcome<CommandDispatch>, NameError> {
    let mut buffer = String::new();
    let channel = ChannelName::of_user(user, &mut buffer)?;
    let mail = HubMessage::CommandUser {
        channel: Arc::from(channel.as_str()),
        instruction: Arc::new(instruction),
        reply: Some(from),
    };
    shared.requests.send_message(nodes, mail);
    Ok(RequestOutcome::Pending)
}

pub(super) fn ask_status(
    (session, ticket): (ConnectionId, Ticket),
    channel: ChannelName<'_>,
    nodes: WorkerId,
    ports: &mut Requests,
) -> RequestOutcome<HubReply> {
    let mail = HubMessage::Query {
        channel: Arc::from(channel.as_str()),
        query: ChannelQuery::UserStatus,
        session,
        ticket,
    };
    ports.send_message(nodes, mail);
    RequestOutcome::Pending
}

pub(super) fn list(
    (session, ticket): (ConnectionId, Ticket),
    pattern: Glob,
    nodes: WorkerId,
    ports: &mut Requests,
) -> (ChannelList, u32) {
    let mail = HubMessage::List {
        pattern: Arc::new(pattern),
        session,
        ticket,
    };
    ports.send_message(nodes, mail);
    (ChannelList::default(), 1)
}

pub(super) fn block(block: &Ban, caller: Option<Caller>, ports: &mut Requests) {
    let block = block.clone();
    ports.blocks.push_back(BanRequest { block, caller });
}
