//! Tests slow clients: each phase of a connection has a deadline, and other clients are accepted meanwhile.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::attack::{Attack, Target};
use crate::raw::{UPGRADE, connect, connect_with, narrow, status};
use crate::support::Options;
use crate::support::server::KEY_HEADER;

/// The number of slow connections of each attacker.
const MANY: usize = 100;

/// Returns whether the server has closed a connection.
fn has_ended(socket: &mut TcpStream) -> bool {
    socket.set_nonblocking(true).expect("a socket");
    let ended = match socket.read(&mut [0; 4096]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    };
    socket.set_nonblocking(false).expect("a socket");
    ended
}

/// Many connections send `head` and then occasional bytes until the server closes them; new clients are accepted all
/// the while.
fn drip(target: &Target<'_>, connect: impl Fn() -> TcpStream, head: &[u8]) {
    let mut sockets: Vec<_> = (0..MANY).map(|_| connect()).collect();
    for socket in &mut sockets {
        let _ = socket.write_all(head);
    }
    while target.lasts() && !sockets.is_empty() {
        for socket in &mut sockets {
            let _ = socket.write_all(b"y");
        }
        let before = sockets.len();
        sockets.retain_mut(|socket| !has_ended(socket));
        (sockets.len()..before).for_each(|_| target.landed());
        let mut newcomer = crate::raw::connect(target.address);
        let _ = newcomer.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(status(&mut newcomer), Some(200), "others are served");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn slow_heads() {
    let head = format!("GET /echo HTTP/1.1\r\n{UPGRADE}X: ");
    Attack::default().run(|target, _| {
        drip(target, || connect(target.address), head.as_bytes());
    });
}

#[test]
fn slow_bodies() {
    let head =
        format!("POST /api/push HTTP/1.1\r\nHost: t\r\n{KEY_HEADER}Content-Length: 500000\r\n\r\n");
    Attack::default().run(|target, _| {
        drip(target, || connect(target.server.internal), head.as_bytes());
    });
}

/// A large file is requested ten times at once on each connection and not read. Other clients wait
/// while the worker serves the first request of each connection. A debug build takes up to half a
/// millisecond for one request, so it gets fewer connections.
#[test]
fn unread_answers() {
    let page = "x".repeat(4 << 20);
    let connections = if cfg!(debug_assertions) {
        MANY / 8
    } else {
        MANY / 2
    };
    let attack = Attack {
        options: Options {
            files: &[("site/large.html", &page)],
            ..Options::default()
        },
        // The growth is about 30 MiB for 200 connections. Each connection has an outbox of 64 KiB
        // and up to 64 KiB of the file.
        memory_mib_max: 48,
        ..Attack::default()
    };
    let request = b"GET /large.html HTTP/1.1\r\nHost: t\r\n\r\n".repeat(10);
    attack.run(|target, _| {
        let mut sockets: Vec<_> = (0..connections)
            .map(|_| connect_with(target.address, narrow))
            .collect();
        for socket in &mut sockets {
            let _ = socket.write_all(&request);
        }
        target.outlast();
        // The server closes the connections after `write_timeout`, which is shorter than the
        // attack. Connections that are still open are closed here.
        target.landed();
    });
}
