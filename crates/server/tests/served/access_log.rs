//! Tests that the access log is complete and contains no secrets.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::http::Http;
use crate::support::metrics::Metrics;
use crate::support::{Options, Server, Setup, Socket, USUAL, get, on_all, until};

const FORMAT: &str = r#"[access_log]
file = "access.log"
format = "json"
"#;

fn file(server: &Server) -> PathBuf {
    server.folder.join("access.log")
}

/// Returns the lines of the access log once there are `count` of them.
fn lines(server: &Server, count: usize) -> Vec<Value> {
    let text = || fs::read_to_string(file(server)).unwrap_or_default();
    until(&format!("{count} lines"), || {
        text().lines().count() >= count
    });
    let parse = |line: &str| serde_json::from_str(line).expect("JSON");
    text().lines().map(parse).collect()
}

fn find<'l>(lines: &'l [Value], uri: &str) -> &'l Value {
    lines
        .iter()
        .find(|line| line["uri"] == uri)
        .unwrap_or_else(|| panic!("no {uri} in {lines:?}"))
}

fn logged(setup: Setup, more: &str) -> Server {
    let options = Options {
        routes: &format!("{FORMAT}{more}"),
        ..Options::default()
    };
    Server::with(setup, &options)
}

#[test]
fn requests_and_sessions_have_a_line_each_and_no_secret_in_it() {
    on_all(|setup| {
        let server = logged(setup, "");
        let mut client = Http::connect(server.public);
        client
            .raw(
                b"GET /index.html?token=secret HTTP/1.1\r\nHost: site.example\r\nUser-Agent: \"a\\b\r\n\
                  Referer: https://a.example/x?key=secret\r\nAuthorization: Bearer secret\r\n\
                  Cookie: session=secret\r\n\r\nGET /nowhere HTTP/1.0\r\nHost: site.example\r\n\r\n",
            )
            .expect("sent");
        let page = client.response().expect("an answer");
        assert_eq!(client.response().expect("another").status, 404);
        let mut echo = Socket::open(server.public, "/echo?token=secret");
        for _ in 0..3 {
            echo.say("12345");
            assert_eq!(echo.text(), "12345");
        }
        echo.close(4001);
        let push = Socket::open(server.public, "/ws?user=ann&token=secret");
        push.leave();
        // This configuration does not log requests to internal listeners.
        assert_eq!(get(server.internal, "/health").status, 200);
        let mut broken = Http::connect(server.public);
        broken.raw(b"nonsense\r\n\r\n").expect("sent");
        assert_eq!(broken.response().expect("an answer").status, 400);

        let lines = lines(&server, 5);
        assert_eq!(lines.len(), 5, "{lines:?}");
        let first = find(&lines, "/index.html");
        assert_eq!(first["status"], 200);
        assert_eq!(first["request_method"], "GET");
        assert_eq!(first["remote_addr"], "127.0.0.1");
        assert_eq!(first["host"], "site.example");
        assert_eq!(first["http_referer"], "https://a.example/x");
        assert_eq!(first["route"], "/*");
        assert!(first["bytes_sent"].as_u64() > Some(page.body.len() as u64));
        let second = find(&lines, "/nowhere");
        assert_eq!(second["status"], 404);
        let bytes = second["bytes_sent"].as_u64().expect("a number");
        assert!((20..600).contains(&bytes), "{bytes} of both answers");
        let echo = find(&lines, "/echo");
        for (field, expected) in [
            ("status", 101),
            ("messages_received", 3),
            ("messages_sent", 3),
            ("bytes_received", 15),
            ("bytes_sent", 15),
            ("close_code", 4001),
        ] {
            assert_eq!(echo[field], expected, "{field}: {echo}");
        }
        let push = find(&lines, "/ws");
        assert_eq!(
            (&push["remote_user"], &push["route"]),
            (&"ann".into(), &"/ws".into())
        );
        assert_eq!(push["messages_sent"], 0);
        assert!(
            lines
                .iter()
                .any(|line| line["status"] == 400 && line["uri"].is_null())
        );
        let text = fs::read_to_string(file(&server)).expect("text");
        assert!(!text.contains("secret"), "{text}");
        assert!(
            text.bytes()
                .all(|byte| byte == b'\n' || (0x20..0x7f).contains(&byte))
        );
        assert!(!server.log().contains("secret"), "{}", server.log());
    });
}

#[test]
fn it_changes_with_a_reload_and_moves_with_a_signal() {
    let server = logged(USUAL, "sample = 1");
    get(server.public, "/one");
    lines(&server, 1);
    let old = server.folder.join("access.log.old");
    fs::rename(file(&server), &old).expect("moved");
    server.signal(Signal::USR1);
    until("a new file", || file(&server).exists());
    get(server.public, "/two");
    assert_eq!(lines(&server, 1)[0]["uri"], "/two");

    let reload = |access_log: &str| {
        server.configure(&Options {
            routes: access_log,
            ..Options::default()
        });
        assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
    };
    let template =
        "[access_log]\nfile = \"own.log\"\nformat = \"<$uri> $status\"\ninternal = true\n";
    reload(template);
    get(server.public, "/three");
    get(server.internal, "/health");
    let own = server.folder.join("own.log");
    until("lines of one's own", || {
        let text = fs::read_to_string(&own).unwrap_or_default();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines == ["</health> 200", "</three> 404"]
    });
    reload("");
    get(server.public, "/four");
    reload(template);
    get(server.public, "/five");
    until("it to go on", || {
        fs::read_to_string(&own).is_ok_and(|text| text.contains("/five"))
    });
    assert!(!fs::read_to_string(&own).expect("text").contains("/four"));
    let metrics = Metrics::scrape(server.internal);
    assert_eq!(metrics.sum("veche_log_lines_lost_total", &[]), 0.0);
}

#[test]
fn a_sample_is_a_part_of_them() {
    let server = logged(USUAL, "sample = 0.25\n");
    let mut client = Http::connect(server.public);
    for _ in 0..400 {
        client
            .raw(b"GET /index.html HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        assert_eq!(client.response().expect("an answer").status, 200);
    }
    drop(client);
    let written = || fs::read_to_string(file(&server)).map_or(0, |text| text.lines().count());
    // The sample rate gives about a hundred lines: the bounds fail by chance less than once in a million runs.
    until("a sample", || written() > 50);
    assert!(written() < 150, "{}", written());
}

/// Clients that do not answer the close are cut off at the end of the drain, and logged like all others.
#[test]
fn an_orderly_stop_leaves_a_line_of_each_session() {
    const SESSIONS: usize = 40;
    on_all(|setup| {
        let options = Options {
            routes: FORMAT,
            limits: "drain_time = \"300ms\"",
            ..Options::default()
        };
        let mut server = Server::with(setup, &options);
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|_| Socket::open(server.public, "/ws?user=ann"))
            .collect();
        server.await_connections(SESSIONS as u64);
        server.signal(Signal::TERM);
        assert_eq!(server.exit_code(), Some(0));
        let log = fs::read_to_string(file(&server)).expect("an access log");
        let lines = log.lines().filter(|line| line.contains("/ws")).count();
        assert_eq!(lines, SESSIONS, "{log}");
        drop(sessions);
    });
}
