//! Users: their connections, commands to them, and when they were last seen.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::quality::RandomState;

use crate::subscription::NONE;
use crate::{
    Caller, ChannelName, ConnectionId, Engine, Hub, Instructed, Instruction, Mail, NameError,
    Outcome, Outlet, Ticket, UserStatus,
};

/// Maximum number of absent users per worker whose last-seen time is kept; beyond that the oldest are forgotten.
const GONE_MAX: usize = 100_000;

/// When absent users were last connected, by the names of their personal channels.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    /// The most recent half of the capacity.
    recent: HashMap<Arc<str>, u64, RandomState>,
    older: HashMap<Arc<str>, u64, RandomState>,
}

impl Gone {
    pub(crate) fn note(&mut self, channel: &Arc<str>, now_ms: u64) {
        if self.recent.len() >= GONE_MAX / 2 {
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
    /// Returns the user of a session, by its subscription to a personal channel.
    pub fn user_of(&self, session: ConnectionId) -> Option<&str> {
        let mut channels = self.channels_of(session);
        channels.find_map(|name| name.strip_prefix('#'))
    }

    /// Sends a command to all connections of a user, on all workers. The reply, or [`Outcome::Done`], tells the number
    /// of connections, and how many [`Answer::Settled`](crate::Answer::Settled) follow until the command is complete.
    pub fn instruct(
        &mut self,
        from: Option<(ConnectionId, Ticket)>,
        user: &str,
        instruction: Instruction,
        outlet: &mut impl Outlet,
    ) -> Result<Outcome<Instructed>, NameError> {
        let mut buffer = String::new();
        let name = ChannelName::of_user(user, &mut buffer)?;
        let instruction = Arc::new(instruction);
        let hash = self.channels.hash(name.as_str());
        let home = self.home(hash, name.as_str());
        if home == self.me {
            let caller = from.map(|(session, ticket)| Caller {
                worker: home,
                session,
                ticket,
            });
            let instructed = self.pass_on(name.as_str(), &instruction, caller, outlet);
            return Ok(Outcome::Done(instructed));
        }
        let channel = self.channel_name(hash, name.as_str());
        let mail = Mail::InstructAll {
            channel,
            instruction,
            reply: from,
        };
        outlet.mail(home, mail);
        Ok(Outcome::Pending)
    }

    /// Iterates over the connections of a user on this worker, in unspecified order.
    pub fn sessions_of_user(&self, user: &str) -> impl Iterator<Item = ConnectionId> {
        let mut buffer = String::new();
        let name = ChannelName::of_user(user, &mut buffer).ok();
        self.sessions_of(name.map_or("", ChannelName::as_str))
    }

    /// Home: broadcasts a command to all workers with subscribers.
    pub(crate) fn pass_on(
        &mut self,
        channel: &str,
        instruction: &Arc<Instruction>,
        caller: Option<Caller>,
        outlet: &mut impl Outlet,
    ) -> Instructed {
        let Some(index) = self.find(channel) else {
            return Instructed::default();
        };
        let channel = &self.channels[index];
        let mut workers = 0;
        for share in channel.shares.as_slice() {
            let mail = Mail::Instruct {
                channel: Arc::clone(&channel.name),
                instruction: Arc::clone(instruction),
                caller,
            };
            outlet.mail(share.worker, mail);
            workers += 1;
        }
        let connections = channel.subscribers_all();
        if channel.subscribers_here() > 0 {
            workers += 1;
            let name = Arc::clone(&channel.name);
            self.begin_instruction(&name, instruction, caller, outlet);
        }
        Instructed {
            connections,
            open: self.settlements(instruction, workers),
        }
    }

    /// Local: executes a command for local sessions.
    pub(crate) fn carry_out(
        &self,
        channel: &str,
        instruction: &Arc<Instruction>,
        outlet: &mut impl Outlet,
    ) {
        let Some(index) = self.find(channel) else {
            return;
        };
        for slot in self.channels[index].subscribers.as_slice() {
            if *slot != NONE {
                outlet.instruct(self.subscriptions.session(*slot), instruction);
            }
        }
    }

    /// Home: returns the online status of the user of a personal channel.
    pub(crate) fn user_status(&self, channel: &str) -> UserStatus {
        let index = self.find(channel);
        let connections = index.map_or(0, |index| self.channels[index].subscribers_all());
        UserStatus {
            connections,
            last_seen_ms: self.gone.find(channel).filter(|_| connections == 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_went_last_are_known_longest() {
        let mut gone = Gone::default();
        let name = |number: usize| Arc::from(format!("#{number}"));
        let again = name(0);
        for number in 0..GONE_MAX {
            gone.note(&name(number), number as u64);
            gone.note(&again, number as u64);
        }
        let last = GONE_MAX as u64 - 1;
        assert_eq!(gone.find(&again), Some(last));
        assert_eq!(gone.find(&name(GONE_MAX - 1)), Some(last));
        assert_eq!(gone.find(&name(1)), None);
        assert!(gone.recent.len() + gone.older.len() <= GONE_MAX);
    }
}
