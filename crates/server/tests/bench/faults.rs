//! Tests runs against servers that lose or duplicate messages. Such a run must fail, even if no promise mentions lost
//! or duplicate messages.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;
use veche_proto::websocket::MessageKind;

use crate::known::websocket::frame;
use crate::known::{WebSocket, serve, serve_websocket};
use crate::{bench, scenario};

/// Starts a server that sends each published line to every receiver as many times as `copies` returns for the
/// line's number. Returns the addresses for receivers and for lines.
fn broadcast(copies: fn(u64) -> usize) -> (SocketAddr, SocketAddr) {
    let receivers = Arc::new(Mutex::new(Vec::<TcpStream>::new()));
    let known = Arc::clone(&receivers);
    let hear = serve(move |_, socket| {
        let copy = socket.try_clone().expect("a descriptor");
        let Some((mut websocket, response)) = WebSocket::handshake(socket) else {
            return;
        };
        {
            let mut receivers = known.lock();
            let _ = websocket.stream.write_all(&response);
            receivers.push(copy);
        }
        while websocket.message().is_some() {}
        let _ = websocket.stream.shutdown(std::net::Shutdown::Both);
    });
    let publish = serve(move |_, socket| {
        for (number, line) in (0..).zip(BufReader::new(socket).split(b'\n')) {
            let Ok(line) = line else { return };
            let bytes = frame(MessageKind::Text, &line).repeat(copies(number));
            for receiver in &mut *receivers.lock() {
                let _ = receiver.write_all(&bytes);
            }
        }
    });
    (hear, publish)
}

fn phase((hear, publish): (SocketAddr, SocketAddr), promise: &str) -> String {
    format!(
        "kind = \"broadcast\"\nurl = \"ws://{hear}/\"\npublish = \"tcp://{publish}\"\nconnections = 4\n\
         rate = 200\nduration = \"500ms\"\nwarmup = \"0s\"\ntimeout = \"1s\"\n{promise}\n"
    )
}

#[test]
fn a_scenario_fails_on_losses_unless_a_promise_allows_them() {
    let lossy = broadcast(|number| usize::from(number % 10 != 3));
    let outcome = scenario(&phase(lossy, "promise.messages.received = \">= 1\""));
    assert_eq!(outcome.code, Some(8), "{outcome:#?}");
    assert_eq!(
        outcome.broken(),
        ["ledger: lost, duplicated, reordered, corrupted == 0: 40 lost"]
    );
    // A promise about a figure replaces the default requirement for that figure; the other figures are checked as
    // before.
    let lossy = broadcast(|number| usize::from(number % 10 != 3));
    let outcome = scenario(&phase(lossy, "promise.ledger.lost = \"<= 10%\""));
    assert_eq!(outcome.code, Some(0), "{outcome:#?}");
    let noisy = broadcast(|number| 1 + usize::from(number % 50 == 3));
    let outcome = scenario(&phase(noisy, "promise.ledger.lost = \"<= 10%\""));
    assert_eq!(outcome.code, Some(8), "{outcome:#?}");
    assert_eq!(
        outcome.broken(),
        ["ledger: duplicated, reordered, corrupted == 0: 8 duplicated"]
    );
}

#[test]
fn a_storm_whose_answers_come_twice_fails() {
    let address = serve_websocket(|mut websocket| {
        while let Some((kind, data)) = websocket.message() {
            websocket.send(kind, &data);
            websocket.send(kind, &data);
        }
    });
    let url = format!("ws://{address}/");
    let outcome = bench(&["storm", &url, "-n", "3"]);
    assert_eq!(outcome.code, Some(8), "{outcome:#?}");
    let words = "veche: the run had faults: 3 duplicate answers; see the report\n";
    assert_eq!(outcome.stderr, words);
    let phase = format!("kind = \"storm\"\nurl = \"{url}\"\nconnections = 3\n");
    let outcome = scenario(&phase);
    assert_eq!(outcome.code, Some(8), "{outcome:#?}");
    assert_eq!(outcome.broken(), ["messages.duplicated == 0: 3"]);
}
