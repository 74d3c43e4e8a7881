//! Connections and handshake rates by client address.
//!
//! The table is used when a connection is accepted, starts a handshake or closes, never per message. An address is
//! removed once it has no connections and its rate has recovered, so current activity bounds the table.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock};
use veche_frontends::rate::{Rate, RateMeter};
use veche_types::network;

/// The number of shards of the table.
const SHARDS: usize = 16;
/// A shard is purged when it has at least this many addresses, and at least twice as many as after its last purge.
const PURGE_FROM: usize = 1_024;

/// Connection counts and rates by address.
#[derive(Default)]
pub(crate) struct AddressCounters {
    /// The limit of connections of one address; 0 disables it.
    connections_max: AtomicUsize,
    /// The rate limit of connections and handshakes of one address.
    rate: RwLock<Option<Rate>>,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    table: HashMap<IpAddr, AddressUse>,
    purge_at: usize,
}

#[derive(Default)]
struct AddressUse {
    connections: u32,
    meter: RateMeter,
}

impl AddressCounters {
    /// Sets the limits of an address. A `connections_max` of 0 disables the connection limit, and a `rate` of `None`
    /// disables the rate limit.
    pub(crate) fn set_limits(&self, connections_max: usize, rate: Option<Rate>) {
        self.connections_max.store(connections_max, Relaxed);
        *self.rate.write() = rate;
    }

    /// Counts an opened connection; returns whether the address is within its limit.
    pub(crate) fn opened(&self, address: IpAddr) -> bool {
        let key = network(address);
        let mut shard = self.shard(key).lock();
        let used = shard.table.entry(key).or_default();
        used.connections += 1;
        let max = self.connections_max.load(Relaxed);
        max == 0 || used.connections as usize <= max
    }

    /// Counts a closed connection.
    pub(crate) fn closed(&self, address: IpAddr) {
        let key = network(address);
        let mut shard = self.shard(key).lock();
        if let Some(used) = shard.table.get_mut(&key) {
            used.connections = used.connections.saturating_sub(1);
            if used.connections == 0 && used.meter == RateMeter::default() {
                shard.table.remove(&key);
            }
        }
    }

    /// Returns whether the address may open another connection.
    pub(crate) fn have_room(&self, address: IpAddr) -> bool {
        let max = self.connections_max.load(Relaxed);
        let key = network(address);
        max == 0
            || self
                .shard(key)
                .lock()
                .table
                .get(&key)
                .is_none_or(|used| (used.connections as usize) < max)
    }

    /// Returns whether the address may start another connection or handshake now. If so, counts the
    /// attempt.
    pub(crate) fn may_begin(&self, address: IpAddr, now_ms: u64) -> bool {
        let Some(rate) = *self.rate.read() else {
            return true;
        };
        let key = network(address);
        let mut shard = self.shard(key).lock();
        shard.purge(now_ms);
        shard
            .table
            .entry(key)
            .or_default()
            .meter
            .take(&rate, 1, now_ms)
    }

    fn shard(&self, key: IpAddr) -> &Mutex<Shard> {
        let last = match key {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(address) => address.octets()[7],
        };
        &self.shards[last as usize % SHARDS]
    }
}

impl Shard {
    fn purge(&mut self, now_ms: u64) {
        if self.table.len() < self.purge_at.max(PURGE_FROM) {
            return;
        }
        self.table
            .retain(|_, used| used.connections > 0 || !used.meter.is_full(now_ms));
        self.purge_at = 2 * self.table.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn connections_are_counted_by_address_and_by_network_of_ipv6() {
        let addresses = AddressCounters::default();
        addresses.set_limits(2, None);
        let a = address("192.0.2.1");
        assert!(addresses.opened(a) && addresses.have_room(a));
        assert!(addresses.opened(address("::ffff:192.0.2.1")));
        assert!(!addresses.have_room(a) && !addresses.opened(a));
        assert!(addresses.have_room(address("192.0.2.2")));
        assert!(
            addresses.opened(address("2001:db8::1")) && addresses.opened(address("2001:db8::2"))
        );
        assert!(!addresses.have_room(address("2001:db8::3")));
        assert!(addresses.have_room(address("2001:db8:0:1::3")));
        (0..3).for_each(|_| addresses.closed(a));
        assert!(addresses.have_room(a));
        (0..2).for_each(|_| addresses.closed(address("2001:db8::9")));
        assert!(
            addresses
                .shards
                .iter()
                .all(|shard| shard.lock().table.is_empty())
        );
    }

    #[test]
    fn the_table_removes_closed_clients() {
        let addresses = AddressCounters::default();
        addresses.set_limits(0, Some(Rate::new(1, 1_000)));
        for number in 0..100_000_u32 {
            let now_ms = 10_000 + u64::from(number);
            assert!(addresses.may_begin(IpAddr::V4(number.into()), now_ms));
        }
        assert!(!addresses.may_begin(IpAddr::V4(99_999.into()), 110_000));
        let kept: usize = addresses
            .shards
            .iter()
            .map(|shard| shard.lock().table.len())
            .sum();
        assert!(kept <= 2 * SHARDS * PURGE_FROM, "{kept}");
    }
}
