//! The client behind proxies: what they say in `X-Forwarded-For`, in `Forwarded` (RFC 7239) or in a header of their own.
//!
//! Each proxy adds the address that it saw at the end of the list, so the list is read from its end: as long as an
//! address is that of a proxy we trust, the one before it is worth reading. What stands before the first other
//! address is hearsay: anybody can send it.

use std::net::{IpAddr, SocketAddr};

use veche_proto::http::Head;

/// How trusted proxies say who the client is. Only what is configured is read: a proxy that writes one header passes
/// the others on as the client sent them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientAddress {
    /// `X-Forwarded-For`, a list.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239), its `for`.
    Forwarded,
    /// A header, by its name, with the address alone.
    Header(String),
}

/// Addresses that are looked at, from the end of a list: more proxies in a row there are not.
const HOPS_MAX: usize = 32;

impl ClientAddress {
    /// The client, seen from `peer`, a proxy that is trusted.
    pub(super) fn read(
        &self,
        peer: IpAddr,
        head: &Head<'_>,
        trusts: &dyn Fn(IpAddr) -> bool,
    ) -> IpAddr {
        match self {
            Self::XForwardedFor => {
                let lines: Vec<&str> = head.header_all("x-forwarded-for").collect();
                let hops = lines.iter().rev().flat_map(|line| line.rsplit(','));
                nearest(peer, hops.map(address), trusts)
            }
            Self::Forwarded => {
                let lines: Vec<&str> = head.header_all("forwarded").collect();
                let hops = lines.iter().rev().flat_map(|line| line.rsplit(','));
                nearest(peer, hops.map(|hop| address(forwarded_for(hop)?)), trusts)
            }
            Self::Header(name) => {
                let mut lines = head.header_all(name);
                match (lines.next(), lines.next()) {
                    (Some(line), None) => address(line).unwrap_or(peer),
                    // Two of them: somebody in between adds headers.
                    _ => peer,
                }
            }
        }
    }
}

/// The first address from the end that is no trusted proxy; where all are, the last one that could be read.
fn nearest(
    peer: IpAddr,
    hops: impl Iterator<Item = Option<IpAddr>>,
    trusts: &dyn Fn(IpAddr) -> bool,
) -> IpAddr {
    let mut client = peer;
    for hop in hops.take(HOPS_MAX) {
        let Some(address) = hop else { break };
        client = address;
        if !trusts(address) {
            break;
        }
    }
    client
}

/// The value of `for` of one element of `Forwarded`.
///
/// The lists are split at commas before the quotes are looked at: no address has one in it, and a name in quotes that
/// has one (RFC 7239 allows `_hidden` names only without) makes an element that can't be read, where reading ends.
fn forwarded_for(element: &str) -> Option<&str> {
    element.split(';').find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let value = value.trim();
        name.trim().eq_ignore_ascii_case("for").then(|| {
            value
                .strip_prefix('"')
                .and_then(|rest| rest.strip_suffix('"'))
                .unwrap_or(value)
        })
    })
}

/// An address as proxies write it: bare, in brackets, with a port.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    let address = bare
        .parse::<IpAddr>()
        .or_else(|_| text.parse::<SocketAddr>().map(|socket| socket.ip()));
    address.ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use veche_proto::http::{HeadScan, Limits, read_head};

    use super::*;

    /// The client that `how` reads out of these header lines, seen from 10.0.0.1; 10.0.0.0/8 is trusted.
    fn client(how: &ClientAddress, lines: &str) -> String {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let mut scan = HeadScan::default();
        let (head, _) = read_head(&mut scan, text.as_bytes(), &Limits::default())
            .expect("a head")
            .expect("a whole one");
        let trusts = |address: IpAddr| matches!(address, IpAddr::V4(v4) if v4.octets()[0] == 10);
        how.read([10, 0, 0, 1].into(), &head, &trusts).to_string()
    }

    #[test]
    fn a_list_is_read_from_its_end_as_far_as_it_is_trusted() {
        for (lines, expected) in [
            ("", "10.0.0.1"),
            ("X-Forwarded-For: 192.0.2.7\r\n", "192.0.2.7"),
            ("X-Forwarded-For: 6.6.6.6, 192.0.2.7\r\n", "192.0.2.7"),
            ("X-Forwarded-For: 192.0.2.7, 10.0.0.2\r\n", "192.0.2.7"),
            (
                "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 192.0.2.7\r\n",
                "192.0.2.7",
            ),
            ("X-Forwarded-For: 10.0.0.3, 10.0.0.2\r\n", "10.0.0.3"),
            ("X-Forwarded-For: 192.0.2.7:4711\r\n", "192.0.2.7"),
            ("X-Forwarded-For: 2001:db8::7\r\n", "2001:db8::7"),
            ("X-Forwarded-For: [2001:db8::7]:4711\r\n", "2001:db8::7"),
            ("X-Forwarded-For: ::ffff:192.0.2.7\r\n", "192.0.2.7"),
            ("X-Forwarded-For: 6.6.6.6, unknown\r\n", "10.0.0.1"),
            (
                "X-Forwarded-For: 6.6.6.6, unknown, 10.0.0.2\r\n",
                "10.0.0.2",
            ),
            ("X-Forwarded-For: \r\n", "10.0.0.1"),
            ("Forwarded: for=6.6.6.6\r\n", "10.0.0.1"),
        ] {
            assert_eq!(
                client(&ClientAddress::XForwardedFor, lines),
                expected,
                "{lines}"
            );
        }
    }

    #[test]
    fn forwarded_is_read_as_rfc_7239_writes_it() {
        for (lines, expected) in [
            ("Forwarded: for=192.0.2.7\r\n", "192.0.2.7"),
            (
                "Forwarded: proto=https;For=\"192.0.2.7:4711\";by=10.0.0.1\r\n",
                "192.0.2.7",
            ),
            ("Forwarded: for=\"[2001:db8::7]:4711\"\r\n", "2001:db8::7"),
            (
                "Forwarded: for=6.6.6.6, for=192.0.2.7;proto=http , for=10.0.0.2\r\n",
                "192.0.2.7",
            ),
            ("Forwarded: for=6.6.6.6, for=_hidden\r\n", "10.0.0.1"),
            ("Forwarded: for=6.6.6.6, proto=http\r\n", "10.0.0.1"),
            ("X-Forwarded-For: 6.6.6.6\r\n", "10.0.0.1"),
        ] {
            assert_eq!(
                client(&ClientAddress::Forwarded, lines),
                expected,
                "{lines}"
            );
        }
    }

    #[test]
    fn a_header_of_the_proxys_own_counts_once() {
        let how = ClientAddress::Header("cf-connecting-ip".into());
        for (lines, expected) in [
            ("CF-Connecting-IP: 192.0.2.7\r\n", "192.0.2.7"),
            (
                "CF-Connecting-IP: 6.6.6.6\r\nCF-Connecting-IP: 192.0.2.7\r\n",
                "10.0.0.1",
            ),
            ("CF-Connecting-IP: 192.0.2.7, 6.6.6.6\r\n", "10.0.0.1"),
            ("X-Forwarded-For: 6.6.6.6\r\n", "10.0.0.1"),
        ] {
            assert_eq!(client(&how, lines), expected, "{lines}");
        }
    }
}
