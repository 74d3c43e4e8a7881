//! The memory budgets of the history, and the share of each publisher in them.
//!
//! A namespace may have its own budget; the channels of all other namespaces share the common
//! budget. Within a budget each publisher has an account, and a stream counts toward the account of
//! the publisher of most of its bytes. When a budget is exceeded, publications are evicted from the
//! heaviest account, beginning with its largest stream: a publisher that floods the server evicts
//! its own publications.

use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use hashbrown::HashTable;

use crate::Budget;
use crate::weight_classes::{ClassLink, Linked, NO_MEMBER, WeightClasses};

/// The weight of the account of back ends and applications is its bytes divided by this number, because they are
/// trusted and publish for many users.
const SERVER_WEIGHT_DIVISOR: usize = 16;

/// The name of a user, empty for anonymous clients; `None` for back ends and applications.
pub(crate) type Publisher<'a> = Option<&'a str>;

/// The memory that an account takes, in bytes: its slot, its entry in the name table, and the ends of the lists of a
/// few weight classes.
const ACCOUNT_BYTES: usize = size_of::<Option<Account>>() + size_of::<u32>() + 2 + 128;

/// The accounts of all publishers, and the budgets toward which they count.
#[derive(Debug)]
pub(crate) struct Accounts {
    accounts: Vec<Option<Account>>,
    free: Vec<u32>,
    names: HashTable<u32>,
    hasher: RandomState,
    pools: Vec<Pool>,
    /// The index of the pool for each [`Budget`].
    pool_of: Vec<u32>,
    /// `false` if no pool exceeds its budget; `true` if one may.
    may_exceed_budget: bool,
}

#[derive(Debug)]
struct Account {
    publisher: Option<Box<str>>,
    pool: u32,
    bytes: usize,
    link: ClassLink,
    streams: WeightClasses,
}

/// A budget, with the accounts that count toward it.
#[derive(Debug)]
struct Pool {
    /// The name of the namespace; `None` for the common budget.
    namespace: Option<Box<str>>,
    bytes_max: usize,
    /// Whether the namespace no longer has a budget of its own.
    is_removed: bool,
    bytes: usize,
    accounts: WeightClasses,
}

impl Account {
    fn weight(&self) -> usize {
        match self.publisher {
            Some(_) => self.bytes,
            None => self.bytes / SERVER_WEIGHT_DIVISOR,
        }
    }

    fn cost(&self) -> usize {
        ACCOUNT_BYTES + self.publisher.as_ref().map_or(0, |name| name.len())
    }
}

impl Pool {
    fn new(namespace: Option<&str>) -> Self {
        Self {
            namespace: namespace.map(Box::from),
            bytes_max: usize::MAX,
            is_removed: false,
            bytes: 0,
            accounts: WeightClasses::default(),
        }
    }

    fn is_over(&self) -> bool {
        self.bytes > self.bytes_max
    }
}

impl Linked for [Option<Account>] {
    fn link(&mut self, member: u32) -> &mut ClassLink {
        &mut account(self, member).link
    }
}

impl Accounts {
    pub(crate) fn new() -> Self {
        Self {
            accounts: Vec::new(),
            free: Vec::new(),
            names: HashTable::new(),
            hasher: RandomState::default(),
            pools: vec![Pool::new(None)],
            pool_of: vec![0],
            may_exceed_budget: false,
        }
    }

    /// Sets the budgets of namespaces, and the common budget of all other channels. If a namespace no longer has a
    /// budget, its streams still count toward the removed budget until a maintenance scan
    /// [moves](super::streams::Streams::scan) them.
    pub(crate) fn set_budgets<'n>(
        &mut self,
        common: usize,
        budgets: impl Iterator<Item = (&'n str, usize)>,
    ) {
        let [first, others @ ..] = &mut *self.pools else {
            unreachable!("the list of pools always begins with the common budget");
        };
        first.bytes_max = common;
        others.iter_mut().for_each(|pool| pool.is_removed = true);
        self.pool_of.truncate(1);
        for (namespace, bytes_max) in budgets {
            let find = |is: &dyn Fn(&Pool) -> bool| self.pools.iter().position(is);
            let place = find(&|pool| pool.namespace.as_deref() == Some(namespace))
                .or_else(|| find(&|pool| pool.is_removed && pool.accounts.is_empty()));
            let place = place.unwrap_or_else(|| {
                self.pools.push(Pool::new(None));
                self.pools.len() - 1
            });
            let pool = &mut self.pools[place];
            pool.namespace = Some(namespace.into());
            pool.bytes_max = bytes_max;
            pool.is_removed = false;
            self.pool_of.push(place as u32);
        }
        self.may_exceed_budget = true;
    }

    /// Returns the index of the pool of a budget.
    pub(crate) fn pool(&self, budget: Budget) -> u32 {
        self.pool_of.get(budget.index()).copied().unwrap_or(0)
    }

    pub(crate) fn pool_of(&self, index: u32) -> u32 {
        self.get(index).pool
    }

    /// Iterates over the budgets, the common one first: name of the namespace, bytes used, and limit in bytes.
    pub(crate) fn budgets(&self) -> impl Iterator<Item = (Option<&str>, usize, usize)> {
        let pools = self.pools.iter().filter(|pool| !pool.is_removed);
        pools.map(|pool| (pool.namespace.as_deref(), pool.bytes, pool.bytes_max))
    }

    /// Returns the total bytes of all accounts.
    pub(crate) fn bytes(&self) -> usize {
        self.pools.iter().map(|pool| pool.bytes).sum()
    }

    /// Returns whether the account belongs to the publisher.
    pub(crate) fn belongs_to(&self, index: u32, publisher: Publisher<'_>) -> bool {
        self.get(index).publisher.as_deref() == publisher
    }

    /// Returns the account that the publisher of the account `index` has in another pool. Creates it if necessary.
    pub(crate) fn account_in_pool(&mut self, index: u32, pool: u32) -> u32 {
        let publisher = self.get(index).publisher.clone();
        self.open(pool, publisher.as_deref())
    }

    /// Returns the account of a publisher in a pool, and creates it if necessary. The caller must
    /// [add](Self::add_stream) a stream to it at once, because an account is closed only with its last stream.
    pub(crate) fn open(&mut self, pool: u32, publisher: Publisher<'_>) -> u32 {
        let hash = self.hasher.hash_one((pool, publisher));
        let is_same = |index: &u32| {
            let one = self.get(*index);
            one.pool == pool && one.publisher.as_deref() == publisher
        };
        if let Some(index) = self.names.find(hash, is_same) {
            return *index;
        }
        let mut account = Account {
            publisher: publisher.map(Box::from),
            pool,
            bytes: 0,
            link: ClassLink::NONE,
            streams: WeightClasses::default(),
        };
        account.bytes = account.cost();
        self.pools[pool as usize].bytes += account.bytes;
        let weight = account.weight();
        let index = match self.free.pop() {
            Some(index) => {
                self.accounts[index as usize] = Some(account);
                index
            }
            None => {
                crate::small_list::reserve_one(&mut self.accounts);
                self.accounts.push(Some(account));
                self.accounts.len() as u32 - 1
            }
        };
        let (all, hasher) = (&self.accounts, &self.hasher);
        self.names
            .insert_unique(hash, index, |index| hash_of(all, hasher, *index));
        let accounts = &mut self.pools[pool as usize].accounts;
        accounts.insert(&mut self.accounts[..], index, weight);
        index
    }

    /// Adds a stream to an account.
    pub(crate) fn add_stream(
        &mut self,
        index: u32,
        streams: &mut (impl Linked + ?Sized),
        stream: u32,
        bytes: usize,
    ) {
        let account = account(&mut self.accounts, index);
        account.streams.insert(streams, stream, bytes);
        self.change(index, 0, bytes);
    }

    /// Updates the size of a stream. `is_renewed` is true if the stream was just published to.
    pub(crate) fn resize_stream(
        &mut self,
        index: u32,
        streams: &mut (impl Linked + ?Sized),
        stream: u32,
        (from, to): (usize, usize),
        is_renewed: bool,
    ) {
        let ranks = &mut account(&mut self.accounts, index).streams;
        match is_renewed {
            true => ranks.touch(streams, stream, to),
            false => ranks.set_weight(streams, stream, to),
        }
        if from != to {
            self.change(index, from, to);
        }
    }

    /// Removes a stream of the given size in bytes from an account. The account is closed with its last stream.
    pub(crate) fn remove_stream(
        &mut self,
        index: u32,
        streams: &mut (impl Linked + ?Sized),
        stream: u32,
        bytes: usize,
    ) {
        let account = account(&mut self.accounts, index);
        account.streams.remove(streams, stream);
        let is_last = account.streams.is_empty();
        self.change(index, bytes, 0);
        if is_last {
            self.close(index);
        }
    }

    /// Returns the next stream to evict from, and its account, as (account, stream); `None` if no
    /// budget is exceeded.
    pub(crate) fn next_to_evict(&mut self) -> Option<(u32, u32)> {
        if !self.may_exceed_budget {
            return None;
        }
        let mut over = self.pools.iter().filter(|pool| pool.is_over());
        let found = over.find_map(|pool| {
            let account = pool.accounts.heaviest()?;
            Some((account, self.get(account).streams.heaviest()?))
        });
        self.may_exceed_budget = found.is_some();
        found
    }

    /// Returns whether this stream still is the next one to evict from: its budget is exceeded, and
    /// the account and the stream are still the heaviest.
    pub(crate) fn must_evict(&self, index: u32, stream: u32) -> bool {
        let Some(Some(account)) = self.accounts.get(index as usize) else {
            return false;
        };
        let pool = &self.pools[account.pool as usize];
        pool.is_over()
            && pool.accounts.heaviest() == Some(index)
            && account.streams.heaviest() == Some(stream)
    }

    fn change(&mut self, index: u32, from: usize, to: usize) {
        let account = account(&mut self.accounts, index);
        account.bytes = account.bytes - from + to;
        let weight = account.weight();
        let pool = &mut self.pools[account.pool as usize];
        pool.bytes = pool.bytes - from + to;
        self.may_exceed_budget |= pool.is_over();
        pool.accounts
            .set_weight(&mut self.accounts[..], index, weight);
    }

    fn close(&mut self, index: u32) {
        let hash = hash_of(&self.accounts, &self.hasher, index);
        if let Ok(entry) = self.names.find_entry(hash, |found| *found == index) {
            entry.remove();
        }
        let account = account(&mut self.accounts, index);
        let pool = &mut self.pools[account.pool as usize];
        debug_assert_eq!(account.bytes, account.cost());
        pool.bytes -= account.bytes;
        pool.accounts.remove(&mut self.accounts[..], index);
        self.accounts[index as usize] = None;
        self.free.push(index);
    }

    fn get(&self, index: u32) -> &Account {
        self.accounts[index as usize]
            .as_ref()
            .expect(ACCOUNT_EXISTS)
    }
}

const ACCOUNT_EXISTS: &str = "an account must exist while streams refer to its index";

fn account(all: &mut [Option<Account>], index: u32) -> &mut Account {
    debug_assert_ne!(index, NO_MEMBER);
    all[index as usize].as_mut().expect(ACCOUNT_EXISTS)
}

fn hash_of(all: &[Option<Account>], hasher: &RandomState, index: u32) -> u64 {
    let account = all[index as usize].as_ref().expect(ACCOUNT_EXISTS);
    hasher.hash_one((account.pool, account.publisher.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An account's memory consists of its slot, its entry in the name table with control bytes, the ends of its lists,
    /// and its name.
    #[test]
    fn an_account_counts_its_memory_once() {
        let slot = size_of::<Option<Account>>();
        let mut accounts = Accounts::new();
        assert_eq!(accounts.bytes(), 0);
        for (publisher, bytes) in [
            (None, slot + 134),
            (Some("ann"), 2 * (slot + 134) + 3),
            (None, 2 * (slot + 134) + 3),
            (Some(""), 3 * (slot + 134) + 3),
        ] {
            accounts.open(0, publisher);
            assert_eq!(accounts.bytes(), bytes, "{publisher:?}");
        }
    }
}
