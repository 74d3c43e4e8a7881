//! Tests `[hooks]` on the real server with a back end that decides on commands like a Centrifugo proxy, is slow, or
//! fails.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::SystemTime;

use hmac::{Hmac, KeyInit as _, Mac as _};
use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::{Value, json};
use sha2::Sha256;
use veche_proto::websocket::{MessageKind, encode_message};

use super::Client;
use crate::asked::{Asked, answer};
use crate::support::metrics::Metrics;
use crate::support::{Options, Seen, Server, Setup, Socket, USUAL, call, on_all, until};

const SECRET: &str = "between us";

fn start(setup: Setup, back_end: &Asked, options: &str) -> Server {
    let routes = config(back_end, options);
    let options = Options {
        routes: &routes,
        ..Options::default()
    };
    Server::with(setup, &options)
}

fn config(back_end: &Asked, options: &str) -> String {
    let at = back_end.address;
    let url = |name: &str| format!("{name} = \"http://{at}/{name}\"\n");
    let kinds = [
        "connect",
        "subscribe",
        "publish",
        "rpc",
        "refresh",
        "sub_refresh",
    ];
    let urls: String = kinds.into_iter().map(url).collect();
    format!(
        "[[route]]\npath = \"/c\"\nhandler = \"centrifuge\"\n\
         [[namespace]]\nname = \"asked\"\nhistory_size = 100\npresence = true\n\
         subscribe = \"hook\"\npublish = \"hook\"\n\
         [[namespace]]\nname = \"open\"\nsubscribe = \"client\"\n\
         [hooks]\n{urls}secrets = [\"{SECRET}\"]\n{options}"
    )
}

/// Returns the kind and the body of a hook request; asserts that the request is signed.
fn asked(request: &str) -> (String, Value) {
    let (head, body) = request.split_once("\r\n\r\n").expect("a whole request");
    let path = head.strip_prefix("POST /").expect("a POST");
    let kind = path.split(' ').next().expect("a path").to_owned();
    let small = head.to_ascii_lowercase();
    assert!(
        small.contains("\r\ncontent-type: application/json\r\n"),
        "{head}"
    );
    let (_, rest) = small
        .split_once("veche-signature: t=")
        .expect("a signature");
    let line = rest.split('\r').next().expect("a line");
    let (seconds, mac) = line.split_once(",v1=").expect("a signature");
    let mut expected = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("a key");
    expected.update(format!("{seconds}.{body}").as_bytes());
    let expected = expected.finalize().into_bytes();
    let expected: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(mac, expected);
    (kind, serde_json::from_str(body).expect("JSON"))
}

/// Decides like a back end for Centrifugo. The decision on `connect` depends on the cookie `sid`, and the decision on
/// another command depends on its channel, data or method.
fn decide(request: &str) -> String {
    let (kind, body) = asked(request);
    let response = match &*kind {
        "connect" => match cookie(request) {
            Some("php") => return answer(200, "", r#"{"result":[]}"#),
            Some("minus") => json!({"result": {"user": "ann", "expire_at": -1}}),
            Some("number") => json!({"result": {"user": 42}}),
            Some("eve") => json!({"disconnect": {"code": 4501, "reason": "not you"}}),
            Some(user) => json!({"result": {
                "user": user, "info": {"name": user}, "data": {"asked": body["data"]},
                "channels": ["open:1"], "subs": {"open:2": {"data": "two"}},
            }}),
            None => json!({"error": {"code": 1001, "message": "who are you?"}}),
        },
        "subscribe" if body["channel"] == "asked:closed" => {
            json!({"error": {"code": 1003, "message": "closed", "temporary": true}})
        }
        "subscribe" => json!({"result": {"info": "guest", "data": body["data"]}}),
        "publish" if body["data"] == "darn" => json!({"result": {"data": "****"}}),
        "publish" if body["data"] == "passing" => json!({"result": {"skip_history": true}}),
        "publish" if body["data"] == "spam" => {
            json!({"disconnect": {"code": 4000, "reason": "spam"}})
        }
        "publish" => json!({"result": {}}),
        "rpc" if body["method"] == "bad" => return answer(200, "", "no JSON"),
        "rpc" if body["method"] == "500" => return answer(500, "", "{\"result\":{}}"),
        "rpc" if body["method"] == "no" => json!({"error": {"code": 404, "message": "none"}}),
        "rpc" => json!({"result": {"data": {"echo": body["data"], "user": body["user"]}}}),
        other => panic!("asked about {other}"),
    };
    answer(200, "", &response.to_string())
}

fn cookie(request: &str) -> Option<&str> {
    let (_, rest) = request.split_once("sid=")?;
    rest.split(['\r', ';']).next()
}

fn open(server: &Server, headers: &[(&str, &str)]) -> Client {
    let socket = TcpStream::connect(server.public).expect("a connection");
    let socket = Socket::upgrade(socket, "/c", headers).expect("it opens");
    Client {
        socket,
        lines: std::collections::VecDeque::new(),
    }
}

fn connect(server: &Server, user: &str) -> Client {
    let mut client = open(server, &[("Cookie", &format!("sid={user}"))]);
    let reply = client.ask(json!({"id": 1, "connect": {}}));
    assert!(reply["connect"]["client"].is_string(), "{reply}");
    client
}

fn count(server: &Server, kind: &str, outcome: &str) -> f64 {
    let labels = [
        &*format!("kind=\"{kind}\""),
        &format!("outcome=\"{outcome}\""),
    ];
    Metrics::scrape(server.internal).sum("veche_hooks_questions_total", &labels)
}

fn waiting(server: &Server) -> f64 {
    Metrics::scrape(server.internal).sum("veche_hooks_waiting", &[])
}

fn rpc(id: u32, method: &str) -> Value {
    json!({"id": id, "rpc": {"method": method, "data": {"n": id}}})
}

const INTERNAL: &str = r#"{"code":100,"message":"internal server error","temporary":true}"#;

#[test]
fn a_centrifugo_back_end_decides_on_each_kind() {
    on_all(|setup| {
        let back_end = Asked::new(decide);
        let server = start(setup, &back_end, "client_headers = [\"x-token\"]\n");
        // The connect hook.
        let headers = [
            ("Cookie", "sid=ann"),
            ("X-Real-IP", "6.6.6.6"),
            ("X-Other", "o"),
        ];
        let mut ann = open(&server, &headers);
        let hello =
            json!({"data": {"k": 1}, "name": "js", "version": "7", "headers": {"X-Token": "t"}});
        let reply = ann.ask(json!({"id": 1, "connect": hello}));
        let connected = &reply["connect"];
        assert_eq!(connected["data"], json!({"asked": {"k": 1}}), "{reply}");
        let subs = connected["subs"].as_object().expect("channels");
        let names: Vec<&String> = subs.keys().collect();
        assert_eq!(names, ["#ann", "open:1", "open:2"]);
        assert_eq!(subs["open:2"]["data"], "two");
        let request = back_end.heads().remove(0);
        let (kind, body) = asked(&request);
        let client = connected["client"].clone();
        let expected = json!({
            "client": client, "transport": "websocket", "protocol": "json", "encoding": "json",
            "data": {"k": 1}, "name": "js", "version": "7",
        });
        assert_eq!((&*kind, body), ("connect", expected));
        let small = request.to_ascii_lowercase();
        for line in [
            "cookie: sid=ann",
            "x-token: t",
            "x-real-ip: 127.0.0.1",
            "veche-hook: connect",
        ] {
            assert!(
                small.contains(&format!("\r\n{line}\r\n")),
                "{line} in {small}"
            );
        }
        assert!(
            !small.contains("x-other") && !small.contains("6.6.6.6"),
            "{small}"
        );
        let mut eve = open(&server, &[("Cookie", "sid=eve")]);
        eve.say(&json!({"id": 1, "connect": {}}));
        assert_eq!(eve.socket.closed(), 4501);
        let mut nobody = open(&server, &[]);
        let refused = nobody.ask(json!({"id": 1, "connect": {}}));
        assert_eq!(
            refused["error"],
            json!({"code": 1001, "message": "who are you?"})
        );
        // The subscribe hook.
        let mut bob = connect(&server, "bob");
        let request = json!({"channel": "asked:1", "data": {"as": "guest"}});
        let joined = bob.ask(json!({"id": 2, "subscribe": request}));
        assert_eq!(
            joined["subscribe"]["data"],
            json!({"as": "guest"}),
            "{joined}"
        );
        let (kind, body) = asked(back_end.heads().last().expect("a request"));
        assert_eq!((&*kind, &body["user"]), ("subscribe", &json!("bob")));
        assert_eq!(
            (&body["channel"], &body["name"]),
            (&json!("asked:1"), &Value::Null)
        );
        let presence = bob.ask(json!({"id": 3, "presence": {"channel": "asked:1"}}));
        let there = presence["presence"]["presence"]
            .as_object()
            .expect("clients");
        let there: Vec<&Value> = there.values().collect();
        assert_eq!(
            (&there[0]["conn_info"], &there[0]["chan_info"]),
            (&json!({"name": "bob"}), &json!("guest"))
        );
        let closed = bob.ask(json!({"id": 4, "subscribe": {"channel": "asked:closed"}}));
        let expected = json!({"code": 1003, "message": "closed", "temporary": true});
        assert_eq!(closed["error"], expected);
        // The publish hook.
        for (data, published) in [("hi", "hi"), ("darn", "****"), ("passing", "passing")] {
            let reply = ann.ask(json!({"id": 5, "publish": {"channel": "asked:1", "data": data}}));
            assert_eq!(reply["publish"], json!({}), "{reply}");
            let publication = bob.publication();
            assert_eq!(publication["data"], published);
            assert_eq!(publication["info"]["client"], client);
        }
        let history = bob.ask(json!({"id": 5, "history": {"channel": "asked:1", "limit": -1}}));
        let kept = history["history"]["publications"].as_array().expect("all");
        let kept: Vec<&Value> = kept.iter().map(|one| &one["data"]).collect();
        assert_eq!(kept, ["hi", "****"]);
        // The RPC hook.
        let reply = ann.ask(rpc(6, "m"));
        assert_eq!(
            reply["rpc"]["data"],
            json!({"echo": {"n": 6}, "user": "ann"})
        );
        let reply = ann.ask(rpc(7, "no"));
        assert_eq!(reply["error"], json!({"code": 404, "message": "none"}));
        let internal: Value = serde_json::from_str(INTERNAL).expect("JSON");
        for method in ["bad", "500"] {
            assert_eq!(ann.ask(rpc(8, method))["error"], internal, "{method}");
        }
        ann.say(&json!({"id": 9, "publish": {"channel": "asked:1", "data": "spam"}}));
        assert_eq!(ann.socket.closed(), 4000);
        for (kind, outcome, expected) in [
            ("connect", "granted", 2.0),
            ("connect", "error", 1.0),
            ("connect", "disconnect", 1.0),
            ("subscribe", "granted", 1.0),
            ("publish", "granted", 3.0),
            ("rpc", "failed", 2.0),
            ("rpc", "paused", 0.0),
        ] {
            assert_eq!(count(&server, kind, outcome), expected, "{kind} {outcome}");
        }
        let labels = ["kind=\"rpc\""];
        let metrics = Metrics::scrape(server.internal);
        assert_eq!(metrics.sum("veche_hooks_seconds_count", &labels), 4.0);
        // Data of clients is not in the log.
        assert!(!server.log().contains("sid="), "{}", server.log());
    });
}

#[test]
fn a_client_disconnected_during_a_request_is_rejected() {
    on_all(|setup| {
        for (method, except, code) in [
            ("disconnect", false, Some(3503)),
            ("disconnect", true, None),
            ("block_user", false, Some(3507)),
        ] {
            let (go, wait): (SyncSender<()>, Receiver<()>) = sync_channel(1);
            let wait = Mutex::new(wait);
            let back_end = Asked::new(move |request| {
                let _ = wait.lock().recv();
                decide(request)
            });
            let server = start(setup, &back_end, "timeout = \"20s\"\n");
            let mut client = open(&server, &[("Cookie", "sid=ann")]);
            client
                .socket
                .say(&json!({"id": 1, "connect": {}}).to_string());
            until("it to be asked", || back_end.count() == 1);
            let (_, body) = asked(&back_end.heads()[0]);
            let mut command = json!({"user": "ann"});
            if except {
                command["whitelist"] = json!([body["client"]]);
            }
            call(server.internal, method, &command);
            go.send(()).expect("it waits");
            match (client.socket.next(), code) {
                (Seen::Close(Some(closed), _), Some(code)) => assert_eq!(closed, code),
                (Seen::Text(reply), None) => assert!(reply.contains("connect"), "{reply}"),
                other => panic!("{method} {except}: {other:?}"),
            }
        }
    });
}

#[test]
fn a_response_of_the_wrong_type_rejects_the_client() {
    on_all(|setup| {
        let back_end = Asked::new(decide);
        let server = start(setup, &back_end, "");
        for cookie in ["php", "minus", "number"] {
            let mut client = open(&server, &[("Cookie", &format!("sid={cookie}"))]);
            let reply = client.ask(json!({"id": 1, "connect": {}}));
            assert_eq!(reply["error"]["code"], 100, "{reply}");
        }
        assert_eq!(count(&server, "connect", "failed"), 3.0);
        until("a word of it in the log", || {
            let log = server.log();
            log.contains("hook connect ") && log.contains("expected an object")
        });
    });
}

#[test]
fn what_speaks_protobuf_is_asked_about_and_answered_alike() {
    on_all(|setup| {
        let back_end = Asked::new(|request| {
            let (kind, body) = asked(request);
            assert_eq!(body["protocol"], "protobuf");
            let response = match &*kind {
                "connect" => json!({"result": {"user": "ann"}}),
                _ => json!({"result": {"b64data": body["b64data"]}}),
            };
            answer(200, "", &response.to_string())
        });
        let server = start(setup, &back_end, "");
        let mut socket = Socket::open(server.public, "/c?cf_protocol=protobuf");
        let mut ask = |bytes: &[u8]| {
            let mut out = Vec::new();
            encode_message(&mut out, MessageKind::Binary, bytes, Some([1, 2, 3, 4]));
            socket.raw(&out);
            match socket.next() {
                Seen::Binary(reply) => reply,
                other => panic!("{other:?}"),
            }
        };
        // Two Protobuf commands, each preceded by its length: connect {} with id 1; rpc { data: 00 ff, method: "m" }
        // with id 2.
        let connected = ask(&[0x04, 0x08, 0x01, 0x22, 0x00]);
        assert_eq!(&connected[1..4], &[0x08, 0x01, 0x2a], "{connected:x?}");
        let reply = ask(&[
            0x0b, 0x08, 0x02, 0x6a, 0x07, 0x0a, 0x02, 0x00, 0xff, 0x12, 0x01, b'm',
        ]);
        assert_eq!(
            reply,
            [0x08, 0x08, 0x02, 0x6a, 0x04, 0x0a, 0x02, 0x00, 0xff]
        );
        let (_, body) = asked(back_end.heads().last().expect("a request"));
        assert_eq!(
            (&body["encoding"], &body["data"]),
            (&json!("binary"), &Value::Null)
        );
    });
}

/// Returns a back end that holds back its decision on each RPC command `wait`, and a sender. Each message to the sender
/// releases one decision.
fn held() -> (Asked, SyncSender<()>) {
    let (go, wait): (SyncSender<()>, Receiver<()>) = sync_channel(64);
    let wait = Arc::new(Mutex::new(wait));
    let back_end = Asked::new(move |request| {
        if asked(request).1["method"] == "wait" {
            // If the test ends and drops the sender, the wait ends with an error.
            let _ = wait.lock().recv();
        }
        decide(request)
    });
    (back_end, go)
}

#[test]
fn one_that_takes_its_time_holds_up_one_client_and_his_order_is_kept() {
    on_all(|setup| {
        let (back_end, go) = held();
        let server = start(setup, &back_end, "timeout = \"20s\"\nwaiting = 2\n");
        let (mut ann, mut bob) = (connect(&server, "ann"), connect(&server, "bob"));
        let ping = json!({"id": 3, "ping": {}});
        ann.socket.say(&format!("{}\n{ping}", rpc(2, "wait")));
        ann.say(&rpc(4, "m"));
        until("it to be asked", || waiting(&server) == 1.0);
        // While a command of one client waits, commands of other clients are executed, even if they need a hook.
        assert_eq!(bob.ask(rpc(2, "m"))["rpc"]["data"]["user"], "bob");
        let asks: Vec<Client> = (0..8).map(|_| connect(&server, "dan")).collect();
        drop(asks);
        // `waiting` limits requests that wait for the hook to two, so the third one is rejected at once.
        bob.say(&rpc(3, "wait"));
        until("both to wait", || waiting(&server) == 2.0);
        let mut dan = connect(&server, "dan");
        assert_eq!(dan.ask(rpc(2, "m"))["error"]["code"], 100);
        assert_eq!(count(&server, "rpc", "crowded"), 1.0);
        for _ in 0..2 {
            go.send(()).expect("it waits");
        }
        let replies: Vec<Value> = (0..3).map(|_| ann.next()["id"].take()).collect();
        assert_eq!(replies, [json!(2), json!(3), json!(4)]);
        assert_eq!(bob.next()["id"], 3);
        assert_eq!(waiting(&server), 0.0);
    });
}

#[test]
fn a_client_that_leaves_during_a_hook_request_leaves_no_state() {
    on_all(|setup| {
        let (back_end, go) = held();
        let server = start(setup, &back_end, "timeout = \"20s\"\n");
        let mut ann = connect(&server, "ann");
        ann.say(&rpc(2, "wait"));
        until("it to wait", || waiting(&server) == 1.0);
        drop(ann);
        // The server notices no later than at the hook's response that the client of the waiting
        // command is gone.
        go.send(()).expect("it waits");
        until("no request to wait", || waiting(&server) == 0.0);
        server.await_connections(0);
        let mut bob = connect(&server, "bob");
        assert_eq!(bob.ask(rpc(2, "m"))["rpc"]["data"]["user"], "bob");
        // A client that the API disconnects is closed at once, without waiting for the hook's decision.
        bob.say(&rpc(3, "wait"));
        until("it to wait", || waiting(&server) == 1.0);
        call(server.internal, "disconnect", &json!({"user": "bob"}));
        assert_eq!(bob.socket.closed(), 3503);
        server.await_connections(0);
        assert_eq!(waiting(&server), 1.0);
        drop(go);
    });
}

#[test]
fn a_reload_and_a_drain_do_not_wait_for_it() {
    let (back_end, go) = held();
    let mut server = start(USUAL, &back_end, "timeout = \"20s\"\n");
    let mut ann = connect(&server, "ann");
    ann.say(&rpc(2, "wait"));
    until("it to wait", || waiting(&server) == 1.0);
    // Hook requests in progress are completed with the settings that they started with, even if a reload changes the
    // hook.
    let routes = config(&back_end, "timeout = \"19s\"\nfailures = 9\n");
    server.configure(&Options {
        routes: &routes,
        ..Options::default()
    });
    assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
    go.send(()).expect("it waits");
    assert_eq!(ann.next()["id"], 2);
    assert_eq!(waiting(&server), 0.0);
    assert_eq!(ann.ask(rpc(3, "m"))["rpc"]["data"]["user"], "ann");
    ann.say(&rpc(4, "wait"));
    until("it to wait", || waiting(&server) == 1.0);
    server.signal(Signal::TERM);
    assert_eq!(ann.socket.closed(), 3001);
    assert_eq!(server.exit_code(), Some(0));
    drop(go);
}

#[test]
fn connected_clients_use_the_urls_of_a_reload() {
    let named = |name: &'static str| {
        Asked::new(move |_| {
            let result = json!({"result": {"user": "ann", "data": name}});
            answer(200, "", &result.to_string())
        })
    };
    let (old, new) = (named("old"), named("new"));
    let server = start(USUAL, &old, "");
    let mut ann = connect(&server, "ann");
    assert_eq!(ann.ask(rpc(2, "m"))["rpc"]["data"], "old");
    let moved = config(&new, "");
    let without_rpc = moved.replace(&format!("rpc = \"http://{}/rpc\"\n", new.address), "");
    assert_ne!(moved, without_rpc);
    let reload = |routes: &str| {
        server.configure(&Options {
            routes,
            ..Options::default()
        });
        assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
    };
    reload(&moved);
    assert_eq!(ann.ask(rpc(3, "m"))["rpc"]["data"], "new");
    // The client has connected with a hook that no longer exists.
    reload(&without_rpc);
    let internal: Value = serde_json::from_str(INTERNAL).expect("JSON");
    assert_eq!(ann.ask(rpc(4, "m"))["error"], internal);
    reload(&moved);
    assert_eq!(ann.ask(rpc(5, "m"))["rpc"]["data"], "new");
    // The client's route gets another path, but the URL of the hook is still in use.
    reload(&moved.replace("path = \"/c\"", "path = \"/d\""));
    assert_eq!(ann.ask(rpc(6, "m"))["rpc"]["data"], "new");
}

#[test]
fn a_silent_back_end_times_out() {
    on_all(|setup| {
        let (back_end, go) = held();
        let server = start(
            setup,
            &back_end,
            "timeout = \"100ms\"\nfailures = 2\npause = \"1s\"\n",
        );
        let (mut ann, mut bob) = (connect(&server, "ann"), connect(&server, "bob"));
        let internal: Value = serde_json::from_str(INTERNAL).expect("JSON");
        // Slow calls of one client do not affect another client.
        for id in 2..6 {
            assert_eq!(ann.ask(rpc(id, "wait"))["error"], internal);
        }
        assert_eq!(bob.ask(rpc(2, "m"))["rpc"]["data"]["user"], "bob");
        for id in 3..8 {
            assert_eq!(bob.ask(rpc(id, "wait"))["error"], internal);
        }
        let mut dan = connect(&server, "dan");
        assert_eq!(dan.ask(rpc(2, "wait"))["error"], internal);
        drop(go);
        // The log is written by another thread.
        until("the log to say it", || {
            let log = server.log();
            log.contains("hook rpc http://") && log.contains("paused for")
        });
        // Only requests of the kind that fails are paused: others, such as connect requests, are still made.
        connect(&server, "eva");
    });
}

#[test]
fn one_that_fails_is_left_alone_and_tried_again() {
    on_all(|setup| {
        let is_rpc = |request: &str| request.starts_with("POST /rpc ");
        let back_end = Asked::new(move |request| match is_rpc(request) {
            true => answer(503, "", ""),
            false => decide(request),
        });
        let server = start(setup, &back_end, "failures = 3\npause = \"1s\"\n");
        let mut ann = connect(&server, "ann");
        for id in 2..5 {
            assert_eq!(ann.ask(rpc(id, "m"))["error"]["code"], 100);
        }
        let paused = || {
            let labels = ["kind=\"rpc\""];
            Metrics::scrape(server.internal).sum("veche_hooks_paused", &labels)
        };
        assert_eq!(paused(), 1.0);
        back_end.set_answer(decide);
        // The replies to immediately rejected commands keep the order of the commands.
        let commands: Vec<String> = (10..60).map(|id| rpc(id, "m").to_string()).collect();
        ann.socket.say(&commands.join("\n"));
        for id in 10..60 {
            assert_eq!(ann.next()["id"], id);
        }
        let mut id = 100;
        until("it to be tried again", || {
            id += 1;
            ann.ask(rpc(id, "m"))["error"] == Value::Null
        });
        assert_eq!((count(&server, "rpc", "failed"), paused()), (3.0, 0.0));
        assert!(count(&server, "rpc", "paused") > 0.0);
    });
}

fn in_seconds(seconds: u64) -> u64 {
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    now.as_secs() + seconds
}

#[test]
fn connections_and_subscriptions_last_as_long_as_it_says() {
    on_all(|setup| {
        let back_end = Asked::new(|request| {
            let (kind, body) = asked(request);
            let response = match &*kind {
                "connect" => json!({"result": {"user": "ann", "expire_at": in_seconds(2)}}),
                "subscribe" => json!({"result": {"expire_at": in_seconds(2)}}),
                "refresh" if body["user"] == "ann" => {
                    json!({"result": {"expire_at": in_seconds(3600)}})
                }
                "sub_refresh" if body["channel"] == "asked:1" => {
                    json!({"result": {"expired": true}})
                }
                _ => json!({"disconnect": {"code": 4009, "reason": "what?"}}),
            };
            answer(200, "", &response.to_string())
        });
        let server = start(setup, &back_end, "");
        let mut ann = open(&server, &[]);
        let reply = ann.ask(json!({"id": 1, "connect": {}}));
        assert_eq!(reply["connect"]["expires"], Value::Null, "{reply}");
        let joined = ann.ask(json!({"id": 2, "subscribe": {"channel": "asked:1"}}));
        assert_eq!(joined["subscribe"]["expires"], Value::Null, "{joined}");
        let push = ann.next();
        assert_eq!(push["push"]["unsubscribe"]["code"], 2501, "{push}");
        until("the connection to be prolonged", || {
            count(&server, "refresh", "granted") == 1.0
        });
        assert_eq!(ann.ask(json!({"id": 3, "ping": {}}))["ping"], json!({}));
        // For this channel, the refresh of the subscription disconnects the client.
        ann.ask(json!({"id": 4, "subscribe": {"channel": "asked:2"}}));
        assert_eq!(ann.socket.closed(), 4009);
    });
}

#[test]
fn a_route_may_have_other_urls() {
    on_all(|setup| {
        let back_end = Asked::new(|request| {
            let (kind, body) = asked(request);
            let data = json!({"from": kind, "user": body["user"]});
            answer(
                200,
                "",
                &json!({"result": {"user": "ann", "data": data}}).to_string(),
            )
        });
        let at = back_end.address;
        let routes = config(&back_end, "").replace(
            "[[namespace]]\nname = \"asked\"",
            &format!(
                "[[route]]\npath = \"/other\"\nhandler = \"centrifuge\"\n\
                 hooks = {{ connect = \"off\", rpc = \"http://{at}/other\" }}\n\
                 [[namespace]]\nname = \"asked\""
            ),
        );
        let options = Options {
            routes: &routes,
            ..Options::default()
        };
        let server = Server::with(setup, &options);
        let from = |path: &str| {
            let socket = Socket::open(server.public, path);
            let lines = std::collections::VecDeque::new();
            let mut client = Client { socket, lines };
            client.ask(json!({"id": 1, "connect": {}}));
            client.ask(rpc(2, "m"))["rpc"]["data"].take()
        };
        assert_eq!(from("/c"), json!({"from": "rpc", "user": "ann"}));
        assert_eq!(from("/other"), json!({"from": "other", "user": ""}));
        assert_eq!(count(&server, "connect", "granted"), 1.0);
        // The settings of the hooks survive a reload.
        assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
        assert_eq!(from("/other"), json!({"from": "other", "user": ""}));
    });
}
