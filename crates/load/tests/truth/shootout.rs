//! The shootout's protocol: the number of clients grows until round trips take too long or no
//! clients are left.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use veche_load::loads::LoadPlan;
use veche_load::loads::shootout::ShootoutPlan;
use veche_load::plan::Plan;
use veche_load::report::Report;

use crate::support::{assert_clean, endpoint, plan, report, serve_websocket};

/// Runs a shootout with up to `clients` clients. Each client makes the server's answers slower by
/// `per_client`.
fn run(broadcast: bool, per_client: Duration, limit_ms: u64, clients: u32) -> Report {
    let connected = Arc::new(AtomicU32::new(0));
    let address = serve_websocket(move |mut websocket| {
        connected.fetch_add(1, SeqCst);
        while let Some((_, data)) = websocket.message() {
            thread::sleep(per_client * connected.load(SeqCst));
            let text = String::from_utf8(data).expect("a text");
            assert_eq!(text.contains(r#""type":"broadcast""#), broadcast, "{text}");
            if broadcast {
                websocket.text(&text);
                websocket.text(&text.replace(r#""broadcast""#, r#""broadcastResult""#));
            } else {
                websocket.text(&text);
            }
        }
        connected.fetch_sub(1, SeqCst);
    });
    let load = LoadPlan::Shootout(ShootoutPlan {
        broadcast,
        step: 5,
        concurrent: 4,
        samples: 20,
        limit_ns: limit_ms * 1_000_000,
    });
    report(Plan {
        ..plan(
            vec![endpoint(&format!("ws://{address}/"), clients)],
            load,
            0,
        )
    })
}

#[test]
fn it_ends_when_round_trips_take_too_long() {
    for broadcast in [false, true] {
        // Answers take at least 1 ms per client. The limit of 28 ms is therefore exceeded with 30
        // clients at the latest, or earlier on a busy machine.
        let report = run(broadcast, Duration::from_millis(1), 28, 100);
        assert_eq!(report.errors.count(), 0, "{:?}", report.errors);
        let steps = &report.steps;
        assert!((1..=6).contains(&steps.len()), "{steps:#?}");
        for (step, number) in steps.iter().zip(1..) {
            assert_eq!(
                (step.clients, step.samples, step.errors),
                (5 * number, 20, 0)
            );
            assert!(step.p50_us >= 5000.0 * number as f64, "{step:?}");
            assert!(
                step.p50_us <= step.p95_us && step.p95_us <= step.max_us,
                "{step:?}"
            );
            let is_last = number == steps.len() as u64;
            assert_eq!(step.p95_us > 28_000.0, is_last, "{step:?}");
        }
        // Of the 100 clients, only those of the steps that ran were opened.
        let connections = &report.connections;
        assert_eq!(connections.opened, 5 * steps.len() as u64);
        assert_eq!(connections.asked, connections.opened);
    }
}

#[test]
fn it_ends_when_there_are_no_more_clients() {
    let report = run(false, Duration::ZERO, 60_000, 12);
    assert_clean(&report);
    let clients: Vec<_> = report.steps.iter().map(|step| step.clients).collect();
    assert_eq!(clients, [5, 10, 12]);
    assert_eq!(report.messages.received, 60);
}
