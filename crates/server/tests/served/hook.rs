//! Tests `identity = "http:URL"` on the real server, with a back end that identifies users, forgets them, hangs and
//! fails.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::json;

use super::asked::{Asked, answer};
use crate::support::metrics::Metrics;
use crate::support::{Http, Seen, Server, Setup, Socket, call, on_all, until};

fn routes(back_end: SocketAddr, hook: &str) -> String {
    format!(
        "[[route]]\npath = \"/hook\"\nhandler = \"push\"\nidentity = \"http:http://{back_end}/who\"\n\
         [[route]]\npath = \"/lua/*\"\nhandler = \"lua\"\nscript = \"app.lua\"\n\
         identity = \"http:http://{back_end}/who\"\n[identity_hook]\n{hook}\n"
    )
}

const APP: &str = r#"
local app = {}
function app.handshake(req) return req.user ~= "mallory" end
function app.open(conn) conn:send("user " .. tostring(conn.user)) end
function app.request(req) return (req.user or "nobody") .. " " .. #req.body end
return app
"#;

fn start(setup: Setup, back_end: &Asked, hook: &str) -> Server {
    let routes = routes(back_end.address, hook);
    Server::serving(setup, &routes, &[("app.lua", APP)])
}

/// Identifies users by a cookie that contains their name.
fn know(head: &str) -> String {
    match cookie(head) {
        Some("") => answer(401, "", ""),
        Some("eve") => answer(403, "", ""),
        Some("json") => answer(
            200,
            "Content-Type: application/json\r\n",
            r#"{"user": "42"}"#,
        ),
        Some("number") => answer(200, "Content-Type: application/json\r\n", r#"{"user": 42}"#),
        Some("list") => answer(200, "Content-Type: application/json\r\n", r#"["ann"]"#),
        Some("bad") => answer(200, "", "no user"),
        Some(name) => answer(204, &format!("X-Veche-User: {name}\r\n"), ""),
        None => answer(401, "", ""),
    }
}

fn cookie(head: &str) -> Option<&str> {
    let (_, rest) = head.split_once("sid=")?;
    rest.split(['\r', ';']).next()
}

fn status(server: &Server, target: &str, headers: &str) -> u16 {
    let mut http = Http::connect(server.public);
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    );
    http.raw(request.as_bytes()).expect("the server reads");
    http.head().expect("an answer").status
}

fn sid(name: &str) -> String {
    format!("Cookie: sid={name}\r\n")
}

fn asked(server: &Server, outcome: &str) -> f64 {
    let label = format!("outcome=\"{outcome}\"");
    Metrics::scrape(server.internal).sum("veche_identity_hook_questions_total", &[&label])
}

fn open(server: &Server, target: &str, name: &str) -> Socket {
    let socket = TcpStream::connect(server.public).expect("a connection");
    let value = format!("sid={name}");
    Socket::upgrade(socket, target, &[("Cookie", &value)]).expect("it opens")
}

#[test]
fn the_back_end_names_the_user() {
    on_all(|setup| {
        let back_end = Asked::new(know);
        let server = start(setup, &back_end, "");
        let mut ann = open(&server, "/hook?x=1", "ann");
        call(
            server.internal,
            "push",
            &json!({"user": "ann", "data": "hello"}),
        );
        assert_eq!(ann.text(), "hello");
        let head = back_end.heads().remove(0).to_ascii_lowercase();
        assert!(head.starts_with("get /who http/1.1\r\n"), "{head}");
        for line in [
            "cookie: sid=ann",
            "x-original-method: get",
            "x-original-uri: /hook?x=1",
            "x-original-host: localhost",
            "x-real-ip: 127.0.0.1",
            "veche-hook: identity",
        ] {
            assert!(
                head.contains(&format!("\r\n{line}\r\n")),
                "{line} in {head}"
            );
        }
        assert!(!head.contains("sec-websocket"), "{head}");
        // The hook gets the decoded and normalised path, by which the request was routed.
        assert_eq!(status(&server, "/x/..//%68ook?%78", &sid("ann")), 101);
        let head = back_end.heads().pop().expect("a request");
        let head = head.to_ascii_lowercase();
        assert!(head.contains("\r\nx-original-uri: /hook?%78\r\n"), "{head}");
        // A client's headers with the names of the hook's own headers are not passed on.
        let claim = format!(
            "X-Real-IP: 6.6.6.6\r\nX-Original-URI: /admin\r\n{}",
            sid("ann")
        );
        assert_eq!(status(&server, "/hook", &claim), 101);
        let head = back_end.heads().pop().expect("a request");
        assert!(
            !head.contains("6.6.6.6") && !head.contains("/admin"),
            "{head}"
        );

        let mut json = open(&server, "/lua/x", "json");
        assert_eq!(json.text(), "user 42");
        for (name, expected) in [("eve", 403), ("bad", 503), ("number", 503), ("list", 503)] {
            assert_eq!(status(&server, "/hook", &sid(name)), expected);
        }
        assert_eq!(status(&server, "/hook", ""), 401);
        // The application may still refuse a user whom the hook admits.
        assert_eq!(status(&server, "/lua/x", &sid("mallory")), 403);
        // A handshake from a page of another origin is refused without a request to the hook.
        let before = back_end.count();
        let foreign = format!("Origin: https://evil.example\r\n{}", sid("ann"));
        assert_eq!(status(&server, "/hook", &foreign), 403);
        assert_eq!(back_end.count(), before);

        let mut http = Http::connect(server.public);
        let mut ask = |headers: &str, body: &[u8]| {
            let response = http.request("POST", "/lua/x", headers, body);
            response.expect("an answer").text().to_owned()
        };
        assert_eq!(ask(&sid("ann"), b""), "ann 0");
        assert_eq!(ask(&sid("ann"), b"12345"), "ann 5");
        assert_eq!(ask("", b"12345"), "nobody 5");
        assert_eq!(asked(&server, "cached"), 0.0);
        drop((ann, json));
    });
}

#[test]
fn answers_are_kept_as_long_as_they_say() {
    on_all(|setup| {
        let back_end = Asked::new(|head| match cookie(head) {
            Some(name) => answer(
                200,
                &format!("X-Veche-User: {name}\r\nCache-Control: max-age=600\r\n"),
                "",
            ),
            None => answer(401, "Cache-Control: max-age=600\r\n", ""),
        });
        let server = start(setup, &back_end, "");
        for _ in 0..3 {
            assert_eq!(status(&server, "/hook", &sid("ann")), 101);
            assert_eq!(status(&server, "/hook", ""), 401);
        }
        assert_eq!(back_end.count(), 2);
        assert_eq!(asked(&server, "cached"), 4.0);
        // A request with another cookie or another path is not answered from the cache.
        assert_eq!(status(&server, "/hook", &sid("bob")), 101);
        assert_eq!(status(&server, "/hook?x", &sid("ann")), 101);
        assert_eq!(back_end.count(), 4);
        // The cache of answers survives a reload.
        assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
        assert_eq!(status(&server, "/hook", &sid("ann")), 101);
        assert_eq!(back_end.count(), 4);
    });
}

#[test]
fn a_back_end_that_fails_is_left_alone() {
    on_all(|setup| {
        let back_end = Asked::new(|_| answer(503, "", ""));
        let server = start(setup, &back_end, "failures = 3\npause = \"1s\"\n");
        for _ in 0..3 {
            assert_eq!(status(&server, "/hook", &sid("ann")), 503);
        }
        back_end.set_answer(know);
        until("it to be tried again", || {
            status(&server, "/hook", &sid("ann")) == 101
        });
        // The counters show each failed attempt and each success; the back end has received no other request.
        assert_eq!(asked(&server, "failed"), 3.0);
        assert_eq!(asked(&server, "named"), 1.0);
        assert_eq!(back_end.count(), 4);
        assert!(asked(&server, "paused") > 0.0);
        until("a word of that", || server.log().contains("paused for"));
        let log = server.log();
        assert!(!log.contains("sid=ann"), "{log}");
    });
}

/// A back end that holds its responses back until they are released.
struct Held {
    back_end: Asked,
    go: SyncSender<()>,
}

fn held(what: impl Fn(&str) -> String + Send + Sync + 'static) -> Held {
    let (go, wait): (SyncSender<()>, Receiver<()>) = sync_channel(16);
    let wait = Arc::new(Mutex::new(wait));
    let back_end = Asked::new(move |head| {
        // The wait also ends when the test ends and drops the sender.
        let _ = wait.lock().recv();
        what(head)
    });
    Held { back_end, go }
}

#[test]
fn a_slow_back_end_does_not_delay_other_clients() {
    on_all(|setup| {
        let Held { back_end, go } = held(know);
        let server = start(setup, &back_end, "waiting = 2\ntimeout = \"20s\"\n");
        let mut echo = Socket::open(server.public, "/echo");
        std::thread::scope(|scope| {
            let waiting: Vec<_> = ["ann", "ann"]
                .into_iter()
                .map(|name| scope.spawn(|| status(&server, "/hook", &sid(name))))
                .collect();
            until("both to wait", || {
                Metrics::scrape(server.internal).sum("veche_identity_hook_waiting", &[]) == 2.0
            });
            // Two identical requests are merged into one.
            assert_eq!(asked(&server, "joined"), 1.0);
            until("it to be asked", || back_end.count() == 1);
            echo.say("still here");
            assert_eq!(echo.text(), "still here");
            // Two requests wait, and no more may wait, so a third one is rejected.
            assert_eq!(status(&server, "/hook", &sid("bob")), 503);
            assert_eq!(asked(&server, "crowded"), 1.0);
            go.send(()).expect("it waits");
            for one in waiting {
                assert_eq!(one.join().expect("no panic"), 101);
            }
        });
        // The server keeps nothing of a client that disconnects while it waits.
        let mut gone = Http::connect(server.public);
        let request = format!(
            "GET /hook HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{}\r\n",
            sid("dan")
        );
        gone.raw(request.as_bytes()).expect("the server reads");
        until("it to wait", || {
            Metrics::scrape(server.internal).sum("veche_identity_hook_waiting", &[]) == 1.0
        });
        drop(gone);
        drop(echo);
        server.await_connections(0);
        go.send(()).expect("it waits");
        until("no request to wait", || {
            Metrics::scrape(server.internal).sum("veche_identity_hook_waiting", &[]) == 0.0
        });
        server.await_connections(0);
        drop(go);
    });
}

/// Makes an API call while a handshake waits for the back end. Returns the status of the handshake.
fn command_while_waiting(
    setup: Setup,
    method: &str,
    body: &serde_json::Value,
    target: &str,
) -> u16 {
    let Held { back_end, go } = held(know);
    let server = start(setup, &back_end, "timeout = \"20s\"\n");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| status(&server, target, &sid("ann")));
        until("it to be asked", || back_end.count() == 1);
        call(server.internal, method, body);
        go.send(()).expect("it waits");
        waiting.join().expect("no panic")
    })
}

#[test]
fn a_client_disconnected_during_a_request_is_rejected() {
    on_all(|setup| {
        let (ann, bob) = (json!({"user": "ann"}), json!({"user": "bob"}));
        for target in ["/hook", "/lua/x"] {
            for (method, user, expected) in [
                ("block_user", &ann, 403),
                ("disconnect", &ann, 401),
                ("disconnect", &bob, 101),
            ] {
                let status = command_while_waiting(setup, method, user, target);
                assert_eq!(status, expected, "{target} {method} {user}");
            }
        }
    });
}

#[test]
fn an_answer_from_before_a_disconnect_is_not_used_again() {
    on_all(|setup| {
        let keep = "Cache-Control: max-age=600\r\n";
        let back_end = Asked::new(move |head| match cookie(head) {
            Some(name) => answer(200, &format!("X-Veche-User: {name}\r\n{keep}"), ""),
            None => answer(401, "", ""),
        });
        let server = start(setup, &back_end, "");
        for name in ["ann", "bob", "ann", "bob"] {
            assert_eq!(status(&server, "/hook", &sid(name)), 101);
        }
        assert_eq!(back_end.count(), 2);
        // The session has ended, and the cached answer has expired.
        back_end.set_answer(|_| answer(401, "", ""));
        call(server.internal, "disconnect", &json!({"user": "ann"}));
        assert_eq!(status(&server, "/hook", &sid("ann")), 401);
        assert_eq!(status(&server, "/hook", &sid("bob")), 101);
        assert_eq!(back_end.count(), 3);
        call(server.internal, "block_user", &json!({"user": "bob"}));
        call(server.internal, "unblock_user", &json!({"user": "bob"}));
        assert_eq!(status(&server, "/hook", &sid("bob")), 401);
    });
}

#[test]
fn the_back_end_s_word_holds_until_expire_at() {
    on_all(|setup| {
        let back_end = Asked::new(|head| {
            let in_s = |seconds| super::jwt::now_s() + seconds;
            let keep = "Cache-Control: max-age=600\r\n";
            match cookie(head) {
                Some("json") => {
                    let body = json!({"user": "ann", "expire_at": in_s(2)}).to_string();
                    answer(200, keep, &body)
                }
                Some("over") => answer(200, "", r#"{"user":"ann","expire_at":7}"#),
                Some("minus") => answer(200, "", r#"{"user":"ann","expire_at":-1}"#),
                _ => {
                    let line = format!("X-Veche-Expire-At: {}\r\n", in_s(2));
                    answer(204, &format!("X-Veche-User: ann\r\n{line}{keep}"), "")
                }
            }
        });
        let server = start(setup, &back_end, "");
        assert_eq!(status(&server, "/hook", &sid("over")), 401);
        assert_eq!(status(&server, "/hook", &sid("minus")), 503);
        for name in ["json", "header"] {
            let before = back_end.count();
            let mut sockets = [open(&server, "/hook", name), open(&server, "/hook", name)];
            assert_eq!(back_end.count(), before + 1);
            for socket in &mut sockets {
                assert_eq!(
                    socket.next(),
                    Seen::Close(Some(3005), "connection expired".to_owned())
                );
            }
            // The answer is not cached beyond the session's expiry. The pause covers that server and test round
            // milliseconds differently.
            std::thread::sleep(Duration::from_millis(50));
            let again = open(&server, "/hook", name);
            assert_eq!(back_end.count(), before + 2);
            drop(again);
        }
    });
}

#[test]
fn a_silent_identity_hook_times_out() {
    on_all(|setup| {
        let Held { back_end, go } = held(know);
        let server = start(setup, &back_end, "timeout = \"200ms\"\n");
        assert_eq!(status(&server, "/hook", &sid("ann")), 503);
        let outcome = "outcome=\"identity_unavailable\"";
        let refused = Metrics::scrape(server.internal).sum("veche_handshakes_total", &[outcome]);
        assert_eq!(refused, 1.0);
        drop(go);
    });
}

#[test]
fn clients_beyond_the_concurrency_queue_and_none_fails() {
    on_all(|setup| {
        let (under_way, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        let seen = Arc::clone(&most);
        let back_end = Asked::new(move |head| {
            seen.fetch_max(under_way.fetch_add(1, SeqCst) + 1, SeqCst);
            std::thread::sleep(Duration::from_millis(5));
            under_way.fetch_sub(1, SeqCst);
            know(head)
        });
        let server = start(setup, &back_end, "concurrency = 4\n");
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..60)
                .map(|n| {
                    let server = &server;
                    scope.spawn(move || status(server, "/hook", &sid(&format!("u{n}"))))
                })
                .collect();
            for one in all {
                assert_eq!(one.join().expect("no panic"), 101);
            }
        });
        assert_eq!(most.load(SeqCst), 4);
        assert_eq!(
            (asked(&server, "named"), asked(&server, "failed")),
            (60.0, 0.0)
        );
        assert_eq!(
            (asked(&server, "paused"), asked(&server, "crowded")),
            (0.0, 0.0)
        );
    });
}

#[test]
fn the_queue_is_refused_once_the_back_end_fails() {
    on_all(|setup| {
        let Held { back_end, go } = held(|_| answer(503, "", ""));
        let options = "concurrency = 1\ntimeout = \"20s\"\nfailures = 1\npause = \"1h\"\n";
        let server = start(setup, &back_end, options);
        std::thread::scope(|scope| {
            let server = &server;
            let all = ["a", "b", "c"]
                .map(|name| scope.spawn(move || status(server, "/hook", &sid(name))));
            until("all to wait", || {
                Metrics::scrape(server.internal).sum("veche_identity_hook_waiting", &[]) == 3.0
            });
            go.send(()).expect("it waits");
            for one in all {
                assert_eq!(one.join().expect("no panic"), 503);
            }
        });
        assert_eq!((back_end.count(), asked(&server, "paused")), (1, 2.0));
        drop(go);
    });
}

#[test]
fn a_refused_centrifuge_client_gets_a_terminal_code() {
    on_all(|setup| {
        let back_end = Asked::new(know);
        let routes = format!(
            "[[route]]\npath = \"/c/*\"\nhandler = \"centrifuge\"\n\
             identity = \"http:http://{}/who\"\n",
            back_end.address
        );
        let server = Server::serving(setup, &routes, &[]);
        let refused = |target: &str, name: &str| {
            let mut socket = open(&server, target, name);
            // The command that the client sends at once is not processed, since the server closes the connection with a
            // code.
            socket.say(r#"{"id":1,"connect":{}}"#);
            loop {
                match socket.next() {
                    Seen::Close(code, reason) => return (code, reason),
                    // A one-way client gets a push before the close.
                    Seen::Text(push) if push.starts_with("{\"disconnect\":{\"code\":350") => {}
                    other => panic!("{other:?}"),
                }
            }
        };
        for target in ["/c/websocket", "/c/uni_websocket"] {
            let unknown = (Some(3500), "invalid token".to_owned());
            assert_eq!(refused(target, ""), unknown, "{target}");
            let unwanted = (Some(3507), "permission denied".to_owned());
            assert_eq!(refused(target, "eve"), unwanted, "{target}");
        }
        let stream = |target: &str, name: &str| {
            let mut socket = TcpStream::connect(server.public).expect("a connection");
            let request = format!("GET {target} HTTP/1.0\r\nHost: test\r\n{}\r\n", sid(name));
            socket.write_all(request.as_bytes()).expect("it is taken");
            let mut response = String::new();
            socket.read_to_string(&mut response).expect("it ends");
            response
        };
        let eve = stream("/c/uni_sse", "eve");
        assert!(
            eve.starts_with("HTTP/1.1 200") && eve.contains("3507"),
            "{eve}"
        );
        let emulated = stream("/c/sse?cf_connect={%22id%22:1,%22connect%22:{}}", "eve");
        assert!(
            emulated.contains("3507") && !emulated.contains("client"),
            "{emulated}"
        );
        // A client whose lookup failed may retry.
        let bad = status(&server, "/c/websocket", &sid("bad"));
        assert_eq!((bad, asked(&server, "refused")), (503, 6.0));
        server.await_connections(0);
    });
}

#[test]
fn handshakes_that_queue_are_refused_when_a_drain_begins() {
    on_all(|setup| {
        let Held { back_end, go } = held(know);
        let server = start(setup, &back_end, "concurrency = 1\ntimeout = \"20s\"\n");
        std::thread::scope(|scope| {
            let server = &server;
            let all = ["a", "b", "c"]
                .map(|name| scope.spawn(move || status(server, "/hook", &sid(name))));
            until("all to wait", || {
                Metrics::scrape(server.internal).sum("veche_identity_hook_waiting", &[]) == 3.0
            });
            server.signal(Signal::TERM);
            // Only one of the three lookups was sent to the back end; the other two are refused.
            until("two to be refused", || {
                all.iter().filter(|one| one.is_finished()).count() == 2
            });
            go.send(()).expect("it waits");
            for one in all {
                assert_eq!(one.join().expect("no panic"), 503);
            }
        });
        assert_eq!(back_end.count(), 1);
        drop(go);
    });
}
