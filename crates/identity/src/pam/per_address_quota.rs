//! Limits waiting requests by network, so that no network can fill the whole queue or occupy all
//! helpers.

use std::collections::HashMap;
use std::net::IpAddr;

use veche_frontends::rate::Rate;
use veche_types::network;

/// The number of waiting requests of each network. The limit of all waiting requests also bounds
/// this table.
#[derive(Debug)]
pub(super) struct PerAddressQuota {
    /// Limits for one network; `None` for no limits.
    limits: Option<NetworkUse>,
    networks: HashMap<IpAddr, NetworkUse>,
}

#[derive(Clone, Copy, Debug, Default)]
struct NetworkUse {
    /// The number of distinct passwords that wait for a check.
    passwords: u64,
    /// The number of waiting requests; several may have the same password.
    requests: u64,
}

impl PerAddressQuota {
    /// Creates quotas. One network may have as many concurrent checks as wrong passwords are permitted, and half of
    /// `places` waiting requests. `places` is the maximum for all networks together.
    pub(super) fn new(wrong: Option<Rate>, places: u32) -> Self {
        let limits = wrong.map(|wrong| NetworkUse {
            passwords: wrong.count(),
            requests: u64::from(places).div_ceil(2),
        });
        Self {
            limits,
            networks: HashMap::new(),
        }
    }

    /// Returns whether another request may wait. `is_new` means that its password is not being
    /// checked yet.
    pub(super) fn has_room(&self, client: IpAddr, is_new: bool) -> bool {
        let Some(limits) = self.limits else {
            return true;
        };
        let share = self.networks.get(&network(client));
        let share = share.copied().unwrap_or_default();
        share.requests < limits.requests && (!is_new || share.passwords < limits.passwords)
    }

    /// Adds a waiting request.
    pub(super) fn add(&mut self, client: IpAddr, is_new: bool) {
        let share = self.networks.entry(network(client)).or_default();
        share.requests += 1;
        share.passwords += u64::from(is_new);
    }

    /// Removes a checked password and the requests that waited for it.
    pub(super) fn remove(&mut self, client: IpAddr, requests: usize) {
        let network = network(client);
        let Some(share) = self.networks.get_mut(&network) else {
            return;
        };
        share.requests = share.requests.saturating_sub(requests as u64);
        share.passwords = share.passwords.saturating_sub(1);
        if share.requests == 0 {
            self.networks.remove(&network);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_has_its_share_and_no_more() {
        let mut quota = PerAddressQuota::new(Some(Rate::new(2, 60_000)), 7);
        let (ann, near, far) = ("2001:db8::1", "2001:db8::2", "2001:db8:1::1");
        let [ann, near, far] = [ann, near, far].map(address);
        for _ in 0..2 {
            assert!(quota.has_room(ann, true));
            quota.add(ann, true);
        }
        assert!(!quota.has_room(near, true));
        for _ in 0..2 {
            assert!(quota.has_room(near, false));
            quota.add(near, false);
        }
        assert!(!quota.has_room(ann, false));
        assert!(quota.has_room(far, true));
        quota.remove(near, 3);
        assert!(quota.has_room(ann, true) && quota.has_room(ann, false));
        quota.remove(ann, 1);
        assert!(quota.networks.is_empty());
    }

    #[test]
    fn without_a_limit_there_is_room() {
        let mut quota = PerAddressQuota::new(None, 1);
        let ann = address("192.0.2.1");
        quota.add(ann, true);
        assert!(quota.has_room(ann, true));
    }
}
