//! Tests loads of servers that listen on only one address family, reject returning receivers,
//! deliver late, or refuse publications.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use veche_load::loads::LoadPlan;
use veche_load::loads::echo::EchoPlan;
use veche_load::loads::fanout::FanoutPlan;
use veche_load::payload::PayloadPlan;
use veche_load::plan::Plan;
use veche_proto::websocket::MessageKind;

use crate::support::http::{After, response, serve_http};
use crate::support::websocket::frame;
use crate::support::{
    WebSocket, assert_clean, at_once, endpoint, plan, report, row, serve, serve_websocket,
};

fn fanout(body: &str, rate: f64, chaos: Option<f64>) -> LoadPlan {
    LoadPlan::Fanout(FanoutPlan {
        run: 9,
        body: body.to_owned(),
        to_one: false,
        rate,
        size: 64,
        chaos,
        ..FanoutPlan::default()
    })
}

/// The receivers, which get all data passed to `publish`.
#[derive(Clone, Default)]
struct Hub(Arc<Mutex<Vec<TcpStream>>>);

impl Hub {
    fn start() -> (Self, SocketAddr) {
        let hub = Self::default();
        let known = hub.clone();
        let address = serve_websocket(move |mut websocket| {
            let copy = websocket.stream.try_clone().expect("a descriptor");
            known.0.lock().push(copy);
            while websocket.message().is_some() {}
            let _ = websocket.stream.shutdown(Shutdown::Both);
        });
        (hub, address)
    }

    fn publish(&self, data: &[u8]) {
        for socket in self.0.lock().iter_mut() {
            let _ = socket.write_all(&frame(MessageKind::Text, data));
        }
    }
}

/// A host name may have addresses of two families although the server listens on only one of them.
#[test]
fn address_families_are_tried_in_turn() {
    let address = serve_websocket(WebSocket::echo);
    let mut endpoint = endpoint(&format!("ws://{address}/"), 6);
    let other = format!("[::1]:{}", address.port());
    endpoint.target.addresses = vec![other.parse().expect("an address"), address];
    let load = LoadPlan::Echo(EchoPlan {
        payload: PayloadPlan::default(),
        inflight: 1,
        ..EchoPlan::default()
    });
    let report = report(plan(vec![endpoint], load, 300));
    let connections = &report.connections;
    row(
        "echo",
        "listens on 127.0.0.1 alone, and its name has ::1 first",
        &[
            ("opened", 6, connections.opened),
            ("failed", 0, connections.failed),
            ("errors", 0, report.errors.count()),
        ],
    );
    assert_clean(&report);
}

/// The server accepts only the first connection. The receiver makes few attempts to reconnect, and
/// each is counted.
#[test]
fn receivers_pause_before_they_reconnect() {
    let attempts = Arc::new(AtomicU64::new(0));
    let known = Arc::clone(&attempts);
    let hear = serve(move |connection, socket| {
        known.fetch_add(1, SeqCst);
        if connection == 0
            && let Some(mut websocket) = WebSocket::accept(socket)
        {
            while websocket.message().is_some() {}
        }
    });
    let publish = serve_websocket(|mut websocket| while websocket.message().is_some() {});
    let ends = vec![
        endpoint(&format!("ws://{hear}/"), 1),
        endpoint(&format!("ws://{publish}/"), 1),
    ];
    let report = report(plan(ends, fanout("{data}", 20.0, Some(20.0)), 1500));
    let refused = attempts.load(SeqCst) - 1;
    row(
        "broadcast",
        "accepts no connection of a receiver that was cut off",
        &[("attempts turned away", refused, report.errors.count())],
    );
    // The pauses are at least 50, 100, 200, 400 and 800 ms.
    assert!((2..=4).contains(&refused), "{refused} attempts");
    assert_eq!(report.errors.count(), refused, "{:?}", report.errors);
}

/// The last delivery arrives 3 s late, which is within the time limit of 10 s.
#[test]
fn chaos_waits_for_late_deliveries_as_long_as_the_time_limit_says() {
    let (hub, hear) = Hub::start();
    let publish = serve_websocket(move |mut websocket| {
        let mut count = 0;
        while let Some((_, data)) = websocket.message() {
            count += 1;
            if count == 100 {
                thread::sleep(Duration::from_secs(3));
            }
            hub.publish(&data);
        }
    });
    let ends = vec![
        endpoint(&format!("ws://{hear}/"), 2),
        endpoint(&format!("ws://{publish}/"), 1),
    ];
    let report = report(Plan {
        timeout_ns: 10_000_000_000,
        // The first receiver is disconnected at the beginning, and none after that.
        ..plan(ends, fanout("{data}", 100.0, Some(0.01)), 1000)
    });
    let ledger = report.ledger.expect("a ledger");
    row(
        "broadcast",
        "delivers the last message 3 s late, with --chaos and --timeout 10s",
        &[
            ("delivered or away", 200, ledger.delivered + ledger.away),
            ("lost", 0, ledger.lost),
        ],
    );
    assert!(ledger.lost == 0 && ledger.delivered > 150, "{ledger:?}");
}

/// Refused publications do not count as losses. Accepted publications that are not delivered do.
#[test]
fn refused_publications_are_no_lost_deliveries() {
    at_once(["http", "http, in the body", "tcp"], |way| {
        let (hub, hear) = Hub::start();
        // The server refuses one publication in five, and loses one in seven of the accepted ones.
        let counts = Arc::new(Mutex::new((0u64, 0u64, 0u64)));
        let known = Arc::clone(&counts);
        let take = move |data: &[u8]| {
            let mut counts = known.lock();
            let (all, refused, lost) = &mut *counts;
            *all += 1;
            if all.is_multiple_of(5) {
                *refused += 1;
                return false;
            }
            if all.is_multiple_of(7) {
                *lost += 1;
            } else {
                hub.publish(data);
            }
            true
        };
        let (url, body) = if way == "tcp" {
            let address = serve(move |_, socket| {
                use std::io::{BufRead, BufReader};
                let mut out = socket.try_clone().expect("a descriptor");
                for line in BufReader::new(socket).lines() {
                    let Ok(line) = line else { return };
                    let answer: &[u8] = match take(line.as_bytes()) {
                        true => b"{\"ok\":true}\n",
                        false => b"{\"error\":\"not you\"}\n",
                    };
                    let _ = out.write_all(answer);
                }
            });
            (
                format!("tcp://{address}"),
                r#"{"data":"{data}","ack":true}"#,
            )
        } else {
            let address = serve_http(move |_, _, request| {
                let answer = match (take(&request.body), way) {
                    (true, _) => response("200 OK", "{}"),
                    (false, "http") => response("429 Too Many Requests", "{}"),
                    (false, _) => response("200 OK", r#"{"error":{"code":108}}"#),
                };
                (answer, After::Stay)
            });
            (format!("http://{address}/"), r#"{"data":"{data}"}"#)
        };
        let ends = vec![endpoint(&format!("ws://{hear}/"), 3), endpoint(&url, 1)];
        let report = report(plan(ends, fanout(body, 300.0, None), 1000));
        let (all, refused, lost) = *counts.lock();
        let ledger = report.ledger.expect("a ledger");
        row(
            "broadcast",
            &format!(
                "refuses one publication in five ({way}), and loses one in seven of the others"
            ),
            &[
                ("accepted", all - refused, ledger.published),
                ("refused", refused, report.errors.bad_response),
                ("lost", lost * 3, ledger.lost),
            ],
        );
        assert_eq!(ledger.published, all - refused, "{ledger:?}");
        assert_eq!(report.errors.bad_response, refused, "{:?}", report.errors);
        assert_eq!(ledger.lost, lost * 3, "{ledger:?}");
        assert_eq!(
            ledger.expected,
            ledger.delivered + ledger.lost,
            "{ledger:?}"
        );
        assert!(refused > 50 && lost > 30, "{refused} refused, {lost} lost");
    });
}
