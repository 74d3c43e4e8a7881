//! Tests clients that request more than they read, and clients that make the server send to others that do not
//! read.

use std::io::Write;

use serde_json::json;

use crate::attack::Attack;
use crate::raw::{connect_with, narrow, upgrade};
use crate::support::{Lines, Options, Socket};

/// Some subscribers of a busy channel read nothing. Each of them is cut off individually, and the other
/// subscribers get everything.
#[test]
fn subscribers_that_do_not_read() {
    let attack = Attack {
        options: Options {
            limits: "outbox_bytes = \"64KiB\"\nwrite_timeout = \"500ms\"\nheader_timeout = \"500ms\"",
            ..Options::default()
        },
        attackers: 2,
        // Leaves room for a hundred full outboxes and for the publications under way.
        memory_mib_max: 32,
        ..Attack::default()
    };
    let data = "x".repeat(2000);
    attack.run(|target, rng| {
        let room = format!("room:{}", rng.u32(..));
        let mut reader = Socket::open(target.address, &format!("/ws?user=reader&channel={room}"));
        let sockets: Vec<_> = (0..50)
            .map(|_| {
                let socket = connect_with(target.address, narrow);
                upgrade(socket, &format!("/ws?user=deaf&channel={room}"), "")
            })
            .collect();
        let mut lines = Lines::connect(target.server.push);
        while target.lasts() {
            let line = json!({"channel": room, "data": data, "ack": true});
            let answer = lines.ask(&line);
            assert!(answer["result"]["handed"].as_u64() >= Some(1), "{answer}");
            assert_eq!(reader.text(), data, "a reader gets all of it");
            target.landed();
        }
        drop(sockets);
        lines.finish();
    });
}

/// The client sends messages and reads no echo: its own unread responses make the server stop reading from it.
#[test]
fn unread_echoes() {
    let message = crate::raw::frame(crate::raw::BINARY, &[b'x'; 16 << 10]).repeat(16);
    Attack::default().run(|target, _| {
        let mut sockets: Vec<_> = (0..10)
            .map(|_| {
                let socket = connect_with(target.address, narrow);
                let socket = upgrade(socket, "/echo", "");
                let soon = std::time::Duration::from_millis(20);
                socket.set_write_timeout(Some(soon)).expect("a socket");
                socket
            })
            .collect();
        while target.lasts() {
            let held_back = |socket: &mut std::net::TcpStream| socket.write_all(&message).is_err();
            if sockets
                .iter_mut()
                .filter_map(|socket| held_back(socket).then_some(()))
                .count()
                > 0
            {
                target.landed();
            }
        }
    });
}
