//! Functions on queries and commands: one returns the caller in a message, the other the empty answer to which the
//! nodes' replies are added.

use std::sync::Arc;

use crate::{Caller, ChannelList, ConnectionList, NodeAnswer, NodeMessage, UserStatus};

/// Returns the empty answer to a message, to which the nodes' replies are added.
pub(super) fn empty(message: &NodeMessage) -> NodeAnswer {
    match message {
        NodeMessage::Connections(_) => NodeAnswer::Connections(ConnectionList::default()),
        NodeMessage::Channels(_) => NodeAnswer::Channels(ChannelList::default()),
        NodeMessage::UserStatus(_) => NodeAnswer::UserStatus(UserStatus::default()),
        NodeMessage::Block(_) => NodeAnswer::Blocked(Ok(())),
        _ => NodeAnswer::Instructed { connections: 0 },
    }
}

pub(super) fn caller_of(message: &NodeMessage) -> Option<Caller> {
    match message {
        NodeMessage::Instruct(command) => command.caller,
        NodeMessage::Block(command) => command.caller,
        NodeMessage::Connections(list_request) => Some(list_request.caller),
        NodeMessage::Channels(query) => Some(query.caller),
        NodeMessage::UserStatus(query) => Some(query.caller),
        NodeMessage::Announce(_)
        | NodeMessage::Leave
        | NodeMessage::Answer(_)
        | NodeMessage::Relay(_)
        | NodeMessage::App(_) => None,
    }
}

pub(super) fn set_caller(message: &mut NodeMessage, caller: Caller) {
    match message {
        NodeMessage::Instruct(command) => command.caller = Some(caller),
        NodeMessage::Block(command) => command.caller = Some(caller),
        NodeMessage::Connections(list_request) => Arc::make_mut(list_request).caller = caller,
        NodeMessage::Channels(query) => query.caller = caller,
        NodeMessage::UserStatus(query) => query.caller = caller,
        NodeMessage::Announce(_)
        | NodeMessage::Leave
        | NodeMessage::Answer(_)
        | NodeMessage::Relay(_)
        | NodeMessage::App(_) => {}
    }
}

pub(super) fn clear_caller(message: &mut NodeMessage) {
    match message {
        NodeMessage::Instruct(command) => command.caller = None,
        NodeMessage::Block(command) => command.caller = None,
        _ => {}
    }
}
