//! Compares the ledger with the records of servers that have history: a correct server, and servers
//! that lose, duplicate, reorder or refuse messages during recovery.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;
use veche_load::loads::LoadPlan;
use veche_load::loads::fanout::FanoutPlan;
use veche_load::plan::{Endpoint, Plan};
use veche_load::report::model::{LedgerCounts, Recovery, Report};
use veche_proto::websocket::MessageKind;

use crate::support::websocket::frame;
use crate::support::{WebSocket, at_once, endpoint, plan, report, row, serve};

/// How a server treats recovering receivers, or publishers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Manner {
    #[default]
    Honest,
    /// One of the missed messages is silently dropped.
    Loses,
    /// One message is sent twice.
    Repeats,
    /// Two messages are sent in the wrong order.
    Swaps,
    /// No missed message is sent. The reply states that recovery is incomplete.
    Refuses,
    /// Every seventh message is dropped, whether live or recovered.
    LosesAlways,
    /// The server does not report whether recovery is complete.
    Silent,
    /// Messages are sent without an envelope, so they have no position.
    Bare,
    /// Every fiftieth publication is not acknowledged and ends its connection. Every second one of
    /// these is published nevertheless.
    Hangs,
    /// After a hundred publications, no more connections are accepted.
    Vanishes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Truth {
    answered: u64,
    /// Publications that were never acknowledged.
    unanswered: u64,
    returned: u64,
    refused: u64,
    lost: u64,
    duplicated: u64,
    reordered: u64,
    /// Missed messages that were not sent because recovery was refused, and publications dropped without
    /// an acknowledgement.
    gone: u64,
}

#[derive(Default)]
struct State {
    manner: Manner,
    /// If set, a receiver's connection is closed after this number of messages.
    messages_max: Option<u64>,
    log: Vec<String>,
    /// For each receiver name, the socket and the number of messages sent.
    receivers: BTreeMap<String, (TcpStream, u64)>,
    truth: Truth,
}

struct Server {
    websocket: SocketAddr,
    lines: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Server {
    fn start(manner: Manner, messages_max: Option<u64>) -> Self {
        let state = Arc::new(Mutex::new(State {
            manner,
            messages_max,
            ..State::default()
        }));
        let known = Arc::clone(&state);
        let websocket = serve(move |_, socket| {
            let copy = socket.try_clone().expect("a descriptor");
            let Some((mut websocket, response)) = WebSocket::handshake(socket) else {
                return;
            };
            let target = websocket.target().to_owned();
            let (name, query) = target.split_once('?').unwrap_or((&target, ""));
            let since = query
                .strip_prefix("since=e:")
                .map(|offset| offset.parse().expect("an offset of ours"));
            known.lock().join(name, since, copy, response);
            while websocket.message().is_some() {}
            let _ = websocket.stream.shutdown(Shutdown::Both);
        });
        let known = Arc::clone(&state);
        let lines = serve(move |_, socket| {
            let mut answers = socket.try_clone().expect("a descriptor");
            let mut lines = BufReader::new(socket).lines().map_while(Result::ok);
            for line in lines.by_ref() {
                if !known.lock().take(&line) {
                    // Acknowledgements that were already sent arrive. Publications that the tester
                    // sends from now on are ignored.
                    let _ = answers.shutdown(Shutdown::Write);
                    break;
                }
                let _ = answers.write_all(b"{\"result\":{}}\n");
            }
            lines.for_each(drop);
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

    fn endpoints(&self, receivers: u32, publishers: u32) -> Vec<Endpoint> {
        let hear = format!("ws://{}/{{i}}", self.websocket);
        let publish = format!("tcp://{}", self.lines);
        vec![endpoint(&hear, receivers), endpoint(&publish, publishers)]
    }
}

impl State {
    fn join(&mut self, name: &str, since: Option<usize>, mut socket: TcpStream, response: Vec<u8>) {
        if self.manner == Manner::Vanishes && self.truth.answered > 100 {
            let _ = socket.shutdown(Shutdown::Both);
            return;
        }
        let mut out = response;
        let top = self.log.len();
        let mut missed: Vec<usize> = (since.unwrap_or(top)..top).collect();
        let mut recovered = "";
        if since.is_some() {
            self.truth.returned += 1;
            recovered = ",\"recovered\":true";
            let middle = missed.len() / 2;
            match self.manner {
                Manner::Refuses => {
                    self.truth.refused += 1;
                    self.truth.gone += missed.len() as u64;
                    missed.clear();
                    recovered = ",\"recovered\":false";
                }
                Manner::Loses if !missed.is_empty() => {
                    self.truth.lost += 1;
                    missed.remove(middle);
                }
                Manner::Repeats if !missed.is_empty() => {
                    self.truth.duplicated += 1;
                    missed.push(missed[middle]);
                }
                Manner::Swaps if missed.len() >= 2 => {
                    self.truth.reordered += 1;
                    missed.swap(middle - 1, middle);
                }
                Manner::Silent => recovered = "",
                _ => {}
            }
        }
        let position = since
            .filter(|_| self.manner != Manner::Refuses)
            .unwrap_or(top);
        let joined = format!("{{\"subscribed\":\"c\",\"position\":\"e:{position}\"{recovered}}}");
        // Each receiver also has a personal channel without history. The server's report about that
        // channel must not affect the recovery of the other channel.
        let own = format!(
            "{{\"subscribed\":\"#{name}\"{}}}",
            recovered.replace("true", "false")
        );
        out.extend(frame(MessageKind::Text, own.as_bytes()));
        out.extend(frame(MessageKind::Text, joined.as_bytes()));
        let missed: Vec<u8> = missed
            .into_iter()
            .filter_map(|at| self.message(name, at))
            .flatten()
            .collect();
        out.extend(missed);
        if socket.write_all(&out).is_ok() {
            self.receivers.insert(name.to_owned(), (socket, 0));
        }
    }

    /// Returns the encoded publication at index `at`, or `None` if this receiver does not get it.
    fn message(&self, name: &str, at: usize) -> Option<Vec<u8>> {
        let data = &self.log[at];
        let salt: usize = name.bytes().map(usize::from).sum();
        let text = match self.manner {
            Manner::LosesAlways if (at + salt).is_multiple_of(7) => return None,
            Manner::Bare => data.clone(),
            _ => format!(
                "{{\"channel\":\"c\",\"position\":\"e:{}\",\"data\":\"{data}\"}}",
                at + 1
            ),
        };
        Some(frame(MessageKind::Text, text.as_bytes()))
    }

    /// Handles a publication. Returns `false` if it must not be acknowledged.
    fn take(&mut self, line: &str) -> bool {
        let asked = self.truth.answered + self.truth.unanswered + 1;
        if self.manner == Manner::Hangs && asked.is_multiple_of(50) {
            // The publication counts as unanswered whether or not it is published. Otherwise `asked` would
            // have the same value for the next publication, which would not be acknowledged either.
            let is_published = asked.is_multiple_of(100);
            self.truth.unanswered += 1;
            if is_published {
                self.publish(line);
            } else {
                self.truth.gone += 1;
            }
            return false;
        }
        self.truth.answered += 1;
        self.publish(line);
        true
    }

    fn publish(&mut self, line: &str) {
        let data = line
            .split('"')
            .find(|text| text.starts_with("vb:"))
            .expect("a message of the tester");
        let at = self.log.len();
        self.log.push(data.to_owned());
        let mut receivers = std::mem::take(&mut self.receivers);
        receivers.retain(|name, (socket, count)| {
            if let Some(message) = self.message(name, at) {
                let _ = socket.write_all(&message);
            }
            *count += 1;
            let is_over = self.messages_max.is_some_and(|max| *count >= max);
            if is_over {
                // Data that was already sent still arrives.
                let _ = socket.shutdown(Shutdown::Write);
            }
            !is_over
        });
        self.receivers = receivers;
    }
}

fn recovering() -> FanoutPlan {
    FanoutPlan {
        run: 11,
        body: "{\"data\":\"{data}\",\"ack\":true}".to_owned(),
        to_one: false,
        rate: 300.0,
        size: 80,
        recover: true,
        ..FanoutPlan::default()
    }
}

/// Runs a plan with these receivers and publishers; returns the relevant parts of its report.
fn run(
    server: &Server,
    (receivers, publishers): (u32, u32),
    threads: u32,
    load: FanoutPlan,
) -> (Report, LedgerCounts, Recovery) {
    let plan = Plan {
        threads,
        ..plan(
            server.endpoints(receivers, publishers),
            LoadPlan::Fanout(load),
            2000,
        )
    };
    let report = report(plan);
    let ledger = report.ledger.clone().expect("a ledger");
    let recovery = ledger.recovery.clone().expect("it was asked for");
    assert_eq!(
        ledger.expected,
        ledger.delivered + ledger.lost + ledger.away,
        "{ledger:?}"
    );
    assert_eq!(ledger.expected, ledger.published * u64::from(receivers));
    (report, ledger, recovery)
}

/// All data that the server sends before it closes a connection arrives, so the server records
/// exactly which messages are missing. There is one publisher, because the ledger detects
/// reordering only among messages of the same publisher.
#[test]
fn exactly_the_faults_of_a_recovery_are_found() {
    let manners = [
        Manner::Honest,
        Manner::Loses,
        Manner::Repeats,
        Manner::Swaps,
        Manner::Refuses,
    ];
    let cases = manners
        .into_iter()
        .flat_map(|manner| [(manner, 1), (manner, 2)]);
    at_once(cases, |(manner, threads)| {
        let server = Server::start(manner, Some(40));
        let (report, ledger, recovery) = run(&server, (5, 1), threads, recovering());
        let truth = server.truth();
        let reported = Truth {
            answered: ledger.published,
            unanswered: recovery.unanswered,
            returned: recovery.returned,
            refused: recovery.refused,
            lost: ledger.lost,
            duplicated: ledger.duplicated,
            reordered: ledger.reordered,
            gone: ledger.away,
        };
        row(
            "broadcast",
            &format!("receivers that are ended come back ({manner:?})"),
            &[
                ("published", truth.answered, reported.answered),
                ("returned", truth.returned, reported.returned),
                ("refused", truth.refused, reported.refused),
                ("lost", truth.lost, reported.lost),
                ("duplicated", truth.duplicated, reported.duplicated),
                ("reordered", truth.reordered, reported.reordered),
            ],
        );
        assert_eq!(reported, truth, "{manner:?}: {ledger:?}");
        assert!(truth.answered >= 500 && truth.returned > 15, "{truth:?}");
        let expected_faults = match manner {
            Manner::Loses => truth.lost,
            Manner::Repeats => truth.duplicated,
            Manner::Swaps => truth.reordered,
            Manner::Refuses => truth.refused,
            _ => 100,
        };
        assert!(expected_faults > 10, "{manner:?}: {truth:?}");
        // The server ended the connections, so the report mentions this, but does not count it as
        // errors.
        assert_eq!(report.errors.count(), 0, "{:?}", report.errors);
        assert_eq!(report.connections.disconnected, 0);
        assert_eq!(report.connections.reconnected, recovery.ended);
        assert_eq!(recovery.ended, truth.returned, "{recovery:?}");
        let example = recovery.example.expect("there were ends");
        assert!(example.contains("ended the connection"), "{example}");
    });
}

/// Receivers are disconnected at any time and recover everything that they missed.
#[test]
fn chaos_excuses_nothing_where_clients_recover() {
    let cases = [
        (Manner::Honest, 1),
        (Manner::Honest, 2),
        (Manner::LosesAlways, 1),
    ];
    at_once(cases, |(manner, threads)| {
        let server = Server::start(manner, None);
        let load = FanoutPlan {
            chaos: Some(100.0),
            ..recovering()
        };
        let (report, ledger, recovery) = run(&server, (8, 2), threads, load);
        let truth = server.truth();
        assert_eq!(ledger.published, truth.answered);
        assert!(recovery.returned > 50, "{recovery:?}");
        // If a receiver is disconnected before the server's reply about its recovery arrives, only the
        // server counts the recovery.
        assert!(
            recovery.returned <= truth.returned,
            "{recovery:?}, {truth:?}"
        );
        assert_eq!((recovery.refused, recovery.unanswered), (0, 0));
        assert_eq!(
            (ledger.duplicated, ledger.reordered, ledger.away),
            (0, 0, 0),
            "{ledger:?}"
        );
        let never_sent = |name: u32| {
            let salt = format!("/{name}").bytes().map(usize::from).sum::<usize>();
            (0..truth.answered as usize).filter(move |at| (at + salt).is_multiple_of(7))
        };
        let lost = match manner {
            Manner::LosesAlways => (0..8).map(|name| never_sent(name).count() as u64).sum(),
            _ => 0,
        };
        assert_eq!(ledger.lost, lost, "{ledger:?}");
        assert_eq!(report.errors.count(), 0, "{:?}", report.errors);
    });
}

/// The outcome of unacknowledged publications is unknown, so the ledger does not expect them.
/// Publications that become due while no connection is available are sent later.
#[test]
fn publications_without_an_answer_count_nowhere() {
    at_once([1, 2], |threads| {
        let server = Server::start(Manner::Hangs, None);
        let (report, ledger, recovery) = run(&server, (3, 2), threads, recovering());
        let truth = server.truth();
        assert_eq!(ledger.published, truth.answered, "{ledger:?}");
        let faults = (
            ledger.lost,
            ledger.away,
            ledger.duplicated,
            ledger.reordered,
        );
        assert_eq!(faults, (0, 0, 0, 0), "{ledger:?}");
        assert!(truth.unanswered > 5, "{truth:?}");
        // Publications that were in flight behind an unacknowledged one, on the same connection,
        // are not acknowledged either.
        assert!(recovery.unanswered >= truth.unanswered, "{recovery:?}");
        let published = truth.unanswered - truth.gone;
        assert_eq!(recovery.unanswered_delivered, published * 3, "{recovery:?}");
        assert_eq!(
            ledger.published + recovery.unanswered,
            600,
            "nothing was left out"
        );
        assert_eq!(recovery.ended, truth.unanswered, "{recovery:?}");
        assert_eq!(report.messages.unanswered, 0);
        assert_eq!(report.errors.count(), 0, "{:?}", report.errors);
    });
}

#[test]
fn a_server_that_does_not_say_how_it_is_has_faults() {
    at_once(
        [
            (Manner::Silent, "did not report whether"),
            (Manner::Bare, "positions = true"),
        ],
        |(manner, words)| {
            let server = Server::start(manner, Some(40));
            let (report, ..) = run(&server, (2, 1), 1, recovering());
            assert!(report.errors.wrong_answer > 0, "{:?}", report.errors);
            let example = &report.errors.examples["wrong_answer"];
            assert!(example.contains(words), "{example}");
        },
    );
}

/// If the server accepts no more connections, this does not delay the end of the run. The missing
/// deliveries count as lost.
#[test]
fn a_receiver_that_never_reconnects_has_losses() {
    let server = Server::start(Manner::Vanishes, Some(20));
    let (_, ledger, recovery) = run(&server, (3, 1), 1, recovering());
    assert_eq!(ledger.away, 0);
    assert!(ledger.lost > 3 * 300, "{ledger:?}");
    assert!(recovery.ended >= 6 && recovery.retried > 3, "{recovery:?}");
}
