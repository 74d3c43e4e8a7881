//! A client that does not read: only this client is closed, memory stays flat, and other clients are unaffected.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::support::metrics::Metrics;
use crate::support::{
    Lines, Options, Seen, Server, Setup, Socket, now, on_each, percentile, process,
};

/// Returns a client with a small kernel buffer.
pub(crate) fn narrow(server: &Server, target: &str) -> Socket {
    let socket =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a socket");
    socket.connect(&server.public.into()).expect("connected");
    Socket::upgrade(TcpStream::from(socket), target, &[]).expect("a session")
}

#[test]
fn a_slow_reader_is_closed_alone() {
    on_each(|setup: Setup| {
        let server = Server::with(
            setup,
            &Options {
                limits: "outbox_bytes = \"32KiB\"",
                ..Options::default()
            },
        );
        let mut slow = narrow(&server, "/ws?user=slow&channel=news");
        let mut neighbour = Socket::open(server.public, "/ws?user=neighbour");
        let mut lines = Lines::connect(server.push);
        let done = AtomicBool::new(false);
        let (server, done) = (&server, &done);
        let pid = server.pid();
        let rss_before = process::rss_kib(pid);
        thread::scope(|scope| {
            let neighbour = scope.spawn(move || {
                let mut back_end = Lines::connect(server.push);
                let mut latencies = Vec::new();
                while !done.load(Ordering::Relaxed) || latencies.len() < 100 {
                    let began = now();
                    back_end.send(&json!({"user": "neighbour", "data": latencies.len()}));
                    assert_eq!(neighbour.text(), latencies.len().to_string());
                    latencies.push(now() - began);
                    thread::sleep(Duration::from_millis(1));
                }
                latencies
            });
            // The pushes exceed what the kernel and the outbox can hold, so the last pushes have no receiver.
            let data = "x".repeat(8 << 10);
            let mut handed = 0;
            for _ in 0..4000 {
                let answer = lines.ask(&json!({"channel": "news", "data": data, "ack": true}));
                handed = answer["result"]["handed"].as_u64().expect("a count");
                if handed == 0 {
                    break;
                }
            }
            let slow_consumers =
                Metrics::scrape(server.internal).sum("veche_slow_consumers_total", &[]);
            assert_eq!(
                slow_consumers, 1.0,
                "counted once; the last push was handed to {handed}"
            );
            done.store(true, Ordering::Relaxed);
            let mut latencies = neighbour.join().expect("the neighbour got everything");
            let p99 = percentile(&mut latencies, 0.99);
            eprintln!(
                "{setup:?}: the neighbour's p99 is {p99:?} of {} pushes",
                latencies.len()
            );
            // The goal is less than 50 ms, but the machine may be busy.
            assert!(p99 < Duration::from_millis(500), "{p99:?}");
        });
        let rss_after = process::rss_kib(pid);
        assert!(
            rss_after < rss_before + 16 * 1024,
            "{rss_before} KiB grew to {rss_after}"
        );
        // The client first receives the complete messages that the kernel holds, and then the close with its reason.
        let mut messages = 0;
        let code = loop {
            match slow.next() {
                Seen::Text(text) => {
                    assert_eq!(text.len(), 8 << 10);
                    messages += 1;
                }
                Seen::Close(code, _) => break code,
                other => panic!("expected messages and a close, saw {other:?} after {messages}"),
            }
        };
        assert_eq!(code, Some(1013));
        assert!(messages > 0);
    });
}

/// A client that never reads again is closed after `write_timeout`, even if its outbox has room.
#[test]
fn a_stuck_reader_is_dropped_after_write_timeout() {
    on_each(|setup: Setup| {
        let limits = "outbox_bytes = \"64MiB\"\nwrite_timeout = \"300ms\"\nping_interval = \"off\"";
        let server = Server::with(
            setup,
            &Options {
                limits,
                ..Options::default()
            },
        );
        let _stuck = narrow(&server, "/ws?user=stuck");
        let mut reading = Socket::open(server.public, "/ws?user=reading");
        let mut lines = Lines::connect(server.push);
        let data = "x".repeat(256 << 10);
        for _ in 0..40 {
            lines.send(&json!({"user": "stuck", "data": data}));
        }
        let answer = lines.ask(&json!({"user": "reading", "data": 1, "ack": true}));
        assert_eq!(answer, json!({"result": {"handed": 1}}));
        assert_eq!(reading.text(), "1");
        lines.finish();
        server.await_connections(1);
        assert!(reading.is_alive());
    });
}

/// A client sends requests and reads no response: the server stops reading from it, and the server's memory does not grow.
#[test]
fn a_client_that_does_not_read_replies_is_paused() {
    on_each(|setup: Setup| {
        let server = Server::start(setup);
        let mut asking = narrow(&server, "/echo");
        let mut neighbour = Socket::open(server.public, "/echo");
        asking
            .socket
            .set_write_timeout(Some(Duration::from_millis(300)))
            .expect("a socket");
        let rss_before = process::rss_kib(server.pid());
        let mut message = Vec::new();
        let (kind, data) = (
            veche_proto::websocket::MessageKind::Binary,
            vec![b'x'; 16 << 10],
        );
        veche_proto::websocket::encode_message(&mut message, kind, &data, Some([1, 2, 3, 4]));
        let mut sent = 0;
        while sent < 64 << 20 {
            match std::io::Write::write(&mut asking.socket, &message[sent % message.len()..]) {
                Ok(count) => sent += count,
                Err(_) => break,
            }
        }
        assert!(sent < 64 << 20, "it took everything");
        neighbour.say("hello");
        assert_eq!(neighbour.text(), "hello");
        let rss_after = process::rss_kib(server.pid());
        assert!(
            rss_after < rss_before + 8 * 1024,
            "{rss_before} KiB grew to {rss_after}"
        );
        // Once the client reads, it receives the echoes of all complete messages.
        for _ in 0..sent / message.len() {
            assert_eq!(asking.next(), Seen::Binary(data.clone()));
        }
    });
}

/// With `slow_consumer = "miss"` a slow reader misses publications, stays connected, and is named in the log.
#[test]
fn a_slow_reader_misses_publications_of_lossy_namespaces() {
    on_each(|setup: Setup| {
        let options = Options {
            limits: "outbox_bytes = \"32KiB\"",
            routes: "[[route]]\npath = \"/cursors\"\nhandler = \"push\"\nidentity = \"query:user\"\nchannels = [\"*\"]\n\
                [[namespace]]\nname = \"cursors\"\nslow_consumer = \"miss\"\n",
            ..Options::default()
        };
        let server = Server::with(setup, &options);
        let mut slow = narrow(&server, "/cursors?user=slow&channel=cursors:1&channel=news");
        let mut lines = Lines::connect(server.push);
        let dropped = || {
            let label = "outbox_full=\"miss\"";
            Metrics::scrape(server.internal).sum("veche_publications_dropped_total", &[label])
        };
        let data = "x".repeat(1 << 10);
        let mut published = 0;
        while dropped() < 100.0 {
            for _ in 0..100 {
                let answer = lines.ask(&json!({"channel": "cursors:1", "data": data, "ack": true}));
                assert_eq!(answer["result"]["handed"], 1, "it stays");
            }
            published += 100;
            assert!(published < 100_000, "nothing is missed");
        }
        // The outbox has room for other channels.
        lines.ask(&json!({"channel": "news", "data": "news", "ack": true}));
        let mut seen = 0;
        while slow.text() != "news" {
            seen += 1;
        }
        // The slow client misses nothing from now on. Earlier publications of this channel that were queued outside of
        // the outbox may arrive before this one.
        lines.ask(&json!({"channel": "cursors:1", "data": "here", "ack": true}));
        while slow.text() != "here" {
            seen += 1;
        }
        assert!(seen < published, "{seen} of {published}");

        let output = server.command(&["status", "--slow"]).output();
        let printed = output.expect("veche runs").stdout;
        let printed = String::from_utf8_lossy(&printed);
        assert!(
            printed.contains("slow at 127.0.0.1 on /cursors: misses publications"),
            "{printed}"
        );
    });
}
