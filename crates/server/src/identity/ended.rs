//! Users whose connections were ended by the back end's word, in order: what was found out of somebody before that does not
//! let him in any more.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Users that are kept in mind. Of those before, everybody counts as ended when the oldest of these was.
const USERS_MAX: usize = 16_384;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// How often that was so.
    count: AtomicU64,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_user: HashMap<Box<str>, Endings>,
    order: BTreeMap<u64, Box<str>>,
    /// Of the latest that was forgotten.
    forgotten: u64,
}

/// Of one user: what the count was after each of the last two.
#[derive(Debug, Default)]
struct Endings {
    last: u64,
    /// Connections that the last one left alone.
    except: Box<[Box<str>]>,
    /// The one before, which counts for all.
    before: u64,
}

impl Ended {
    /// How often users were ended so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// A user's connections are ended now, but for these.
    pub(crate) fn add(&self, user: &str, except: &[Box<str>]) {
        let mut table = self.table.lock();
        let number = self.count() + 1;
        let endings = table.by_user.entry(user.into()).or_default();
        let before = std::mem::replace(&mut endings.last, number);
        endings.before = before;
        endings.except = except.into();
        table.order.remove(&before);
        table.order.insert(number, user.into());
        if table.order.len() > USERS_MAX
            && let Some((oldest, user)) = table.order.pop_first()
        {
            table.by_user.remove(&user);
            table.forgotten = oldest;
        }
        // A reader that sees the number finds the user.
        self.count.store(number, Ordering::Release);
    }

    /// Whether that was so since the count was `count`, for the connection of this id. Also where that is too long ago to be
    /// known.
    pub(crate) fn has_since(&self, user: &str, count: u64, client: &str) -> bool {
        if self.count() <= count {
            return false;
        }
        let table = self.table.lock();
        let Some(endings) = table.by_user.get(user) else {
            return table.forgotten > count;
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
    fn what_was_known_before_counts_no_more() {
        let ended = Ended::default();
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
        let ended = Ended::default();
        let before = ended.count();
        ended.add("ann", &["c1".into()]);
        assert!(!ended.has_since("ann", before, "c1"));
        assert!(ended.has_since("ann", before, "c2") && ended.has_since("ann", before, ""));
        // The one before counts for all.
        let between = ended.count();
        ended.add("ann", &["c1".into()]);
        assert!(ended.has_since("ann", before, "c1") && !ended.has_since("ann", between, "c1"));
    }

    #[test]
    fn memory_is_bounded_and_what_is_forgotten_is_not_let_in() {
        let ended = Ended::default();
        let before = ended.count();
        ended.add("ann", &[]);
        let after = ended.count();
        for number in 0..USERS_MAX {
            ended.add(&number.to_string(), &[]);
        }
        assert!(ended.has_since("ann", before, "c") && ended.has_since("eve", before, "c"));
        assert!(!ended.has_since("ann", after, "c"));
        let table = ended.table.lock();
        assert_eq!(
            (table.by_user.len(), table.order.len()),
            (USERS_MAX, USERS_MAX)
        );
    }
}
