//! A server with Centrifugo's client protocol: it closes connections that do not answer its pings, sends several
//! publications per frame, and loses some of them.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use veche_load::loads::LoadPlan;
use veche_load::loads::fanout::FanoutPlan;
use veche_proto::websocket::{MessageKind, encode_close};

use crate::support::websocket::frame;
use crate::support::{SOON, at_once, endpoint, now, plan, report, row, serve_websocket};

/// Number of publications in a frame.
const BATCH: u64 = 5;
/// Number of publications between two pings.
const PING_EVERY: u64 = 20;
/// Number of unanswered pings after which the server closes a connection.
const UNANSWERED_MAX: u64 = 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Truth {
    published: u64,
    lost: u64,
    pings: u64,
    pongs: u64,
    closed: u64,
}

struct Receiver {
    name: String,
    socket: TcpStream,
    unanswered: u64,
    lines: Vec<String>,
}

#[derive(Default)]
struct State {
    receivers: Vec<Receiver>,
    truth: Truth,
}

impl State {
    fn publish(&mut self, data: &[u8], wants_pongs: bool) {
        let number = self.truth.published;
        self.truth.published += 1;
        let data = std::str::from_utf8(data).expect("a message of the tester");
        let truth = &mut self.truth;
        self.receivers.retain_mut(|receiver| {
            if number.is_multiple_of(PING_EVERY) {
                truth.pings += 1;
                receiver.unanswered += 1;
                let mut out = frame(MessageKind::Text, b"{}");
                let is_over = wants_pongs && receiver.unanswered > UNANSWERED_MAX;
                if is_over {
                    truth.closed += 1;
                    encode_close(&mut out, Some(3012), "no pong", None);
                }
                let _ = receiver.socket.write_all(&out);
                if is_over {
                    let _ = receiver.socket.shutdown(Shutdown::Write);
                    return false;
                }
            }
            if receiver.name.ends_with('0') && number % 7 == 3 {
                truth.lost += 1;
            } else {
                let push = format!(r#"{{"push":{{"channel":"c","pub":{{"data":"{data}"}}}}}}"#);
                receiver.lines.push(push);
            }
            if (number + 1).is_multiple_of(BATCH) {
                let lines = std::mem::take(&mut receiver.lines).join("\n");
                let _ = receiver
                    .socket
                    .write_all(&frame(MessageKind::Text, lines.as_bytes()));
            }
            true
        });
    }
}

#[test]
fn pings_are_answered_and_all_replies_of_a_frame_are_read() {
    at_once([true, false], |wants_pongs| {
        let state = Arc::new(Mutex::new(State::default()));
        let known = Arc::clone(&state);
        let address = serve_websocket(move |mut websocket| {
            let name = websocket.target().to_owned();
            if name.starts_with("/publish") {
                while let Some((_, data)) = websocket.message() {
                    known.lock().publish(&data, wants_pongs);
                }
                return;
            }
            let Some((_, hello)) = websocket.message() else {
                return;
            };
            assert!(hello.starts_with(br#"{"id":1,"connect""#));
            {
                let mut state = known.lock();
                let pong = if wants_pongs { r#","pong":true"# } else { "" };
                websocket.text(&format!(
                    "{{\"id\":1,\"connect\":{{\"client\":\"x\",\"ping\":25{pong}}}}}\n{{\"id\":2,\"subscribe\":{{}}}}"
                ));
                state.receivers.push(Receiver {
                    name: name.clone(),
                    socket: websocket.stream.try_clone().expect("a descriptor"),
                    unanswered: 0,
                    lines: Vec::new(),
                });
            }
            while let Some((_, data)) = websocket.message() {
                assert_eq!(data, b"{}", "nothing but pongs");
                let mut state = known.lock();
                state.truth.pongs += 1;
                let mut receivers = state.receivers.iter_mut();
                if let Some(own) = receivers.find(|receiver| receiver.name == name) {
                    own.unanswered = 0;
                }
            }
            let _ = websocket.stream.shutdown(Shutdown::Both);
        });
        let load = LoadPlan::Fanout(FanoutPlan {
            run: 5,
            body: "{data}".to_owned(),
            to_one: false,
            rate: 400.0,
            size: 64,
            hello: Some(
                "{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"c\"}}"
                    .to_owned(),
            ),
            ..FanoutPlan::default()
        });
        let hear = endpoint(&format!("ws://{address}/hear?{{i}}"), 3);
        let publish = endpoint(&format!("ws://{address}/publish"), 1);
        let report = report(plan(vec![hear, publish], load, 1500));
        let ledger = report.ledger.expect("a ledger");
        // The server's threads may still be reading the last messages.
        let deadline = now() + SOON;
        let has_all_pongs = |truth: Truth| !wants_pongs || truth.pongs == truth.pings;
        while !has_all_pongs(state.lock().truth) && now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        let truth = state.lock().truth;
        let case = if wants_pongs {
            "Centrifugo: asks for pongs, 5 publications in a frame, loses one in seven of one receiver"
        } else {
            "Centrifugo: asks for no pongs, 5 publications in a frame, loses one in seven of one receiver"
        };
        row(
            "broadcast",
            case,
            &[
                ("published", truth.published, ledger.published),
                ("lost", truth.lost, ledger.lost),
                (
                    "delivered",
                    truth.published * 3 - truth.lost,
                    ledger.delivered,
                ),
                ("corrupted", 0, ledger.corrupted),
                ("foreign", 0, ledger.foreign),
                (
                    "closed by the server",
                    truth.closed,
                    report.connections.disconnected,
                ),
            ],
        );
        assert_eq!(truth.closed, 0, "{truth:?}");
        assert_eq!(
            truth.pongs,
            if wants_pongs { truth.pings } else { 0 },
            "{truth:?}"
        );
        assert!(truth.pings >= 3 * 30 && truth.lost > 50, "{truth:?}");
        assert_eq!(
            (ledger.duplicated, ledger.reordered, ledger.away),
            (0, 0, 0),
            "{ledger:?}"
        );
        assert_eq!(report.errors.count(), 0, "{:?}", report.errors);
    });
}
