//! The members of one channel, by connection and by user.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::{ClientInfo, PresenceStats};

/// By when somebody who has gone is given up; the second number tells apart those of one moment.
pub(crate) type Due = (u64, u64);

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    clients: HashSet<ByClient, RandomState>,
    users: HashMap<ByUser, Standing, RandomState>,
}

#[derive(Debug, Default)]
struct Standing {
    connections: u32,
    /// His last connection, which has gone, and until when he may come back.
    left: Option<(Arc<ClientInfo>, Due)>,
}

/// What came of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Others have to be told.
    pub(crate) is_news: bool,
    /// He had gone, and is back before he was given up at this time.
    pub(crate) was_leaving: Option<Due>,
}

/// What came of a leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// He was no member.
    Unknown,
    /// He stays a member until he is given up or comes back.
    Waits,
    /// His user has other connections, and others were told of the user only.
    Quiet,
    /// Others have to be told.
    Gone,
}

impl Roster {
    /// One more. `by_user`: others are told of a user's first connection only.
    pub(crate) fn join(&mut self, client: &Arc<ClientInfo>, by_user: bool) -> Arrival {
        let user = self.users.entry(ByUser(Arc::clone(client))).or_default();
        let left = user.left.take();
        user.connections += 1;
        let is_first = user.connections == 1;
        if let Some((gone, _)) = &left {
            self.clients.remove(&*gone.client);
        }
        let is_new = self.clients.replace(ByClient(Arc::clone(client))).is_none();
        let is_one_of_many = by_user && !client.user.is_empty();
        Arrival {
            is_news: is_new && left.is_none() && (is_first || !is_one_of_many),
            was_leaving: left.map(|(_, due)| due),
        }
    }

    /// One less; with `due` others are told of a user's last connection only, and not before.
    pub(crate) fn leave(&mut self, client: &Arc<ClientInfo>, due: Option<Due>) -> Departure {
        let Some(user) = self.users.get_mut(&*client.user) else {
            return Departure::Unknown;
        };
        if !self.clients.contains(&*client.client) {
            return Departure::Unknown;
        }
        let due = due.filter(|_| !client.user.is_empty());
        user.connections = user.connections.saturating_sub(1);
        match (user.connections, due) {
            (0, Some(due)) => {
                user.left = Some((Arc::clone(client), due));
                return Departure::Waits;
            }
            (0, None) => drop(self.users.remove(&*client.user)),
            _ => {}
        }
        self.clients.remove(&*client.client);
        match due {
            Some(_) => Departure::Quiet,
            None => Departure::Gone,
        }
    }

    /// Somebody who had gone has not come back.
    pub(crate) fn give_up(&mut self, client: &ClientInfo) {
        self.users.remove(&*client.user);
        self.clients.remove(&*client.client);
    }

    /// When those are given up who have gone.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = Due> {
        let left = self.users.values().filter_map(|user| user.left.as_ref());
        left.map(|(_, due)| *due)
    }

    pub(crate) fn clients(&self) -> impl Iterator<Item = &Arc<ClientInfo>> {
        self.clients.iter().map(|client| &client.0)
    }

    pub(crate) fn stats(&self) -> PresenceStats {
        PresenceStats {
            clients: self.clients.len() as u32,
            users: self.users.len() as u32,
        }
    }
}

/// Told apart by the connection.
#[derive(Debug)]
struct ByClient(Arc<ClientInfo>);

/// Told apart by the user.
#[derive(Debug)]
struct ByUser(Arc<ClientInfo>);

impl Borrow<str> for ByClient {
    fn borrow(&self) -> &str {
        &self.0.client
    }
}

impl Borrow<str> for ByUser {
    fn borrow(&self) -> &str {
        &self.0.user
    }
}

/// As the name that it borrows, which is what maps are asked by.
macro_rules! told_apart_by_name {
    ($($kind:ty),*) => {$(
        impl PartialEq for $kind {
            fn eq(&self, other: &Self) -> bool {
                Borrow::<str>::borrow(self) == Borrow::<str>::borrow(other)
            }
        }
        impl Eq for $kind {}
        impl Hash for $kind {
            fn hash<H: Hasher>(&self, state: &mut H) {
                Borrow::<str>::borrow(self).hash(state);
            }
        }
    )*};
}
told_apart_by_name!(ByClient, ByUser);

#[cfg(test)]
mod tests {
    use super::*;

    fn client(user: &str, client: &str) -> Arc<ClientInfo> {
        Arc::new(ClientInfo {
            user: user.into(),
            client: client.into(),
            conn_info: None,
            chan_info: None,
        })
    }

    fn news(arrival: Arrival) -> bool {
        arrival.is_news
    }

    #[test]
    fn without_a_delay_each_connection_comes_and_goes() {
        let mut roster = Roster::default();
        let (one, two) = (client("ann", "1"), client("ann", "2"));
        assert!(news(roster.join(&one, false)) && news(roster.join(&two, false)));
        let both = PresenceStats {
            clients: 2,
            users: 1,
        };
        assert_eq!(roster.stats(), both);
        assert_eq!(roster.leave(&one, None), Departure::Gone);
        assert_eq!(roster.leave(&one, None), Departure::Unknown);
        assert_eq!(roster.leave(&two, None), Departure::Gone);
        assert_eq!(roster.stats(), PresenceStats::default());
    }

    #[test]
    fn with_a_delay_users_come_and_go() {
        let mut roster = Roster::default();
        let due = Some((5, 1));
        let (one, two, three) = (client("ann", "1"), client("ann", "2"), client("ann", "3"));
        assert!(news(roster.join(&one, true)));
        assert!(!news(roster.join(&two, true)));
        assert_eq!(roster.leave(&one, due), Departure::Quiet);
        assert_eq!(roster.leave(&two, due), Departure::Waits);
        let still = PresenceStats {
            clients: 1,
            users: 1,
        };
        assert_eq!(roster.stats(), still);
        assert_eq!(roster.leaving().collect::<Vec<_>>(), [(5, 1)]);
        let back = roster.join(&three, true);
        assert_eq!((back.is_news, back.was_leaving), (false, due));
        assert_eq!(roster.stats(), still);
        assert_eq!(roster.leave(&three, due), Departure::Waits);
        roster.give_up(&three);
        assert_eq!(roster.stats(), PresenceStats::default());
        assert!(news(roster.join(&one, true)));
    }

    #[test]
    fn nobody_waits_for_who_is_anonymous() {
        let mut roster = Roster::default();
        let (one, two) = (client("", "1"), client("", "2"));
        assert!(news(roster.join(&one, true)) && news(roster.join(&two, true)));
        assert_eq!(roster.leave(&one, Some((5, 1))), Departure::Gone);
        assert_eq!(roster.leave(&two, Some((5, 2))), Departure::Gone);
        assert_eq!(roster.stats(), PresenceStats::default());
    }
}
