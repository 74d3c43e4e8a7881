//! Secrets in the configuration and guessed keys: what the log, commands and the admin page show of them, and the limit
//! on guessing.

use std::io::Write as _;
use std::net::SocketAddr;

use serde_json::json;

use crate::support::metrics::Metrics;
use crate::support::server::KEY_HEADER;
use crate::support::{Http, Options, Server, Setup, on_all, until};

const ADMIN: &str = "X-API-Key: the-operator's\r\n";

/// Returns a server with secret URLs, which lead to no server, in every directive that accepts one.
fn with_secrets(setup: Setup) -> Server {
    let url = |path: &str| format!("http://127.0.0.1:9/{path}?key=HUSH{path}");
    let routes = format!(
        "[[route]]\npath = \"/hook\"\nhandler = \"push\"\nidentity = \"http:{}\"\n\
         [[route]]\npath = \"/connection/*\"\nhandler = \"centrifuge\"\n\
         [admin]\nkeys = [\"the-operator's\"]\n\
         [jwt]\njwks = \"{}\"\n\
         [hooks]\nconnect = \"{}\"\n\
         [events]\nurl = \"{}\"\n\
         [[namespace]]\nname = \"room\"\nevents = \"occupancy\"\n",
        url("who"),
        url("jwks"),
        url("connect"),
        url("events"),
    );
    Server::serving(setup, &routes, &[])
}

fn upgrade(address: SocketAddr, target: &str) -> u16 {
    let mut http = Http::connect(address);
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    http.raw(request.as_bytes()).expect("the server reads");
    http.head().expect("an answer").status
}

#[test]
fn urls_are_shown_without_their_secrets() {
    on_all(|setup| {
        let server = with_secrets(setup);
        assert_eq!(upgrade(server.public, "/hook"), 503);
        until("words about the hook", || {
            server.log().contains("hook http://127.0.0.1:9/who?***")
        });
        until("words about the keys", || {
            server
                .log()
                .contains("can't load keys from http://127.0.0.1:9/jwks?***")
        });
        let shown = Http::connect(server.internal)
            .request("POST", "/admin/api/config", ADMIN, b"")
            .expect("an answer");
        let config = server.command(&["config"]).output().expect("it runs");
        let config = String::from_utf8_lossy(&config.stdout).into_owned();
        for text in [shown.text(), &config] {
            for path in ["who", "jwks", "connect", "events"] {
                assert!(text.contains(&format!("127.0.0.1:9/{path}?***")), "{text}");
            }
        }
        let status = format!("{:?}", server.status());
        let metrics = crate::support::get(server.internal, "/metrics");
        for text in [
            &server.log(),
            shown.text(),
            &config,
            &status,
            metrics.text(),
        ] {
            assert!(!text.contains("HUSH"), "{text}");
        }
    });
}

fn judged(server: &Server) -> f64 {
    Metrics::scrape(server.internal).sum("veche_wrong_keys_total", &[])
}

#[test]
fn wrong_keys_are_counted_logged_and_slowed_and_a_right_one_passes() {
    const GUESSES: usize = 20_000;
    on_all(|setup| {
        let options = Options {
            api: "[admin]\nkeys = [\"the-operator's\"]\n",
            ..Options::default()
        };
        let server = Server::with(setup, &options);
        for path in ["/api/info", "/admin/api/figures"] {
            let before = judged(&server);
            let mut http = Http::connect(server.internal);
            let mut socket = http.socket.try_clone().expect("a socket");
            let writer = std::thread::spawn(move || {
                for number in 0..GUESSES {
                    let guess = format!(
                        "POST {path} HTTP/1.1\r\nHost: test\r\nX-API-Key: GUESS{number}\r\nContent-Length: 0\r\n\r\n"
                    );
                    // The server closes the connection before all guesses are sent.
                    if socket.write_all(guess.as_bytes()).is_err() {
                        return;
                    }
                }
            });
            let mut last = http.response().expect("an answer");
            while last.status == 401 {
                last = http.response().expect("an answer");
            }
            assert_eq!(last.status, 429, "{last:?}");
            let wait_s: u64 = last.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=6).contains(&wait_s), "{wait_s}");
            writer.join().expect("the writer ends");
            let judged = judged(&server) - before;
            assert!(
                (1.0..=12.0).contains(&judged),
                "{judged} guesses were judged"
            );
        }
        // The right keys are accepted at once, even from the address of the wrong guesses.
        for (path, key) in [("/api/info", KEY_HEADER), ("/admin/api/figures", ADMIN)] {
            let right = Http::connect(server.internal).request("POST", path, key, b"{}");
            assert_eq!(right.expect("an answer").status, 200, "{path}");
        }
        until("words about the guesses", || {
            let log = server.log();
            log.contains("wrong key for the API from 127.0.0.1")
                && log.contains("wrong key for the admin page from 127.0.0.1")
        });
        assert!(!server.log().contains("GUESS"), "{}", server.log());
    });
}

#[test]
fn a_flood_of_one_fault_hides_no_other() {
    on_all(|setup| {
        let options = Options::default();
        let server = Server::with(setup, &options);
        for _ in 0..3 {
            for _ in 0..200 {
                let mut http = Http::connect(server.internal);
                http.raw(b"GET / HTTP/9.9\r\n\r\n")
                    .expect("the server reads");
                let _ = http.response();
            }
            let body = json!({}).to_string();
            let key = "X-API-Key: wrong\r\n";
            let wrong = Http::connect(server.internal);
            let wrong = { wrong }.request("POST", "/api/info", key, body.as_bytes());
            assert_eq!(wrong.expect("an answer").status, 401);
        }
        let wrong_keys = || server.log().matches("wrong key for").count();
        until("each wrong key", || wrong_keys() == 3);
        until("words about the rest", || {
            server
                .log()
                .contains("more lines of this kind were not logged; the last one: request refused")
        });
    });
}
