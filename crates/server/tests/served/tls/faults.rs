//! Clients that send no TLS, send malformed TLS, or do not complete the handshake.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::TlsFixture;
use crate::support::{Options, SOON, on_all, until};

/// Returns a TLS client and the bytes of its ClientHello.
fn hello(fixture: &TlsFixture) -> (ClientConnection, Vec<u8>) {
    let name = ServerName::try_from("localhost").expect("a name");
    let mut client = ClientConnection::new(Arc::clone(&fixture.trust), name).expect("a client");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).expect("into memory");
    (client, bytes)
}

/// Sends these bytes and returns everything received.
fn knock(fixture: &TlsFixture, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(fixture.server.public).expect("it listens");
    socket.set_read_timeout(Some(SOON)).expect("a socket");
    socket.write_all(bytes).expect("it reads");
    let mut answer = Vec::new();
    // The server may also end the connection with a reset, which is a read error.
    let _ = socket.read_to_end(&mut answer);
    answer
}

#[test]
fn other_protocols_are_closed_cleanly() {
    on_all(|setup| {
        let fixture = TlsFixture::start(setup, "", &Options::default());
        let failures = |reason: &str| {
            let label = format!("reason=\"{reason}\"");
            fixture.count("veche_tls_handshake_failures_total", &label)
        };
        let answer = knock(&fixture, b"GET / HTTP/1.1\r\nHost: test\r\n\r\n");
        let answer = String::from_utf8(answer).expect("text");
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(body.contains("use https://"), "{answer}");
        assert!(
            head.contains(&format!("content-length: {}", body.len())),
            "{answer}"
        );
        assert_eq!(knock(&fixture, b"\x00\x01\x02 garbage"), b"");
        assert_eq!(failures("not_tls"), 2);

        // A record that only servers send is answered with an alert.
        let answer = knock(&fixture, b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00");
        assert_eq!(answer.first(), Some(&21), "{answer:?}");
        assert_eq!(failures("malformed"), 1);
        // A record whose announced length exceeds the maximum.
        let answer = knock(&fixture, b"\x16\x03\x01\xff\xff");
        assert_eq!(answer.first(), Some(&21), "{answer:?}");
        assert_eq!(failures("malformed"), 2);

        // A client that leaves during the handshake, and a client that sends nothing.
        let (_, bytes) = hello(&fixture);
        let mut socket = TcpStream::connect(fixture.server.public).expect("it listens");
        socket
            .write_all(&bytes[..bytes.len() / 2])
            .expect("it reads");
        until("its half to come", || fixture.server.connections() == 1);
        drop(socket);
        drop(TcpStream::connect(fixture.server.public));
        until("it to be gone", || failures("cut_off") == 1);
        fixture.server.await_connections(0);
        fixture
            .open()
            .last_request("/index.html")
            .expect("an answer");
    });
}

#[test]
fn byte_by_byte_is_as_good_as_any() {
    on_all(|setup| {
        let fixture = TlsFixture::start(setup, "", &Options::default());
        let mut socket = TcpStream::connect(fixture.server.public).expect("it listens");
        socket.set_nodelay(true).expect("a socket");
        socket.set_read_timeout(Some(SOON)).expect("a socket");
        let (mut client, mut bytes) = hello(&fixture);
        let request = b"GET /index.html HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
        std::io::Write::write_all(&mut client.writer(), request).expect("kept");
        let mut answer = Vec::new();
        loop {
            for byte in &bytes {
                socket.write_all(&[*byte]).expect("it reads");
            }
            bytes.clear();
            let ended = client.read_tls(&mut socket).expect("it answers") == 0;
            let state = client.process_new_packets().expect("good TLS");
            let mut plain = vec![0; state.plaintext_bytes_to_read()];
            client.reader().read_exact(&mut plain).expect("as many");
            answer.extend_from_slice(&plain);
            while client.wants_write() {
                client.write_tls(&mut bytes).expect("into memory");
            }
            if ended || state.peer_has_closed() {
                break;
            }
        }
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.ends_with("<p>hello</p>"), "{answer}");
    });
}

#[test]
fn a_handshake_has_a_time_to_be_over_by() {
    on_all(|setup| {
        let limits = "header_timeout = \"1s\"\nhandshake_timeout = \"1s\"";
        let fixture = TlsFixture::start(
            setup,
            "",
            &Options {
                limits,
                routes: super::LINES,
                ..Options::default()
            },
        );
        let (_, bytes) = hello(&fixture);
        let lines = super::address_of(&fixture.server, 3);
        let mut waiting = Vec::new();
        for address in [fixture.server.public, lines] {
            for part in [0, 1, bytes.len() / 2, bytes.len()] {
                let mut socket = TcpStream::connect(address).expect("it listens");
                socket.set_read_timeout(Some(SOON)).expect("a socket");
                socket.write_all(&bytes[..part]).expect("it reads");
                waiting.push(socket);
            }
        }
        for mut socket in waiting {
            let mut rest = Vec::new();
            let end = socket.read_to_end(&mut rest);
            let timed_out = end.as_ref().is_err_and(|error| {
                matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                )
            });
            assert!(!timed_out, "it was left open");
        }
        let label = "reason=\"timed_out\"";
        assert_eq!(
            fixture.count("veche_tls_handshake_failures_total", label),
            8
        );
        fixture.server.await_connections(0);
    });
}

/// A modified record ends the session.
#[test]
fn a_changed_record_ends_the_session() {
    on_all(|setup| {
        let fixture = TlsFixture::start(setup, "", &Options::default());
        let mut client = fixture.open();
        client.upgrade("/echo").expect("it opens");
        client.echoes(b"still there");
        let mut record = Vec::new();
        std::io::Write::write_all(&mut client.stream.conn.writer(), b"more").expect("kept");
        client
            .stream
            .conn
            .write_tls(&mut record)
            .expect("into memory");
        *record.last_mut().expect("a record") ^= 1;
        client.stream.sock.write_all(&record).expect("it reads");
        let mut rest = Vec::new();
        assert!(
            client.stream.read_to_end(&mut rest).is_err(),
            "the alert, or a reset"
        );
        fixture.server.await_connections(0);
    });
}
