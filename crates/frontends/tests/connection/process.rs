//! Services of the process (addresses, users, keys, bans), and the responses when they refuse a client.

use std::sync::{Arc, RwLock};

use serde_json::{Value, json};
use veche_frontends::ProcessServices;
use veche_frontends::issued_token::{Ban, BanError, IssuedToken};
use veche_frontends::stats::AcceptRejection;

use super::centrifuge::{in_seconds, token};
use crate::world::wire::{
    ServerMessage, close, get, handshake, post, response, responses, server_messages, statuses,
    text,
};
use crate::world::{INTERNAL, Options, PUBLIC, Peer, World, limits};

/// A process that refuses certain addresses and users, and records the calls of its methods.
#[derive(Default)]
struct Strict {
    calls: RwLock<Vec<String>>,
}

impl Strict {
    fn tell(&self, what: String) {
        self.calls.write().expect("one thread").push(what);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.write().expect("one thread"))
    }
}

type Address = std::net::IpAddr;

impl ProcessServices for Strict {
    fn is_ready(&self) -> bool {
        false
    }

    fn metrics(&self) -> String {
        String::new()
    }

    fn address_has_capacity(&self, address: Address) -> bool {
        address.to_string() != "10.0.0.1"
    }

    fn address_opened(&self, address: Address) -> bool {
        self.tell(format!("opened {address}"));
        address.to_string() != "10.0.0.2"
    }

    fn address_closed(&self, address: Address) {
        self.tell(format!("closed {address}"));
    }

    fn may_begin_handshake(&self, address: Address, now_ms: u64) -> bool {
        self.tell(format!("begins {address} at {now_ms}"));
        address.to_string() != "10.0.0.3"
    }

    fn wrong_key(&self, address: Address, _: u64) -> u64 {
        self.tell(format!("wrong key of {address}"));
        match address.to_string().as_str() {
            "127.0.0.1" => 0,
            _ => 2_001,
        }
    }

    fn user_opened(&self, user: &str, max: u32) -> bool {
        self.tell(format!("{user} one of {max}"));
        user != "crowd"
    }

    fn user_closed(&self, user: &str) {
        self.tell(format!("{user} gone"));
    }

    fn is_banned(&self, user: &str, _: u64) -> bool {
        user == "blocked"
    }

    fn is_revoked(&self, token: &IssuedToken<'_>, now_s: u64) -> bool {
        self.tell(format!("{token:?} at {now_s}"));
        token.id == Some("revoked")
    }

    fn ban(&self, block: &Ban, now_s: u64) -> Result<(), BanError> {
        self.tell(format!("{block:?} at {now_s}"));
        match block {
            Ban::Token { id, .. } if id == "full" => Err(BanError::TooMany),
            Ban::Token { id, .. } if id == "broken" => {
                Err(BanError::NotWritten("disk full".into()))
            }
            Ban::User { user, .. } if user == "dan" => {
                Err(BanError::NotWritten("disk full".into()))
            }
            _ => Ok(()),
        }
    }

    fn disconnect_user(&self, user: &str, except: &[Box<str>]) {
        self.tell(format!("end {user} except {except:?}"));
    }

    fn log_error(&self, what: &str) {
        self.tell(format!("trouble: {what}"));
    }

    fn nodes(&self) -> String {
        "[]".to_owned()
    }
}

fn world_of(options: Options) -> (World, Arc<Strict>) {
    let mut world = World::new(options);
    let process = Arc::new(Strict::default());
    for worker in &mut world.workers {
        worker.shared_mut().process = Arc::clone(&process) as Arc<dyn ProcessServices>;
    }
    (world, process)
}

/// Configures the public listener as if it were behind a proxy on this machine.
fn behind_a_proxy(world: &mut World) {
    for worker in &mut world.workers {
        let site = Arc::get_mut(&mut worker.shared_mut().config).expect("the only one");
        let access = &mut site.listeners[usize::from(PUBLIC)].access;
        access.trusted_proxies = vec!["127.0.0.0/8".parse().expect("a network")];
    }
}

fn turned_away(world: &World, why: AcceptRejection) -> u64 {
    world.stats(0).accepts_rejected[why as usize].read()
}

fn handshake_for(client: &str) -> String {
    handshake("/ws?user=ann", &format!("X-Forwarded-For: {client}\r\n"))
}

#[test]
fn addresses_behind_a_proxy_count_and_are_turned_away_for_their_own_reason() {
    let (mut world, process) = world_of(Options::default());
    behind_a_proxy(&mut world);
    let now_ms = world.now_ms;
    let peer = world.connect(0, PUBLIC);
    let bytes = world.ask(peer, handshake_for("10.0.0.9"));
    assert_eq!(statuses(&bytes), [101]);
    let begins = format!("begins 10.0.0.9 at {now_ms}");
    assert_eq!(process.take(), [begins.as_str(), "opened 10.0.0.9"]);
    world.reset(peer);
    assert_eq!(process.take(), ["closed 10.0.0.9"]);
    // The first address has too many connections, the second too many handshakes. Each request is refused, and the
    // client may retry on the same connection.
    let peer = world.connect(0, PUBLIC);
    for (client, why, text) in [
        (
            "10.0.0.1",
            AcceptRejection::Connections,
            "too many connections of this address\n",
        ),
        (
            "10.0.0.3",
            AcceptRejection::Rate,
            "too many handshakes of this address\n",
        ),
    ] {
        let bytes = world.ask(peer, handshake_for(client));
        let answer = &responses(&bytes)[0];
        assert_eq!((answer.status, answer.body.as_str()), (429, text));
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(turned_away(&world, why), 1);
        assert!(world.is_open(peer));
    }
    assert_eq!(process.take(), [format!("begins 10.0.0.3 at {now_ms}")]);
    world.reset(peer);
    assert_eq!(process.take(), [""; 0], "it was never counted");
    // The address had capacity when the handshake was checked, but not when the connection was
    // counted: another connection was counted in between.
    let peer = world.connect(0, PUBLIC);
    let bytes = world.ask(peer, handshake_for("10.0.0.2"));
    let (head, rest) = response(&bytes, true);
    assert_eq!(head.status, 101);
    let reason = "too many connections of this address".to_owned();
    assert_eq!(
        server_messages(rest),
        [ServerMessage::Close(Some(1013), reason)]
    );
    assert_eq!(turned_away(&world, AcceptRejection::Connections), 2);
    world.ask(peer, close(Some(1013), ""));
    world.reset(peer);
    let calls = process.take();
    assert_eq!(calls[1..], ["opened 10.0.0.2", "closed 10.0.0.2"]);
    // The proxy's own address is not counted as a client.
    let peer = world.connect(0, PUBLIC);
    assert_eq!(
        statuses(&world.ask(peer, handshake("/ws?user=ann", ""))),
        [101]
    );
    assert_eq!(process.take(), [""; 0]);
}

#[test]
fn a_direct_client_s_later_handshakes_count() {
    let (mut world, process) = world_of(Options::default());
    let peer = world.connect(0, PUBLIC);
    let now_ms = world.now_ms;
    assert_eq!(statuses(&world.ask(peer, handshake("/ws", ""))), [401]);
    assert_eq!(process.take(), [""; 0], "it was counted when it came");
    assert_eq!(statuses(&world.ask(peer, handshake("/ws", ""))), [401]);
    assert_eq!(process.take(), [format!("begins 127.0.0.1 at {now_ms}")]);
    let back_end = world.connect(0, INTERNAL);
    for _ in 0..2 {
        assert_eq!(
            statuses(&world.ask(back_end, handshake("/admin/socket", ""))).len(),
            1
        );
    }
    assert_eq!(
        process.take(),
        [""; 0],
        "of internal listeners nothing is counted"
    );
}

#[test]
fn users_have_as_many_connections_as_they_may() {
    let mut limits = limits();
    limits.connections_per_user = 3;
    let (mut world, process) = world_of(Options {
        limits,
        ..Options::default()
    });
    let peer = world.open(0, "/ws?user=ann");
    let anonymous = world.open(0, "/open?channel=news");
    assert_eq!(process.take(), ["ann one of 3"]);
    let crowd = world.connect(0, PUBLIC);
    let bytes = world.ask(crowd, handshake("/ws?user=crowd", ""));
    let answer = &responses(&bytes)[0];
    assert_eq!(answer.status, 429, "{}", answer.body);
    assert_eq!(turned_away(&world, AcceptRejection::UserConnections), 1);
    assert_eq!(process.take(), ["crowd one of 3"]);
    world.reset(crowd);
    world.reset(anonymous);
    assert_eq!(process.take(), [""; 0]);
    world.reset(peer);
    assert_eq!(process.take(), ["ann gone"]);
}

#[test]
fn short_of_memory_nothing_new_is_begun_for_clients() {
    let (mut world, _) = world_of(Options::default());
    let old = world.open(0, "/ws?user=ann");
    world.workers[0].shared_mut().is_short_of_memory = true;
    let peer = world.connect(0, PUBLIC);
    let bytes = world.ask(peer, handshake("/ws?user=bob", ""));
    let answer = &responses(&bytes)[0];
    let why = "the server is short of memory: try again later\n";
    assert_eq!((answer.status, answer.body.as_str()), (503, why));
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(turned_away(&world, AcceptRejection::Memory), 1);
    let back_end = world.connect(0, INTERNAL);
    let push = post("/api/push", r#"{"user":"ann","data":1}"#);
    let bytes = world.ask(back_end, push.as_str());
    let answer = &responses(&bytes)[0];
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (503, Some("1"))
    );
    assert!(answer.body.contains("\"code\":106"), "{}", answer.body);
    let stats = world.stats(0);
    let away: Vec<u64> = stats
        .push_connections_rejected
        .iter()
        .map(|cell| cell.read())
        .collect();
    assert_eq!((away, stats.pushes.read()), (vec![0, 1], 0));
    assert_eq!(world.take(old), b"");
    world.workers[0].shared_mut().is_short_of_memory = false;
    assert_eq!(statuses(&world.ask(back_end, push)), [200]);
    assert_eq!(
        server_messages(&world.take(old)),
        [ServerMessage::Text("1".into())]
    );
    // `/health` answers 503, since this process is never ready.
    let bytes = world.ask(back_end, get("/health"));
    assert_eq!(statuses(&bytes), [503]);
}

#[test]
fn wrong_keys_are_rejected_and_too_many_close_the_connection() {
    let (mut world, process) = world_of(Options {
        api_keys: vec!["secret"],
        ..Options::default()
    });
    let call = |path: &str, key: &str| {
        format!("POST {path} HTTP/1.1\r\nHost: veche.test\r\n{key}Content-Length: 2\r\n\r\n{{}}")
    };
    let peer = world.connect(0, INTERNAL);
    let wrong = "X-API-Key: wrong\r\n";
    for (path, key, expected) in [
        ("/api/info", wrong, &["wrong key of 127.0.0.1"][..]),
        ("/api/info", "", &[]),
        ("/admin/api/info", wrong, &["wrong key of 127.0.0.1"]),
        ("/admin/api/info", "", &[]),
    ] {
        assert_eq!(
            statuses(&world.ask(peer, call(path, key))),
            [401],
            "{path} {key}"
        );
        assert_eq!(process.take(), expected, "{path} {key}");
        assert!(world.is_open(peer));
    }
    let wrong_keys: Vec<u64> = world
        .stats(0)
        .wrong_api_keys
        .iter()
        .map(|cell| cell.read())
        .collect();
    assert_eq!(wrong_keys, [1, 1]);
    let notes = std::mem::take(&mut world.workers[0].shared_mut().log_notes);
    let notes: Vec<&str> = notes.iter().map(|note| note.text.as_str()).collect();
    let expected = [
        "wrong key for the API from 127.0.0.1",
        "wrong key for the admin page from 127.0.0.1",
    ];
    assert_eq!(notes, expected);
    // An address with too many wrong keys gets status 429 with the time to wait in whole seconds, and its connection
    // is closed.
    for worker in &mut world.workers {
        let site = Arc::get_mut(&mut worker.shared_mut().config).expect("the only one");
        let access = &mut site.listeners[usize::from(INTERNAL)].access;
        access.trusted_proxies = vec!["127.0.0.0/8".parse().expect("a network")];
    }
    let key = format!("{wrong}X-Forwarded-For: 10.0.0.9\r\n");
    let bytes = world.ask(peer, call("/api/info", &key));
    let answer = &responses(&bytes)[0];
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (429, Some("3"))
    );
    assert!(answer.body.contains("\"code\":111"), "{}", answer.body);
    assert!(!world.is_open(peer));
}

fn call(world: &mut World, method: &str, body: &Value) -> Value {
    let caller = world.connect(0, INTERNAL);
    let bytes = world.ask(caller, post(&format!("/api/{method}"), &body.to_string()));
    world.reset(caller);
    serde_json::from_str(&responses(&bytes)[0].body).expect("JSON")
}

#[test]
fn blocks_apply_to_the_process_and_close_connected_users() {
    let (mut world, process) = world_of(Options {
        workers: 2,
        ..Options::default()
    });
    let peers: Vec<Peer> = (0..2)
        .map(|worker| world.open(worker, "/ws?user=ann"))
        .collect();
    let bob = world.open(0, "/ws?user=bob");
    let at = in_seconds(&world, 0);
    let ok = json!({ "result": {} });
    let until = at + 60;
    for (method, body, process_call) in [
        (
            "revoke_token",
            json!({ "uid": "t1", "expire_at": until }),
            format!("Token {{ id: \"t1\", until_s: Some({until}) }} at {at}"),
        ),
        (
            "invalidate_user_tokens",
            json!({ "user": "ann" }),
            format!("TokensOf {{ user: \"ann\", issued_before_s: {at}, until_s: None }} at {at}"),
        ),
        (
            "invalidate_user_tokens",
            json!({ "user": "ann", "issued_before": 7, "expire_at": 0 }),
            format!("TokensOf {{ user: \"ann\", issued_before_s: 7, until_s: None }} at {at}"),
        ),
        (
            "unblock_user",
            json!({ "user": "ann" }),
            format!("UserAllowed {{ user: \"ann\" }} at {at}"),
        ),
    ] {
        assert_eq!(call(&mut world, method, &body), ok, "{method}");
        assert_eq!(process.take(), [process_call]);
    }
    assert!(peers.iter().all(|peer| world.is_open(*peer)));
    let answer = call(
        &mut world,
        "block_user",
        &json!({ "user": "ann", "expire_at": until }),
    );
    assert_eq!(answer["error"], Value::Null, "{answer}");
    let calls = process.take();
    let expected = format!("User {{ user: \"ann\", until_s: Some({until}) }} at {at}");
    assert_eq!(calls, [expected.as_str(), "end ann except []"]);
    for peer in peers {
        let received = server_messages(&world.take(peer));
        assert_eq!(
            received,
            [ServerMessage::Close(Some(3507), "permission denied".into())]
        );
    }
    assert!(world.take(bob).is_empty());
    // A ban that can't be stored is reported as an error, and closes no connection.
    let answer = call(&mut world, "revoke_token", &json!({ "uid": "full" }));
    assert_eq!(answer["error"]["code"], 106, "{answer}");
    process.take();
    let answer = call(&mut world, "revoke_token", &json!({ "uid": "broken" }));
    assert_eq!(answer["error"]["code"], 100, "{answer}");
    assert_eq!(
        process.take()[1],
        "trouble: [api] blocks: the ban is in force, but could not be saved and ends with the server process: disk full"
    );
    // If the ban of a user can't be stored on disk, the user is still disconnected, on all workers.
    let dans = [0, 1].map(|worker| world.open(worker, "/ws?user=dan"));
    let answer = call(&mut world, "block_user", &json!({ "user": "dan" }));
    assert_eq!(answer["error"]["code"], 100, "{answer}");
    let why = answer["error"]["message"].as_str().expect("a reason");
    assert!(why.contains("ends with the server process"), "{why}");
    for peer in dans {
        let received = server_messages(&world.take(peer));
        assert_eq!(
            received,
            [ServerMessage::Close(Some(3507), "permission denied".into())]
        );
    }
    process.take();
    // A banned user is reported as banned and can't connect.
    let answer = call(&mut world, "user_status", &json!({ "user": "blocked" }));
    let away = json!({ "result": { "online": false, "connections": 0, "blocked": true } });
    assert_eq!(answer, away);
    let peer = world.connect(0, PUBLIC);
    let bytes = world.ask(peer, handshake("/ws?user=blocked", ""));
    assert_eq!(statuses(&bytes), [403]);
    // A disconnect applies to all connections of the user except those in the list.
    let body = json!({ "user": "bob", "whitelist": ["a", "b"] });
    call(&mut world, "disconnect", &body);
    assert_eq!(process.take(), ["end bob except [\"a\", \"b\"]"]);
    call(
        &mut world,
        "disconnect",
        &json!({ "user": "bob", "client": "a" }),
    );
    call(
        &mut world,
        "unsubscribe",
        &json!({ "user": "bob", "channel": "news" }),
    );
    assert_eq!(process.take(), [""; 0]);
    call(
        &mut world,
        "refresh",
        &json!({ "user": "bob", "expired": true }),
    );
    assert_eq!(process.take(), ["end bob except []"]);
}

#[test]
fn a_token_s_name_and_time_are_shown_to_the_process() {
    let (mut world, process) = world_of(Options::default());
    let at = in_seconds(&world, 0);
    for (claims, id, issued, is_open) in [
        (
            json!({ "jti": "t1", "iat": at - 5 }),
            "Some(\"t1\")",
            format!("Some({})", at - 5),
            true,
        ),
        (
            json!({ "jti": "t2", "iat": 7.9 }),
            "Some(\"t2\")",
            "Some(7)".to_owned(),
            true,
        ),
        (
            json!({ "jti": "t3", "iat": -7.9 }),
            "Some(\"t3\")",
            "Some(0)".to_owned(),
            true,
        ),
        (
            json!({ "jti": "revoked" }),
            "Some(\"revoked\")",
            "None".to_owned(),
            false,
        ),
    ] {
        let mut claims = claims;
        claims["sub"] = json!("ann");
        claims["exp"] = json!(at + 60);
        let peer = world.open(0, "/centrifuge/jwt");
        let connect = json!({ "id": 1, "connect": { "token": token(&claims) } });
        let bytes = world.ask(peer, text(&connect.to_string()));
        let calls = process.take();
        let expected = format!(
            "IssuedToken {{ user: Some(\"ann\"), id: {id}, issued_at_s: {issued} }} at {at}"
        );
        assert_eq!(calls.first(), Some(&expected), "{claims}");
        let received = server_messages(&bytes);
        let is_closed = received
            .iter()
            .any(|message| matches!(message, ServerMessage::Close(..)));
        assert_eq!(is_closed, !is_open, "{claims}: {received:?}");
        world.reset(peer);
    }
}

#[test]
fn a_token_of_a_blocked_user_opens_nothing() {
    let (mut world, _) = world_of(Options::default());
    for (user, expected) in [("ann", None), ("blocked", Some(3507))] {
        let claims = json!({ "sub": user, "exp": in_seconds(&world, 60) });
        let peer = world.open(0, "/centrifuge/jwt");
        let connect = json!({ "id": 1, "connect": { "token": token(&claims) } });
        let received = server_messages(&world.ask(peer, text(&connect.to_string())));
        let code = received.iter().find_map(|message| match message {
            ServerMessage::Close(code, _) => *code,
            _ => None,
        });
        assert_eq!(code, expected, "{received:?}");
    }
}
