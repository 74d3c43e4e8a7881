//! Tests with broken or malicious ACME authorities.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
use std::sync::mpsc::channel;

use veche_outbound::Outbound;
use veche_outbound::acme::{CertificateOrder, OrderError, OrderOutcome};
use veche_tls::AlpnChallenges;

use crate::LONG;
use crate::server::head;
use crate::tls::Authority;

/// Orders a certificate from a simulated ACME server. `answer` returns the server's response to a
/// request; the arguments of `answer` are the request, such as `GET /dir`, and the server's
/// address.
fn order(
    test: &str,
    answer: impl Fn(&str, &str) -> Option<String> + Send + Sync + 'static,
) -> OrderOutcome {
    let authority = Authority::new(test);
    let port = Arc::new(AtomicU16::new(0));
    let own = Arc::clone(&port);
    let server = authority.serve_by(&["127.0.0.1"], false, move |stream| {
        while let Some(head) = head(stream) {
            let at = format!("https://127.0.0.1:{}", own.load(SeqCst));
            let asked = head.lines().next().unwrap_or_default();
            let asked = asked.replace(" HTTP/1.1", "");
            let answer = answer(&asked, &at).unwrap_or_else(|| usual(&asked, &at));
            stream.write_all(answer.as_bytes()).expect("written");
        }
    });
    port.store(server.address.port(), SeqCst);
    let order = CertificateOrder {
        directory: format!("https://127.0.0.1:{}/dir", server.address.port()),
        ca: Some(authority.file.clone()),
        contact: Vec::new(),
        account: None,
        names: vec!["a.example".to_owned()],
        alpn_challenges: AlpnChallenges::default(),
    };
    let (done, ended) = channel();
    let outbound = Outbound::default();
    outbound.order(order, move |ended| {
        let _ = done.send(ended);
    });
    ended.recv_timeout(LONG).expect("it ends, however it does")
}

/// Returns a response with these header lines.
fn say(status: &str, lines: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nreplay-nonce: 1\r\n{lines}content-length: {length}\r\n\r\n{body}")
}

fn directory(nonce: &str, account: &str, order: &str) -> String {
    let body = format!(
        "{{\"newNonce\": {nonce:?}, \"newAccount\": {account:?}, \"newOrder\": {order:?}}}"
    );
    say("200 OK", "", &body)
}

/// Returns the state of an order whose challenges are complete.
fn state(status: &str, at: &str) -> String {
    format!("{{\"status\": {status:?}, \"authorizations\": [], \"finalize\": \"{at}/finalize\"}}")
}

/// Responds like a correct authority to all requests except the last one, which fails.
fn usual(asked: &str, at: &str) -> String {
    let location = |of: &str| format!("location: {at}/{of}\r\n");
    match asked {
        "GET /dir" => directory(
            &format!("{at}/nonce"),
            &format!("{at}/accounts"),
            &format!("{at}/orders"),
        ),
        // The response to HEAD has no body.
        "HEAD /nonce" => say("200 OK", "", ""),
        "POST /accounts" => say("201 Created", &location("account"), "{}"),
        "POST /orders" => say("201 Created", &location("order"), &state("pending", at)),
        "POST /order" => say("200 OK", "", &state("ready", at)),
        "POST /finalize" => say("500 Internal Server Error", "", ""),
        other => panic!("{other}"),
    }
}

fn failed(ended: OrderOutcome) -> OrderError {
    ended.result.err().expect("nothing is issued here")
}

#[test]
fn a_directory_leads_to_https_and_nowhere_else() {
    let good = "https://ca.example/x";
    let bad = ["", "a b", "/nonce", "http://ca.example/x", "https://"];
    for (index, bad) in bad.into_iter().enumerate() {
        for (name, [nonce, account, order_url]) in [
            ("newNonce", [bad, good, good]),
            ("newAccount", [good, bad, good]),
            ("newOrder", [good, good, bad]),
        ] {
            let body = directory(nonce, account, order_url);
            let ended = order(&format!("acme-{name}-{index}"), move |asked, _| {
                assert_eq!(asked, "GET /dir", "nothing else is asked");
                Some(body.clone())
            });
            let why = failed(ended);
            let expected = format!("the value of {name} in this directory is not an https URL");
            assert!(
                matches!(&why, OrderError::Unreachable(why) if why.ends_with(&expected)),
                "{bad:?}: {why:?}"
            );
        }
    }
    let why = failed(order("acme-plain", |asked, at| {
        let plain = state("pending", &at.replace("https", "http"));
        let location = format!("location: {}/order\r\n", at.replace("https", "http"));
        (asked == "POST /orders").then(|| say("201 Created", &location, &plain))
    }));
    assert!(
        matches!(&why, OrderError::Unreachable(why) if why.ends_with("is not an https URL")),
        "{why:?}"
    );
}

#[test]
fn waits_are_a_day_at_the_most() {
    for after in ["18446744073709551615", "Fri, 31 Dec 9999 23:59:59 GMT"] {
        let ended = order("acme-after", move |asked, at| {
            let lines = format!("retry-after: {after}\r\n");
            match asked {
                "POST /order" if after.starts_with('1') => {
                    Some(say("200 OK", &lines, &state("pending", at)))
                }
                // `Retry-After` with a date is ignored.
                "POST /order" => Some(say("200 OK", &lines, &state("ready", at))),
                _ => None,
            }
        });
        match (failed(ended), after.starts_with('1')) {
            (OrderError::Unreachable(why), true) => assert!(why.ends_with("in time"), "{why}"),
            (OrderError::Lost(_), false) => {}
            (other, _) => panic!("{after}: {other:?}"),
        }
    }
}

#[test]
fn rate_limits_are_recognised_in_every_form() {
    let limited = |lines: &'static str, body: &'static str| {
        failed(order("acme-limited", move |asked, _| {
            (asked == "POST /orders").then(|| say("429 Too Many Requests", lines, body))
        }))
    };
    for (lines, body, words, seconds) in [
        ("", "<html>", "/orders answered with 429", 0),
        (
            "retry-after: 7200\r\n",
            "{\"type\": \"x\", \"detail\": \"slowly\"}",
            "slowly (x)",
            7200,
        ),
        (
            "retry-after: 18446744073709551615\r\n",
            "",
            "/orders answered with 429",
            86_400,
        ),
    ] {
        match limited(lines, body) {
            OrderError::Limited { why, after_s } => {
                assert!(why.ends_with(words), "{why}");
                assert_eq!(after_s, seconds);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_may_be_issued_is_lost_and_not_unreachable() {
    let ended = order("acme-lost", |_, _| None);
    assert!(ended.account.is_some());
    let why = failed(ended);
    assert!(
        matches!(&why, OrderError::Lost(why) if why.ends_with("/finalize answered with 500")),
        "{why:?}"
    );
    let before = failed(order("acme-before", |asked, _| {
        (asked == "POST /order").then(|| say("500 Internal Server Error", "", ""))
    }));
    assert!(matches!(before, OrderError::Unreachable(_)), "{before:?}");
}
