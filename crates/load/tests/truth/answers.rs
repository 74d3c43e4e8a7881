//! Tests with servers that answer twice, late, never or without being asked. Each such fault is
//! counted exactly, and does not affect other answers on the connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use veche_load::heartbeat::Heartbeat;
use veche_load::loads::LoadPlan;
use veche_load::loads::echo::EchoPlan;
use veche_load::loads::shootout::ShootoutPlan;
use veche_load::loads::storm::StormPlan;
use veche_load::loads::think::ThinkTime;
use veche_load::payload::{PayloadContent, PayloadPlan};
use veche_load::plan::Plan;
use veche_load::report::Report;

use crate::support::{Next, assert_clean, at_once, endpoint, plan, report, row, serve_websocket};

fn run(address: SocketAddr, load: LoadPlan) -> Report {
    let endpoint = endpoint(&format!("ws://{address}/"), 4);
    report(Plan {
        timeout_ns: 1_500_000_000,
        ..plan(vec![endpoint], load, 400)
    })
}

fn echo(inflight: u32, rate: Option<f64>) -> LoadPlan {
    LoadPlan::Echo(EchoPlan {
        payload: PayloadPlan::default(),
        inflight,
        rate,
        ..EchoPlan::default()
    })
}

/// Returns two closed loops and an open loop.
fn echoes() -> [LoadPlan; 3] {
    [echo(1, None), echo(4, None), echo(1, Some(2000.0))]
}

/// Starts an echo server with faults. `odd` gets the number and the data of each message; for a
/// faulty answer, it returns the messages to send instead of the echo. Returns the address and the
/// number of faulty answers.
fn serve(
    odd: impl Fn(u64, &[u8]) -> Option<Vec<Vec<u8>>> + Send + Sync + 'static,
) -> (SocketAddr, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let known = Arc::clone(&count);
    let address = serve_websocket(move |mut websocket| {
        let mut number = 0;
        while let Some((kind, data)) = websocket.message() {
            let answers = odd(number, &data);
            known.fetch_add(u64::from(answers.is_some()), SeqCst);
            for answer in answers.unwrap_or_else(|| vec![data]) {
                websocket.send(kind, &answer);
            }
            number += 1;
        }
    });
    (address, count)
}

#[test]
fn heartbeats_are_answered_and_count_nowhere_else() {
    let count = Arc::new(AtomicU64::new(0));
    let pings = Arc::clone(&count);
    // The server sends a ping after every tenth echo, and echoes nothing more until it receives the
    // pong.
    let address = serve_websocket(move |mut websocket| {
        let mut number = 0;
        while let Some((kind, data)) = websocket.message() {
            websocket.send(kind, &data);
            number += 1;
            if number % 10 == 0 {
                pings.fetch_add(1, SeqCst);
                websocket.send(kind, format!("ping {number}").as_bytes());
                while let Some((_, data)) = websocket.message() {
                    if data == format!("pong {number}").as_bytes() {
                        break;
                    }
                    websocket.send(kind, &data);
                }
            }
        }
    });
    let mut endpoint = endpoint(&format!("ws://{address}/"), 4);
    endpoint.heartbeats = vec![Heartbeat::new("ping *", "pong *").expect("a heartbeat")];
    let report = report(plan(vec![endpoint], echo(4, None), 400));
    assert_clean(&report);
    let messages = &report.messages;
    assert!(
        messages.heartbeats > 0 && messages.unasked == 0,
        "{messages:?}"
    );
    assert_eq!(messages.heartbeats, count.load(SeqCst));
}

#[test]
fn a_client_thinks_before_its_next_message() {
    let (address, _) = serve(|_, _| None);
    let load = LoadPlan::Echo(EchoPlan {
        inflight: 1,
        think: Some(ThinkTime {
            min_ns: 50_000_000,
            max_ns: 50_000_000,
        }),
        ..EchoPlan::default()
    });
    let report = run(address, load);
    assert_clean(&report);
    let sent = report.messages.sent;
    assert!((1..=4 * (1 + 400 / 50)).contains(&sent), "{sent}");
}

#[test]
fn answers_that_come_again_are_duplicates_and_nothing_else() {
    at_once(echoes(), |load| {
        let (address, twice) = serve(|number, data| {
            let is_odd = number % 7 == 3;
            is_odd.then(|| vec![data.to_vec(), data.to_vec()])
        });
        let report = run(address, load);
        assert_clean(&report);
        let messages = &report.messages;
        assert!(messages.duplicated > 50, "{messages:?}");
        row(
            "echo",
            "answers one in seven twice",
            &[
                ("duplicated", twice.load(SeqCst), messages.duplicated),
                ("errors", 0, report.errors.count()),
            ],
        );
        assert_eq!((messages.unasked, messages.late, messages.lost), (0, 0, 0));
    });
}

#[test]
fn messages_of_others_take_no_answer() {
    at_once(echoes(), |load| {
        let (address, foreign) = serve(|number, data| {
            let is_odd = number % 7 == 3;
            is_odd.then(|| vec![b"{\"type\":\"ping\"}".to_vec(), data.to_vec()])
        });
        let report = run(address, load);
        assert_clean(&report);
        let messages = &report.messages;
        assert!(messages.unasked > 50, "{messages:?}");
        row(
            "echo",
            "sends a message of its own before one in seven answers",
            &[
                ("unasked", foreign.load(SeqCst), messages.unasked),
                ("errors", 0, report.errors.count()),
            ],
        );
        assert_eq!(
            (messages.duplicated, messages.late, messages.lost),
            (0, 0, 0)
        );
    });
}

#[test]
fn answers_that_never_come_are_lost_and_no_others() {
    at_once([echo(4, None), echo(1, Some(2000.0))], |load| {
        let (address, lost) = serve(|number, _| (number % 10 == 3).then(Vec::new));
        let report = run(address, load);
        let messages = &report.messages;
        let truth = lost.load(SeqCst);
        assert!(truth > 20, "{messages:?}");
        row(
            "echo",
            "does not answer one in ten",
            &[
                ("unanswered", truth, messages.unanswered),
                ("errors", truth, report.errors.count()),
            ],
        );
        // If a lost message is the last on its connection, no later answer can overtake it, so it
        // does not count as lost.
        assert!((truth - 4..=truth).contains(&messages.lost), "{messages:?}");
        assert_eq!(report.errors.count(), truth, "{:?}", report.errors);
        assert_eq!(report.errors.wrong_answer, messages.lost);
        assert_eq!(
            (messages.duplicated, messages.late, messages.unasked),
            (0, 0, 0)
        );
    });
}

/// Every fourth answer is held back until the next answer has been sent. Its latency includes this
/// time.
#[test]
fn answers_that_are_overtaken_are_late() {
    at_once([echo(4, None), echo(1, Some(2000.0))], |load| {
        let late = Arc::new(AtomicU64::new(0));
        let known = Arc::clone(&late);
        let address = serve_websocket(move |mut websocket| {
            let quiet = Some(Duration::from_millis(200));
            websocket.stream.set_read_timeout(quiet).expect("a socket");
            let mut held = None;
            let mut number = 0;
            loop {
                match websocket.next() {
                    Next::Message(kind, data) if number % 4 == 3 && held.is_none() => {
                        held = Some((kind, data));
                    }
                    Next::Message(kind, data) => {
                        websocket.send(kind, &data);
                        if let Some((kind, data)) = held.take() {
                            known.fetch_add(1, SeqCst);
                            websocket.send(kind, &data);
                        }
                    }
                    Next::Quiet => {
                        if let Some((kind, data)) = held.take() {
                            websocket.send(kind, &data);
                        }
                    }
                    Next::Gone => return,
                }
                number += 1;
            }
        });
        let report = run(address, load);
        assert_clean(&report);
        let messages = &report.messages;
        assert!(messages.late > 50, "{messages:?}");
        row(
            "echo",
            "holds back one in four answers behind the next",
            &[
                ("late", late.load(SeqCst), messages.late),
                ("errors", 0, report.errors.count()),
            ],
        );
        assert_eq!(
            (messages.duplicated, messages.lost, messages.unasked),
            (0, 0, 0)
        );
    });
}

#[test]
fn a_storm_and_a_shootout_see_duplicates() {
    let (address, twice) = serve(|_, data| Some(vec![data.to_vec(), data.to_vec()]));
    let load = LoadPlan::Storm(StormPlan {
        payload: PayloadPlan::default(),
    });
    let report = run(address, load);
    assert_clean(&report);
    assert_eq!((report.messages.duplicated, twice.load(SeqCst)), (4, 4));

    let (address, twice) = serve(|number, data| {
        let is_odd = number % 5 == 3;
        is_odd.then(|| vec![data.to_vec(), data.to_vec()])
    });
    let load = LoadPlan::Shootout(ShootoutPlan {
        broadcast: false,
        step: 2,
        concurrent: 4,
        samples: 100,
        limit_ns: 10_000_000_000,
    });
    let report = run(address, load);
    assert_clean(&report);
    let messages = &report.messages;
    assert_eq!(messages.received, 200, "{messages:?}");
    let truth = twice.load(SeqCst);
    // Some duplicates may arrive after the end of the run.
    assert!(truth > 30, "{truth}");
    assert!(
        (truth - 2..=truth).contains(&messages.duplicated),
        "{messages:?}"
    );
    assert_eq!(messages.unasked, 0, "{messages:?}");
}

fn unstamped(content: PayloadContent, inflight: u32) -> LoadPlan {
    LoadPlan::Echo(EchoPlan {
        payload: PayloadPlan {
            binary: false,
            content,
        },
        inflight,
        ..EchoPlan::default()
    })
}

/// Without stamps, a duplicate or loss shifts all later answers, so the report then has no
/// latencies. The report has latencies if all messages can be matched, even after a greeting.
#[test]
fn without_stamps_there_are_no_latencies_once_counts_disagree() {
    let contents = || {
        [
            PayloadContent::Fixed(b"hello, and a few more bytes".to_vec()),
            PayloadContent::Size(15),
        ]
    };
    for content in contents() {
        let load = |inflight| unstamped(content.clone(), inflight);
        assert_eq!(load(1).is_stamped(), Some(false));
        at_once([1, 4], |inflight| {
            let (address, _) =
                serve(|number, data| (number == 20).then(|| vec![data.to_vec(), data.to_vec()]));
            let report = run(address, load(inflight));
            assert!(report.messages.received > 20, "{:?}", report.messages);
            assert_eq!(report.latency_us, None, "{inflight}: {:?}", report.messages);
            let why = report.latency_refused.expect("it is said");
            assert!(why.contains("not numbered"), "{why}");
            assert!(report.histogram.is_empty());
            assert!(report.timeline.iter().all(|step| step.p99_us.is_none()));

            let (address, _) = serve(|number, _| (number == 20).then(Vec::new));
            let report = run(address, load(inflight));
            assert_eq!(report.latency_us, None, "{inflight}: {:?}", report.messages);
            assert!(report.messages.unanswered > 0);

            let (address, _) = serve(|number, data| {
                (number == 0).then(|| vec![b"welcome".to_vec(), data.to_vec()])
            });
            let report = run(address, load(inflight));
            assert_clean(&report);
            assert_eq!(report.messages.unasked, 4);
            assert!(report.latency_us.is_some() && report.latency_refused.is_none());
        });
    }
}

/// A closed loop continues after a lost message, whether or not other messages are in flight. A
/// message answered after its time limit is late, and also counts as unanswered.
#[test]
fn a_closed_loop_continues_after_a_timeout() {
    at_once([1, 2], |inflight| {
        let (address, lost) = serve(|number, _| (number % 20 == 19).then(Vec::new));
        let endpoint = endpoint(&format!("ws://{address}/"), 4);
        let report = report(Plan {
            timeout_ns: 200_000_000,
            ..plan(vec![endpoint], echo(inflight, None), 2000)
        });
        let messages = &report.messages;
        let truth = lost.load(SeqCst);
        assert!(messages.received > 300, "{messages:?}");
        row(
            "echo",
            "never answers one in twenty (closed loop, time limit 200 ms)",
            &[
                ("unanswered", truth, messages.unanswered),
                ("errors", truth, report.errors.count()),
            ],
        );
        assert_eq!(report.errors.count(), truth, "{:?}", report.errors);
        assert_eq!((messages.duplicated, report.connections.dead), (0, 0));
    });
    let (address, _) = serve(|number, data| {
        (number == 5).then(|| {
            std::thread::sleep(Duration::from_millis(300));
            vec![data.to_vec()]
        })
    });
    let endpoint = endpoint(&format!("ws://{address}/"), 4);
    let report = report(Plan {
        timeout_ns: 150_000_000,
        ..plan(vec![endpoint], echo(1, None), 600)
    });
    let messages = &report.messages;
    assert!(messages.received > 20, "{messages:?}");
    assert!((4..=8).contains(&messages.late), "{messages:?}");
    assert_eq!(messages.unanswered, report.errors.timed_out);
    assert_eq!((messages.duplicated, messages.lost), (0, 0), "{messages:?}");
}

#[test]
fn connections_that_say_nothing_any_more_are_dead() {
    let connections = AtomicU64::new(0);
    let address = serve_websocket(move |mut websocket| {
        let is_silent = connections.fetch_add(1, SeqCst).is_multiple_of(2);
        let mut number = 0;
        while let Some((kind, data)) = websocket.message() {
            number += 1;
            if number < 5 || !is_silent {
                websocket.send(kind, &data);
            }
        }
    });
    let endpoint = endpoint(&format!("ws://{address}/"), 4);
    let report = report(Plan {
        timeout_ns: 100_000_000,
        ..plan(vec![endpoint], echo(1, None), 600)
    });
    row(
        "echo",
        "two of four connections fall silent",
        &[("dead", 2, report.connections.dead)],
    );
    assert_eq!(report.connections.disconnected, 0);
    assert_eq!(report.messages.unanswered, report.errors.timed_out);
}
