//! Version 2 of the PROXY protocol: a binary header (section 2.2 of its specification).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{ProxyHeader, ProxyHeaderError, begins};

/// Maximum header length: the fixed part and 4 KiB. The format permits 64 KiB, but IP addresses take at most 36 bytes, and
/// the TLVs that proxies add (a name, a unique id, TLS properties) a few hundred.
pub const HEADER_BYTES_MAX: usize = FIXED_BYTES + 4096;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Length of the fixed part: signature, version and command, family and transport, length of the remainder.
const FIXED_BYTES: usize = 16;

const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;

const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;

pub(super) fn read(input: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    if begins(input, SIGNATURE)?.is_none() {
        return Ok(None);
    }
    // The byte with version and command is checked as soon as it has arrived, so that a header of another version is
    // refused at once.
    let Some(&command) = input.get(12) else {
        return Ok(None);
    };
    if !matches!(command, LOCAL | PROXY) {
        return Err(ProxyHeaderError::Broken);
    }
    let Some(&[family, high, low]) = input.get(13..FIXED_BYTES) else {
        return Ok(None);
    };
    let length = FIXED_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if length > HEADER_BYTES_MAX {
        return Err(ProxyHeaderError::TooLong);
    }
    // The remainder of the block after the addresses is TLVs, which are skipped.
    let Some(block) = input.get(FIXED_BYTES..length) else {
        return Ok(None);
    };
    let client = match command {
        // Section 2.2 of the specification: for LOCAL the receiver must ignore family and addresses.
        LOCAL => None,
        _ => client(family, block)?,
    };
    Ok(Some(ProxyHeader { length, client }))
}

/// Returns the source address of an IP connection over TCP. Other families and transports of the specification do not
/// identify the peer of this connection.
fn client(family: u8, block: &[u8]) -> Result<Option<IpAddr>, ProxyHeaderError> {
    match family {
        // The block contains the source address, the destination address and two ports.
        TCP_OVER_IPV4 => {
            let [source, ..] = addresses::<4>(block)?;
            Ok(Some(Ipv4Addr::from(source).into()))
        }
        TCP_OVER_IPV6 => {
            let [source, ..] = addresses::<16>(block)?;
            Ok(Some(Ipv6Addr::from(source).into()))
        }
        // 0x00 is unspecified, 0x12 and 0x22 are UDP over IPv4 and IPv6, and 0x31 and 0x32 are Unix sockets.
        0x00 | 0x12 | 0x22 | 0x31 | 0x32 => Ok(None),
        _ => Err(ProxyHeaderError::Broken),
    }
}

/// Returns the source and destination addresses; the ports have to be present.
fn addresses<const N: usize>(block: &[u8]) -> Result<[[u8; N]; 2], ProxyHeaderError> {
    let (source, rest) = block.split_first_chunk().ok_or(ProxyHeaderError::Broken)?;
    let (destination, rest) = rest.split_first_chunk().ok_or(ProxyHeaderError::Broken)?;
    match rest.len() >= 4 {
        true => Ok([*source, *destination]),
        false => Err(ProxyHeaderError::Broken),
    }
}
