//! Access rules of a listener: allowed and denied networks, trusted proxies, accepted host names.
//!
//! These rules are checked before anything else. The peer's network is checked when the connection is accepted, before
//! a byte is read. The address of a client behind a proxy, and the requested host name, are checked for each request's
//! head.

mod forwarded;

use std::net::IpAddr;

use ipnet::IpNet;
use veche_proto::http::Head;

use crate::context::origin::split_port;

pub use forwarded::{BadForwardedHeader, ClientAddress};

/// Allowed and denied networks. Empty rules admit every address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkRules {
    /// If not empty, only these networks are admitted.
    pub allow: Vec<IpNet>,
    /// Networks that are denied, even if `allow` includes them.
    pub deny: Vec<IpNet>,
}

impl NetworkRules {
    /// Returns whether this address is admitted. An IPv4 address mapped to IPv6 (`::ffff:a.b.c.d`) is treated as IPv4.
    pub fn admit(&self, address: IpAddr) -> bool {
        !contains(&self.deny, address) && (self.allow.is_empty() || contains(&self.allow, address))
    }
}

fn contains(networks: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    networks.iter().any(|network| network.contains(&address))
}

/// The access rules of one listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerAccess {
    /// Rules for client addresses. The address of a proxy that is not trusted counts as a client address.
    pub networks: NetworkRules,
    /// Networks of proxies that are trusted to send the addresses of their clients.
    pub trusted_proxies: Vec<IpNet>,
    /// The header that contains the client's address.
    pub client_address: ClientAddress,
    /// Whether each connection begins with a PROXY protocol header, which only trusted proxies may send.
    pub proxy_protocol: bool,
    /// The accepted host names.
    pub hosts: Hosts,
}

impl ListenerAccess {
    /// Returns whether client addresses sent by this peer are trusted.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        contains(&self.trusted_proxies, peer)
    }

    /// Returns whether a connection from this peer may be served, because the listener requires no PROXY header or
    /// because the peer is a proxy that may send one.
    pub fn may_send_proxy_header(&self, peer: IpAddr) -> bool {
        !self.proxy_protocol || self.trusts(peer)
    }

    /// Returns whether a peer may connect, before it has sent anything. Trusted proxies always may: the addresses of
    /// their clients are checked with each request.
    pub fn admits_peer(&self, peer: IpAddr) -> bool {
        self.trusts(peer) || self.networks.admit(peer)
    }

    /// Returns the client's address: the address that trusted proxies send or, if the peer is not a trusted proxy, the
    /// peer's own address.
    ///
    /// # Errors
    /// A trusted proxy sent a malformed header.
    pub fn client(&self, peer: IpAddr, head: &Head<'_>) -> Result<IpAddr, BadForwardedHeader> {
        if !self.trusts(peer) {
            return Ok(peer);
        }
        let trusts = |address| self.trusts(address);
        self.client_address.read(peer, head, &trusts)
    }

    /// Returns whether the host name in `Host` is accepted. A loopback listener accepts any name
    /// from a trusted proxy, since the proxy passes on its public host names.
    pub fn answers_to(&self, peer: IpAddr, host: &str) -> bool {
        self.hosts.contain(host) || (self.hosts == Hosts::Loopback && self.trusts(peer))
    }
}

/// The host names that a listener accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Hosts {
    /// Any host name is accepted.
    #[default]
    Any,
    /// Only `localhost`, its subdomains and loopback addresses are accepted. A listener on loopback serves programs of
    /// this machine, so any other name indicates a page whose domain was resolved to loopback (DNS rebinding).
    Loopback,
    /// Only these names are accepted. They are in lower case; a leading `*.` stands for one or more labels.
    Listed(Vec<String>),
}

impl Hosts {
    /// Returns whether the value of `Host`, with or without a port, is accepted. An empty value, for a missing
    /// header, is accepted: HTTP/1.0 requires none, and browsers always send one.
    pub fn contain(&self, host: &str) -> bool {
        let name = match split_port(host) {
            _ if host.is_empty() => return true,
            Some((name, _)) => name.strip_suffix('.').unwrap_or(name),
            None => return *self == Self::Any,
        };
        match self {
            Self::Any => true,
            Self::Loopback => is_loopback(name),
            Self::Listed(names) => names.iter().any(|listed| match listed.strip_prefix('*') {
                Some(suffix) => is_below(name, suffix),
                None => name.eq_ignore_ascii_case(listed),
            }),
        }
    }
}

fn is_loopback(name: &str) -> bool {
    let literal = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || is_below(name, ".localhost")
        || literal
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Returns whether `name` consists of at least one character and `suffix`, which begins with a dot.
fn is_below(name: &str, suffix: &str) -> bool {
    name.len() > suffix.len()
        && name.is_char_boundary(name.len() - suffix.len())
        && name[name.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(list: &[&str]) -> Vec<IpNet> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn denied_networks_come_before_allowed_ones() {
        let networks = NetworkRules {
            allow: nets(&["10.0.0.0/8", "2001:db8::/32"]),
            deny: nets(&["10.1.0.0/16"]),
        };
        for (address, admitted) in [
            ("10.0.0.1", true),
            ("::ffff:10.0.0.1", true),
            ("10.1.0.1", false),
            ("::ffff:10.1.0.1", false),
            ("11.0.0.1", false),
            ("2001:db8::7", true),
            ("2001:db9::7", false),
        ] {
            assert_eq!(
                networks.admit(address.parse().unwrap()),
                admitted,
                "{address}"
            );
        }
        assert!(NetworkRules::default().admit("11.0.0.1".parse().unwrap()));
    }

    #[test]
    fn a_listener_on_loopback_answers_to_its_own_names() {
        for (host, known) in [
            ("localhost", true),
            ("LOCALHOST:8080", true),
            ("localhost.", true),
            ("app.localhost:80", true),
            ("127.0.0.1:8080", true),
            ("127.9.9.9", true),
            ("[::1]:8080", true),
            ("[::ffff:127.0.0.1]", true),
            ("", true),
            ("evil.example", false),
            ("evil.example:8080", false),
            ("notlocalhost", false),
            (".localhost", false),
            ("127.0.0.1.evil.example", false),
            ("10.0.0.1", false),
            ("[::1]:x", false),
        ] {
            assert_eq!(Hosts::Loopback.contain(host), known, "{host}");
        }
    }

    #[test]
    fn listed_names_match_whole_labels() {
        let hosts = Hosts::Listed(vec!["shop.example".into(), "*.team.example".into()]);
        for (host, known) in [
            ("shop.example", true),
            ("Shop.Example:8443", true),
            ("shop.example.", true),
            ("a.shop.example", false),
            ("a.team.example", true),
            ("a.b.team.example:80", true),
            ("team.example", false),
            ("evilteam.example", false),
            ("ä.team.example", true),
        ] {
            assert_eq!(hosts.contain(host), known, "{host}");
        }
    }

    #[test]
    fn a_trusted_proxy_is_admitted_and_introduces_its_clients() {
        let access = |proxy_protocol, hosts| ListenerAccess {
            networks: NetworkRules {
                allow: nets(&["10.0.0.0/8"]),
                deny: Vec::new(),
            },
            trusted_proxies: nets(&["192.0.2.0/24"]),
            proxy_protocol,
            hosts,
            ..ListenerAccess::default()
        };
        let plain = access(false, Hosts::Loopback);
        let strict = access(true, Hosts::Listed(vec!["a".into()]));
        // Columns: the peer, then whether it is trusted, may send a PROXY header to `plain`, may send one to `strict`,
        // may connect to `plain`, may use an unknown host name on `plain`, and may use one on `strict`.
        for (peer, expected) in [
            ("192.0.2.7", [true, true, true, true, true, false]),
            ("::ffff:192.0.2.7", [true, true, true, true, true, false]),
            ("10.0.0.1", [false, true, false, true, false, false]),
            ("11.0.0.1", [false, true, false, false, false, false]),
        ] {
            let peer: IpAddr = peer.parse().unwrap();
            let got = [
                plain.trusts(peer),
                plain.may_send_proxy_header(peer),
                strict.may_send_proxy_header(peer),
                plain.admits_peer(peer),
                plain.answers_to(peer, "b"),
                strict.answers_to(peer, "b"),
            ];
            assert_eq!(got, expected, "{peer}");
            assert!(plain.answers_to(peer, "localhost") && strict.answers_to(peer, "a"));
        }
    }

    #[test]
    fn what_a_peer_says_of_its_client_is_read_where_it_is_trusted() {
        let access = ListenerAccess {
            trusted_proxies: nets(&["192.0.2.0/24"]),
            ..ListenerAccess::default()
        };
        let text = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 10.0.0.9\r\n\r\n";
        let head = veche_proto::http::parse_head(text.as_bytes(), &Default::default()).unwrap();
        for (peer, client) in [("192.0.2.7", "10.0.0.9"), ("11.0.0.1", "11.0.0.1")] {
            let got = access.client(peer.parse().unwrap(), &head);
            assert_eq!(got, Ok(client.parse().unwrap()));
        }
    }
}
