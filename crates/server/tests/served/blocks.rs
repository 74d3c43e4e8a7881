//! Users and tokens blocked by the back end, on the real server.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::jwt::{SECRET, bearer, handshake, now_s, shared};
use crate::support::{Options, Seen, Server, Setup, Socket, call, now, on_all, process, until};

const ROUTES: &str = "
[[route]]
path = \"/jwt\"
handler = \"push\"
identity = \"jwt\"

[[route]]
path = \"/push\"
handler = \"push\"
identity = \"query:user\"

[[route]]
path = \"/app\"
handler = \"lua\"
script = \"app.lua\"

[[route]]
path = \"/connection/*\"
handler = \"centrifuge\"
identity = \"jwt\"

[jwt]
secret_file = \"secret\"
";

/// An application whose handshake handler determines the user.
const APP: &str = "
local veche = require 'veche'
local app = {}
local go = veche.dict('go')
function app.handshake(req)
  if req.query.slow then
    print('thinking')
    repeat veche.sleep(0.01) until go:get('go')
  end
  return { user = req.query.user }
end
function app.request(req) go:set('go', true) return 'ok' end
function app.open(conn) conn:send('open') end
return app
";

fn start(setup: Setup) -> Server {
    let options = Options {
        routes: ROUTES,
        api: "blocks = \"blocked\"",
        files: &[("secret", SECRET), ("app.lua", APP)],
        ..Options::default()
    };
    Server::with(setup, &options)
}

fn call_api(server: &Server, method: &str, body: Value) -> Value {
    call(server.internal, method, &body)
}

fn refusal(server: &Server, target: &str, headers: &str) -> (u16, String) {
    let response = handshake(server.public, target, headers);
    let text = match response.status {
        101 => String::new(),
        _ => response.text().trim().to_owned(),
    };
    (response.status, text)
}

/// Connects with a token as Centrifugo's clients do; returns the reply, or the close code.
fn connect(server: &Server, token: &str) -> Result<(Socket, Value), u16> {
    let mut socket = Socket::open(server.public, "/connection/websocket");
    let command = json!({"id": 1, "connect": {"token": token}});
    socket.say(&command.to_string());
    match socket.next() {
        Seen::Text(text) => Ok((socket, serde_json::from_str(&text).expect("JSON"))),
        Seen::Close(Some(code), _) => Err(code),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_blocked_user_is_disconnected_and_rejected_until_unblocked() {
    on_all(|setup| {
        let server = start(setup);
        let claims = json!({"sub": "ann", "exp": now_s() + 600});
        let token = shared(&claims);
        let mut sockets = [
            Socket::open(server.public, "/push?user=ann"),
            Socket::open(server.public, "/app?user=ann"),
            connect(&server, &token).expect("she is let in").0,
        ];
        assert_eq!(sockets[1].text(), "open");
        let mut other = Socket::open(server.public, "/push?user=bob");
        let answer = call_api(&server, "block_user", json!({"user": "ann"}));
        assert_eq!(answer, json!({"result": {"disconnected": 3}}));
        for socket in &mut sockets {
            assert_eq!(socket.closed(), 3507);
        }
        assert!(other.is_alive());

        let blocked = |server: &Server| {
            let refused = (403, "this user is blocked".to_owned());
            assert_eq!(refusal(server, "/push?user=ann", ""), refused);
            assert_eq!(refusal(server, "/app?user=ann", ""), refused);
            assert_eq!(refusal(server, "/jwt", &bearer(&token)), refused);
            assert_eq!(connect(server, &token).expect_err("blocked"), 3507);
            assert_eq!(refusal(server, "/push?user=bob", "").0, 101);
            let status = call_api(server, "user_status", json!({"user": "ann"}));
            assert_eq!(status["result"]["blocked"], true, "{status}");
        };
        blocked(&server);

        // A crash of the server process does not unblock the user.
        let old = server.pid();
        process::kill(old, Signal::KILL);
        until("another server process", || {
            let is_another = server.try_pid().is_some_and(|pid| pid != old);
            let status = server.status();
            is_another && status.is_some_and(|status| status["state"] == "ready")
        });
        blocked(&server);

        let answer = call_api(&server, "unblock_user", json!({"user": "ann"}));
        assert_eq!(answer, json!({"result": {}}));
        assert_eq!(refusal(&server, "/push?user=ann", "").0, 101);
        assert!(connect(&server, &token).is_ok());
    });
}

#[test]
fn a_revoked_token_opens_nothing() {
    on_all(|setup| {
        let server = start(setup);
        let until_s = now_s() + 600;
        let token = |user: &str, id: &str, at_s: u64| {
            shared(&json!({"sub": user, "jti": id, "iat": at_s, "exp": until_s}))
        };
        let (first, second) = (token("ann", "t1", 1000), token("ann", "t2", 2000));
        assert_eq!(refusal(&server, "/jwt", &bearer(&first)).0, 101);
        let answer = call_api(&server, "revoke_token", json!({"uid": "t1"}));
        assert_eq!(answer, json!({"result": {}}));
        let revoked = (401, "the token was revoked".to_owned());
        assert_eq!(refusal(&server, "/jwt", &bearer(&first)), revoked);
        assert_eq!(connect(&server, &first).expect_err("revoked"), 3500);
        assert_eq!(refusal(&server, "/jwt", &bearer(&second)).0, 101);

        let before = json!({"user": "ann", "issued_before": 2001});
        call_api(&server, "invalidate_user_tokens", before);
        assert_eq!(refusal(&server, "/jwt", &bearer(&second)), revoked);
        let third = token("ann", "t3", 2001);
        assert_eq!(refusal(&server, "/jwt", &bearer(&third)).0, 101);
        let other = token("bob", "t4", 1);
        assert_eq!(refusal(&server, "/jwt", &bearer(&other)).0, 101);

        // A ban that can't be saved is in force, and the response reports that it may be lost.
        let path = server.folder.join("blocked");
        std::fs::remove_file(&path).expect("a file");
        std::fs::create_dir(&path).expect("a folder");
        let answer = call_api(&server, "revoke_token", json!({"uid": "t4"}));
        assert_eq!(answer["error"]["code"], 100, "{answer}");
        assert_eq!(refusal(&server, "/jwt", &bearer(&other)), revoked);
    });
}

#[test]
fn a_user_disconnected_while_connecting_is_rejected() {
    on_all(|setup| {
        let server = start(setup);
        // The handshake is complete, but the client has not sent connect.
        let token = shared(&json!({"sub": "ann", "exp": now_s() + 600}));
        let target = format!("/connection/websocket?token={token}");
        let mut early = Socket::open(server.public, &target);
        // An application is still deciding about the handshakes of ann and bob.
        let (slow, bob) = thread::scope(|scope| {
            let waiting = ["ann", "bob"].map(|user| {
                let target = format!("/app?slow=1&user={user}");
                let server = &server;
                scope.spawn(move || refusal(server, &target, "").0)
            });
            until("both to wait", || {
                server.log().matches("thinking").count() == 2
            });
            call_api(&server, "disconnect", json!({"user": "ann"}));
            let mut http = crate::support::Http::connect(server.public);
            let response = http.request("GET", "/app", "", b"");
            assert_eq!(response.expect("an answer").status, 200);
            let [ann, bob] = waiting.map(|one| one.join().expect("no panic"));
            (ann, bob)
        });
        assert_eq!((slow, bob), (401, 101));
        early.say(r#"{"id":1,"connect":{}}"#);
        assert_eq!(early.closed(), 3503);
        // Only the session was closed, so the same client can open a new connection.
        let mut again = Socket::open(server.public, &target);
        again.say(r#"{"id":1,"connect":{}}"#);
        assert!(again.text().contains("connect"));
    });
}

#[test]
fn no_connection_survives_a_concurrent_block() {
    on_all(|setup| {
        let server = start(setup);
        for _ in 0..20 {
            let is_over = AtomicBool::new(false);
            let sockets = thread::scope(|scope| {
                let knocking = scope.spawn(|| {
                    let mut sockets = Vec::new();
                    while !is_over.load(Relaxed) && sockets.len() < 200 {
                        sockets.extend(Socket::try_open(server.public, "/push?user=eve").ok());
                    }
                    sockets
                });
                let began = now();
                while began.elapsed().as_millis() < 5 {
                    thread::yield_now();
                }
                call_api(&server, "block_user", json!({"user": "eve"}));
                is_over.store(true, Relaxed);
                knocking.join().expect("no panic")
            });
            for mut socket in sockets {
                assert_eq!(socket.closed(), 3507);
            }
            call_api(&server, "unblock_user", json!({"user": "eve"}));
        }
    });
}

#[test]
fn connections_are_listed_by_user_channel_and_name() {
    on_all(|setup| {
        let server = start(setup);
        let list = |body: Value| {
            let mut answer = call_api(&server, "connections", body);
            let Value::Object(all) = answer["result"]["connections"].take() else {
                panic!("{answer}");
            };
            let mut all: Vec<(String, Value)> = all.into_iter().collect();
            all.sort_by_key(|(_, one)| one["handler"].to_string());
            all
        };
        let user = || json!({"user": "ann"});
        assert!(list(user()).is_empty());
        let token = shared(&json!({"sub": "ann", "exp": now_s() + 600, "channels": ["chat:1"]}));
        let _push = Socket::open(server.public, "/push?user=ann");
        let mut app = Socket::open(server.public, "/app?user=ann");
        assert_eq!(app.text(), "open");
        let mut sdk = Socket::open(server.public, "/connection/websocket");
        let connect = json!({"token": token, "name": "js", "version": "5.8.0"});
        sdk.say(&json!({"id": 1, "connect": connect}).to_string());
        let reply: Value = serde_json::from_str(&sdk.text()).expect("JSON");
        let _other = Socket::open(server.public, "/push?user=bob");

        let all = list(user());
        let handlers: Vec<&Value> = all.iter().map(|(_, one)| &one["handler"]).collect();
        assert_eq!(handlers, ["centrifuge", "lua", "push"]);
        assert!(all.iter().all(|(_, one)| one["address"] == "127.0.0.1"));
        assert_eq!(all[2].1["state"], json!({"channels": {"#ann": {}}}));
        let expected = json!({
            "user": "ann",
            "handler": "centrifuge",
            "transport": "websocket",
            "protocol": "json",
            "route": "/connection/*",
            "address": "127.0.0.1",
            "app_name": "js",
            "app_version": "5.8.0",
            "state": {"channels": {"#ann": {}, "chat:1": {}}},
        });
        assert_eq!(reply["connect"]["client"], *all[0].0);
        assert_eq!(all[0].1, expected);
        assert_eq!(list(json!({"channel": "chat:1"})), all[..1]);
        assert_eq!(list(json!({"user": "ann", "name": "js"})), all[..1]);
        assert!(list(json!({"user": "ann", "name": "swift"})).is_empty());

        let commands = json!([
            {"connections": {"user": "ann"}}, {"user_status": {"user": "ann"}}, {"connections": {"user": "bob"}},
        ]);
        let answer = call_api(&server, "batch", json!({"commands": commands}));
        let replies = &answer["replies"];
        let count = |place: usize| replies[place]["connections"]["connections"].as_object();
        assert_eq!(count(0).map(serde_json::Map::len), Some(3), "{answer}");
        assert_eq!(count(2).map(serde_json::Map::len), Some(1), "{answer}");
    });
}
