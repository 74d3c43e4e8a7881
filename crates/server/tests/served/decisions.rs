//! `veche log`: follows decisions about a user on a running server, without a restart.

use std::fs;
use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::json;

use crate::jwt::{SECRET, bearer, handshake, now_s, shared};
use crate::slow_reader::narrow;
use crate::support::{
    Lines as PushLines, Options, Server, Setup, Socket, USUAL, call, on_all, until,
};

const ROUTES: &str = "
[[route]]
path = \"/c\"
handler = \"centrifuge\"
identity = \"jwt\"
[[route]]
path = \"/jwt\"
handler = \"push\"
identity = \"jwt\"
[[namespace]]
name = \"open\"
subscribe = \"client\"
publish = \"subscriber\"
[jwt]
secret_file = \"secret\"
[access_log]
file = \"access.log\"
format = \"json\"
";

fn start(setup: Setup, log: &str) -> Server {
    let options = Options {
        routes: ROUTES,
        log,
        files: &[("secret", SECRET)],
        ..Options::default()
    };
    Server::with(setup, &options)
}

/// The output of `veche log`.
struct Log {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Log {
    /// Starts `veche log` and opens sessions of the user until the command reports the first one.
    fn about(server: &Server, user: &str, arguments: &[&str]) -> Self {
        let mut child = server
            .command(&[&["log"], arguments].concat())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let out = child.stdout.take().expect("a pipe");
        let socket = Socket::open(server.public, "/ws?user=somebody");
        let open = || {
            let target = format!("/ws?user={user}&channel=news");
            Socket::open(server.public, &target).leave();
        };
        until("the look to begin", || {
            open();
            rustix::io::ioctl_fionread(&out).is_ok_and(|waiting| waiting > 0)
        });
        // `veche log` may have started during the last session and reported only its end.
        open();
        socket.leave();
        let lines = BufReader::new(out).lines();
        Self { child, lines }
    }

    /// Returns the next line of a kind, without its time.
    fn next(&mut self, what: &str) -> String {
        loop {
            let line = self.lines.next().expect("a line").expect("text");
            let (_, rest) = line.split_once(' ').expect("a time");
            if rest.starts_with(&format!("{what} ")) {
                return rest.to_owned();
            }
            assert!(!rest.contains("somebody"), "another user's: {line}");
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connects a client of Centrifugo's protocol with a token.
fn connect(server: &Server, user: &str) -> Socket {
    let token = shared(&json!({"sub": user, "exp": now_s() + 600}));
    let mut socket = Socket::open(server.public, "/c");
    socket.say(&json!({"id": 1, "connect": {"token": token}}).to_string());
    assert!(socket.text().contains("\"connect\""));
    socket
}

#[test]
fn only_decisions_about_the_user_are_shown() {
    on_all(|setup| {
        let server = start(setup, "info");
        let mut log = Log::about(&server, "bob", &["--user", "bob"]);
        assert_eq!(log.next("connect"), "connect user=\"bob\" code=0");
        assert_eq!(
            log.next("subscribe"),
            "subscribe user=\"bob\" channel=\"news\" code=0"
        );
        assert!(
            log.next("disconnect")
                .starts_with("disconnect user=\"bob\" code=")
        );

        connect(&server, "somebody").leave();
        let mut bob = connect(&server, "bob");
        let mut ask = |command: serde_json::Value| {
            bob.say(&command.to_string());
            bob.text()
        };
        ask(json!({"id": 2, "subscribe": {"channel": "secret:1"}}));
        ask(json!({"id": 3, "subscribe": {"channel": "open:1"}}));
        ask(json!({"id": 4, "publish": {"channel": "secret:1", "data": 1}}));
        let token = shared(&json!({"sub": "bob", "exp": now_s() + 900}));
        ask(json!({"id": 5, "refresh": {"token": token}}));
        call(server.internal, "push", &json!({"user": "bob", "data": 1}));
        let body = json!({"user": "bob", "disconnect": {"code": 4100, "reason": "enough"}});
        call(server.internal, "disconnect", &body);

        let connected = loop {
            let line = log.next("connect");
            if line.contains("client=") {
                break line;
            }
        };
        let client = connected.split(' ').nth(2).expect("the client");
        assert_eq!(connected, format!("connect user=\"bob\" {client} code=0"));
        let expected = |what: &str, rest: &str| format!("{what} user=\"bob\" {client} {rest}");
        for (what, rest) in [
            (
                "subscribe",
                "channel=\"secret:1\" code=103 reason=\"permission denied\"",
            ),
            ("subscribe", "channel=\"open:1\" code=0"),
            (
                "publish",
                "channel=\"secret:1\" code=103 reason=\"permission denied\"",
            ),
            ("refresh", "code=0"),
        ] {
            assert_eq!(log.next(what), expected(what, rest));
        }
        assert_eq!(
            log.next("publish"),
            "publish user=\"bob\" code=0 reason=\"by a back end\""
        );
        assert_eq!(
            log.next("disconnect"),
            expected("disconnect", "code=4100 reason=\"enough\"")
        );
        assert!(
            !server.log().contains("veche::decision"),
            "only for who looks"
        );
    });
}

#[test]
fn a_channel_s_decisions_are_shown() {
    let server = start(USUAL, "info");
    let mut log = Log::about(&server, "ann", &["--channel", "news"]);
    assert_eq!(
        log.next("subscribe"),
        "subscribe user=\"ann\" channel=\"news\" code=0"
    );
    PushLines::connect(server.push).ask(&json!({"channel": "news", "data": 1, "ack": true}));
    assert_eq!(
        log.next("publish"),
        "publish channel=\"news\" code=0 reason=\"by a back end\""
    );
}

#[test]
fn at_level_debug_all_are_in_the_log_with_refused_tokens() {
    let server = start(USUAL, "debug");
    let expired = shared(&json!({"sub": "ann", "exp": now_s() - 600}));
    assert_eq!(
        handshake(server.public, "/jwt", &bearer(&expired)).status,
        401
    );
    let mut socket = Socket::open(server.public, "/c");
    socket.say(&json!({"id": 1, "connect": {"token": "no.such.token"}}).to_string());
    assert_eq!(socket.closed(), 3500);
    until("the refusals", || {
        let log = server.log();
        let lines: Vec<&str> = log
            .lines()
            .filter(|line| line.contains("veche::decision"))
            .collect();
        let has = |words: &[&str]| {
            lines
                .iter()
                .any(|line| words.iter().all(|word| line.contains(word)))
        };
        has(&[": connect", "code=401", "expired"])
            && has(&[": token", "reason=", "token"])
            && has(&[": connect", "code=3500"])
    });
}

#[test]
fn the_access_log_names_the_users_of_tokens() {
    let server = start(USUAL, "info");
    connect(&server, "ann").leave();
    let token = shared(&json!({"sub": "bob", "exp": now_s() + 600}));
    let target = format!("/jwt?token={token}");
    Socket::open(server.public, &target).leave();
    let text = || fs::read_to_string(server.folder.join("access.log")).unwrap_or_default();
    until("both lines", || text().lines().count() >= 2);
    let users: Vec<serde_json::Value> = text()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
        .map(|line| line["remote_user"].clone())
        .collect();
    assert!(users.contains(&json!("ann")), "{users:?}");
    assert!(users.contains(&json!("bob")), "{users:?}");
}

#[test]
fn a_slow_consumer_is_warned_of_once_with_its_user() {
    let options = Options {
        limits: "outbox_bytes = \"32KiB\"",
        ..Options::default()
    };
    let server = Server::with(USUAL, &options);
    let _slow = narrow(&server, "/ws?user=slow&channel=news");
    let mut lines = PushLines::connect(server.push);
    let data = "x".repeat(8 << 10);
    let push = json!({"user": "slow", "data": data, "ack": true});
    // The pushes are far more than the kernel and the outbox hold.
    let closed = (0..4000).any(|_| lines.ask(&push)["result"]["handed"] == 0);
    assert!(closed, "it is closed");
    let warned = || {
        let log = server.log();
        let is_it = |line: &&str| line.contains("WARN") && line.contains("user \"slow\"");
        log.lines().filter(is_it).count()
    };
    until("the warning", || warned() > 0);
    assert_eq!(warned(), 1, "{}", server.log());
}
