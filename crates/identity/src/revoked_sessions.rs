//! Records, in order, the sessions and subscriptions that the back end has ended. A lookup
//! or decision made before such an end no longer admits the session or subscription.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Maximum number of users recorded. After an eviction, every user without an entry counts as ended
/// at the time of the latest evicted entry.
const USERS_MAX: usize = 16_384;

/// Maximum number of recorded subscriptions, and of recorded connections.
const SUBSCRIPTIONS_MAX: usize = 65_536;
const CLIENTS_MAX: usize = 16_384;

/// The users, connections and subscriptions that the back end has ended recently.
#[derive(Debug, Default)]
pub struct RevokedSessions {
    /// The number of recorded endings of users, connections and subscriptions.
    count: AtomicU64,
    tables: Mutex<RevocationTables>,
}

#[derive(Debug, Default)]
struct RevocationTables {
    users: RevocationTable,
    /// Single connections that were ended, by connection id and user.
    clients: RevocationTable,
    /// Subscriptions by channel and user, and by connection id if only one connection is concerned.
    subscriptions: RevocationTable,
}

#[derive(Debug, Default)]
struct RevocationTable {
    by_name: HashMap<Box<str>, RecentRevocations>,
    order: BTreeMap<u64, Box<str>>,
    /// The number of the last evicted ending.
    forgotten: u64,
}

/// The numbers of the last two endings of a user, a connection or a subscription.
#[derive(Debug, Default)]
struct RecentRevocations {
    last: u64,
    /// The ids of the connections that the ending `last` did not affect.
    except: Box<[Box<str>]>,
    /// The number of the previous ending, which is assumed to have affected all connections.
    before: u64,
}

impl RevokedSessions {
    /// Returns the number of recorded endings of users, connections and subscriptions so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Records that all connections of a user were ended, except those whose ids are in `except`.
    pub fn add(&self, user: &str, except: &[Box<str>]) {
        let mut tables = self.tables.lock();
        let number = self.count() + 1;
        tables.users.add(user, except, number, USERS_MAX);
        // The number is stored last, so that a reader that sees it also finds the user.
        self.count.store(number, Ordering::Release);
    }

    /// Records that one connection of a user was ended.
    pub fn add_client(&self, user: &str, client: &str) {
        let name = joined_key(&[client, user]);
        let mut tables = self.tables.lock();
        let number = self.count() + 1;
        tables.clients.add(&name, &[], number, CLIENTS_MAX);
        self.count.store(number, Ordering::Release);
    }

    /// Records that a user's connections, or one of them, were unsubscribed from a channel.
    pub fn add_subscription(&self, user: &str, channel: &str, client: Option<&str>) {
        let name = match client {
            Some(client) => joined_key(&[channel, user, client]),
            None => joined_key(&[channel, user]),
        };
        let mut tables = self.tables.lock();
        let number = self.count() + 1;
        let subscriptions = &mut tables.subscriptions;
        subscriptions.add(&name, &[], number, SUBSCRIPTIONS_MAX);
        self.count.store(number, Ordering::Release);
    }

    /// Returns whether the back end has ended the user's connections, or the one with the id `client`, since
    /// [`count`](Self::count) returned `count`. Also returns `true` if `count` is too old to tell.
    pub fn has_since(&self, user: &str, count: u64, client: &str) -> bool {
        if self.count() <= count {
            return false;
        }
        let tables = self.tables.lock();
        let is_named = !client.is_empty();
        tables.users.has_since(user, count, client)
            || is_named
                && tables
                    .clients
                    .has_since(&joined_key(&[client, user]), count, "")
    }

    /// Returns whether the back end has ended a user's subscription to a channel since [`count`](Self::count) returned
    /// `count`, for all connections or for the one with the id `client`. Also returns `true` if `count` is too old to
    /// tell.
    pub fn has_subscription_since(
        &self,
        user: &str,
        channel: &str,
        count: u64,
        client: &str,
    ) -> bool {
        if self.count() <= count {
            return false;
        }
        let tables = self.tables.lock();
        let has = |name: &[&str]| tables.subscriptions.has_since(&joined_key(name), count, "");
        has(&[channel, user]) || !client.is_empty() && has(&[channel, user, client])
    }
}

/// Joins names with a character that no name contains.
fn joined_key(names: &[&str]) -> String {
    names.join("\0")
}

impl RevocationTable {
    fn add(&mut self, name: &str, except: &[Box<str>], number: u64, names_max: usize) {
        let endings = self.by_name.entry(name.into()).or_default();
        let before = std::mem::replace(&mut endings.last, number);
        endings.before = before;
        endings.except = except.into();
        self.order.remove(&before);
        self.order.insert(number, name.into());
        if self.order.len() > names_max
            && let Some((oldest, name)) = self.order.pop_first()
        {
            self.by_name.remove(&name);
            self.forgotten = oldest;
        }
    }

    fn has_since(&self, name: &str, count: u64, client: &str) -> bool {
        let Some(endings) = self.by_name.get(name) else {
            return self.forgotten > count;
        };
        let is_except = endings.except.iter().any(|except| **except == *client);
        match is_except {
            true => endings.before > count,
            false => endings.last > count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_results_are_invalidated() {
        let ended = RevokedSessions::default();
        let before = ended.count();
        assert!(!ended.has_since("ann", before, "c"));
        ended.add("ann", &[]);
        assert!(ended.has_since("ann", before, "c") && !ended.has_since("bob", before, "c"));
        let between = ended.count();
        assert!(!ended.has_since("ann", between, "c"));
        ended.add("bob", &[]);
        assert!(ended.has_since("ann", before, "c") && !ended.has_since("ann", between, "c"));
        ended.add("ann", &[]);
        assert!(ended.has_since("ann", between, "c"));
    }

    #[test]
    fn a_connection_may_be_excepted_once() {
        let ended = RevokedSessions::default();
        let before = ended.count();
        ended.add("ann", &["c1".into()]);
        assert!(!ended.has_since("ann", before, "c1"));
        assert!(ended.has_since("ann", before, "c2") && ended.has_since("ann", before, ""));
        // Exceptions are kept only for the last ending, so the previous one affects all connections.
        let between = ended.count();
        ended.add("ann", &["c1".into()]);
        assert!(ended.has_since("ann", before, "c1") && !ended.has_since("ann", between, "c1"));
    }

    #[test]
    fn memory_is_bounded_and_forgotten_sessions_are_rejected() {
        let ended = RevokedSessions::default();
        let before = ended.count();
        ended.add("ann", &[]);
        let after = ended.count();
        for number in 0..USERS_MAX {
            ended.add(&number.to_string(), &[]);
        }
        assert!(ended.has_since("ann", before, "c") && ended.has_since("eve", before, "c"));
        assert!(!ended.has_since("ann", after, "c"));
        let users = &ended.tables.lock().users;
        assert_eq!(
            (users.by_name.len(), users.order.len()),
            (USERS_MAX, USERS_MAX)
        );
    }

    #[test]
    fn subscriptions_are_ended_by_themselves_and_count_in_the_same_order() {
        let ended = RevokedSessions::default();
        let before = ended.count();
        ended.add_subscription("ann", "room:1", None);
        assert!(ended.has_subscription_since("ann", "room:1", before, "c"));
        for (user, channel) in [("bob", "room:1"), ("ann", "room:2"), ("1", "room:")] {
            assert!(!ended.has_subscription_since(user, channel, before, "c"));
        }
        assert!(!ended.has_since("ann", before, "c"), "she may stay");
        let between = ended.count();
        ended.add("ann", &[]);
        assert!(!ended.has_subscription_since("ann", "room:1", between, "c"));
        assert!(ended.count() > between && between > before);
        for number in 0..SUBSCRIPTIONS_MAX {
            ended.add_subscription(&number.to_string(), "room:1", None);
        }
        let subscriptions = &ended.tables.lock().subscriptions;
        assert_eq!(subscriptions.by_name.len(), SUBSCRIPTIONS_MAX);
        assert!(
            subscriptions.has_since("never", before, ""),
            "not known any more"
        );
        assert!(!subscriptions.has_since("never", between, ""));
    }

    #[test]
    fn one_connection_is_ended_by_its_id_and_the_others_stay() {
        let ended = RevokedSessions::default();
        let before = ended.count();
        ended.add_client("ann", "c1");
        assert!(ended.has_since("ann", before, "c1"));
        for (user, client) in [("ann", "c2"), ("ann", ""), ("bob", "c1")] {
            assert!(!ended.has_since(user, before, client), "{user} {client}");
        }
        assert!(!ended.has_since("ann", ended.count(), "c1"));
        ended.add_subscription("ann", "room:1", Some("c1"));
        let has = |client| ended.has_subscription_since("ann", "room:1", before, client);
        assert!(has("c1") && !has("c2") && !has(""));
        let after = ended.count();
        for number in 0..CLIENTS_MAX {
            ended.add_client(&number.to_string(), "c");
        }
        assert!(ended.has_since("eve", before, "c9"), "not known any more");
        assert!(!ended.has_since("eve", after, "c9"));
        let clients = &ended.tables.lock().clients;
        assert_eq!(clients.by_name.len(), CLIENTS_MAX);
    }
}
