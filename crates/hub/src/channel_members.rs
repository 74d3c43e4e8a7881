//! The members of a channel, by connection and by user.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::{ClientInfo, PresenceStats};

/// The end of a leave delay in monotonic milliseconds, and a serial number that makes the pair unique.
pub(crate) type Due = (u64, u64);

/// The members of a channel.
#[derive(Debug, Default)]
pub(crate) struct ChannelMembers {
    clients: Clients,
    users: HashMap<ByUser, UserEntry, RandomState>,
}

/// The connections of the members. Clients see the order of this list, so the order must depend only on the sequence of
/// joins and leaves.
#[derive(Debug, Default)]
struct Clients {
    list: Vec<Arc<ClientInfo>>,
    /// The indices in `list`, by client id.
    places: HashTable<u32>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct UserEntry {
    connections: u32,
    /// While a leave delay is running: the user's last connection, which is closed, and the end of the delay.
    left: Option<(Arc<ClientInfo>, Due)>,
}

/// The effect of a client's join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JoinEffect {
    /// Whether the join has to be announced.
    pub(crate) is_announced: bool,
    /// If the user has returned during a leave delay: the time at which the delay would have ended.
    pub(crate) was_leaving: Option<Due>,
}

/// The effect of a client's leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaveEffect {
    /// The client was not a member.
    Unknown,
    /// The client stays a member until its leave delay ends or its user returns.
    Delayed,
    /// The client is removed, but the user has other connections, and only users are announced.
    Unannounced,
    /// The client is removed, and its leave must be announced.
    Announced,
}

impl ChannelMembers {
    /// Adds a member. If `by_user`, only the first connection of each user is announced.
    pub(crate) fn join(&mut self, client: &Arc<ClientInfo>, by_user: bool) -> JoinEffect {
        let user = self.users.entry(ByUser(Arc::clone(client))).or_default();
        let left = user.left.take();
        user.connections += 1;
        let is_first = user.connections == 1;
        if let Some((gone, _)) = &left {
            self.clients.remove(&gone.client);
        }
        let is_new = self.clients.insert(client);
        let is_one_of_many = by_user && !client.user.is_empty();
        JoinEffect {
            is_announced: is_new && left.is_none() && (is_first || !is_one_of_many),
            was_leaving: left.map(|(_, due)| due),
        }
    }

    /// Removes a member. If `due` is `None` or the user is anonymous, the leave is announced now. Otherwise only the
    /// leave of the user's last connection is announced, and not before `due`.
    pub(crate) fn leave(&mut self, client: &Arc<ClientInfo>, due: Option<Due>) -> LeaveEffect {
        let Some(user) = self.users.get_mut(&*client.user) else {
            return LeaveEffect::Unknown;
        };
        if !self.clients.contains(&client.client) {
            return LeaveEffect::Unknown;
        }
        let due = due.filter(|_| !client.user.is_empty());
        user.connections = user.connections.saturating_sub(1);
        match (user.connections, due) {
            (0, Some(due)) => {
                user.left = Some((Arc::clone(client), due));
                return LeaveEffect::Delayed;
            }
            (0, None) => drop(self.users.remove(&*client.user)),
            _ => {}
        }
        self.clients.remove(&client.client);
        match due {
            Some(_) => LeaveEffect::Unannounced,
            None => LeaveEffect::Announced,
        }
    }

    /// Removes a member whose leave delay has ended.
    pub(crate) fn expire(&mut self, client: &ClientInfo) {
        self.users.remove(&*client.user);
        self.clients.remove(&client.client);
    }

    /// Returns the ends of all running leave delays, in order.
    pub(crate) fn leaving(&self) -> Vec<Due> {
        let left = self.users.values().filter_map(|user| user.left.as_ref());
        let mut dues: Vec<Due> = left.map(|(_, due)| *due).collect();
        dues.sort_unstable();
        dues
    }

    /// Returns whether there are no members. Members in their leave delay count.
    pub(crate) fn is_empty(&self) -> bool {
        self.users.is_empty() && self.clients.list.is_empty()
    }

    pub(crate) fn clients(&self) -> impl Iterator<Item = &Arc<ClientInfo>> {
        self.clients.list.iter()
    }

    pub(crate) fn stats(&self) -> PresenceStats {
        PresenceStats {
            clients: self.clients.list.len() as u32,
            users: self.users.len() as u32,
        }
    }
}

impl Clients {
    fn place(&self, name: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(name);
        let is_it = |place: &u32| *self.list[*place as usize].client == *name;
        self.places.find(hash, is_it).copied()
    }

    fn contains(&self, name: &str) -> bool {
        self.place(name).is_some()
    }

    /// Inserts a client, or replaces the client with the same id. Returns `true` if the id is new.
    fn insert(&mut self, client: &Arc<ClientInfo>) -> bool {
        if let Some(place) = self.place(&client.client) {
            self.list[place as usize] = Arc::clone(client);
            return false;
        }
        let place = self.list.len() as u32;
        self.list.push(Arc::clone(client));
        let Self {
            list,
            places,
            hasher,
        } = self;
        let hash = |place: &u32| hasher.hash_one(&*list[*place as usize].client);
        places.insert_unique(hash(&place), place, hash);
        true
    }

    fn remove(&mut self, name: &str) {
        let hash = self.hasher.hash_one(name);
        let list = &self.list;
        let found = self
            .places
            .find_entry(hash, |place| *list[*place as usize].client == *name);
        let Ok(entry) = found else { return };
        let (place, _) = entry.remove();
        self.list.swap_remove(place as usize);
        // The last connection of the list has moved to this index.
        if let Some(moved) = self.list.get(place as usize) {
            let (hash, before) = (self.hasher.hash_one(&*moved.client), self.list.len() as u32);
            if let Some(moved) = self.places.find_mut(hash, |place| *place == before) {
                *moved = place;
            }
        }
    }
}

/// A client that is compared and hashed by the name of its user.
#[derive(Debug)]
struct ByUser(Arc<ClientInfo>);

impl Borrow<str> for ByUser {
    fn borrow(&self) -> &str {
        &self.0.user
    }
}

impl PartialEq for ByUser {
    fn eq(&self, other: &Self) -> bool {
        self.0.user == other.0.user
    }
}

impl Eq for ByUser {}

/// The hash is that of the user name, so that the map can be queried by user name.
impl Hash for ByUser {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Borrow::<str>::borrow(self).hash(state);
    }
}

/// The members of this worker's subscriptions, and the members of the channels whose home is this worker.
#[derive(Default)]
pub(crate) struct Presence {
    /// The members among this worker's subscribers, by the slot of the subscription.
    pub(crate) members: HashMap<u32, Arc<ClientInfo>, RandomState>,
    /// At the channel's home: the members of each channel, by channel name. A channel without members has no entry. A
    /// channel without subscribers may have members whose leave delay is running.
    pub(crate) channels: HashMap<Arc<str>, ChannelMembers, RandomState>,
    /// At the channel's home: the running leave delays, by their end. The values are the channel
    /// and the user's last connection.
    pub(crate) leaving: BTreeMap<Due, (Arc<str>, Arc<ClientInfo>)>,
    pub(crate) serial: u64,
}

impl Presence {
    /// Returns three numbers: the members of this worker's subscriptions, the channels with members, and the users
    /// whose leave delay is running.
    pub(crate) fn sizes(&self) -> [usize; 3] {
        [self.members.len(), self.channels.len(), self.leaving.len()]
    }

    /// At the channel's home: iterates over the members of channels, including those in their leave delay.
    pub(crate) fn local_members(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<ClientInfo>)> {
        let all_members = self.channels.iter();
        all_members.flat_map(|(name, channel_members)| {
            channel_members.clients().map(move |client| (name, client))
        })
    }

    /// Returns whether a leave delay is running.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.leaving.is_empty()
    }
}

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

    fn news(arrival: JoinEffect) -> bool {
        arrival.is_announced
    }

    #[test]
    fn without_a_delay_each_connection_joins_and_leaves() {
        let mut channel_members = ChannelMembers::default();
        let (one, two) = (client("ann", "1"), client("ann", "2"));
        assert!(news(channel_members.join(&one, false)) && news(channel_members.join(&two, false)));
        let both = PresenceStats {
            clients: 2,
            users: 1,
        };
        assert_eq!(channel_members.stats(), both);
        assert_eq!(channel_members.leave(&one, None), LeaveEffect::Announced);
        assert_eq!(channel_members.leave(&one, None), LeaveEffect::Unknown);
        assert_eq!(channel_members.leave(&two, None), LeaveEffect::Announced);
        assert_eq!(channel_members.stats(), PresenceStats::default());
    }

    #[test]
    fn with_a_delay_users_come_and_go() {
        let mut channel_members = ChannelMembers::default();
        let due = Some((5, 1));
        let (one, two, three) = (client("ann", "1"), client("ann", "2"), client("ann", "3"));
        assert!(news(channel_members.join(&one, true)));
        assert!(!news(channel_members.join(&two, true)));
        assert_eq!(channel_members.leave(&one, due), LeaveEffect::Unannounced);
        assert_eq!(channel_members.leave(&two, due), LeaveEffect::Delayed);
        let still = PresenceStats {
            clients: 1,
            users: 1,
        };
        assert_eq!(channel_members.stats(), still);
        assert_eq!(channel_members.leaving(), [(5, 1)]);
        let back = channel_members.join(&three, true);
        assert_eq!((back.is_announced, back.was_leaving), (false, due));
        assert_eq!(channel_members.stats(), still);
        assert_eq!(channel_members.leave(&three, due), LeaveEffect::Delayed);
        channel_members.expire(&three);
        assert_eq!(channel_members.stats(), PresenceStats::default());
        assert!(news(channel_members.join(&one, true)));
    }

    #[test]
    fn the_order_of_members_is_not_random() {
        let all: Vec<_> = (0..40).map(|one| client("", &one.to_string())).collect();
        let listed = || {
            let mut channel_members = ChannelMembers::default();
            for one in &all {
                channel_members.join(one, false);
            }
            // Removes the first member, a middle one and the last one.
            for gone in [0, 17, 39] {
                assert_eq!(
                    channel_members.leave(&all[gone], None),
                    LeaveEffect::Announced
                );
            }
            assert!(!news(channel_members.join(&all[5], false)), "it is there");
            let names = channel_members.clients().map(|one| one.client.to_string());
            names.collect::<Vec<_>>()
        };
        let first = listed();
        // The last member has moved to the index of each removed one.
        assert_eq!((&*first[0], &*first[1], &*first[17]), ("37", "1", "38"));
        // Tables hash with different random states, but all list their members in the same order.
        assert!((0..10).all(|_| listed() == first));
        let mut sorted = first;
        sorted.sort_by_key(|name| name.parse::<u32>().ok());
        let left = (0..39).filter(|one| ![0, 17].contains(one));
        assert_eq!(sorted, left.map(|one| one.to_string()).collect::<Vec<_>>());
    }

    #[test]
    fn anonymous_members_leave_at_once() {
        let mut channel_members = ChannelMembers::default();
        let (one, two) = (client("", "1"), client("", "2"));
        assert!(news(channel_members.join(&one, true)) && news(channel_members.join(&two, true)));
        assert_eq!(
            channel_members.leave(&one, Some((5, 1))),
            LeaveEffect::Announced
        );
        assert_eq!(
            channel_members.leave(&two, Some((5, 2))),
            LeaveEffect::Announced
        );
        assert_eq!(channel_members.stats(), PresenceStats::default());
    }
}
