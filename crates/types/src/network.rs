//! The part of an IP address that counts as one client.

use std::net::{IpAddr, Ipv6Addr};

/// Returns the key under which an address is counted: the /64 prefix of an IPv6 address, since one client may own all
/// of it.
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
