//! Input that can't be measured: each run ends with one clear line and an exit code.

use std::net::TcpListener;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::{Outcome, answer_with, bench, command, serve, silence};

const FEW: [&str; 4] = ["-n", "3", "--timeout", "500ms"];
/// Options for loads that don't end on their own.
const SHORT: [&str; 4] = ["--duration", "200ms", "--warmup", "0s"];

fn run(arguments: &[&str]) -> Outcome {
    let short: &[&str] = match arguments[0] {
        "storm" | "shootout" => &[],
        _ => &SHORT,
    };
    bench(&[arguments, &FEW, short].concat())
}

/// Asserts the exit code, and one line that begins with the program's name and contains these words.
#[track_caller]
fn assert_ends(outcome: &Outcome, code: i32, words: &[&str]) {
    assert_eq!(outcome.code, Some(code), "{outcome:#?}");
    let stderr = &outcome.stderr;
    assert!(stderr.starts_with("veche: "), "{stderr:?}");
    assert_eq!(stderr.matches('\n').count(), 1, "{stderr:?}");
    for part in words {
        assert!(stderr.contains(part), "{part:?} in {stderr:?}");
    }
}

const CONFUSED: i32 = 2;
const NO_SERVER: i32 = 3;
const REFUSED: i32 = 4;
const FAILED: i32 = 5;
const ERRORS: i32 = 8;

#[test]
fn invalid_urls() {
    for (arguments, words) in [
        (&["echo", "127.0.0.1:80"][..], "can't be tested"),
        (&["echo", "ftp://host/"], "can't be tested"),
        (&["echo", "ws://host:99999/"], "can't be tested"),
        (&["storm", "http://127.0.0.1/"], "expected ws:// or wss://"),
        (&["http", "ws://127.0.0.1/"], "expected http:// or https://"),
        (
            &["push", "ws://127.0.0.1/", "--publish", "nonsense"],
            "\"nonsense\" can't be tested",
        ),
        // `--recover` needs answers to publications: without answers it is unknown which data was published.
        (
            &[
                "broadcast",
                "ws://127.0.0.1/",
                "--publish",
                "ws://127.0.0.1/",
                "--recover",
            ],
            "requires publications that are answered",
        ),
        (
            &[
                "broadcast",
                "ws://127.0.0.1/",
                "--publish",
                "tcp://127.0.0.1:1",
                "--recover",
            ],
            "\"ack\":true",
        ),
        (
            &["echo", "ws://no-such-host.invalid/"],
            "no-such-host.invalid",
        ),
        (
            &["echo", "ws://127.0.0.1/", "--header", "no colon"],
            "--header",
        ),
        (&["echo", "ws://127.0.0.1/", "--pid", "4194305"], "--pid"),
    ] {
        let outcome = run(arguments);
        assert_ends(&outcome, CONFUSED, &[words]);
        assert!(outcome.report.is_none(), "{outcome:#?}");
    }
}

#[test]
fn flags_without_an_effect_are_refused() {
    for kind in ["storm", "shootout"] {
        for flag in ["-d", "--duration", "--warmup"] {
            let outcome = bench(&[kind, "ws://127.0.0.1:1/", flag, "1s"]);
            assert_eq!(outcome.code, Some(CONFUSED), "{outcome:#?}");
            let stderr = &outcome.stderr;
            assert!(
                stderr.contains(&format!("unexpected argument '{flag}'")),
                "{stderr}"
            );
        }
    }
}

#[test]
fn no_server_listens() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let free = free.expect("a port");
    for kind in ["storm", "echo"] {
        let outcome = run(&[kind, &format!("ws://{free}/")]);
        assert_ends(
            &outcome,
            NO_SERVER,
            &["no connection was opened", "refused"],
        );
        assert_eq!(outcome.count("/errors/refused"), 3);
    }
    let outcome = run(&["http", &format!("http://{free}/")]);
    assert_ends(
        &outcome,
        NO_SERVER,
        &["no connection was opened", "refused"],
    );
}

#[test]
fn servers_that_speak_something_else() {
    let page = answer_with(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    let outcome = run(&["echo", &format!("ws://{page}/")]);
    assert_ends(&outcome, REFUSED, &["no connection was opened", "200"]);

    let garbage = answer_with(b"\x01\x02\x03\xfe\xff garbage\r\n\r\n");
    let outcome = run(&["echo", &format!("ws://{garbage}/")]);
    assert_ends(&outcome, REFUSED, &["no connection was opened"]);

    // Depending on whether the request has arrived before the close, the client sees a FIN or a reset: the result is
    // the same.
    let closes = serve(drop);
    let outcome = run(&["echo", &format!("ws://{closes}/")]);
    assert_ends(&outcome, REFUSED, &["no connection was opened"]);
    let errors = ["bad_handshake", "reset"].map(|cause| outcome.count(&format!("/errors/{cause}")));
    assert_eq!(errors.iter().sum::<u64>(), 3, "{outcome:#?}");

    let silent = serve(silence);
    let outcome = run(&["storm", &format!("ws://{silent}/")]);
    assert_ends(
        &outcome,
        NO_SERVER,
        &["no connection was opened", "handshake timed out"],
    );

    // The TCP connection succeeds, so the run ends with a report that contains the errors.
    let outcome = run(&["http", &format!("http://{garbage}/")]);
    assert_ends(&outcome, ERRORS, &["the run had faults", "see the report"]);
    assert!(outcome.count("/errors/bad_protocol") >= 3, "{outcome:#?}");
}

#[test]
fn certificates_that_do_not_verify() {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a certificate and its key");
    let config = Arc::new(config);
    let address = serve(move |socket| {
        let tls = ServerConnection::new(Arc::clone(&config)).expect("a server");
        let _ = std::io::Read::read(&mut StreamOwned::new(tls, socket), &mut [0; 4096]);
    });
    let url = format!("wss://{address}/");
    let outcome = run(&["echo", &url]);
    assert_ends(
        &outcome,
        REFUSED,
        &["no connection was opened", "certificate"],
    );
    assert_eq!(outcome.count("/errors/tls"), 3);

    let outcome = run(&["echo", &url, "--ca", "/nonexistent/ca.pem"]);
    assert_ends(&outcome, FAILED, &["/nonexistent/ca.pem"]);
}

#[test]
fn more_connections_than_descriptors() {
    let mut shell = std::process::Command::new("sh");
    let tester = command(&[]);
    shell
        .args(["-c", "ulimit -n 200 && exec \"$0\" \"$@\""])
        .arg(tester.get_program())
        .args([
            "bench",
            "storm",
            "ws://127.0.0.1:9/",
            "-n",
            "1000",
            "--json",
        ]);
    let outcome = Outcome::from(shell.output().expect("a shell"));
    assert_ends(
        &outcome,
        CONFUSED,
        &["1000 connections", "200 file descriptors", "--processes"],
    );
}

#[test]
fn more_than_fits_into_memory() {
    for arguments in [
        &["echo", "ws://127.0.0.1:1/", "--size", "1000GiB"][..],
        &["storm", "ws://127.0.0.1:1/", "--size", "1000GiB"],
        &[
            "echo",
            "ws://127.0.0.1:1/",
            "--size",
            "4GiB",
            "--rate",
            "9999",
        ],
    ] {
        let outcome = run(arguments);
        assert_ends(&outcome, CONFUSED, &["of memory", "is available", "GiB"]);
        assert!(outcome.report.is_none(), "{outcome:#?}");
    }
}

#[test]
fn a_run_against_itself() {
    let folder = std::env::temp_dir();
    let name = |which: &str| folder.join(format!("veche-{which}-{}.json", std::process::id()));
    let (one, copy) = (name("run"), name("copy"));
    let server = serve(silence);
    let url = format!("ws://{server}/");
    let tester = command(&["storm", &url, "-n", "1", "--timeout", "50ms"]).output();
    let report = tester.expect("it starts").stdout;
    for file in [&one, &copy] {
        std::fs::write(file, &report).expect("a temporary folder");
    }
    let [one, copy] = [&one, &copy].map(|file| file.to_str().expect("UTF-8"));
    for (other, words) in [(one, "is listed twice"), (copy, "is the same run as")] {
        let outcome = bench(&["compare", one, other]);
        assert_ends(&outcome, CONFUSED, &[one, words]);
        assert!(outcome.report.is_none(), "{outcome:#?}");
    }
    for file in [one, copy] {
        let _ = std::fs::remove_file(file);
    }
}
