//! Tests of PROXY protocol headers: valid headers, invalid headers, and headers that arrive in
//! pieces.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use proptest::prelude::*;
use veche_proto::proxy::{ProxyHeader, ProxyHeaderError, V1_BYTES_MAX, V2_BYTES_MAX, read};

#[path = "../../../fuzz/src/proxy.rs"]
#[expect(unreachable_pub, reason = "public in the fuzz crate")]
mod fuzz;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn binary(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let length = u16::try_from(block.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[command, family], &length, block].concat()
}

/// Returns the addresses and ports of a version 2 header, with this client address.
fn block(client: IpAddr) -> Vec<u8> {
    let address = match client {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    [&address[..], &address, &[0xdc, 4, 1, 0xbb]].concat()
}

fn client(bytes: &[u8]) -> Result<Option<IpAddr>, ProxyHeaderError> {
    let header = read(bytes)?.expect("a whole header");
    Ok(header.client)
}

#[test]
fn a_text_header_names_the_client() {
    for (line, expected) in [
        ("TCP4 192.0.2.7 198.51.100.1 56324 443", "192.0.2.7"),
        ("TCP4 255.255.255.255 0.0.0.0 65535 0", "255.255.255.255"),
        ("TCP6 2001:db8::7 2001:db8::1 1 2", "2001:db8::7"),
        ("TCP6 ::ffff:192.0.2.7 ::1 1 2", "::ffff:192.0.2.7"),
    ] {
        let line = format!("PROXY {line}\r\n");
        let header = ProxyHeader {
            length: line.len(),
            client: Some(expected.parse().unwrap()),
        };
        assert_eq!(read(line.as_bytes()), Ok(Some(header)), "{line}");
        let more = format!("{line}GET / HTTP/1.1\r\n\r\n");
        assert_eq!(read(more.as_bytes()), Ok(Some(header)), "{line}");
    }
    for line in ["PROXY UNKNOWN\r\n", "PROXY UNKNOWN what ever 1\r\n"] {
        assert_eq!(client(line.as_bytes()), Ok(None), "{line}");
    }
}

#[test]
fn a_line_that_could_be_read_in_two_ways_is_refused() {
    for line in [
        "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\n",
        "PROXY TCP4  192.0.2.7 198.51.100.1 56324 443\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443 \r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 56324\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 56324 65536\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 +5632 443\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 056324 443\r\n",
        "PROXY TCP4 192.0.2.07 198.51.100.1 56324 443\r\n",
        "PROXY TCP4 2001:db8::7 2001:db8::1 1 2\r\n",
        "PROXY TCP6 192.0.2.7 192.0.2.8 1 2\r\n",
        "PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
        "PROXY UDP4 192.0.2.7 198.51.100.1 1 2\r\n",
        "PROXY tcp4 192.0.2.7 198.51.100.1 1 2\r\n",
        "PROXY \r\n",
        "PROXY UNKNOWNS\r\n",
    ] {
        assert_eq!(
            read(line.as_bytes()),
            Err(ProxyHeaderError::Broken),
            "{line}"
        );
    }
    let long = format!("PROXY UNKNOWN {}", " ".repeat(V1_BYTES_MAX));
    assert_eq!(read(long.as_bytes()), Err(ProxyHeaderError::TooLong));
    let longest = format!("PROXY UNKNOWN {}\r\n", "f".repeat(V1_BYTES_MAX - 16));
    assert_eq!(client(longest.as_bytes()), Ok(None));
}

#[test]
fn a_binary_header_names_the_client() {
    for address in ["192.0.2.7", "2001:db8::7"] {
        let address: IpAddr = address.parse().unwrap();
        let family = if address.is_ipv4() { 0x11 } else { 0x21 };
        assert_eq!(
            client(&binary(0x21, family, &block(address))),
            Ok(Some(address))
        );
        // A header with the TLS properties that HAProxy sends, and one of the maximum length.
        let more = [&block(address)[..], b"\x20\0\x0a\x07\0\0\0\0\x21\0\x02v3"].concat();
        assert_eq!(client(&binary(0x21, family, &more)), Ok(Some(address)));
        let mut most = block(address);
        most.resize(V2_BYTES_MAX - 16, 7);
        assert_eq!(client(&binary(0x21, family, &most)), Ok(Some(address)));
        most.push(7);
        assert_eq!(
            client(&binary(0x21, family, &most)),
            Err(ProxyHeaderError::TooLong)
        );
        // A header with the command LOCAL describes the proxy itself, so it has no client, whatever
        // else it contains. A header whose client has no TCP address has no client either.
        assert_eq!(client(&binary(0x20, family, &block(address))), Ok(None));
        for family in [0x00, 0x12, 0x22, 0x31, 0x32] {
            assert_eq!(client(&binary(0x21, family, &[0; 216])), Ok(None));
        }
    }
    assert_eq!(client(&binary(0x20, 0, b"")), Ok(None));
}

#[test]
fn a_broken_block_is_refused() {
    let address = block([192, 0, 2, 7].into());
    for (command, family, block) in [
        (0x21, 0x11, &address[..11]),
        (0x21, 0x21, &address[..]),
        (0x11, 0x11, &address[..]),
        (0x31, 0x11, &address[..]),
        (0x22, 0x11, &address[..]),
        (0x21, 0x41, &address[..]),
        (0x21, 0x13, &address[..]),
    ] {
        assert_eq!(
            read(&binary(command, family, block)),
            Err(ProxyHeaderError::Broken),
            "{command:x} {family:x}"
        );
    }
}

#[test]
fn other_input_is_rejected_at_its_first_deviating_byte() {
    for (bytes, at) in [
        (&b"GET / HTTP/1.1\r\n"[..], 1),
        (b"POST / HTTP/1.1\r\n", 2),
        (b"\x16\x03\x01\x02\x00", 1),
        (b"{\"user\":1}\n", 1),
        (b"\r\n\r\nGET", 5),
        (b"PROXYTCP4", 6),
    ] {
        assert_eq!(read(&bytes[..at - 1]), Ok(None), "{bytes:?}");
        assert_eq!(
            read(&bytes[..at]),
            Err(ProxyHeaderError::Missing),
            "{bytes:?}"
        );
    }
    assert_eq!(read(b""), Ok(None));
}

proptest! {
    #[test]
    fn what_is_written_is_read_however_it_comes(
        octets in any::<[u8; 16]>(),
        is_v6: bool,
        is_text: bool,
        tlvs in prop::collection::vec(any::<u8>(), 0..300),
        behind in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let address = match is_v6 {
            true => IpAddr::V6(Ipv6Addr::from(octets)),
            false => IpAddr::V4(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3])),
        };
        let bytes = match (is_text, is_v6) {
            (true, true) => format!("PROXY TCP6 {address} ::1 1 65535\r\n").into_bytes(),
            (true, false) => format!("PROXY TCP4 {address} 127.0.0.1 1 65535\r\n").into_bytes(),
            (false, _) => {
                let family = if is_v6 { 0x21 } else { 0x11 };
                binary(0x21, family, &[block(address), tlvs].concat())
            }
        };
        let length = bytes.len();
        let input = [bytes, behind].concat();
        prop_assert_eq!(read(&input), Ok(Some(ProxyHeader { length, client: Some(address) })));
        fuzz::run(&input);
    }

    #[test]
    fn no_bytes_are_too_strange(
        start in prop::sample::select(vec![&b""[..], b"PROXY ", b"PROXY TCP4 ", SIGNATURE]),
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        fuzz::run(&[start, &bytes].concat());
    }
}

/// Replays the corpus of the fuzz target as a regression test.
#[test]
fn the_corpus_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/proxy_header");
    let inputs = fs::read_dir(corpus)
        .unwrap()
        .map(|entry| fuzz::run(&fs::read(entry.unwrap().path()).unwrap()))
        .count();
    assert!(inputs > 5, "{inputs} inputs");
}
