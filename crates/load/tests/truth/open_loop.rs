//! Tests open loops while no connection is available: messages wait, and their latency includes the
//! wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use veche_load::loads::LoadPlan;
use veche_load::loads::echo::EchoPlan;
use veche_load::loads::http::HttpPlan;
use veche_load::loads::storm::StormPlan;
use veche_load::payload::PayloadPlan;
use veche_load::plan::Plan;

use super::http::get;
use crate::support::http::{After, response, serve_http};
use crate::support::{
    WebSocket, assert_clean, at_once, endpoint, now, plan, report, serve, serve_websocket,
};

fn echo(rate: f64, churn: Option<f64>) -> LoadPlan {
    LoadPlan::Echo(EchoPlan {
        payload: PayloadPlan::default(),
        inflight: 1,
        rate: Some(rate),
        churn,
        ..EchoPlan::default()
    })
}

/// The only connection is closed repeatedly and takes long to reopen. The run may end at any point
/// of this cycle.
#[test]
fn messages_wait_for_a_reconnect() {
    let address = serve(|_, socket| {
        if let Some((mut websocket, response)) = WebSocket::handshake(socket) {
            thread::sleep(Duration::from_millis(60));
            let _ = std::io::Write::write_all(&mut websocket.stream, &response);
            websocket.echo();
        }
    });
    let url = format!("ws://{address}/");
    at_once([1000, 1020, 1040, 1060, 1080], |duration_ms| {
        let load = echo(200.0, Some(10.0));
        let report = report(plan(vec![endpoint(&url, 1)], load, duration_ms));
        assert_clean(&report);
        let messages = &report.messages;
        assert_eq!(
            (messages.sent, messages.received),
            (duration_ms / 5, duration_ms / 5)
        );
        assert!(report.connections.reconnected >= 3, "{report:#?}");
        let latency = report.latency_us.expect("latencies");
        assert!(latency.max >= 50_000.0, "{latency:?}");
        // Most of the late messages were late because of the server, so they do not count as late
        // sends of the tester.
        assert!(report.generator.late_sends < 50, "{:?}", report.generator);
    });
}

/// Without churn a connection closed by the server stays closed. Messages due after the last connection was lost count
/// as unanswered, and the run does not wait for them.
#[test]
fn messages_that_no_connection_is_left_for_are_unanswered() {
    let address = serve_websocket(|mut websocket| {
        for _ in 0..10 {
            if let Some((kind, data)) = websocket.message() {
                websocket.send(kind, &data);
            }
        }
    });
    let url = format!("ws://{address}/");
    let began = now();
    let report = report(plan(vec![endpoint(&url, 2)], echo(200.0, None), 400));
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "the timeout is 5 s"
    );
    let messages = &report.messages;
    assert_eq!(messages.received + messages.unanswered, 80, "{messages:?}");
    assert!((18..=20).contains(&messages.received), "{messages:?}");
    let errors = &report.errors;
    assert_eq!(report.connections.disconnected, 2);
    // The errors are messages that were never sent, and the two connections that the server closed.
    let never_sent = 80 - messages.sent;
    assert!(never_sent > 40, "{messages:?}");
    assert_eq!(errors.closed + errors.reset, never_sent + 2, "{errors:?}");
}

/// The rate is divided equally among the clients, so a thread without clients sends nothing.
#[test]
fn threads_have_a_part_by_their_clients() {
    let address = serve_websocket(WebSocket::echo);
    let url = format!("ws://{address}/");
    let report = report(Plan {
        threads: 3,
        ..plan(vec![endpoint(&url, 2)], echo(200.0, None), 500)
    });
    assert_clean(&report);
    let messages = &report.messages;
    assert_eq!(messages.sent, messages.received);
    assert!((99..=101).contains(&messages.sent), "{messages:?}");
}

/// Each response ends its connection, as in HTTP/1.0.
#[test]
fn requests_wait_for_a_connection_of_their_own() {
    let address = serve_http(|_, _, request| {
        assert!(!request.is_followed, "it would go down with the connection");
        thread::sleep(Duration::from_millis(10));
        let bytes = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
        (bytes.to_vec(), After::Close)
    });
    let load = LoadPlan::Http(HttpPlan {
        // The rate is more than two connections can handle, so the queue grows until the end.
        rate: Some(300.0),
        expect: Some(b"ok".to_vec()),
        ..get()
    });
    let url = format!("http://{address}/");
    let report = report(plan(vec![endpoint(&url, 2)], load, 400));
    assert_clean(&report);
    let messages = &report.messages;
    assert_eq!(
        (messages.sent, messages.received),
        (120, 120),
        "{messages:?}"
    );
    assert!(report.latency_us.expect("latencies").max > 100_000.0);
}

/// One request in fifty is slow. The other requests use idle connections, so they do not wait for
/// the slow one.
#[test]
fn requests_go_to_idle_connections() {
    let served = Arc::new(AtomicU64::new(0));
    let address = serve_http(move |_, _, request| {
        assert!(!request.is_followed, "no pipelining was requested");
        if served.fetch_add(1, SeqCst) % 50 == 25 {
            thread::sleep(Duration::from_millis(400));
        }
        (response("200 OK", "ok"), After::Stay)
    });
    let load = LoadPlan::Http(HttpPlan {
        rate: Some(200.0),
        ..get()
    });
    let url = format!("http://{address}/");
    let report = report(plan(vec![endpoint(&url, 6)], load, 1500));
    assert_clean(&report);
    assert_eq!(report.messages.received, 300);
    let latency = report.latency_us.expect("latencies");
    assert!(latency.p90 < 100_000.0, "{latency:?}");
    assert!(latency.max >= 400_000.0, "{latency:?}");
}

/// If there is only one connection, a due request waits for the previous response, unless
/// pipelining was requested.
#[test]
fn a_busy_connection_takes_more_on_request_only() {
    at_once([1, 4], |inflight| {
        let seen = Arc::new(AtomicU64::new(0));
        let known = Arc::clone(&seen);
        let address = serve_http(move |_, _, request| {
            thread::sleep(Duration::from_millis(10));
            known.fetch_add(u64::from(request.is_followed), SeqCst);
            (response("200 OK", "ok"), After::Stay)
        });
        let load = LoadPlan::Http(HttpPlan {
            inflight,
            rate: Some(200.0),
            ..get()
        });
        let url = format!("http://{address}/");
        let report = report(plan(vec![endpoint(&url, 1)], load, 400));
        assert_clean(&report);
        assert_eq!(report.messages.received, 80);
        assert_eq!(report.messages.rate_reached, Some(false));
        assert_eq!(seen.load(SeqCst) > 0, inflight > 1);
    });
}

/// No handshake is answered for 600 ms. During this time, 480 of 500 connections become due. Their
/// handshake times include the delay, whether they are started immediately or have to wait.
#[test]
fn handshakes_count_from_when_they_were_due() {
    at_once([64, u32::MAX], |opening_max| {
        let began = now();
        let address = serve(move |_, socket| {
            if let Some((mut websocket, response)) = WebSocket::handshake(socket) {
                thread::sleep(Duration::from_millis(600).saturating_sub(began.elapsed()));
                let _ = std::io::Write::write_all(&mut websocket.stream, &response);
                websocket.echo();
            }
        });
        let load = LoadPlan::Storm(StormPlan {
            payload: PayloadPlan::default(),
        });
        let url = format!("ws://{address}/");
        let report = report(Plan {
            opening_max,
            connect_rate: Some(800.0),
            ..plan(vec![endpoint(&url, 500)], load, 0)
        });
        assert_clean(&report);
        let handshake = report.handshake_us.expect("handshakes");
        assert!(handshake.p50 > 150_000.0, "{handshake:?}");
        let late = report.connections.late;
        assert_eq!(late > 250, opening_max == 64, "{late}");
    });
}
