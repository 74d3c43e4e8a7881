//! Thousands of clients connect, stop halfway and vanish: no state of them remains.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::support::{Lines, Server, Setup, Socket, on_each, process, until};

const CLIENTS: usize = 5_000;

/// Partial handshakes, frames and lines that clients send before they vanish.
const HALVES: &[&str] = &[
    "",
    "G",
    "GET /ws?user=churn HTTP/1.1\r\nHost: t\r\nUpg",
    "GET /ws?user=churn&channel=news HTTP/1.1\r\nHost: t\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    "GET /echo HTTP/1.1\r\nHost: t\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\u{1}\u{7f}half a frame",
];

fn churn(server: &Server, clients: usize) {
    thread::scope(|scope| {
        for share in 0..2 {
            scope.spawn(move || {
                for number in 0..clients / 2 {
                    let mut socket =
                        TcpStream::connect(server.public).expect("the server takes connections");
                    let _ = socket.write_all(HALVES[(number + share) % HALVES.len()].as_bytes());
                    // One of four clients closes gracefully, the others with RST.
                    if number % 4 != 0 {
                        socket2::SockRef::from(&socket)
                            .set_linger(Some(Duration::ZERO))
                            .expect("a socket");
                    }
                }
            });
        }
    });
}

#[test]
fn churn_leaves_nothing_behind() {
    on_each(|setup: Setup| {
        let server = Server::start(setup);
        let mut staying = Socket::open(server.public, "/ws?user=staying");
        let pid = server.pid();
        // The first round fills pools and tables, so it runs before the memory is measured.
        churn(&server, CLIENTS / 5);
        server.await_connections(1);
        thread::sleep(Duration::from_millis(200));
        let (descriptors, rss) = (process::descriptors(pid), process::rss_kib(pid));
        churn(&server, CLIENTS);
        server.await_connections(1);
        until("its descriptors to be back", || {
            process::descriptors(pid) <= descriptors
        });
        let after = process::rss_kib(pid);
        assert!(after < rss + 4096, "{rss} KiB grew to {after}");
        // The server may accept some connections from the kernel's queue after the descriptors were counted.
        let mut lines = Lines::connect(server.push);
        until("the last of them to be gone", || {
            let answer = lines.ask(&json!({"user": "churn", "data": 0, "ack": true}));
            answer == json!({"result": {"handed": 0, "note": "the user has no connection"}})
        });
        let answer = lines.ask(&json!({"user": "staying", "data": 1, "ack": true}));
        assert_eq!(answer, json!({"result": {"handed": 1}}));
        assert_eq!(staying.text(), "1");
        assert_eq!(server.pid(), pid, "the same process all along");
    });
}
