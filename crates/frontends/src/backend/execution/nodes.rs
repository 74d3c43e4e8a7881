//! Commands and questions for all nodes of a cluster: they go to the lane of the cluster, and one answer covers all nodes.

use std::sync::Arc;

use veche_hub::{
    Answer, Caller, ChannelName, ConnectionId, Deed, Glob, Instructed, Instruction, Listing, Mail,
    NameError, Outcome, Outlet as _, Question, Ticket, WorkerId,
};
use veche_nodes::BlockCommand;

use crate::context::blocks::Block;
use crate::context::process::Process;
use crate::context::shared::{Ports, Shared};

/// Applies an instruction to connections of a user that still wait for a decision, or for an answer that names the user.
/// Sessions carry it out themselves.
pub fn bind_undecided(process: &dyn Process, user: &str, instruction: &Instruction) {
    let is_end = matches!(
        instruction.deed,
        Deed::Disconnect { .. }
            | Deed::Refresh {
                is_expired: true,
                ..
            }
    );
    // A connect hook knows the id of such a connection.
    let client = instruction.client.as_deref();
    match client {
        _ if !is_end => {}
        Some(client) => process.end_client(user, client),
        // Only sessions that are open have an id.
        None if instruction.session.is_some() => {}
        None => process.end_user(user, &instruction.except),
    }
    if let Deed::Unsubscribe { channel } = &instruction.deed
        && instruction.session.is_none()
    {
        process.end_subscription(user, channel, client);
    }
}

pub(super) fn instruct(
    from: (ConnectionId, Ticket),
    user: &str,
    instruction: Instruction,
    nodes: WorkerId,
    shared: &mut Shared,
) -> Result<Outcome<Instructed>, NameError> {
    let mut buffer = String::new();
    let channel = ChannelName::of_user(user, &mut buffer)?;
    let mail = Mail::InstructAll {
        channel: Arc::from(channel.as_str()),
        instruction: Arc::new(instruction),
        reply: Some(from),
    };
    shared.ports.mail(nodes, mail);
    Ok(Outcome::Pending)
}

pub(super) fn ask_status(
    (session, ticket): (ConnectionId, Ticket),
    channel: ChannelName<'_>,
    nodes: WorkerId,
    ports: &mut Ports,
) -> Outcome<Answer> {
    let mail = Mail::Ask {
        channel: Arc::from(channel.as_str()),
        question: Question::UserStatus,
        session,
        ticket,
    };
    ports.mail(nodes, mail);
    Outcome::Pending
}

pub(super) fn list(
    (session, ticket): (ConnectionId, Ticket),
    pattern: Glob,
    nodes: WorkerId,
    ports: &mut Ports,
) -> (Listing, u32) {
    let mail = Mail::List {
        pattern: Arc::new(pattern),
        session,
        ticket,
    };
    ports.mail(nodes, mail);
    (Listing::default(), 1)
}

pub(super) fn block(block: &Block, caller: Option<Caller>, ports: &mut Ports) {
    let block = block.clone();
    ports.blocks.push_back(BlockCommand { block, caller });
}
