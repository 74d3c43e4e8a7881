//! The client's address as a proxy sends it: in `X-Forwarded-For`, `Forwarded` (RFC 7239) or a
//! proxy-specific header.
//!
//! Each proxy appends the address of its own peer to the list, so the list is read backwards from
//! its end, past the addresses of trusted proxies. The next address is the client's. The addresses
//! to its left were sent by the client and may be forged.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use veche_proto::http::Head;

/// The header in which trusted proxies send the client's address. Only the configured header is read: a proxy that
/// writes one of these headers passes on the others as the client sent them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientAddress {
    /// `X-Forwarded-For`, a list of addresses.
    #[default]
    XForwardedFor,
    /// The `for` parameter of `Forwarded` (RFC 7239).
    Forwarded,
    /// A header with this name that contains only the address.
    Header(String),
}

/// Maximum number of addresses read from the end of a list.
const HOPS_MAX: usize = 32;

/// The client's address is malformed. A client may have forged it, so no part of the header is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadForwardedHeader;

impl ClientAddress {
    /// Returns the client's address as sent by the trusted proxy `peer`; `peer` itself if the header is missing.
    pub(super) fn read(
        &self,
        peer: IpAddr,
        head: &Head<'_>,
        trusts: &dyn Fn(IpAddr) -> bool,
    ) -> Result<IpAddr, BadForwardedHeader> {
        match self {
            Self::XForwardedFor => {
                // Lines are raw bytes, because a line of the client that is not UTF-8 must not hide the lines that
                // proxies added.
                let lines: Vec<&[u8]> = lines(head, "x-forwarded-for").collect();
                let hops = lines
                    .iter()
                    .rev()
                    .flat_map(|line| line.rsplit(|byte| *byte == b','));
                nearest(peer, hops.map(address), trusts)
            }
            Self::Forwarded => {
                let mut hops = Vec::new();
                for line in lines(head, "forwarded") {
                    for element in unquoted(line, b',')? {
                        hops.push(forwarded_for(element)?.and_then(address));
                    }
                }
                nearest(peer, hops.into_iter().rev(), trusts)
            }
            Self::Header(name) => {
                let mut lines = lines(head, name);
                match (lines.next(), lines.next()) {
                    (None, _) => Ok(peer),
                    (Some(line), None) => address(line).ok_or(BadForwardedHeader),
                    // A second header with the address may come from the client, so neither is trusted.
                    _ => Err(BadForwardedHeader),
                }
            }
        }
    }
}

fn lines<'b>(head: &Head<'b>, name: &str) -> impl Iterator<Item = &'b [u8]> {
    head.headers()
        .filter(move |(other, _)| other.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}

/// Searches the addresses from the end, and returns the first one that belongs to no trusted proxy.
/// If all belong to trusted proxies, returns the last address that was searched.
///
/// A malformed element that the search reaches before this address is an error. Otherwise the address
/// of a proxy would be taken for the client's.
fn nearest(
    peer: IpAddr,
    hops: impl Iterator<Item = Option<IpAddr>>,
    trusts: &dyn Fn(IpAddr) -> bool,
) -> Result<IpAddr, BadForwardedHeader> {
    let mut client = peer;
    for hop in hops.take(HOPS_MAX) {
        client = hop.ok_or(BadForwardedHeader)?;
        if !trusts(client) {
            break;
        }
    }
    Ok(client)
}

/// Splits text at the separators that are outside of quoted strings (RFC 9110 section 5.6.4).
fn unquoted(text: &[u8], separator: u8) -> Result<Vec<&[u8]>, BadForwardedHeader> {
    let (mut pieces, mut start, mut is_quoted, mut at) = (Vec::new(), 0, false, 0);
    while at < text.len() {
        match text[at] {
            b'"' => is_quoted = !is_quoted,
            b'\\' if is_quoted => at += 1,
            byte if byte == separator && !is_quoted => {
                pieces.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    if is_quoted {
        return Err(BadForwardedHeader);
    }
    pieces.push(&text[start..]);
    Ok(pieces)
}

/// Returns the value of the `for` parameter in one element of `Forwarded`, if it has one.
fn forwarded_for(element: &[u8]) -> Result<Option<&[u8]>, BadForwardedHeader> {
    let mut found = None;
    for pair in unquoted(element, b';')? {
        let Some(at) = pair.iter().position(|byte| *byte == b'=') else {
            continue;
        };
        let (name, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
        if !name.eq_ignore_ascii_case(b"for") {
            continue;
        }
        if found.is_some() {
            return Err(BadForwardedHeader);
        }
        let bare = value
            .strip_prefix(b"\"")
            .and_then(|rest| rest.strip_suffix(b"\""));
        found = Some(bare.unwrap_or(value));
    }
    Ok(found)
}

/// Parses an address as proxies write it: `192.0.2.7`, `192.0.2.7:4711`, `2001:db8::7`, `[2001:db8::7]`,
/// `[2001:db8::7]:4711`; without leading zeros, zone or quotes.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text).ok()?.trim_matches([' ', '\t']);
    if text.contains('%') {
        return None;
    }
    let bracketed = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let address = match bracketed {
        Some(bare) => bare.parse::<Ipv6Addr>().ok()?.into(),
        None => text
            .parse::<IpAddr>()
            .or_else(|_| text.parse::<SocketAddr>().map(|socket| socket.ip()))
            .ok()?,
    };
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use veche_proto::http::{HeadLimits, HeadScan, read_head};

    use super::*;

    /// Returns the address that `how` finds in these header lines. The peer is 10.0.0.1, and 10.0.0.0/8 is trusted.
    fn client(how: &ClientAddress, lines: impl AsRef<[u8]>) -> String {
        let text = [b"GET / HTTP/1.1\r\nHost: a\r\n", lines.as_ref(), b"\r\n"].concat();
        let mut scan = HeadScan::default();
        let (head, _) = read_head(&mut scan, &text, &HeadLimits::default())
            .expect("a head")
            .expect("a whole one");
        let trusts = |address: IpAddr| matches!(address, IpAddr::V4(v4) if v4.octets()[0] == 10);
        let client = how.read([10, 0, 0, 1].into(), &head, &trusts);
        client.map_or_else(|_| "unreadable".to_owned(), |address| address.to_string())
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
            ("X-Forwarded-For: [2001:db8::7]\r\n", "2001:db8::7"),
            ("X-Forwarded-For: unknown, 192.0.2.7\r\n", "192.0.2.7"),
            (
                "X-Forwarded-For: unknown\r\nX-Forwarded-For: 192.0.2.7\r\n",
                "192.0.2.7",
            ),
            (
                "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-For: unknown\r\n",
                "unreadable",
            ),
            (
                "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-For:\r\n",
                "unreadable",
            ),
            ("X-Forwarded-For: 6.6.6.6, unknown\r\n", "unreadable"),
            (
                "X-Forwarded-For: 6.6.6.6, unknown, 10.0.0.2\r\n",
                "unreadable",
            ),
            ("X-Forwarded-For: 6.6.6.6, \"192.0.2.7\"\r\n", "unreadable"),
            ("X-Forwarded-For: 6.6.6.6, 192.0.2.07\r\n", "unreadable"),
            ("X-Forwarded-For: 6.6.6.6, 0300.0.2.7\r\n", "unreadable"),
            ("X-Forwarded-For: 6.6.6.6, fe80::1%eth0\r\n", "unreadable"),
            ("X-Forwarded-For: 6.6.6.6, [fe80::1%1]:80\r\n", "unreadable"),
            ("X-Forwarded-For: 6.6.6.6, [192.0.2.7]\r\n", "unreadable"),
            (
                "X-Forwarded-For: 6.6.6.6, 192.0.2.7:99999\r\n",
                "unreadable",
            ),
            ("X-Forwarded-For: 6.6.6.6,\r\n", "unreadable"),
            ("X-Forwarded-For: 6.6.6.6, , 10.0.0.2\r\n", "unreadable"),
            ("X-Forwarded-For: \r\n", "unreadable"),
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
            ("Forwarded: for=6.6.6.6, for=_hidden\r\n", "unreadable"),
            ("Forwarded: for=6.6.6.6, proto=http\r\n", "unreadable"),
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
                "unreadable",
            ),
            ("CF-Connecting-IP: 192.0.2.7, 6.6.6.6\r\n", "unreadable"),
            ("CF-Connecting-IP: unknown\r\n", "unreadable"),
            ("CF-Connecting-IP:\r\n", "unreadable"),
            ("X-Forwarded-For: 6.6.6.6\r\n", "10.0.0.1"),
        ] {
            assert_eq!(client(&how, lines), expected, "{lines}");
        }
    }

    #[test]
    fn a_separator_in_quotes_separates_nothing() {
        for (lines, expected) in [
            ("Forwarded: for=192.0.2.7;x=\"a,b\"\r\n", "192.0.2.7"),
            (
                "Forwarded: x=\"a;for=6.6.6.6\";for=192.0.2.7\r\n",
                "192.0.2.7",
            ),
            ("Forwarded: for=192.0.2.7;x=\"a\\\",b\"\r\n", "192.0.2.7"),
            (
                "Forwarded: for=6.6.6.6;x=\"a\\\\\", for=192.0.2.7\r\n",
                "192.0.2.7",
            ),
            (
                "Forwarded: for=192.0.2.7;x=a\\, for=192.0.2.8\r\n",
                "192.0.2.8",
            ),
            ("Forwarded: for=6.6.6.6;x=\"a\r\n", "unreadable"),
            ("Forwarded: for=6.6.6.6;x=\"a\\\"\r\n", "unreadable"),
        ] {
            assert_eq!(
                client(&ClientAddress::Forwarded, lines),
                expected,
                "{lines}"
            );
        }
    }

    #[test]
    fn the_number_of_proxies_is_limited() {
        for (hops, expected) in [(HOPS_MAX - 1, "192.0.2.7"), (HOPS_MAX, "10.0.0.2")] {
            let line = format!(
                "X-Forwarded-For: 192.0.2.7{}\r\n",
                ", 10.0.0.2".repeat(hops)
            );
            assert_eq!(
                client(&ClientAddress::XForwardedFor, line),
                expected,
                "{hops}"
            );
        }
    }
}
