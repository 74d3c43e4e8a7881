//! Tests that reports count each status and each response length correctly, for any framing.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use veche_load::loads::LoadPlan;
use veche_load::loads::http::HttpPlan;
use veche_load::loads::think::ThinkTime;
use veche_load::plan::{Endpoint, Plan};
use veche_load::report::text::text;
use veche_load::report::{Report, Style};
use veche_load::target::{BodyTemplate, ClientTemplate};

use crate::support::http::{After, Request, response, serve_http};
use crate::support::{assert_clean, endpoint, plan, report, row, serve};

/// Returns the plan of a closed loop of GET requests, with one request in flight.
pub(super) fn get() -> HttpPlan {
    HttpPlan {
        method: "GET".to_owned(),
        inflight: 1,
        ..HttpPlan::default()
    }
}

fn run(http: HttpPlan, endpoint: Endpoint) -> Report {
    report(plan(vec![endpoint], LoadPlan::Http(http), 400))
}

#[test]
fn half_errors_are_seen_as_such() {
    let good = "all is well, and this is the answer";
    let address = serve_http(move |_, number, _| {
        let bytes = if number % 2 == 0 {
            response("200 OK", good)
        } else {
            response("500 Internal Server Error", "oops")
        };
        (bytes, After::Stay)
    });
    let url = format!("http://{address}/");
    let report = run(get(), endpoint(&url, 3));
    let http = report.http.as_ref().expect("a tally of responses");
    let received = report.messages.received;
    assert!(received > 20, "{:?}", report.messages);
    assert!(http.is_mixed());
    assert_eq!(
        http.statuses.keys().copied().collect::<Vec<_>>(),
        [200, 500]
    );
    assert_eq!(http.body_bytes.keys().copied().collect::<Vec<_>>(), [4, 35]);
    assert_eq!(http.statuses[&200] + http.statuses[&500], received);
    assert_eq!(http.body_bytes[&4], http.statuses[&500]);
    assert_eq!(http.body_bytes[&35], http.statuses[&200]);
    // On each of the three connections, responses with 200 and 500 alternate, so their counts
    // differ by at most one.
    assert!(
        http.statuses[&200].abs_diff(http.statuses[&500]) <= 3,
        "{http:?}"
    );
    row(
        "http",
        "answers every other request with 500",
        &[
            ("failed", http.statuses[&500], report.errors.bad_response),
            (
                "in the throughput",
                http.statuses[&200],
                report.messages.received_in_time,
            ),
        ],
    );
    assert_eq!(report.errors.count(), report.errors.bad_response);
    assert_eq!(report.errors.examples["bad_response"], "status 500");
    assert_eq!(http.unexpected_bodies, None);
    let bytes = 4 * http.statuses[&500] + 35 * http.statuses[&200];
    assert_eq!(report.messages.bytes_received, bytes);
    // Failed responses count neither in the throughput nor in the latency.
    let good = http.statuses[&200];
    assert_eq!(report.messages.received_in_time, good);
    assert_eq!(report.latency_us.expect("latencies").count, good);
}

#[test]
fn bodies_that_were_not_expected_are_counted() {
    let count = Arc::new(AtomicU64::new(0));
    let wrong = Arc::clone(&count);
    // Every fifth response is wrong, in one of three ways, although its status is 200.
    let address = serve_http(move |_, number, _| {
        let body = match number % 15 {
            4 => "hellO",
            9 => "hell",
            14 => "hello!",
            _ => "hello",
        };
        wrong.fetch_add(u64::from(body != "hello"), Relaxed);
        (response("200 OK", body), After::Stay)
    });
    let http = HttpPlan {
        expect: Some(b"hello".to_vec()),
        ..get()
    };
    let report = run(http, endpoint(&format!("http://{address}/"), 1));
    let http = report.http.as_ref().expect("a tally of responses");
    assert_eq!(http.unexpected_bodies, Some(report.errors.bad_response));
    // The last response may have arrived after the end of the run.
    let wrong = count.load(Relaxed);
    assert!(
        wrong > 3 && wrong - report.errors.bad_response <= 1,
        "{wrong}: {:?}",
        report.errors
    );
    assert_eq!(http.statuses.len(), 1);
    assert!(http.is_mixed(), "{http:?}");
    let words = &report.errors.examples["bad_response"];
    assert!(words.contains("not the body that was expected"), "{words}");
}

#[test]
fn each_response_as_expected_is_no_error() {
    let address = serve_http(|_, _, _| (response("200 OK", "hello"), After::Stay));
    let http = HttpPlan {
        expect: Some(b"hello".to_vec()),
        ..get()
    };
    let report = run(http, endpoint(&format!("http://{address}/"), 2));
    assert_clean(&report);
    let http = report.http.expect("a tally of responses");
    assert_eq!(http.unexpected_bodies, Some(0));
    assert!(!http.is_mixed());
}

#[test]
fn http10_keeps_connections_that_the_server_keeps() {
    let answer = |_, _, request: Request| {
        assert!(
            request.head.starts_with("GET /old HTTP/1.0\r\n"),
            "{}",
            request.head
        );
        assert!(
            request.head.contains("\r\nConnection: keep-alive\r\n"),
            "{}",
            request.head
        );
        let bytes = b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok";
        (bytes.to_vec(), After::Stay)
    };
    let http = HttpPlan {
        is_http10: true,
        ..get()
    };
    let url = format!("http://{}/old", serve_http(answer));
    let report = run(http.clone(), endpoint(&url, 2));
    assert_clean(&report);
    assert_eq!(report.connections.reconnected, 0);
    assert!(report.messages.received > 20, "{:?}", report.messages);

    // Without a `Content-Length`, the body ends with the connection.
    let url = format!(
        "http://{}/old",
        serve_http(|_, _, _| (b"HTTP/1.0 200 OK\r\n\r\nto the end".to_vec(), After::Close))
    );
    let report = run(http, endpoint(&url, 2));
    assert_clean(&report);
    let received = report.messages.received;
    assert!(received > 10, "{:?}", report.messages);
    assert_eq!(report.http.expect("a tally").body_bytes[&10], received);
    assert!(
        report.connections.reconnected.abs_diff(received) <= 4,
        "{:?}",
        report.connections
    );
}

#[test]
fn connections_that_the_server_ends_are_opened_again() {
    // Every fourth response is the last of its connection.
    let address = serve_http(|_, number, _| {
        if number < 3 {
            (response("200 OK", "more"), After::Stay)
        } else {
            let bytes = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nlast";
            (bytes.to_vec(), After::Close)
        }
    });
    let report = run(get(), endpoint(&format!("http://{address}/"), 2));
    assert_clean(&report);
    let (received, reconnected) = (report.messages.received, report.connections.reconnected);
    assert!(received > 20, "{:?}", report.messages);
    assert!(
        reconnected.abs_diff(received / 4) <= 4,
        "{reconnected} for {received}"
    );
}

#[test]
fn chunks_are_put_together() {
    let address = serve_http(|_, _, _| {
        let bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
            5;x=y\r\nhello\r\n1\r\n \r\n6\r\nworld!\r\n0\r\nTrailer: x\r\n\r\n";
        (bytes.to_vec(), After::Stay)
    });
    let http = HttpPlan {
        expect: Some(b"hello world!".to_vec()),
        inflight: 4,
        ..get()
    };
    let report = run(http, endpoint(&format!("http://{address}/"), 2));
    assert_clean(&report);
    let http = report.http.expect("a tally of responses");
    assert_eq!(http.body_bytes[&12], report.messages.received);
    assert_eq!(http.unexpected_bodies, Some(0));
}

#[test]
fn requests_are_pipelined_and_bodies_sent() {
    let followed = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&followed);
    let address = serve_http(move |_, _, request| {
        assert!(
            request.head.starts_with("POST /in HTTP/1.1\r\n"),
            "{}",
            request.head
        );
        assert_eq!(request.body, b"some body");
        seen.fetch_add(u64::from(request.is_followed), Relaxed);
        (response("201 Created", ""), After::Stay)
    });
    let http = HttpPlan {
        method: "POST".to_owned(),
        body: BodyTemplate::new(b"some body".to_vec()),
        inflight: 8,
        ..get()
    };
    let report = run(http, endpoint(&format!("http://{address}/in"), 1));
    assert_clean(&report);
    assert!(followed.load(Relaxed) > 7, "nothing was pipelined");
    assert_eq!(report.messages.bytes_sent, 9 * report.messages.sent);
    assert_eq!(
        report.http.expect("a tally").statuses[&201],
        report.messages.received
    );
}

#[test]
fn bodies_have_the_number_of_their_connection() {
    let bodies: Arc<Mutex<BTreeSet<Vec<u8>>>> = Arc::default();
    let seen = Arc::clone(&bodies);
    let address = serve_http(move |_, _, request| {
        seen.lock().insert(request.body);
        (response("200 OK", ""), After::Stay)
    });
    let http = HttpPlan {
        method: "POST".to_owned(),
        body: BodyTemplate::new(b"\xff{i}:{i}".to_vec()),
        ..get()
    };
    let report = run(http, endpoint(&format!("http://{address}/"), 11));
    assert_clean(&report);
    let expected =
        (0..11).map(|number| [b"\xff", format!("{number}:{number}").as_bytes()].concat());
    assert_eq!(*bodies.lock(), expected.collect());
}

#[test]
fn a_client_thinks_before_its_next_request() {
    let address = serve_http(|_, _, _| (response("200 OK", ""), After::Stay));
    let http = HttpPlan {
        inflight: 2,
        think: Some(ThinkTime {
            min_ns: 50_000_000,
            max_ns: 80_000_000,
        }),
        ..get()
    };
    let report = run(http, endpoint(&format!("http://{address}/"), 5));
    assert_clean(&report);
    // Each of the five connections may have two requests in flight. The first ones are sent after at
    // most one pause; later ones are at least 50 ms apart.
    let most = 5 * 2 * (1 + 400 / 50);
    let sent = report.messages.sent;
    assert!((1..=most).contains(&sent), "{sent}");
}

#[test]
fn head_has_no_body_whatever_its_length_says() {
    let address = serve_http(|_, _, request| {
        assert!(request.head.starts_with("HEAD / "), "{}", request.head);
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n".to_vec(),
            After::Stay,
        )
    });
    let http = HttpPlan {
        method: "HEAD".to_owned(),
        ..get()
    };
    let report = run(http, endpoint(&format!("http://{address}/"), 2));
    assert_clean(&report);
    assert!(report.messages.received > 20, "{:?}", report.messages);
    assert_eq!(
        report.http.expect("a tally").body_bytes[&0],
        report.messages.received
    );
}

#[test]
fn each_client_has_its_number() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let known = Arc::clone(&seen);
    let address = serve_http(move |_, number, request| {
        if number == 0 {
            known.lock().push(request.head);
        }
        (response("200 OK", ""), After::Stay)
    });
    let mut clients = endpoint(&format!("http://{address}/user/{{i}}?n={{i}}"), 3);
    clients.headers = [("X-User", "u{i}"), ("Cookie", "session=s{i}; a=b")]
        .map(|(name, value)| (name.to_owned(), ClientTemplate::new(value)))
        .to_vec();
    let report = run(get(), clients);
    assert_clean(&report);
    let mut seen = std::mem::take(&mut *seen.lock());
    seen.sort();
    assert_eq!(seen.len(), 3);
    for (number, head) in seen.iter().enumerate() {
        for part in [
            format!("GET /user/{number}?n={number} HTTP/1.1\r\n"),
            format!("\r\nX-User: u{number}\r\n"),
            format!("\r\nCookie: session=s{number}; a=b\r\n"),
        ] {
            assert!(head.contains(&part), "{part:?} in {head}");
        }
    }
}

/// A response that breaks off in the middle, and one that is not HTTP, count as errors.
#[test]
fn invalid_responses_are_errors() {
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
    let address = serve_http(move |_, _, _| (cut.to_vec(), After::Close));
    let report = run(get(), endpoint(&format!("http://{address}/"), 1));
    let closed = report.errors.closed;
    assert!(closed > 0, "{:?}", report.errors);
    assert_eq!(report.messages.received, 0);
    assert!(
        report.connections.disconnected == closed && report.http.is_none(),
        "{report:?}"
    );
    let words = &report.errors.examples["closed"];
    assert!(words.contains("in the middle of a response"), "{words}");

    let address = serve_http(|_, _, _| (b"220 mail.example ESMTP\r\n".to_vec(), After::Close));
    let report = run(get(), endpoint(&format!("http://{address}/"), 1));
    assert!(report.errors.bad_protocol > 0, "{:?}", report.errors);
    assert_eq!(report.messages.received, 0);
}

#[test]
fn a_client_that_was_reset_reconnects() {
    let address = serve(|_, mut socket| {
        let mut request = [0; 4096];
        for _ in 0..5 {
            if !matches!(socket.read(&mut request), Ok(1..)) {
                return;
            }
            let _ = socket.write_all(&response("200 OK", "hi"));
        }
        let at_once = Some(Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&socket, at_once).expect("a socket");
    });
    let report = run(get(), endpoint(&format!("http://{address}/"), 2));
    assert!(report.errors.reset > 2, "{:?}", report.errors);
    assert!(report.connections.reconnected >= report.errors.reset - 2);
    assert!(report.messages.received > 5 * report.errors.reset / 2);
}

#[test]
fn requests_of_a_list_are_sent_in_turn_and_bad_ones_are_answers() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let saw = Arc::clone(&seen);
    let address = serve_http(move |_, _, request: Request| {
        saw.lock()
            .push((request.head.clone(), request.body.clone()));
        let status = match request.head.contains("/absent") {
            true => "404 Not Found",
            false => "200 OK",
        };
        (response(status, "answer"), After::Stay)
    });
    let one = |method: &str, path: &str, body: &str| veche_load::loads::http::HttpRequestPlan {
        method: method.to_owned(),
        path: path.to_owned(),
        body: body.as_bytes().to_vec(),
    };
    let list = vec![
        one("GET", "/users/1?a=%20", ""),
        one("POST", "/users/2", "{\"mark\":5}"),
        one("GET", "/absent", ""),
    ];
    let url = format!("http://{address}/");
    let report = run(HttpPlan { list, ..get() }, endpoint(&url, 1));
    assert_clean(&report);
    let seen = seen.lock();
    assert!(seen.len() > 9, "{}", seen.len());
    for (number, (head, body)) in seen.iter().enumerate() {
        let (line, text) = [
            ("GET /users/1?a=%20 HTTP/1.1", ""),
            ("POST /users/2 HTTP/1.1", "{\"mark\":5}"),
            ("GET /absent HTTP/1.1", ""),
        ][number % 3];
        assert_eq!(head.lines().next(), Some(line));
        assert_eq!(body.as_slice(), text.as_bytes());
    }
    let http = report.http.as_ref().expect("a tally of responses");
    let received = report.messages.received;
    assert!(http.statuses[&404].abs_diff(received / 3) <= 1, "{http:?}");
    assert_eq!(http.statuses[&200] + http.statuses[&404], received);
}

#[test]
fn a_server_that_only_fails_has_no_throughput_and_redirects_are_named() {
    for (status, is_bad) in [("500 Internal Server Error", true), ("302 Found", false)] {
        let address = serve_http(move |_, _, _| (response(status, "oops"), After::Stay));
        let report = run(get(), endpoint(&format!("http://{address}/"), 3));
        let messages = &report.messages;
        assert!(messages.received > 20, "{messages:?}");
        let text = text(&report, Style::PLAIN);
        if is_bad {
            assert_eq!((messages.received_in_time, messages.per_second), (0, 0.0));
            assert_eq!(report.latency_us, None);
        } else {
            assert_eq!(messages.received_in_time, messages.received);
        }
        assert_eq!(
            text.contains("Redirects were not followed"),
            !is_bad,
            "{text}"
        );
    }
}

#[test]
fn a_request_without_a_response_costs_its_connection_only() {
    let silent = AtomicU64::new(0);
    let address = serve_http(move |_, number, _| {
        if number == 10 && silent.fetch_add(1, Relaxed) < 3 {
            return (Vec::new(), After::Stay);
        }
        (response("200 OK", "ok"), After::Stay)
    });
    let report = report(Plan {
        timeout_ns: 100_000_000,
        ..plan(
            vec![endpoint(&format!("http://{address}/"), 3)],
            LoadPlan::Http(get()),
            600,
        )
    });
    assert!(report.messages.received > 60, "{:?}", report.messages);
    row(
        "http",
        "three connections never respond",
        &[("dead", 3, report.connections.dead)],
    );
    assert_eq!(report.connections.reconnected, 3);
    assert_eq!((report.errors.timed_out, report.errors.count()), (3, 3));
    assert_eq!(report.messages.unanswered, 3);
}
