//! Attacks by clients that open and close connections and channels at a high rate.

use std::io::Write;
use std::time::Duration;

use socket2::SockRef;

use crate::attack::Attack;
use crate::raw::{connect, end_well, frame, handshake, open};
use crate::support::{Http, Options};

/// Clients connect and disconnect as fast as possible, in every way that a connection can end.
#[test]
fn connections_that_come_and_go() {
    let half = handshake("/ws?user=churn&channel=news", "");
    let attack = Attack::default();
    attack.run(|target, rng| {
        let mut socket = connect(target.address);
        let length = rng.usize(..=half.len());
        let _ = socket.write_all(&half[..length]);
        if rng.u8(..4) == 0 {
            end_well(&socket);
        }
        target.landed();
    });
}

/// Sessions that briefly subscribe to the maximum number of channels.
#[test]
fn channels_by_the_thousand() {
    let attack = Attack {
        // The memory of some thousand concurrent channels: their names, the tables of channels, and
        // spare room of the tables.
        memory_mib_max: 24,
        ..Attack::default()
    };
    attack.run(|target, rng| {
        let channels: String = (0..32)
            .map(|_| format!("&channel=room:{:x}", rng.u32(..)))
            .collect();
        let mut socket = open(
            target.address,
            &format!("/ws?user=u{}{channels}", rng.u8(..)),
            "",
        );
        let _ = socket.write_all(&frame(0x8a, b""));
        target.landed();
    });
}

/// Clients send names with control characters, and each request has a new path. Each event must still fill one line
/// of the log, and the number of metrics must not grow.
#[test]
fn words_for_the_log() {
    let attack = Attack {
        options: Options {
            log: "debug",
            ..Options::default()
        },
        ..Attack::default()
    };
    attack.run(|target, rng| {
        let length = |text: &str| text.lines().count();
        let metrics = || {
            let answer = Http::connect(target.server.internal).request("GET", "/metrics", "", b"");
            length(answer.expect("an answer").text())
        };
        let before = metrics();
        for _ in 0..50 {
            let number = rng.u64(..);
            let name = format!("/ws?user=%1b%5b2J%0d%0aERROR%20{number}&channel=room:%00");
            let agent = "User-Agent: \u{9b}2J\tERROR forged\r\nOrigin: http://\u{85}evil\r\n";
            let mut socket = connect(target.address);
            let _ = socket.write_all(&handshake(&name, agent));
            let _ = crate::raw::status(&mut socket);
            let mut socket = connect(target.address);
            let _ =
                socket.write_all(format!("GET /{number} HTTP/1.1\r\nHost: t\r\n\r\n").as_bytes());
            let _ = crate::raw::status(&mut socket);
        }
        // The labels of metrics have fixed sets of values, which clients can't extend.
        assert!(metrics() <= before + 20, "{before} lines before");
        let log = std::fs::read(target.server.folder.join("stderr")).expect("a log");
        let is_control = |byte: &u8| *byte < b' ' && *byte != b'\n';
        assert!(!log.iter().any(is_control), "control bytes in the log");
        let text = String::from_utf8(log).expect("the log is UTF-8");
        let forged = text.lines().find(|line| line.starts_with("ERROR"));
        assert_eq!(forged, None);
        target.landed();
    });
}

/// More clients than a worker accepts in one turn connect at once and send nothing, while bystanders are served.
#[test]
fn a_crowd_that_says_nothing() {
    let attack = Attack::default();
    attack.run(|target, _| {
        let crowd: Vec<_> = (0..150).map(|_| connect(target.address)).collect();
        for socket in &crowd {
            let keep = SockRef::from(socket).set_linger(Some(Duration::ZERO));
            keep.expect("a socket");
        }
        target.outlast();
        target.landed();
    });
}
