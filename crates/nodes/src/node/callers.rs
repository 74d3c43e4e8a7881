//! The callers in messages, and the answers that theirs begin with.

use std::sync::Arc;

use crate::{Answer, Caller, Connections, Listing, Message, UserStatus};

/// Returns the answer to a message before any node has answered.
pub(super) fn empty(message: &Message) -> Answer {
    match message {
        Message::Connections(_) => Answer::Connections(Connections::default()),
        Message::Channels(_) => Answer::Channels(Listing::default()),
        Message::UserStatus(_) => Answer::UserStatus(UserStatus::default()),
        Message::Block(_) => Answer::Blocked(Ok(())),
        _ => Answer::Instructed { connections: 0 },
    }
}

pub(super) fn caller_of(message: &Message) -> Option<Caller> {
    match message {
        Message::Instruct(command) => command.caller,
        Message::Block(command) => command.caller,
        Message::Connections(census) => Some(census.caller),
        Message::Channels(query) => Some(query.caller),
        Message::UserStatus(query) => Some(query.caller),
        Message::Announce(_)
        | Message::Leave
        | Message::Answer(_)
        | Message::Relay(_)
        | Message::App(_) => None,
    }
}

pub(super) fn set_caller(message: &mut Message, caller: Caller) {
    match message {
        Message::Instruct(command) => command.caller = Some(caller),
        Message::Block(command) => command.caller = Some(caller),
        Message::Connections(census) => Arc::make_mut(census).caller = caller,
        Message::Channels(query) => query.caller = caller,
        Message::UserStatus(query) => query.caller = caller,
        Message::Announce(_)
        | Message::Leave
        | Message::Answer(_)
        | Message::Relay(_)
        | Message::App(_) => {}
    }
}

pub(super) fn clear_caller(message: &mut Message) {
    match message {
        Message::Instruct(command) => command.caller = None,
        Message::Block(command) => command.caller = None,
        _ => {}
    }
}
