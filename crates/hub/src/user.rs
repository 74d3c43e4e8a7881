//! Users: their connections, the commands for these connections, and the time at which a user was last connected.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::quality::RandomState;

use crate::subscription::NONE;
use crate::{
    Caller, ChannelName, CommandDispatch, ConnectionId, Engine, Hub, HubMessage, NameError, Outlet,
    RequestOutcome, Ticket, UserCommand, UserStatus,
};

/// Maximum number of absent users per worker whose last-seen time is kept. When it is reached, the older half is
/// forgotten.
const LAST_SEEN_MAX: usize = 100_000;

/// The times at which absent users were last connected, by the names of their personal channels.
#[derive(Debug, Default)]
pub(crate) struct LastSeen {
    /// The users seen last. When this map has reached half of the maximum, it replaces `older`.
    recent: HashMap<Arc<str>, u64, RandomState>,
    older: HashMap<Arc<str>, u64, RandomState>,
}

impl LastSeen {
    pub(crate) fn note(&mut self, channel: &Arc<str>, now_ms: u64) {
        if self.recent.len() >= LAST_SEEN_MAX / 2 {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(Arc::clone(channel), now_ms);
    }

    fn find(&self, channel: &str) -> Option<u64> {
        let found = self.recent.get(channel);
        found.or_else(|| self.older.get(channel)).copied()
    }
}

impl<E: Engine> Hub<E> {
    /// Returns the user of a session, as determined by the personal channel to which the session is subscribed; `None`
    /// if there is no such subscription.
    pub fn user_of(&self, session: ConnectionId) -> Option<&str> {
        let mut channels = self.channels_of(session);
        channels.find_map(|name| name.strip_prefix('#'))
    }

    /// Sends a command to all connections of a user, on all workers. The reply, or [`RequestOutcome::Done`], contains
    /// the number of connections, and how many [`HubReply::CommandAcknowledged`](crate::HubReply::CommandAcknowledged)
    /// follow until the command is complete.
    pub fn send_user_command(
        &mut self,
        from: Option<(ConnectionId, Ticket)>,
        user: &str,
        instruction: UserCommand,
        outlet: &mut impl Outlet,
    ) -> Result<RequestOutcome<CommandDispatch>, NameError> {
        let mut buffer = String::new();
        let name = ChannelName::of_user(user, &mut buffer)?;
        let instruction = Arc::new(instruction);
        let hash = self.channels.hash(name.as_str());
        let home = self.channels.home(hash, name.as_str(), &self.namespaces);
        if home == self.me {
            let caller = from.map(|(session, ticket)| Caller {
                worker: home,
                session,
                ticket,
            });
            let instructed = self.broadcast_command(name.as_str(), &instruction, caller, outlet);
            return Ok(RequestOutcome::Done(instructed));
        }
        let channel = self.channel_name(hash, name.as_str());
        let mail = HubMessage::CommandUser {
            channel,
            instruction,
            reply: from,
        };
        outlet.send_message(home, mail);
        Ok(RequestOutcome::Pending)
    }

    /// Iterates over the connections of a user on this worker, in unspecified order.
    pub fn sessions_of_user(&self, user: &str) -> impl Iterator<Item = ConnectionId> {
        let mut buffer = String::new();
        let name = ChannelName::of_user(user, &mut buffer).ok();
        self.sessions_of(name.map_or("", ChannelName::as_str))
    }

    /// At the channel's home: sends a command to all workers with connections of the user.
    pub(crate) fn broadcast_command(
        &mut self,
        channel: &str,
        instruction: &Arc<UserCommand>,
        caller: Option<Caller>,
        outlet: &mut impl Outlet,
    ) -> CommandDispatch {
        let Some(index) = self.find(channel) else {
            return CommandDispatch::default();
        };
        let channel = &self.channels[index];
        let mut workers = 0;
        for share in channel.remote_subscribers.as_slice() {
            let mail = HubMessage::Command {
                channel: Arc::clone(&channel.name),
                instruction: Arc::clone(instruction),
                caller,
            };
            outlet.send_message(share.worker, mail);
            workers += 1;
        }
        let connections = channel.total_subscribers();
        if channel.local_subscribers() > 0 {
            workers += 1;
            let name = Arc::clone(&channel.name);
            self.execute_for_sessions(&name, instruction, caller, outlet);
        }
        CommandDispatch {
            connections,
            pending_acknowledgements: self.expected_acknowledgements(instruction, workers),
        }
    }

    /// On the subscriber's worker: makes the sessions of this worker that are subscribed to the channel execute a
    /// command.
    pub(crate) fn execute_locally(
        &self,
        channel: &str,
        instruction: &Arc<UserCommand>,
        outlet: &mut impl Outlet,
    ) {
        let Some(index) = self.find(channel) else {
            return;
        };
        for slot in self.channels[index].subscribers.as_slice() {
            if *slot != NONE {
                outlet.execute_command(self.subscriptions.session(*slot), instruction);
            }
        }
    }

    /// At the channel's home: returns the online status of the user of a personal channel.
    pub(crate) fn user_status(&self, channel: &str) -> UserStatus {
        let index = self.find(channel);
        let connections = index.map_or(0, |index| self.channels[index].total_subscribers());
        UserStatus {
            connections,
            last_seen_ms: self.last_seen.find(channel).filter(|_| connections == 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_to_leave_are_remembered_longest() {
        let mut gone = LastSeen::default();
        let name = |number: usize| Arc::from(format!("#{number}"));
        let again = name(0);
        for number in 0..LAST_SEEN_MAX {
            gone.note(&name(number), number as u64);
            gone.note(&again, number as u64);
        }
        let last = LAST_SEEN_MAX as u64 - 1;
        assert_eq!(gone.find(&again), Some(last));
        assert_eq!(gone.find(&name(LAST_SEEN_MAX - 1)), Some(last));
        assert_eq!(gone.find(&name(1)), None);
        assert!(gone.recent.len() + gone.older.len() <= LAST_SEEN_MAX);
    }
}
