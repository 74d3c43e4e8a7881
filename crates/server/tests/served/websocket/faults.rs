//! Servers that refuse, send wrong data, violate the protocol or die.

use std::io::Write as _;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use veche_proto::websocket::MessageKind;

use super::{run, start};
use crate::peer::{Peer, PeerEvent, serve};
use crate::support::on_all;

const RIGHT: &str =
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";

#[test]
fn failed_handshakes() {
    let accept = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
    let table: [(String, &str); 10] = [
        (
            "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno".into(),
            "status 403",
        ),
        (
            "HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n".into(),
            "status 302",
        ),
        ("HTTP/1.1 200 OK\r\n\r\n<html>".into(), "status 200"),
        (
            "HTTP/1.1 503 Service Unavailable\r\n\r\n".into(),
            "status 503",
        ),
        (
            format!("{RIGHT}{accept}\r\n"),
            "Sec-WebSocket-Accept does not match",
        ),
        (
            format!("{RIGHT}\r\n"),
            "Sec-WebSocket-Accept does not match",
        ),
        (
            format!("HTTP/1.1 101 X\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n{accept}\r\n"),
            "did not upgrade",
        ),
        ("220 ready for mail\r\n\r\n".into(), "not HTTP"),
        (
            format!("HTTP/1.1 101 X\r\n{}\r\n", "X-Filler: y\r\n".repeat(2000)),
            "too large",
        ),
        (String::new(), "closed the connection before it answered"),
    ];
    on_all(|setup| {
        let server = start(setup);
        let answers: Vec<String> = table.iter().map(|(answer, _)| answer.clone()).collect();
        let address = serve(move |number, socket| {
            let Some(mut peer) = Peer::meet(socket) else {
                return;
            };
            peer.raw(answers[number].as_bytes());
            if !answers[number].is_empty() {
                peer.hear();
            }
        });
        for (answer, words) in &table {
            let results = run(&server, &format!("websocket.connect('ws://{address}/')"));
            assert!(
                results.starts_with(&format!("error: test:3: ws://{address}/: "))
                    && results.contains(words),
                "{answer:?}: {results}"
            );
        }
    });
}

#[test]
fn refused_and_unanswered_dials() {
    on_all(|setup| {
        let server = start(setup);
        // A port on which nothing listens any more.
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("bound");
        drop(free);
        let results = run(&server, &format!("websocket.connect('ws://{address}/')"));
        assert!(results.contains("connection refused"), "{results}");
        // The peer accepts the connection and the request, and stays silent.
        let silent = serve(|_, socket| {
            thread::sleep(Duration::from_secs(2));
            drop(socket);
        });
        let results = run(
            &server,
            &format!(
                "local before = veche.time.monotonic and 0 or 0\n\
                 local ok, why = pcall(websocket.connect, 'ws://{silent}/', {{ timeout = 0.2 }})\n\
                 return ok, why"
            ),
        );
        assert!(
            results.starts_with("false\n") && results.contains("not open within 0.2 s"),
            "{results}"
        );
        // The server selects a subprotocol that was not offered.
        let odd = serve(|_, socket| {
            let mut peer = Peer::meet(socket).expect("a request");
            peer.agree(Some("other"));
            peer.hear();
        });
        let results = run(
            &server,
            &format!("websocket.connect('ws://{odd}/', {{ protocols = 'mine' }})"),
        );
        assert!(
            results.contains("a subprotocol that was not offered"),
            "{results}"
        );
    });
}

#[test]
fn protocol_violations_close_with_their_code() {
    // Each row has the data that the peer sends after its 101 response, the script's result, and the
    // code that the peer receives.
    let table: [(&[u8], &str, u16); 6] = [
        // A masked frame, which only clients may send.
        (b"\x81\x81\0\0\0\0x", "1002", 1002),
        // A frame with a reserved opcode.
        (b"\x83\x00", "1002", 1002),
        // A compressed frame, although compression was not negotiated.
        (b"\xc1\x01x", "1002", 1002),
        // Text that is not UTF-8.
        (b"\x81\x02\xc3\x28", "1007", 1007),
        // A continuation frame without a message before it.
        (b"\x80\x00", "1002", 1002),
        // A frame that announces a gigabyte.
        (b"\x82\x7f\0\0\0\0\x40\0\0\0", "1009", 1009),
    ];
    on_all(|setup| {
        let server = start(setup);
        let rows: Vec<_> = table.iter().map(|row| (row.0, row.2)).collect();
        let address = serve(move |number, socket| {
            let mut peer = Peer::accept(socket).expect("a request");
            let (bytes, code) = rows[number];
            peer.raw(bytes);
            let PeerEvent::Close(received, _) = peer.hear() else {
                panic!("no close");
            };
            assert_eq!(received, Some(code));
        });
        for (bytes, code, _) in &table {
            let received = run(
                &server,
                &format!("return websocket.connect('ws://{address}/'):receive()"),
            );
            assert!(
                received.starts_with(&format!("nil\n{code}\n")),
                "{bytes:x?}: {received}"
            );
        }
    });
}

#[test]
fn a_message_may_be_as_large_as_is_allowed() {
    on_all(|setup| {
        let server = start(setup);
        let address = serve(|_, socket| {
            let mut peer = Peer::accept(socket).expect("a request");
            peer.send(MessageKind::Binary, &vec![7; 3 << 20]);
            while !matches!(peer.hear(), PeerEvent::End | PeerEvent::Close(..)) {}
        });
        let results = run(
            &server,
            &format!("return websocket.connect('ws://{address}/'):receive()"),
        );
        assert!(results.starts_with("nil\n1009\n"), "{results}");
        let results = run(
            &server,
            &format!(
                "local ws = websocket.connect('ws://{address}/', {{ message_bytes_max = 4194304 }})\n\
                 return #ws:receive()"
            ),
        );
        assert_eq!(results, (3 << 20).to_string());
    });
}

#[test]
fn a_server_that_dies() {
    on_all(|setup| {
        let server = start(setup);
        let address = serve(|number, socket| {
            let mut peer = Peer::accept(socket).expect("a request");
            peer.say("before");
            match number {
                // The peer sends FIN in the middle of a message.
                0 => _ = peer.raw(b"\x81\x05hal"),
                // The peer resets the connection.
                1 => {
                    assert_eq!(
                        peer.hear(),
                        PeerEvent::Message(MessageKind::Text, b"go".to_vec())
                    );
                    rustix::net::sockopt::set_socket_linger(&peer.socket, Some(Duration::ZERO))
                        .expect("a socket");
                }
                // A Close frame without a code.
                _ => {
                    peer.raw(b"\x88\x00");
                    assert_eq!(peer.hear(), PeerEvent::Close(None, String::new()));
                }
            }
            let _ = peer.socket.flush();
        });
        for code in [1006, 1006, 1005] {
            let results = run(
                &server,
                &format!(
                    "local ws = websocket.connect('ws://{address}/')\n\
                     local first = ws:receive()\n\
                     ws:send('go')\n\
                     local nothing, code = ws:receive()\n\
                     return first, nothing, code, ws.state"
                ),
            );
            assert_eq!(results, format!("before\nnil\n{code}\nclosed"));
        }
    });
}
