//! Tests runs against misbehaving servers, and how reports describe them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use parking_lot::Mutex;
use veche_load::loads::LoadPlan;
use veche_load::loads::echo::EchoPlan;
use veche_load::loads::storm::StormPlan;
use veche_load::payload::PayloadPlan;
use veche_load::plan::{Endpoint, Plan};
use veche_load::report::Report;
use veche_load::target::ClientTemplate;
use veche_proto::websocket::MessageKind;

use crate::support::{
    WebSocket, assert_clean, at_once, endpoint, plan, report, serve, serve_websocket,
};

fn echo(inflight: u32) -> LoadPlan {
    LoadPlan::Echo(EchoPlan {
        payload: PayloadPlan::default(),
        inflight,
        ..EchoPlan::default()
    })
}

fn storm() -> LoadPlan {
    LoadPlan::Storm(StormPlan {
        payload: PayloadPlan::default(),
    })
}

fn clients(address: SocketAddr, count: u32) -> Endpoint {
    endpoint(&format!("ws://{address}/"), count)
}

fn run(load: LoadPlan, address: SocketAddr) -> Report {
    report(Plan {
        timeout_ns: 600_000_000,
        ..plan(vec![clients(address, 4)], load, 300)
    })
}

/// Asserts that all four connections failed with this cause alone, and that the first error has
/// this text.
#[track_caller]
fn all_fail(report: &Report, count: u64, cause: &str, words: &str) {
    let connections = &report.connections;
    assert_eq!(
        (connections.opened, connections.failed),
        (0, 4),
        "{connections:?}"
    );
    assert_eq!(
        (count, report.errors.count()),
        (4, 4),
        "{:?}",
        report.errors
    );
    let error = &report.errors.examples[cause];
    assert!(error.contains(words), "{error}");
}

#[test]
fn failed_connections_are_reported_by_cause() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    at_once([storm, || echo(1)], |load| {
        let report = run(load(), free.as_ref().copied().expect("a port"));
        all_fail(
            &report,
            report.errors.refused,
            "refused",
            "connection refused",
        );

        let address = serve(|_, mut socket| {
            let _ = socket.read(&mut [0; 1024]);
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
            let _ = socket.read(&mut [0; 1024]);
        });
        let report = run(load(), address);
        all_fail(&report, report.errors.bad_handshake, "bad_handshake", "200");

        let address = serve(|_, mut socket| {
            let _ = socket.read(&mut [0; 1024]);
            let _ = socket.write_all(b"\x00\xff\x13garbage without an end\n\n\n\n\r\n\r\n");
            let _ = socket.read(&mut [0; 1024]);
        });
        let report = run(load(), address);
        all_fail(&report, report.errors.bad_handshake, "bad_handshake", "");

        let address = serve(|_, mut socket| {
            let _ = socket.read(&mut [0; 1024]);
        });
        let report = run(load(), address);
        all_fail(
            &report,
            report.errors.bad_handshake,
            "bad_handshake",
            "ended the connection",
        );

        let address =
            serve(|_, mut socket| while matches!(socket.read(&mut [0; 1024]), Ok(1..)) {});
        let report = run(load(), address);
        all_fail(
            &report,
            report.errors.timed_out,
            "timed_out",
            "handshake timed out",
        );
    });
}

#[test]
fn answers_that_never_come_are_timed_out() {
    for load in [storm(), echo(2)] {
        let messages = if matches!(load, LoadPlan::Storm(_)) {
            4
        } else {
            8
        };
        let address = serve_websocket(|mut websocket| while websocket.message().is_some() {});
        let report = run(load, address);
        assert_eq!(report.connections.opened, 4);
        assert_eq!(
            report.messages.unanswered, messages,
            "{:?}",
            report.messages
        );
        assert_eq!(report.errors.timed_out, messages, "{:?}", report.errors);
        assert_eq!(report.errors.count(), messages);
        assert_eq!(report.latency_us, None);
    }
}

#[track_caller]
fn names_the_kinds(report: &Report) {
    let error = &report.errors.examples["wrong_answer"];
    let words = "a text message was answered by a binary one: \"0000000";
    assert!(error.starts_with(words), "{error}");
}

#[test]
fn wrong_answers_are_wrong() {
    // The third answer on each connection is wrong; all later ones are right.
    let address = serve_websocket(|mut websocket| {
        let mut number = 0;
        while let Some((kind, mut data)) = websocket.message() {
            number += 1;
            if number == 3 {
                data[7] ^= 1;
            }
            websocket.send(kind, &data);
        }
    });
    let report = run(echo(1), address);
    assert_eq!(
        (report.errors.wrong_answer, report.errors.count()),
        (4, 4),
        "{:?}",
        report.errors
    );
    assert!(report.messages.received > 20, "{:?}", report.messages);
    assert_eq!(report.messages.unasked, 0);

    // The server answers with binary instead of text messages, so no answer is an echo.
    let address = serve_websocket(|mut websocket| {
        while let Some((_, data)) = websocket.message() {
            websocket.send(MessageKind::Binary, &data);
        }
    });
    for inflight in [1, 3] {
        let report = run(echo(inflight), address);
        assert!(report.errors.wrong_answer >= 4, "{:?}", report.errors);
        assert_eq!((report.messages.received, report.messages.unasked), (0, 0));
        names_the_kinds(&report);
    }
    let report = run(storm(), address);
    assert_eq!(
        (report.errors.wrong_answer, report.errors.count()),
        (4, 4),
        "{:?}",
        report.errors
    );
    names_the_kinds(&report);
}

#[test]
fn a_greeting_is_no_wrong_answer() {
    let address = serve_websocket(|mut websocket| {
        websocket.text("welcome");
        websocket.echo();
    });
    for load in [storm(), echo(1), echo(4)] {
        let report = run(load, address);
        assert_clean(&report);
        assert_eq!(report.messages.unasked, 4, "{:?}", report.messages);
        assert!(report.messages.received >= 4, "{:?}", report.messages);
    }
    // The server sends a greeting that arrives when the first message is already in flight.
    let address = serve_websocket(|mut websocket| {
        let first = websocket.message();
        websocket.text("welcome");
        if let Some((kind, data)) = first {
            websocket.send(kind, &data);
        }
        websocket.echo();
    });
    for load in [storm(), echo(1), echo(4)] {
        let report = run(load, address);
        assert_clean(&report);
        assert_eq!(report.messages.unasked, 4, "{:?}", report.messages);
    }
}

#[test]
fn connections_that_end_are_disconnected() {
    let address = serve_websocket(|mut websocket| {
        for _ in 0..5 {
            if let Some((kind, data)) = websocket.message() {
                websocket.send(kind, &data);
            }
        }
    });
    let report = run(echo(1), address);
    assert_eq!(
        (report.connections.opened, report.connections.disconnected),
        (4, 4)
    );
    let errors = &report.errors;
    assert_eq!(
        (errors.closed + errors.reset, errors.count()),
        (4, 4),
        "{errors:?}"
    );
    assert_eq!(report.messages.received, 20, "{:?}", report.messages);

    // The server sends a frame that is not allowed.
    let address = serve_websocket(|mut websocket| {
        let _ = websocket.stream.write_all(b"\x83\x00");
        let _ = websocket.message();
    });
    let report = run(echo(1), address);
    assert_eq!(
        (report.errors.bad_protocol, report.errors.count()),
        (4, 4),
        "{:?}",
        report.errors
    );
}

/// Half of the connections can't be opened. This does not affect the others.
#[test]
fn a_local_address_that_is_not_ours() {
    let address = serve_websocket(WebSocket::echo);
    let report = report(Plan {
        sources: vec![
            Ipv4Addr::new(127, 0, 0, 2).into(),
            Ipv4Addr::new(192, 0, 2, 1).into(),
        ],
        ..plan(vec![clients(address, 10)], echo(1), 300)
    });
    let connections = &report.connections;
    assert_eq!(
        (connections.opened, connections.failed),
        (5, 5),
        "{connections:?}"
    );
    assert_eq!(connections.disconnected, 0, "{connections:?}");
    assert_eq!(
        (report.errors.system, report.errors.count()),
        (5, 5),
        "{:?}",
        report.errors
    );
    assert!(report.messages.received > 20, "{:?}", report.messages);
}

#[test]
fn the_handshake_is_as_asked() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let known = Arc::clone(&seen);
    let address = serve_websocket(move |websocket| {
        known.lock().push(websocket.request.clone());
        websocket.echo();
    });
    let endpoint = Endpoint {
        headers: [("Authorization", "Bearer t{i}"), ("Cookie", "u=user{i}")]
            .map(|(name, value)| (name.to_owned(), ClientTemplate::new(value)))
            .to_vec(),
        subprotocols: vec!["chat.v2".to_owned(), "chat.v1".to_owned()],
        ..endpoint(&format!("ws://{address}/ws/{{i}}?user=bench{{i}}"), 4)
    };
    // The clients' numbers (`{i}`) are consecutive over both threads.
    let report = report(Plan {
        threads: 2,
        ..plan(vec![endpoint], echo(1), 200)
    });
    assert_clean(&report);
    let mut seen = std::mem::take(&mut *seen.lock());
    seen.sort();
    assert_eq!(seen.len(), 4);
    for (number, request) in seen.iter().enumerate() {
        for part in [
            format!("GET /ws/{number}?user=bench{number} HTTP/1.1\r\n"),
            format!("\r\nHost: {address}\r\n"),
            format!("\r\nAuthorization: Bearer t{number}\r\n"),
            format!("\r\nCookie: u=user{number}\r\n"),
            "\r\nSec-WebSocket-Protocol: chat.v2, chat.v1\r\n".to_owned(),
        ] {
            assert!(request.contains(&part), "{part:?} in {request}");
        }
    }
}

#[test]
fn a_storm_adds_up() {
    let address = serve_websocket(WebSocket::echo);
    let report = report(plan(vec![clients(address, 200)], storm(), 0));
    assert_clean(&report);
    let messages = &report.messages;
    assert_eq!((messages.sent, messages.received), (200, 200));
    assert_eq!((messages.bytes_sent, messages.bytes_received), (4000, 4000));
    assert_eq!(report.connections.opened, 200);
    assert_eq!(report.latency_us.expect("latencies").count, 200);
    assert_eq!(report.handshake_us.expect("handshakes").count, 200);
}
