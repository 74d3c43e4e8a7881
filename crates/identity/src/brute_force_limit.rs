//! Limits the guessing of passwords and keys: counts rejected attempts by address, and delays
//! further attempts from the address.
//!
//! Only failures are counted, so that many people behind one address can log in at once. Failures
//! beyond the permitted rate are counted too, so parallel guesses lengthen the delay.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;
use veche_frontends::rate::{Rate, RateMeter};
use veche_types::network;

/// Maximum number of tracked addresses. While the table is full, further addresses are not tracked.
const ADDRESSES_MAX: usize = 1 << 16;
/// The table is purged when it is full, or when it has at least this size and has doubled since the
/// last purge.
const PURGE_FROM: usize = 256;
/// The minimum interval between purges of a full table, in milliseconds. A purge blocks the
/// workers.
const FULL_MS: u64 = 1_000;

/// Limits how often each address may fail, such as with a wrong password. Times are in monotonic milliseconds.
#[derive(Debug)]
pub struct BruteForceLimit {
    /// The permitted rate of failures by one address; `None` for no limit.
    rate: Option<Rate>,
    table: Mutex<FailureTable>,
}

#[derive(Debug, Default)]
struct FailureTable {
    meters: HashMap<IpAddr, RateMeter>,
    purge_at: usize,
    /// The time of the next purge of a full table.
    full_until_ms: u64,
}

impl BruteForceLimit {
    /// Creates an empty table. Failures up to the rate cause no delay. Without a rate, there are no
    /// delays.
    pub fn new(rate: Option<Rate>) -> Self {
        Self {
            rate,
            table: Mutex::default(),
        }
    }

    /// Returns how long a client at this address has to wait before its next attempt, in
    /// milliseconds.
    pub fn wait_ms(&self, address: IpAddr, now_ms: u64) -> u64 {
        let Some(rate) = self.rate else { return 0 };
        let table = self.table.lock();
        let meter = table.meters.get(&network(address));
        meter.map_or(0, |meter| meter.wait_ms(&rate, 1, now_ms))
    }

    /// Records that an attempt from this address was rejected, or that its outcome is uncertain.
    pub fn record_failure(&self, address: IpAddr, now_ms: u64) {
        let Some(rate) = self.rate else { return };
        let mut table = self.table.lock();
        table.purge(now_ms);
        let address = network(address);
        if table.meters.len() < ADDRESSES_MAX || table.meters.contains_key(&address) {
            let meter = table.meters.entry(address).or_default();
            meter.charge(&rate, 1, now_ms);
        }
    }
}

impl FailureTable {
    fn purge(&mut self, now_ms: u64) {
        if self.meters.len() < self.purge_at.max(PURGE_FROM) {
            return;
        }
        let is_full = self.meters.len() >= ADDRESSES_MAX;
        if is_full && now_ms < self.full_until_ms {
            return;
        }
        self.full_until_ms = now_ms + FULL_MS;
        self.meters.retain(|_, meter| !meter.is_full(now_ms));
        self.purge_at = (2 * self.meters.len()).min(ADDRESSES_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn wrong_ones_are_counted_by_network_and_paid_for_later() {
        let limit = BruteForceLimit::new(Some(Rate::new(3, 60_000)));
        let (ann, eve) = (address("192.0.2.1"), address("2001:db8::1"));
        for _ in 0..3 {
            assert_eq!(limit.wait_ms(eve, 1_000), 0);
            limit.record_failure(eve, 1_000);
        }
        assert_eq!(limit.wait_ms(eve, 1_000), 20_000);
        assert_eq!(limit.wait_ms(address("2001:db8::2"), 1_000), 20_000);
        assert_eq!(limit.wait_ms(ann, 1_000), 0);
        assert_eq!(limit.wait_ms(eve, 21_000), 0);
        // Failures of attempts that were already in progress are charged too.
        for _ in 0..10 {
            limit.record_failure(eve, 1_000);
        }
        assert_eq!(limit.wait_ms(eve, 1_000), 220_000);
        assert_eq!(BruteForceLimit::new(None).wait_ms(eve, 0), 0);
    }

    #[test]
    fn expired_delays_are_removed() {
        let limit = BruteForceLimit::new(Some(Rate::new(10, 1_000)));
        for number in 0..10_000u32 {
            limit.record_failure(IpAddr::V4(number.into()), u64::from(number));
        }
        assert!(limit.table.lock().meters.len() < 1_000);
    }

    #[test]
    fn a_full_table_has_room_again() {
        let limit = BruteForceLimit::new(Some(Rate::new(1, 60_000)));
        // The table fills up before any entry can expire.
        for number in 0..ADDRESSES_MAX as u32 + 10 {
            limit.record_failure(IpAddr::V4(number.into()), 0);
        }
        assert_eq!(limit.table.lock().meters.len(), ADDRESSES_MAX);
        let late = address("192.0.2.1");
        limit.record_failure(late, 60_000);
        assert_eq!(limit.wait_ms(late, 60_000), 60_000);
        assert_eq!(limit.table.lock().meters.len(), 1);
    }
}
