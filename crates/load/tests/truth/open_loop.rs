//! What an open loop does while no connection can take what is due: it waits, and its latency says for how long.

use std::thread;
use std::time::Duration;

use veche_load::loads::LoadPlan;
use veche_load::loads::echo::EchoPlan;
use veche_load::loads::http::HttpPlan;
use veche_load::payload::PayloadPlan;
use veche_load::plan::Plan;

use crate::support::http::{After, serve_http};
use crate::support::{
    WebSocket, assert_clean, at_once, endpoint, now, plan, report, serve, serve_websocket,
};

fn echo(rate: f64, churn: Option<f64>) -> LoadPlan {
    LoadPlan::Echo(EchoPlan {
        payload: PayloadPlan::default(),
        inflight: 1,
        rate: Some(rate),
        rate_to: None,
        churn,
    })
}

/// One connection that is closed again and again and takes its time to come back; the end finds it in any state.
#[test]
fn messages_wait_for_a_connection_that_comes_back() {
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
        // They were late because of the server, and most of them were.
        assert!(report.generator.late_sends < 50, "{:?}", report.generator);
    });
}

/// Without a churn a connection that the server ends is gone. What is due behind the last one is not answered, and
/// nobody waits for what can't come.
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
    // Each message that never left, and each connection, if its end was not taken for a reset.
    let never_sent = 80 - messages.sent;
    assert!(never_sent > 40, "{messages:?}");
    assert_eq!(errors.closed + errors.reset, never_sent + 2, "{errors:?}");
}

/// The rate goes by clients, so a thread without one owes nobody anything.
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

/// As many servers do that speak HTTP/1.0 at heart: each response ends its connection.
#[test]
fn requests_wait_for_a_connection_of_their_own() {
    let address = serve_http(|_, _, request| {
        assert!(!request.is_followed, "it would go down with the connection");
        thread::sleep(Duration::from_millis(10));
        let bytes = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
        (bytes.to_vec(), After::Close)
    });
    let load = LoadPlan::Http(HttpPlan {
        method: "GET".to_owned(),
        is_http10: false,
        body: Vec::new(),
        inflight: 1,
        // More than two connections can carry, so that the queue grows to the end.
        rate: Some(300.0),
        rate_to: None,
        expect: Some(b"ok".to_vec()),
        list: Vec::new(),
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
