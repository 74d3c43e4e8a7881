//! Compares the ledger with the records of servers that lose, duplicate, reorder and corrupt
//! messages. A seeded generator decides which messages are affected.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use veche_load::loads::LoadPlan;
use veche_load::loads::fanout::FanoutPlan;
use veche_load::plan::{Endpoint, Plan};
use veche_load::report::model::{LedgerCounts, LedgerPage};
use veche_proto::websocket::MessageKind;

use crate::support::websocket::frame;
use crate::support::{
    Next, WebSocket, at_once, endpoint, plan, report, row, serve, serve_websocket,
};

/// If nothing arrives for this time, held messages are sent.
const QUIET: Duration = Duration::from_millis(250);

/// The numbers of messages and of faults applied to them, summed over all receivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Truth {
    published: u64,
    sent_to: u64,
    lost: u64,
    duplicated: u64,
    reordered: u64,
    corrupted: u64,
    foreign: u64,
}

impl Truth {
    fn of(ledger: &LedgerCounts) -> Self {
        Self {
            published: ledger.published,
            sent_to: ledger.expected - ledger.away,
            lost: ledger.lost,
            duplicated: ledger.duplicated,
            reordered: ledger.reordered,
            corrupted: ledger.corrupted,
            foreign: ledger.foreign,
        }
    }
}

/// Frequency of each fault, per thousand messages of a receiver.
#[derive(Clone, Copy, Default)]
struct Mischief {
    lose: u32,
    double: u32,
    swap: u32,
    corrupt: u32,
    /// Frequency of an additional unrelated message before a numbered message.
    ping: u32,
}

const MUCH: Mischief = Mischief {
    lose: 50,
    double: 40,
    swap: 60,
    corrupt: 30,
    ping: 80,
};

/// A receiver's socket, and the held message of each publisher, which is sent after the publisher's
/// next message.
struct Receiver {
    socket: TcpStream,
    rng: Rng,
    held: BTreeMap<u32, Vec<u8>>,
    has_greeted: bool,
}

impl Receiver {
    /// Sends a publisher's message to the receiver, or applies a fault to it.
    fn deliver(&mut self, from: u32, data: &[u8], mischief: Mischief, truth: &mut Truth) {
        truth.sent_to += 1;
        let mut out = Vec::new();
        let roll = self.rng.u32(0..1000);
        let mut above = 0;
        let mut is = |share: u32| {
            above += share;
            roll < above
        };
        // No fault is applied to the first message, which may be taken for a greeting, or to a
        // message that overtakes a held one.
        let is_spared = !self.has_greeted || self.held.contains_key(&from);
        self.has_greeted = true;
        if is_spared {
            out.extend(frame(MessageKind::Text, data));
        } else if is(mischief.lose) {
            truth.lost += 1;
        } else if is(mischief.double) {
            truth.duplicated += 1;
            out.extend(frame(MessageKind::Text, data));
            out.extend(frame(MessageKind::Text, data));
        } else if is(mischief.swap) {
            self.held.insert(from, data.to_vec());
        } else if is(mischief.ping) {
            truth.foreign += 1;
            out.extend(frame(MessageKind::Text, b"{\"type\":\"ping\"}"));
            out.extend(frame(MessageKind::Text, data));
        } else if is(mischief.corrupt) {
            truth.corrupted += 1;
            out.extend(frame(MessageKind::Text, &self.corrupt(data)));
        } else {
            out.extend(frame(MessageKind::Text, data));
        }
        if is_spared && let Some(held) = self.held.remove(&from) {
            truth.reordered += 1;
            out.extend(frame(MessageKind::Text, &held));
        }
        let _ = self.socket.write_all(&out);
    }

    /// Changes one byte of the numbered message, or cuts off its end.
    fn corrupt(&mut self, data: &[u8]) -> Vec<u8> {
        let from = data
            .windows(3)
            .position(|three| three == b"vb:")
            .expect("the tester's mark");
        let until = from
            + data[from..]
                .iter()
                .position(|byte| *byte == b'.')
                .expect("its end");
        if self.rng.u32(0..4) == 0 {
            return data[..self.rng.usize(from + 3..until)].to_vec();
        }
        let mut data = data.to_vec();
        let at = self.rng.usize(from..=until);
        data[at] = if data[at] == b'x' { b'y' } else { b'x' };
        data
    }

    /// Sends the held message of a publisher, although no message has overtaken it.
    fn release(&mut self, from: u32) {
        if let Some(held) = self.held.remove(&from) {
            let _ = self.socket.write_all(&frame(MessageKind::Text, &held));
        }
    }
}

#[derive(Default)]
struct State {
    /// The receivers by name, which is the end of the request target.
    receivers: BTreeMap<String, Receiver>,
    truth: Truth,
    /// For publications to one receiver: the publisher's connection and the receiver's name.
    to_one: Vec<(u32, String)>,
}

/// A server to which receivers connect. Publishers send WebSocket messages or lines.
struct Server {
    websocket: SocketAddr,
    lines: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Server {
    fn start(mischief: Mischief, seed: u64) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let known = Arc::clone(&state);
        let websocket = serve(move |connection, socket| {
            let copy = socket.try_clone().expect("a descriptor");
            let Some((mut websocket, response)) = WebSocket::handshake(socket) else {
                return;
            };
            let target = websocket.target().to_owned();
            if let Some(name) = target.strip_prefix("/hear?") {
                // A receiver gets all messages that are published after its handshake.
                let mut receiver = Receiver {
                    rng: Rng::with_seed(seed ^ name.bytes().map(u64::from).sum::<u64>()),
                    socket: copy,
                    held: BTreeMap::new(),
                    has_greeted: false,
                };
                let mut state = known.lock();
                if receiver.socket.write_all(&response).is_ok() {
                    state.receivers.insert(name.to_owned(), receiver);
                }
                drop(state);
                while websocket.message().is_some() {}
                // Shuts the socket down, because the cloned handle would keep the connection open.
                let _ = websocket.stream.shutdown(Shutdown::Both);
                return;
            }
            copy.set_read_timeout(Some(QUIET)).expect("a socket");
            let _ = websocket.stream.write_all(&response);
            loop {
                match websocket.next() {
                    Next::Message(_, data) => known.lock().publish(connection, &data, mischief),
                    Next::Quiet => known.lock().release(connection),
                    Next::Gone => return,
                }
            }
        });
        let known = Arc::clone(&state);
        let lines = serve(move |connection, socket| {
            socket.set_read_timeout(Some(QUIET)).expect("a socket");
            let mut socket = BufReader::new(socket);
            let mut line = Vec::new();
            loop {
                match socket.read_until(b'\n', &mut line) {
                    Ok(0) => return,
                    Ok(_) => {
                        known.lock().publish(connection, &line, mischief);
                        line.clear();
                    }
                    Err(_) => known.lock().release(connection),
                }
            }
        });
        Self {
            websocket,
            lines,
            state,
        }
    }

    fn truth(&self) -> Truth {
        self.state.lock().truth
    }

    fn hear(&self, receivers: u32) -> Endpoint {
        endpoint(&format!("ws://{}/hear?{{i}}", self.websocket), receivers)
    }
}

impl State {
    /// Publishes data of the form `to:NAME …` to one receiver, and any other data to all.
    fn publish(&mut self, from: u32, data: &[u8], mischief: Mischief) {
        self.truth.published += 1;
        if let Some(rest) = data.strip_prefix(b"to:") {
            let end = rest.iter().position(|byte| *byte == b' ').expect("a name");
            let name = std::str::from_utf8(&rest[..end]).expect("a name");
            self.to_one.push((from, name.to_owned()));
            if let Some(receiver) = self.receivers.get_mut(name) {
                receiver.deliver(from, &rest[end..], mischief, &mut self.truth);
            }
            return;
        }
        for receiver in self.receivers.values_mut() {
            receiver.deliver(from, data, mischief, &mut self.truth);
        }
    }

    fn release(&mut self, from: u32) {
        for receiver in self.receivers.values_mut() {
            receiver.release(from);
        }
    }
}

fn fanout(body: &str, rate: f64) -> FanoutPlan {
    FanoutPlan {
        run: 7,
        body: body.to_owned(),
        to_one: body.contains("{i}"),
        rate,
        size: 90,
        ..FanoutPlan::default()
    }
}

/// Runs the plan and compares the ledger with the server's records.
#[track_caller]
fn compare(server: &Server, plan: Plan) -> LedgerCounts {
    let report = report(plan);
    let ledger = report.ledger.expect("a ledger");
    let truth = server.truth();
    let reported = Truth::of(&ledger);
    row(
        "broadcast",
        "faults on a seeded schedule",
        &[
            ("published", truth.published, reported.published),
            ("expected", truth.sent_to, reported.sent_to),
            ("lost", truth.lost, reported.lost),
            ("duplicated", truth.duplicated, reported.duplicated),
            ("reordered", truth.reordered, reported.reordered),
            ("corrupted", truth.corrupted, reported.corrupted),
            ("foreign", truth.foreign, reported.foreign),
        ],
    );
    assert_eq!(
        ledger.expected,
        ledger.delivered + ledger.corrupted + ledger.lost + ledger.away,
        "{ledger:?}"
    );
    assert_eq!(
        report.errors.wrong_answer, truth.corrupted,
        "{:?}",
        report.errors
    );
    assert_eq!(
        report.errors.count(),
        truth.corrupted,
        "{:?}",
        report.errors
    );
    ledger
}

#[test]
fn exactly_the_faults_of_a_broadcast_are_found() {
    at_once([(1, 1), (2, 2)], |(seed, threads)| {
        let server = Server::start(MUCH, seed);
        let ways_in = endpoint(&format!("ws://{}/publish", server.websocket), 2);
        let load = LoadPlan::Fanout(fanout("{\"data\":\"{data}\"}", 400.0));
        let plan = Plan {
            threads,
            ..plan(vec![server.hear(5), ways_in], load, 1500)
        };
        let ledger = compare(&server, plan);
        // Checks that every kind of fault occurred.
        assert!(ledger.published >= 500, "{ledger:?}");
        assert_eq!(ledger.expected, ledger.published * 5);
        assert_eq!((ledger.receivers, ledger.away), (5, 0));
        for count in [
            ledger.lost,
            ledger.duplicated,
            ledger.reordered,
            ledger.corrupted,
            ledger.foreign,
        ] {
            assert!(count > 10, "{ledger:?}");
        }
        assert_eq!(ledger.worst.len(), 5);
        let sum = |of: fn(&LedgerPage) -> u64| -> u64 { ledger.worst.iter().map(of).sum() };
        assert_eq!(sum(|page| page.lost), ledger.lost);
        assert_eq!(sum(|page| page.duplicated), ledger.duplicated);
        assert_eq!(sum(|page| page.reordered), ledger.reordered);
        assert_eq!(sum(|page| page.corrupted), ledger.corrupted);
    });
}

#[test]
fn exactly_the_faults_of_pushes_are_found() {
    let server = Server::start(MUCH, 3);
    let ways_in = endpoint(&format!("tcp://{}", server.lines), 3);
    let load = LoadPlan::Fanout(fanout("to:{i} {data}", 600.0));
    let ledger = compare(&server, plan(vec![server.hear(4), ways_in], load, 1500));
    assert!(ledger.published >= 700, "{ledger:?}");
    assert_eq!(ledger.expected, ledger.published);
    for count in [
        ledger.lost,
        ledger.duplicated,
        ledger.reordered,
        ledger.corrupted,
    ] {
        assert!(count > 5, "{ledger:?}");
    }
}

/// A loss in the warm-up counts as a loss. Only throughput and latency exclude the warm-up.
#[test]
fn the_warm_up_is_in_the_ledger() {
    let server = Server::start(MUCH, 8);
    let ways_in = endpoint(&format!("ws://{}/publish", server.websocket), 1);
    let load = LoadPlan::Fanout(fanout("{data}", 400.0));
    let report = report(Plan {
        warmup_ns: 1_000_000_000,
        ..plan(vec![server.hear(4), ways_in], load, 500)
    });
    let ledger = report.ledger.expect("a ledger");
    assert_eq!(Truth::of(&ledger), server.truth());
    assert_eq!(ledger.published, 600);
    assert_eq!(report.messages.sent, 200);
    assert!(report.messages.received <= 4 * 200 + ledger.duplicated);
}

#[test]
fn a_server_without_a_fault_has_an_empty_ledger() {
    let server = Server::start(Mischief::default(), 4);
    let ways_in = endpoint(&format!("ws://{}/publish", server.websocket), 2);
    let load = LoadPlan::Fanout(fanout("{data}", 500.0));
    let ledger = compare(&server, plan(vec![server.hear(3), ways_in], load, 800));
    assert_eq!(ledger.delivered, ledger.expected);
    assert!(ledger.worst.is_empty(), "{ledger:?}");
}

#[test]
fn all_of_a_burst_goes_from_one_publisher_to_one_receiver() {
    const BURST: usize = 4;
    let server = Server::start(Mischief::default(), 6);
    let ways_in = endpoint(&format!("tcp://{}", server.lines), 2);
    let load = LoadPlan::Fanout(FanoutPlan {
        burst: BURST as u32,
        ..fanout("to:{i} {data}", 800.0)
    });
    let ledger = compare(&server, plan(vec![server.hear(3), ways_in], load, 700));
    assert!(ledger.published > 300, "{ledger:?}");
    assert_eq!(ledger.delivered, ledger.published, "{ledger:?}");
    let mut by_publisher = BTreeMap::<u32, Vec<String>>::new();
    for (publisher, receiver) in server.state.lock().to_one.drain(..) {
        by_publisher.entry(publisher).or_default().push(receiver);
    }
    assert_eq!(by_publisher.len(), 2);
    for receivers in by_publisher.values() {
        let bursts: Vec<&[String]> = receivers.chunks(BURST).collect();
        for burst in &bursts {
            assert_eq!(burst.len(), BURST);
            assert!(
                burst.iter().all(|receiver| *receiver == burst[0]),
                "{burst:?}"
            );
        }
        let is_in_turn = bursts.windows(2).all(|two| two[0][0] != two[1][0]);
        assert!(is_in_turn, "{receivers:?}");
    }
}

/// Receivers reconnect all the time. The server loses nothing, so nothing may be reported as lost.
#[test]
fn chaos_adds_up() {
    at_once([1, 2], |threads| {
        let server = Server::start(Mischief::default(), 5);
        let ways_in = endpoint(&format!("ws://{}/publish", server.websocket), 2);
        let load = LoadPlan::Fanout(FanoutPlan {
            chaos: Some(30.0),
            ..fanout("{data}", 1000.0)
        });
        let report = report(Plan {
            threads,
            ..plan(vec![server.hear(6), ways_in], load, 1500)
        });
        let ledger = report.ledger.expect("a ledger");
        assert!(
            report.connections.reconnected > 15,
            "{:?}",
            report.connections
        );
        assert_eq!(report.errors.count(), 0, "{:?}", report.errors);
        assert_eq!(ledger.published, server.truth().published);
        assert_eq!(ledger.expected, ledger.published * 6);
        assert_eq!(
            ledger.expected,
            ledger.delivered + ledger.away,
            "{ledger:?}"
        );
        let faults = (
            ledger.lost,
            ledger.duplicated,
            ledger.reordered,
            ledger.corrupted,
        );
        assert_eq!(faults, (0, 0, 0, 0), "{ledger:?}");
        assert!(
            ledger.away > 0 && ledger.away < ledger.expected / 2,
            "{ledger:?}"
        );
    });
}

/// With both chaos and faults, the report never contains more losses than the server caused, and
/// many of them are found.
#[test]
fn chaos_does_not_hide_what_is_lost() {
    let server = Server::start(
        Mischief {
            lose: 100,
            ..Mischief::default()
        },
        6,
    );
    let ways_in = endpoint(&format!("ws://{}/publish", server.websocket), 1);
    let load = LoadPlan::Fanout(FanoutPlan {
        chaos: Some(10.0),
        ..fanout("{data}", 500.0)
    });
    let report = report(plan(vec![server.hear(4), ways_in], load, 1500));
    let ledger = report.ledger.expect("a ledger");
    let lost = server.truth().lost;
    assert_eq!(
        ledger.expected,
        ledger.delivered + ledger.lost + ledger.away,
        "{ledger:?}"
    );
    assert!(
        ledger.lost <= lost && ledger.lost > lost / 2,
        "{lost} lost: {ledger:?}"
    );
}

/// If the server closes a receiver's connection, its missing messages count as away, not as lost.
/// Other receivers are unaffected.
#[test]
fn a_receiver_that_is_closed_is_away_not_lost() {
    let receivers = Arc::new(Mutex::new(Vec::<TcpStream>::new()));
    let known = Arc::clone(&receivers);
    let address = serve_websocket(move |mut websocket| {
        let target = websocket.target().to_owned();
        if target.starts_with("/hear") {
            known
                .lock()
                .push(websocket.stream.try_clone().expect("a descriptor"));
            while websocket.message().is_some() {}
            let _ = websocket.stream.shutdown(Shutdown::Both);
            return;
        }
        let mut count = 0;
        while let Some((kind, data)) = websocket.message() {
            count += 1;
            let mut receivers = known.lock();
            for socket in receivers.iter_mut() {
                let _ = socket.write_all(&frame(kind, &data));
            }
            if count == 100 {
                let _ = receivers[0].shutdown(Shutdown::Both);
            }
        }
    });
    let clients = endpoint(&format!("ws://{address}/hear"), 2);
    let ways_in = endpoint(&format!("ws://{address}/publish"), 1);
    let load = LoadPlan::Fanout(fanout("{data}", 200.0));
    let report = report(plan(vec![clients, ways_in], load, 1000));
    let ledger = report.ledger.expect("a ledger");
    assert_eq!(
        report.connections.disconnected, 1,
        "{:?}",
        report.connections
    );
    assert_eq!(ledger.away, ledger.published - 100, "{ledger:?}");
    assert_eq!(
        (ledger.lost, ledger.delivered),
        (0, ledger.published + 100),
        "{ledger:?}"
    );
}
