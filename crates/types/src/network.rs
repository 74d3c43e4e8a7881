//! What counts as one client among addresses.

use std::net::{IpAddr, Ipv6Addr};

/// Returns what stands for an address where clients are counted: an IPv6 address stands for its /64, all of which one
/// client may have.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let prefix = u128::from(address) >> 64 << 64;
            Ipv6Addr::from(prefix).into()
        }
    }
}
