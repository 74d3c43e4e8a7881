//! Decisions about clients, as they are reported to a process that watches them.

use std::sync::{Arc, RwLock};

use serde_json::{Value, json};
use veche_frontends::{AuthDecision, ProcessServices};

use super::centrifuge::{in_seconds, token};
use crate::world::wire::{
    ServerMessage, close, handshake, post, response, responses, server_messages, text,
};
use crate::world::{INTERNAL, PUBLIC, PUSH, Peer, World};

/// Records each decision as text: the kind, user, client, channel, code and reason; a dash stands for an empty part.
#[derive(Default)]
struct Watching {
    decisions: RwLock<Vec<String>>,
}

impl Watching {
    /// Returns the decisions since the last call, sorted as text.
    fn take(&self) -> Vec<String> {
        let mut decisions = std::mem::take(&mut *self.decisions.write().expect("one thread"));
        decisions.sort_unstable();
        decisions
    }
}

impl ProcessServices for Watching {
    fn is_ready(&self) -> bool {
        true
    }

    fn metrics(&self) -> String {
        String::new()
    }

    fn log_error(&self, what: &str) {
        panic!("{what}");
    }

    fn nodes(&self) -> String {
        "[]".to_owned()
    }

    fn is_banned(&self, user: &str, _: u64) -> bool {
        user == "blocked"
    }

    fn watches_decisions(&self) -> bool {
        true
    }

    fn log_decision(&self, decision: &AuthDecision<'_>) {
        let AuthDecision {
            what,
            user,
            client,
            channel,
            code,
            reason,
        } = *decision;
        let [user, client, channel, reason] =
            [user, client, channel, reason].map(|text| if text.is_empty() { "-" } else { text });
        let text = format!("{what} {user} {client} {channel} {code} {reason}");
        self.decisions.write().expect("one thread").push(text);
    }
}

fn world() -> (World, Arc<Watching>) {
    let mut world = World::new(Default::default());
    let process = Arc::new(Watching::default());
    world.workers[0].shared_mut().process = Arc::clone(&process) as Arc<dyn ProcessServices>;
    (world, process)
}

fn call(world: &mut World, path: &str, body: &Value) {
    let caller = world.connect(0, INTERNAL);
    let answer = world.ask(caller, post(path, &body.to_string()));
    assert_eq!(responses(&answer)[0].status, 200);
}

/// Sends a command of a client; returns the first line of the output, or the code of the close.
fn ask(world: &mut World, peer: Peer, command: &Value) -> Value {
    let bytes = world.ask(peer, text(&command.to_string()));
    match server_messages(&bytes).into_iter().next() {
        Some(ServerMessage::Text(text)) => serde_json::from_str(&text).expect("JSON"),
        Some(ServerMessage::Close(code, _)) => json!(code),
        other => panic!("{other:?}"),
    }
}

#[test]
fn handshakes_are_reported_with_what_they_open() {
    let table: &[(&str, u16, &[&str])] = &[
        (
            "/ws",
            401,
            &["connect - - - 401 no user name in the handshake"],
        ),
        (
            "/ws?user=ann&channel=secret",
            403,
            &["connect - - - 403 this route does not allow this channel"],
        ),
        (
            "/ws?user=ann&channel=news&channel=room:1",
            101,
            &[
                "connect ann - - 0 -",
                "subscribe ann - news 0 -",
                "subscribe ann - room:1 0 -",
            ],
        ),
        (
            "/open?channel=news",
            101,
            &["connect - - - 0 -", "subscribe - - news 0 -"],
        ),
        (
            "/decided-user?user=ann&decision=refuse",
            403,
            &["connect ann - - 403 refused by the application"],
        ),
        (
            "/decided?decision=bad-user",
            500,
            &["connect - - - 500 the application failed"],
        ),
        // The client is refused by a close code after which SDKs do not reconnect.
        (
            "/centrifuge/named?user=blocked",
            101,
            &[
                "connect - - - 3507 permission denied",
                "disconnect - - - 3507 permission denied",
            ],
        ),
    ];
    for (target, status, expected) in table {
        let (mut world, process) = world();
        let peer = world.connect(0, PUBLIC);
        let answer = world.ask(peer, handshake(target, ""));
        assert_eq!(response(&answer, true).0.status, *status, "{target}");
        assert_eq!(process.take(), *expected, "{target}");
    }
}

#[test]
fn ends_of_sessions_are_reported_with_their_user_and_client() {
    let (mut world, process) = world();
    let peer = world.open(0, "/ws?user=ann");
    process.take();
    world.ask(peer, close(Some(4001), "bye"));
    assert_eq!(process.take(), ["disconnect ann - - 4001 bye"]);
    let peer = world.open(0, "/ws?user=ann");
    process.take();
    world.reset(peer);
    assert_eq!(
        process.take(),
        ["disconnect ann - - 1006 the connection was lost"]
    );
    let peer = world.open(0, "/centrifuge/named?user=ann");
    let connected = ask(&mut world, peer, &json!({ "id": 1, "connect": {} }));
    let client = connected["connect"]["client"].as_str().expect("an id");
    process.take();
    let end = json!({ "code": 4321, "reason": "enough" });
    call(
        &mut world,
        "/api/disconnect",
        &json!({ "user": "ann", "disconnect": end }),
    );
    let expected = format!("disconnect ann {client} - 4321 enough");
    assert_eq!(process.take(), [expected]);
}

#[test]
fn publications_of_back_ends_are_reported_for_each_target() {
    for (target, expected) in [
        (
            json!({ "user": "ann" }),
            &["publish ann - - 0 by a back end"][..],
        ),
        (
            json!({ "users": ["ann", "bob"] }),
            &[
                "publish ann - - 0 by a back end",
                "publish bob - - 0 by a back end",
            ],
        ),
        (
            json!({ "channel": "news" }),
            &["publish - - news 0 by a back end"],
        ),
        (
            json!({ "channels": ["news", "room:1"] }),
            &[
                "publish - - news 0 by a back end",
                "publish - - room:1 0 by a back end",
            ],
        ),
    ] {
        let (mut world, process) = world();
        let back_end = world.connect(0, PUSH);
        let mut line = target;
        line["data"] = json!(1);
        assert_eq!(world.ask(back_end, format!("{line}\n")), b"");
        assert_eq!(process.take(), expected);
    }
}

#[test]
fn refused_tokens_are_reported_with_the_reason() {
    let (mut world, process) = world();
    let exp = in_seconds(&world, 60);
    let peer = world.open(0, "/centrifuge/jwt");
    process.take();
    let connect = |token: String| json!({ "id": 1, "connect": { "token": token } });
    ask(&mut world, peer, &connect("x.y.z".to_owned()));
    let expected = [
        "connect - - - 3500 invalid token",
        "disconnect - - - 3500 invalid token",
        "token - - - 0 the token is refused: malformed",
    ];
    assert_eq!(process.take(), expected);
    let peer = world.open(0, "/centrifuge/jwt");
    let good = token(&json!({ "sub": "ann", "exp": exp }));
    ask(&mut world, peer, &connect(good));
    process.take();
    let bobs = token(&json!({ "sub": "bob", "exp": exp }));
    ask(
        &mut world,
        peer,
        &json!({ "id": 2, "refresh": { "token": bobs } }),
    );
    let mut decisions = process.take();
    decisions.retain(|decision| decision.starts_with("token "));
    assert_eq!(
        decisions,
        ["token ann - - 0 the token is refused: it belongs to another user"]
    );
}
