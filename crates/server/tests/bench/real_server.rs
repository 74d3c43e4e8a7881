//! Runs every kind of load against the real server, and asserts that there are no errors and that
//! the ledger is correct.

use crate::support::Setup;
use crate::support::server::{Options, Server};
use crate::{Outcome, bench};

const SETUP: Setup = Setup {
    io: "epoll",
    workers: 2,
};
/// A short run without a warm-up.
const SHORT: [&str; 4] = ["--duration", "300ms", "--warmup", "0s"];

fn run(arguments: &[&str]) -> Outcome {
    bench(&[arguments, &SHORT].concat())
}

/// Asserts that all publications arrived once and in order.
#[track_caller]
fn assert_complete(outcome: &Outcome, per_publication: u64) {
    outcome.assert_clean();
    let count = |name: &str| outcome.count(&format!("/ledger/{name}"));
    assert!(count("published") > 20, "{outcome:#?}");
    assert_eq!(count("expected"), count("published") * per_publication);
    assert_eq!(count("delivered"), count("expected"), "{outcome:#?}");
    for fault in ["lost", "away", "duplicated", "reordered", "corrupted"] {
        assert_eq!(count(fault), 0, "{fault}: {outcome:#?}");
    }
}

#[test]
fn storm_and_echo() {
    let server = Server::start(SETUP);
    let url = format!("ws://{}/echo", server.public);
    let pid = server.pid().to_string();
    let outcome = bench(&["storm", &url, "-n", "300", "--pid", &pid]);
    outcome.assert_clean();
    assert_eq!(outcome.at("/kind"), "storm");
    assert_eq!(outcome.count("/messages/received"), 300);
    assert_eq!(outcome.count("/handshake_us/count"), 300);
    assert_eq!(outcome.count("/server/pid"), u64::from(server.pid()));

    for more in [
        &["--inflight", "4"][..],
        &["--rate", "500"],
        &["--size", "50KiB", "--binary"],
        &["--message", "hello", "--deflate"],
        &["--threads", "2"],
        &["--processes", "2"],
        &["--subprotocol", "chat.v1"],
    ] {
        let outcome = run(&[&["echo", &url, "-n", "10"], more].concat());
        outcome.assert_clean();
        assert_eq!(outcome.count("/connections/asked"), 10);
    }
    // With two servers in one run, the connections are divided between them.
    let outcome = run(&["echo", &url, &url, "-n", "7"]);
    outcome.assert_clean();
    assert_eq!(outcome.count("/connections/opened"), 7);
}

#[test]
fn http() {
    let server = Server::start(SETUP);
    let url = format!("http://{}/", server.public);
    for more in [
        &["--expect", "<p>hello</p>"][..],
        &["--inflight", "4"],
        &["--rate", "300"],
        &["--http10"],
        &["--method", "HEAD"],
    ] {
        let outcome = run(&[&["http", &url, "-n", "4"], more].concat());
        outcome.assert_clean();
        let statuses = outcome.at("/http/statuses").as_object().expect("statuses");
        assert_eq!(statuses.len(), 1, "{statuses:?}");
        assert_eq!(statuses["200"], *outcome.at("/messages/received"));
    }

    let outcome = run(&["http", &format!("{url}nowhere"), "-n", "2"]);
    assert_eq!(outcome.code, Some(8), "{outcome:#?}");
    let received = outcome.count("/messages/received");
    assert_eq!(outcome.count("/http/statuses/404"), received);
    assert_eq!(outcome.count("/errors/bad_response"), received);
    assert_eq!(
        outcome.stderr,
        format!("veche: the run had faults: {received} errors; see the report\n")
    );
}

#[test]
fn push_by_each_way_in() {
    let server = Server::start(SETUP);
    let receivers = format!("ws://{}/ws?user=bench{{i}}", server.public);
    let ways_in = [
        format!("tcp://{}", server.push),
        format!("http://{}/api/push", server.internal),
        format!("ws://{}/api/socket", server.internal),
    ];
    for publish in &ways_in {
        let outcome = run(&[
            "push",
            &receivers,
            "-n",
            "10",
            "--publish",
            publish,
            "--publishers",
            "3",
            "--rate",
            "500",
            "--publish-header",
            "X-API-Key: key",
        ]);
        assert_complete(&outcome, 1);
    }
}

#[test]
fn broadcast_by_each_way_in() {
    let server = Server::start(SETUP);
    let receivers = format!("ws://{}/ws?user=u{{i}}&channel=news", server.public);
    let ways_in = [
        format!("tcp://{}", server.push),
        format!("http://{}/api/publish", server.internal),
        format!("ws://{}/api/socket", server.internal),
    ];
    let body = r#"{"channel":"news","data":"{data}"}"#;
    for publish in &ways_in {
        let outcome = run(&[
            "broadcast",
            &receivers,
            "-n",
            "8",
            "--publish",
            publish,
            "--rate",
            "300",
            "--body",
            body,
            "--publish-header",
            "X-API-Key: key",
        ]);
        assert_complete(&outcome, 8);
    }
}

/// Clients leave and return; the server loses nothing that was sent while they were connected.
#[test]
fn chaos_adds_up() {
    let server = Server::start(SETUP);
    let receivers = format!("ws://{}/ws?user=u{{i}}&channel=news", server.public);
    let outcome = bench(&[
        "broadcast",
        &receivers,
        "-n",
        "8",
        "--publish",
        &format!("tcp://{}", server.push),
        "--rate",
        "500",
        "--body",
        r#"{"channel":"news","data":"{data}"}"#,
        "--chaos",
        "40",
        "--duration",
        "1500ms",
        "--warmup",
        "0s",
    ]);
    assert_eq!(outcome.code, Some(0), "{outcome:#?}");
    let count = |name: &str| outcome.count(&format!("/ledger/{name}"));
    assert!(
        outcome.count("/connections/reconnected") > 20,
        "{outcome:#?}"
    );
    assert_eq!(count("expected"), count("published") * 8);
    assert_eq!(
        count("expected"),
        count("delivered") + count("away"),
        "{outcome:#?}"
    );
    let faults = ["lost", "duplicated", "reordered", "corrupted"].map(count);
    assert_eq!(faults, [0; 4], "{outcome:#?}");
    assert!(count("away") > 0 && count("delivered") > count("expected") / 2);
}

/// Clients are repeatedly disconnected, and recover all publications. If the history is too short,
/// losses are reported.
#[test]
fn a_reconnecting_client_misses_nothing() {
    let routes = "[[route]]\npath = \"/follow\"\nhandler = \"push\"\nidentity = \"query:user\"\n\
        channels = [\"past:*\", \"short:*\"]\npositions = true\n\
        [[namespace]]\nname = \"past\"\nhistory_size = 10000\n\
        [[namespace]]\nname = \"short\"\nhistory_size = 1\n";
    let server = Server::with(
        SETUP,
        &Options {
            routes,
            ..Options::default()
        },
    );
    let lines = format!("tcp://{}", server.push);
    let http = format!("http://{}/api/publish", server.internal);
    for (channel, publish, threads) in [
        ("past:1", &lines, "1"),
        ("past:2", &http, "2"),
        ("short:1", &http, "1"),
    ] {
        let receivers = format!(
            "ws://{}/follow?user=u{{i}}&channel={channel}",
            server.public
        );
        let body = format!(r#"{{"channel":"{channel}","data":"{{data}}","ack":true}}"#);
        let outcome = bench(&[
            "broadcast",
            &receivers,
            "-n",
            "20",
            "--publish",
            publish,
            "--publishers",
            "2",
            "--publish-header",
            "X-API-Key: key",
            "--body",
            &body,
            "--rate",
            "500",
            "--chaos",
            "100",
            "--recover",
            "--threads",
            threads,
            "--duration",
            "2s",
            "--warmup",
            "0s",
        ]);
        assert_eq!(outcome.code, Some(0), "{outcome:#?}");
        let count = |name: &str| outcome.count(&format!("/ledger/{name}"));
        assert_eq!(count("published"), 1000, "{outcome:#?}");
        assert_eq!(count("expected"), 20_000);
        let faults = ["lost", "duplicated", "reordered", "corrupted"].map(count);
        assert_eq!(faults, [0; 4], "{outcome:#?}");
        assert!(count("recovery/returned") > 50, "{outcome:#?}");
        assert_eq!(count("recovery/unanswered"), 0);
        assert_eq!(count("recovery/ended"), 0);
        if channel == "short:1" {
            // The history is so short that publications may be lost, which is reported. Clients
            // that return fast enough have missed nothing.
            assert_eq!(count("delivered") + count("away"), 20_000, "{outcome:#?}");
        } else {
            assert_eq!(count("recovery/refused"), 0, "{outcome:#?}");
            assert_eq!(
                (count("delivered"), count("away")),
                (20_000, 0),
                "{outcome:#?}"
            );
        }
    }
}

/// A push to a user reaches the connection with that user's number, whether a cookie or a header names the user.
#[test]
fn each_connection_is_a_user_of_its_own() {
    let routes = "[[route]]\npath = \"/by-cookie\"\nhandler = \"push\"\nidentity = \"cookie:user\"\n\
        [[route]]\npath = \"/by-header\"\nhandler = \"push\"\nidentity = \"header:X-User\"\n";
    let server = Server::with(
        SETUP,
        &Options {
            routes,
            ..Options::default()
        },
    );
    let publish = format!("tcp://{}", server.push);
    for (path, flag, value) in [
        ("by-cookie", "--cookie", "user=bench{i}"),
        ("by-header", "--header", "X-User: bench{i}"),
    ] {
        let url = format!("ws://{}/{path}", server.public);
        let outcome = run(&["push", &url, "-n", "5", "--publish", &publish, flag, value]);
        assert_complete(&outcome, 1);
    }
}
