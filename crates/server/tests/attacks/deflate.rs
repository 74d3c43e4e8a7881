//! permessage-deflate: bombs, retained windows, corrupt streams.

use std::io::Write;
use std::net::TcpStream;

use flate2::{Compression, write::DeflateEncoder};

use crate::attack::Attack;
use crate::raw::{
    BINARY, CLOSE, CONTINUES, DEFLATED, ENDS, TEXT, closed, connect, frame, hear, open, status,
};
use crate::support::Options;

/// Compression is enabled, and messages may be long.
const ROUTES: &str = "[[route]]\npath = \"/deflate\"\nhandler = \"echo\"\ncompression = true\n\
    [[route]]\npath = \"/large\"\nhandler = \"echo\"\ncompression = true\n\
    message_bytes_max = \"1MiB\"\nfragments_max = 100_000\n";

const OPTIONS: Options<'_> = Options {
    limits: "",
    listen: "",
    api: "",
    server: "",
    routes: ROUTES,
    descriptors: None,
    shell: "",
    log: "",
    files: &[],
};

const OFFER: &str = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";

/// Returns zeros, compressed as a message (RFC 7692, section 7.2.1) to about a thousandth of their length.
fn bomb(bytes: usize) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![0; 1 << 20];
    for _ in 0..bytes >> 20 {
        encoder.write_all(&zeros).expect("into memory");
    }
    encoder.flush().expect("into memory");
    let mut out = encoder.get_ref().clone();
    assert!(out.ends_with(&[0, 0, 0xff, 0xff]));
    out.truncate(out.len() - 4);
    out
}

fn is_closed_with(codes: &[u16], socket: &mut TcpStream) -> bool {
    let code = closed(socket);
    assert!(code.is_none_or(|code| codes.contains(&code)), "{code:?}");
    code.is_some()
}

/// A message of one megabyte that inflates to a gigabyte.
#[test]
fn bombs() {
    let bomb = bomb(1 << 30);
    assert!(
        bomb.len() < 1 << 20,
        "as long as a message may be: {}",
        bomb.len()
    );
    let whole = frame(BINARY | DEFLATED, &bomb);
    let attack = Attack {
        options: OPTIONS,
        ..Attack::default()
    };
    attack.run(|target, _| {
        let mut socket = open(target.address, "/large", OFFER);
        let _ = socket.write_all(&whole);
        if is_closed_with(&[1009], &mut socket) {
            target.landed();
        }
    });
}

/// A quarter of a gigabyte in fragments of a hundred bytes. Earlier fragments of a message count
/// towards the limit.
#[test]
fn bombs_in_pieces() {
    let bomb = bomb(1 << 28);
    let mut pieces = frame((BINARY & 0x7f) | DEFLATED, b"");
    pieces.extend(bomb.chunks(100).flat_map(|piece| frame(CONTINUES, piece)));
    pieces.extend(frame(ENDS, b""));
    let attack = Attack {
        options: OPTIONS,
        ..Attack::default()
    };
    attack.run(|target, _| {
        let mut socket = open(target.address, "/large", OFFER);
        let _ = socket.write_all(&pieces);
        if is_closed_with(&[1009], &mut socket) {
            target.landed();
        }
    });
}

/// Messages that inflate to exactly the allowed maximum, repeatedly: each one costs its inflated size and its echo.
#[test]
fn bombs_of_the_allowed_size() {
    let mut allowed = DeflateEncoder::new(Vec::new(), Compression::best());
    allowed.write_all(&[0; 64 << 10]).expect("into memory");
    allowed.flush().expect("into memory");
    let whole = frame(BINARY | DEFLATED, allowed.get_ref());
    let attack = Attack {
        options: OPTIONS,
        ..Attack::default()
    };
    attack.run(|target, _| {
        let mut socket = open(target.address, "/deflate", OFFER);
        for _ in 0..50 {
            socket.write_all(&whole).expect("the server reads");
            let (first, _) = hear(&mut socket).expect("an echo");
            assert_eq!(first & 0x0f, 2);
            target.landed();
        }
    });
}

/// A megabyte of repetitive JSON is accepted, since legitimate clients send it too. Its cost is charged to its sender.
#[test]
fn repetitive_messages_of_a_megabyte() {
    let row = r#"{"id":0,"name":"","tags":[]},"#;
    let text = format!("[{}0]", row.repeat(((1 << 20) - 4) / row.len()));
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text.as_bytes()).expect("into memory");
    encoder.flush().expect("into memory");
    let whole = frame(TEXT | DEFLATED, encoder.get_ref());
    assert!(whole.len() * 200 < text.len(), "{}", whole.len());
    let attack = Attack {
        options: OPTIONS,
        ..Attack::default()
    };
    attack.run(|target, _| {
        let mut socket = open(target.address, "/large", OFFER);
        for _ in 0..10 {
            socket.write_all(&whole).expect("the server reads");
            let (first, _) = hear(&mut socket).expect("an echo");
            assert_eq!(first & 0x0f, 1);
            target.landed();
        }
    });
}

/// Four hundred clients each send one compressed word and stay connected.
#[test]
fn unused_compression_windows() {
    let word = frame(TEXT | DEFLATED, &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]);
    let attack = Attack {
        options: OPTIONS,
        ..Attack::default()
    };
    attack.run(|target, _| {
        let sockets: Vec<_> = (0..100)
            .map(|_| {
                let mut socket = open(target.address, "/deflate", OFFER);
                socket.write_all(&word).expect("the server reads");
                hear(&mut socket).expect("an echo");
                target.landed();
                socket
            })
            .collect();
        target.outlast();
        drop(sockets);
    });
}

/// Random, truncated and corrupted streams, and frames with an undefined use of the compression bit: each ends with a
/// Close with a code, or is echoed.
#[test]
fn streams_that_are_broken() {
    let good = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    let attack = Attack {
        options: OPTIONS,
        ..Attack::default()
    };
    attack.run(|target, rng| {
        let mut stream: Vec<u8> = match rng.u8(..6) {
            0 => (0..rng.usize(..2000)).map(|_| rng.u8(..)).collect(),
            // Streams that are empty, unterminated, with a final block in the middle, or with a stored block of the
            // wrong length.
            1 => Vec::new(),
            2 => good[..rng.usize(..good.len())].to_vec(),
            3 => [&[0xf3][..], &good[1..], &good].concat(),
            4 => [0x00, 0xff, 0xff, 0x00, 0x01, b'x'].to_vec(),
            _ => good.repeat(rng.usize(1..5)),
        };
        if !stream.is_empty() {
            let place = rng.usize(..stream.len());
            stream[place] ^= 1 << rng.u8(..8);
        }
        let first = match rng.u8(..6) {
            0 => CONTINUES | DEFLATED,
            1 => ENDS | DEFLATED,
            2 => CLOSE | DEFLATED,
            3 => TEXT | DEFLATED,
            _ => BINARY | DEFLATED,
        };
        let path = if rng.bool() { "/deflate" } else { "/echo" };
        let mut socket = open(target.address, path, OFFER);
        stream.truncate(125);
        let _ = socket.write_all(&frame(first, &stream));
        let _ = socket.write_all(&frame(CLOSE, &1000_u16.to_be_bytes()));
        if is_closed_with(&[1000, 1002, 1007, 1009], &mut socket) {
            target.landed();
        }
    });
}

/// Contradictory offers: the server accepts a valid one among them, or none.
#[test]
fn offers_that_make_no_sense() {
    let offers = [
        "permessage-deflate; server_max_window_bits=7",
        "permessage-deflate; server_max_window_bits=16",
        "permessage-deflate; server_max_window_bits=\"\"",
        "permessage-deflate; server_max_window_bits",
        "permessage-deflate; client_max_window_bits=8; client_max_window_bits=9",
        "permessage-deflate; unknown, permessage-deflate; unknown=1",
        "permessage-deflate; server_no_context_takeover=1",
    ];
    let attack = Attack {
        options: OPTIONS,
        ..Attack::default()
    };
    attack.run(|target, rng| {
        let offer = offers[rng.usize(..offers.len())];
        let mut socket = connect(target.address);
        let header = format!("Sec-WebSocket-Extensions: {offer}\r\n");
        let _ = socket.write_all(&crate::raw::handshake("/deflate", &header));
        assert_eq!(status(&mut socket), Some(101), "{offer}");
        // Nothing was negotiated, so a compressed frame violates the protocol.
        let _ = socket.write_all(&frame(TEXT | DEFLATED, &[0x02, 0x00]));
        if is_closed_with(&[1002], &mut socket) {
            target.landed();
        }
    });
}
