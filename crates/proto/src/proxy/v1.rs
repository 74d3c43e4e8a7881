//! Version 1 of the PROXY protocol: a text line (section 2.1 of the specification).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::{ProxyHeader, ProxyHeaderError, begins};

/// Maximum length of the line with its terminator (section 2.1): two full IPv6 addresses and two ports.
pub const HEADER_BYTES_MAX: usize = 107;

pub(super) const SIGNATURE: &[u8] = b"PROXY ";

pub(super) fn read(input: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    if begins(input, SIGNATURE)?.is_none() {
        return Ok(None);
    }
    let line = &input[..input.len().min(HEADER_BYTES_MAX)];
    let Some(end) = line.iter().position(|&byte| byte == b'\n') else {
        return match input.len() < HEADER_BYTES_MAX {
            true => Ok(None),
            false => Err(ProxyHeaderError::TooLong),
        };
    };
    let words = line[SIGNATURE.len()..end]
        .strip_suffix(b"\r")
        .and_then(|words| std::str::from_utf8(words).ok())
        .ok_or(ProxyHeaderError::Broken)?;
    let client = client(words).ok_or(ProxyHeaderError::Broken)?;
    let length = end + 1;
    Ok(Some(ProxyHeader { length, client }))
}

/// Parses the words after `PROXY`. If they begin with `UNKNOWN`, the other words are ignored.
fn client(words: &str) -> Option<Option<IpAddr>> {
    let mut words = words.split(' ');
    let client = match words.next()? {
        "UNKNOWN" => return Some(None),
        "TCP4" => addresses::<Ipv4Addr>(&mut words)?.into(),
        "TCP6" => addresses::<Ipv6Addr>(&mut words)?.into(),
        _ => return None,
    };
    port(words.next()?)?;
    port(words.next()?)?;
    words.next().is_none().then_some(Some(client))
}

/// Returns the source address; the destination has to be valid as well.
fn addresses<'w, A: FromStr>(words: &mut impl Iterator<Item = &'w str>) -> Option<A> {
    let source = words.next()?.parse().ok()?;
    words.next()?.parse::<A>().ok()?;
    Some(source)
}

/// Parses a port without leading zeros, 0 to 65535.
fn port(word: &str) -> Option<u16> {
    let is_plain =
        word.bytes().all(|byte| byte.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
    is_plain.then(|| word.parse().ok()).flatten()
}
