//! Tests the limits on users, API keys, slow clients and total memory.

use serde_json::json;

use crate::access::turned_away;
use crate::slow_reader::narrow;
use crate::support::metrics::Metrics;
use crate::support::server::KEY_HEADER;
use crate::support::{Http, Lines, Options, Server, Socket, call, on_all, until};

/// Returns the status of a handshake.
fn status_of(server: &Server, target: &str) -> u16 {
    let mut http = Http::connect(server.public);
    let headers = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let request = format!("GET {target} HTTP/1.1\r\nHost: test\r\n{headers}\r\n");
    http.raw(request.as_bytes()).expect("the server reads");
    http.head().expect("an answer").status
}

fn push(server: &Server, body: &str) -> crate::support::http::Response {
    let mut http = Http::connect(server.internal);
    let answer = http.request("POST", "/api/push", KEY_HEADER, body.as_bytes());
    answer.expect("an answer")
}

#[test]
fn a_user_has_as_many_connections_as_he_may() {
    on_all(|setup| {
        let server = Server::with(
            setup,
            &Options {
                limits: "connections_per_user = 3",
                ..Options::default()
            },
        );
        let mut anns: Vec<Socket> = (0..3)
            .map(|_| Socket::open(server.public, "/ws?user=ann"))
            .collect();
        assert_eq!(status_of(&server, "/ws?user=ann"), 429);
        assert_eq!(turned_away(&server, "connections_per_user"), 1.0);
        // The limit of one user affects neither other users nor anonymous clients.
        let _bob = Socket::open(server.public, "/ws?user=bob");
        let _nobodies: Vec<Socket> = (0..5)
            .map(|_| Socket::open(server.public, "/echo"))
            .collect();
        assert!(anns.iter_mut().all(Socket::is_alive));
        anns.pop().expect("three").leave();
        until("room for another", || {
            Socket::try_open(server.public, "/ws?user=ann").is_ok()
        });
    });
}

#[test]
fn a_key_publishes_as_much_as_it_may() {
    on_all(|setup| {
        let server = Server::with(
            setup,
            &Options {
                api: "publish_rate = \"5/h\"",
                ..Options::default()
            },
        );
        let mut ann = Socket::open(server.public, "/ws?user=ann");
        let body = r#"{"user":"ann","data":"x"}"#;
        for _ in 0..5 {
            assert_eq!(push(&server, body).status, 200);
            assert_eq!(ann.text(), "x");
        }
        let answer = push(&server, body);
        assert_eq!(answer.status, 429);
        let wait: u64 = answer
            .header("retry-after")
            .and_then(|wait| wait.parse().ok())
            .expect("seconds");
        assert!((1..=720).contains(&wait), "{wait}");
        assert_eq!(answer.json()["error"]["code"], 111);
        // Push lines have no API key. They have a separate rate limit, which all workers share.
        let command = json!({"user": "ann", "data": "y", "ack": true});
        for _ in 0..5 {
            let answer = Lines::connect(server.push).ask(&command);
            assert_eq!(answer, json!({"result": {"handed": 1}}));
        }
        let answer = Lines::connect(server.push).ask(&command);
        assert_eq!(answer["error"]["code"], 111, "{answer}");
        let counted = Metrics::scrape(server.internal)
            .sum("veche_pushes_turned_away_total", &["reason=\"rate\""]);
        assert_eq!(counted, 2.0);
    });
}

const LOSSY: &str = "
[[route]]
path = \"/newest\"
handler = \"push\"
identity = \"query:user\"
channels = [\"*\"]
outbox_full = \"drop_oldest\"
[[route]]
path = \"/latest\"
handler = \"push\"
channels = [\"*\"]
outbox_full = \"latest\"
";

#[test]
fn a_slow_reader_keeps_the_newest_publications() {
    on_all(|setup| {
        let server = Server::with(
            setup,
            &Options {
                limits: "outbox_bytes = \"64KiB\"",
                routes: LOSSY,
                ..Options::default()
            },
        );
        let mut newest = narrow(&server, "/newest?user=ann&channel=news");
        let mut latest = narrow(&server, "/latest?channel=news&channel=sport");
        let mut reader = Socket::open(server.public, "/newest?user=bob&channel=news");
        let mut lines = Lines::connect(server.push);
        // The publications are far more than the kernel and the outboxes hold.
        let count = 2000;
        let filler = "x".repeat(8 << 10);
        for number in 0..count {
            let data = format!("{number} {filler}");
            let command = json!({"channel": "news", "data": data, "ack": true});
            assert_eq!(lines.ask(&command)["result"]["handed"], 3);
            assert_eq!(reader.text(), data);
        }
        let command = json!({"channel": "sport", "data": "won", "ack": true});
        assert_eq!(lines.ask(&command)["result"]["handed"], 1);
        let dropped = |policy: &str| {
            let label = format!("outbox_full=\"{policy}\"");
            Metrics::scrape(server.internal).sum("veche_publications_dropped_total", &[&label])
        };
        until("some to be dropped", || {
            dropped("drop_oldest") > 0.0 && dropped("latest") > 0.0
        });
        let number = |text: &str| -> u32 {
            let number = text
                .split(' ')
                .next()
                .and_then(|number| number.parse().ok());
            number.expect("a number first")
        };
        // With `drop_oldest`, the client receives complete messages in order, including the very last one.
        let mut numbers = vec![number(&newest.text())];
        while numbers.last() != Some(&(count - 1)) {
            numbers.push(number(&newest.text()));
        }
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        assert_eq!(
            numbers.len() as f64 + dropped("drop_oldest"),
            f64::from(count)
        );
        // The last message of each of the two channels arrives. The channels may have different home workers, so the order
        // is undefined.
        let (mut numbers, mut has_won) = (Vec::new(), false);
        while !has_won || numbers.last() != Some(&(count - 1)) {
            match latest.text().as_str() {
                "won" => has_won = true,
                text => numbers.push(number(text)),
            }
        }
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        assert_eq!(numbers.len() as f64 + dropped("latest"), f64::from(count));
        assert!(newest.is_alive() && latest.is_alive());
        let metrics = Metrics::scrape(server.internal);
        assert_eq!(metrics.sum("veche_slow_consumers_total", &[]), 0.0);
        // Pending data is sent before a close.
        call(
            server.internal,
            "push",
            &json!({"user": "ann", "data": "bye"}),
        );
        call(server.internal, "disconnect", &json!({"user": "ann"}));
        assert_eq!(newest.text(), "bye");
        assert_eq!(newest.closed(), 3503);
    });
}

const HUNGRY: &str = "
local app, kept = {}, {}
function app.request(req)
    kept[#kept + 1] = string.rep('x', 1048576) .. #kept
    return 'kept'
end
return app
";

#[test]
fn short_of_memory_nothing_new_is_begun() {
    on_all(|setup| {
        let routes = "[[route]]\npath = \"/hungry\"\nhandler = \"lua\"\nscript = \"app.lua\"\n";
        let options = |limits| Options {
            limits,
            routes,
            files: &[("app.lua", HUNGRY)],
            ..Options::default()
        };
        let server = Server::with(setup, &options("memory_limit = \"off\""));
        let mut inside = Socket::open(server.public, "/echo");
        let used = || Metrics::scrape(server.internal).sum("veche_memory_bytes", &[]);
        let mut http = Http::connect(server.public);
        while used() < f64::from(24 << 20) {
            let answer = http.request("GET", "/hungry", "", b"");
            assert_eq!(answer.expect("an answer").status, 200);
        }
        server.configure(&options("memory_limit = \"16MiB\""));
        assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
        until("handshakes to be refused", || {
            status_of(&server, "/ws?user=bob") == 503
        });
        let refused = http.request("GET", "/hungry", "", b"").expect("an answer");
        assert_eq!(refused.status, 503);
        assert_eq!(refused.header("retry-after"), Some("1"));
        let body = r#"{"user":"ann","data":"x"}"#;
        until("publications to be refused", || {
            push(&server, body).status == 503
        });
        let answer = push(&server, body);
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.json()["error"]["code"], 106);
        assert!(turned_away(&server, "memory") >= 1.0);
        let limit = Metrics::scrape(server.internal).sum("veche_memory_limit_bytes", &[]);
        assert_eq!(limit, f64::from(16 << 20));
        assert!(inside.is_alive());
        until("a word of it in the log", || {
            server.log().contains("memory_limit is reached")
        });

        server.configure(&options("memory_limit = \"16GiB\""));
        assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
        until("new work to be welcome", || {
            Socket::try_open(server.public, "/ws?user=bob").is_ok()
                && push(&server, body).status == 200
        });
    });
}
