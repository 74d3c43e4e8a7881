//! Tests of back-end commands that arrive while a hook decision is pending: they apply to the session that the
//! decision lets in. Also tests of sessions that are closed while a command waits.

use std::sync::{Arc, RwLock};

use serde_json::{Value, json};
use veche_frontends::hooks::{HookDecision, HookGrant, HookRequest, HookSubscription};
use veche_frontends::identity::token::KeyProvider;
use veche_frontends::identity::{CompletionSink, Identity, IdentityResult};
use veche_frontends::issued_token::{self, BanError};
use veche_frontends::{ProcessServices, WaitReason};
use veche_hub::ConnectionId;
use veche_jwt::Keys;

use super::{Received, ask, connect, in_seconds, take, token};
use crate::world::wire::{close, handshake, post, response, responses, text};
use crate::world::{INTERNAL, PUBLIC, Peer, SECRET, World};

/// Records disconnects and unsubscriptions by back ends, as the server process does.
#[derive(Default)]
struct Remembering {
    ended: RwLock<Vec<String>>,
    blocked: RwLock<Vec<String>>,
    slots: RwLock<Vec<String>>,
}

impl ProcessServices for Remembering {
    fn is_ready(&self) -> bool {
        true
    }

    fn metrics(&self) -> String {
        String::new()
    }

    fn disconnect_count(&self) -> u64 {
        self.ended.write().expect("one thread").len() as u64
    }

    fn disconnect_user(&self, user: &str, _: &[Box<str>]) {
        self.ended
            .write()
            .expect("one thread")
            .push(user.to_owned());
    }

    fn disconnect_client(&self, user: &str, client: &str) {
        let one = format!("{user} by {client}");
        self.ended.write().expect("one thread").push(one);
    }

    fn is_disconnected_since(&self, user: &str, endings: u64, client: &str) -> bool {
        let ended = self.ended.write().expect("one thread");
        let ended = &ended[endings as usize..];
        ended.iter().any(|one| one == user) || ended.contains(&format!("{user} by {client}"))
    }

    fn unsubscribe_user(&self, user: &str, channel: &str, client: Option<&str>) {
        let one = format!("{user} in {channel} by {}", client.unwrap_or("any"));
        self.ended.write().expect("one thread").push(one);
    }

    fn is_unsubscribed_since(&self, user: &str, channel: &str, endings: u64, client: &str) -> bool {
        let ended = self.ended.write().expect("one thread");
        let ended = &ended[endings as usize..];
        ["any", client]
            .iter()
            .any(|client| ended.contains(&format!("{user} in {channel} by {client}")))
    }

    fn is_banned(&self, user: &str, _: u64) -> bool {
        let blocked = self.blocked.write().expect("one thread");
        blocked.iter().any(|one| one == user)
    }

    fn ban(&self, block: &issued_token::Ban, _: u64) -> Result<(), BanError> {
        if let issued_token::Ban::User { user, .. } = block {
            self.blocked.write().expect("one thread").push(user.clone());
        }
        Ok(())
    }

    fn user_opened(&self, user: &str, max: u32) -> bool {
        let mut slots = self.slots.write().expect("one thread");
        let has_room = slots.iter().filter(|one| *one == user).count() < max as usize;
        if has_room {
            slots.push(user.to_owned());
        }
        has_room
    }

    fn user_closed(&self, user: &str) {
        let mut slots = self.slots.write().expect("one thread");
        let place = slots.iter().position(|one| one == user);
        slots.swap_remove(place.expect("it was counted"));
    }

    fn log_error(&self, what: &str) {
        panic!("{what}");
    }

    fn nodes(&self) -> String {
        "[]".to_owned()
    }
}

fn world(workers: u16) -> World {
    let mut world = super::world(workers);
    let process = Arc::new(Remembering::default());
    for worker in &mut world.workers {
        worker.shared_mut().process = Arc::clone(&process) as Arc<dyn ProcessServices>;
    }
    world
}

/// The keys of an issuer, which have to be fetched first.
#[derive(Debug, Default)]
pub(super) struct Fetched(RwLock<Option<Arc<Keys>>>);

impl KeyProvider for Fetched {
    fn keys(&self) -> Option<Arc<Keys>> {
        self.0.write().expect("one thread").clone()
    }

    fn fetch(&self, _: ConnectionId, _: &Arc<dyn CompletionSink>, _: Option<&Arc<Keys>>) -> bool {
        true
    }
}

/// Makes the verification of tokens require a fetch of the keys.
pub(super) fn fetch_keys(world: &mut World) -> Arc<Fetched> {
    let keys = Arc::new(Fetched::default());
    for worker in &mut world.workers {
        let site = Arc::get_mut(&mut worker.shared_mut().config).expect("the only one");
        for route in &mut site.routes {
            if let Some(Identity::Token(tokens)) = Arc::get_mut(route).map(|one| &mut one.identity)
            {
                let keys = Arc::clone(&keys) as Arc<dyn KeyProvider>;
                Arc::make_mut(tokens).connections.keys = keys;
            }
        }
    }
    keys
}

impl Fetched {
    pub(super) fn arrive(&self) {
        let keys = Keys::secret(SECRET).expect("long enough");
        *self.0.write().expect("one thread") = Some(Arc::new(keys));
    }
}

fn call(world: &mut World, method: &str, body: &Value) -> Value {
    let caller = world.connect(0, INTERNAL);
    let answer = world.ask(caller, post(&format!("/api/{method}"), &body.to_string()));
    let answer = responses(&answer);
    assert_eq!(answer.len(), 1, "{method} is not answered");
    serde_json::from_str(&answer[0].body).expect("JSON")
}

fn hook_request(world: &mut World, worker: usize) -> HookRequest {
    let mut requests = world.hook_requests(worker);
    assert_eq!(requests.len(), 1, "{requests:?}");
    requests.remove(0)
}

fn granted(grant: HookGrant) -> HookDecision {
    HookDecision::Granted(Box::new(grant))
}

/// Returns a client on worker 1 whose handshake determined its user and whose connect command waits for a hook, with
/// the hook request.
fn connecting(world: &mut World) -> (Peer, HookRequest) {
    let peer = world.open(1, "/centrifuge/asked-named?user=ann");
    assert_eq!(ask(world, peer, super::CONNECT), Received::default());
    let request = hook_request(world, 1);
    (peer, request)
}

fn connected(world: &mut World) -> Peer {
    let (peer, request) = connecting(world);
    world.deliver_decision(1, &request, granted(HookGrant::default()));
    let received = take(world, peer);
    assert!(received.lines[0]["connect"].is_object(), "{received:?}");
    peer
}

fn handed(world: &mut World, channel: &str) -> Value {
    let publication = json!({ "channel": channel, "data": 1 });
    call(world, "publish", &publication)["result"]["handed"].clone()
}

#[test]
fn a_subscription_that_is_granted_after_its_end_is_refused() {
    for workers in [2, 3] {
        let mut world = world(workers);
        let peer = connected(&mut world);
        let subscribe = r#"{"id":2,"subscribe":{"channel":"asked:1"}}"#;
        for (ended, is_bound) in [("asked:1", true), ("asked:2", false), ("asked:1", true)] {
            assert_eq!(ask(&mut world, peer, subscribe), Received::default());
            let request = hook_request(&mut world, 1);
            // The call is answered while the decision is still pending, since the caller may be the hook itself.
            let one = json!({ "user": "ann", "channel": ended });
            assert_eq!(
                call(&mut world, "unsubscribe", &one),
                json!({ "result": {} })
            );
            world.deliver_decision(1, &request, granted(HookGrant::default()));
            let received = take(&mut world, peer);
            let refused = received.lines[0]["error"]["code"] == 103;
            assert_eq!(refused, is_bound, "{received:?}");
            assert_eq!(handed(&mut world, "asked:1"), u32::from(!is_bound));
            if !is_bound {
                let one = json!({ "user": "ann", "channel": "asked:1" });
                call(&mut world, "unsubscribe", &one);
                take(&mut world, peer);
            }
        }
    }
}

#[test]
fn a_client_that_is_ended_while_a_decision_is_pending_is_not_let_in() {
    let mut world = world(2);
    let (peer, request) = connecting(&mut world);
    call(&mut world, "disconnect", &json!({ "user": "ann" }));
    world.deliver_decision(1, &request, granted(HookGrant::default()));
    let received = take(&mut world, peer);
    assert_eq!(received.closed.map(|(code, _)| code), Some(3503));
    // A disconnected client is refused even if the decision, not the handshake, determines its user.
    let peer = world.open(1, "/centrifuge/asked/x/websocket");
    assert_eq!(ask(&mut world, peer, super::CONNECT), Received::default());
    let request = hook_request(&mut world, 1);
    call(&mut world, "disconnect", &json!({ "user": "ann" }));
    let grant = HookGrant {
        user: "ann".into(),
        ..HookGrant::default()
    };
    world.deliver_decision(1, &request, granted(grant));
    let received = take(&mut world, peer);
    assert_eq!(received.closed.map(|(code, _)| code), Some(3503));
}

#[test]
fn a_channel_that_was_taken_from_a_user_meanwhile_is_not_given_by_an_older_decision() {
    let mut world = world(2);
    let (peer, request) = connecting(&mut world);
    let one = json!({ "user": "ann", "channel": "open:1" });
    call(&mut world, "unsubscribe", &one);
    let given = |channel: &str| HookSubscription {
        channel: channel.into(),
        ..HookSubscription::default()
    };
    let grant = HookGrant {
        channels: vec![given("open:1"), given("open:2")],
        ..HookGrant::default()
    };
    world.deliver_decision(1, &request, granted(grant));
    let received = take(&mut world, peer);
    let subs = received.lines[0]["connect"]["subs"]
        .as_object()
        .expect("channels");
    assert_eq!(subs.keys().collect::<Vec<_>>(), ["#ann", "open:2"]);
    assert_eq!(handed(&mut world, "open:1"), 0);
    assert_eq!(handed(&mut world, "open:2"), 1);
}

#[test]
fn tokens_that_wait_for_keys_are_bound_as_well() {
    for method in ["disconnect", "block_user", "unsubscribe"] {
        let mut world = world(2);
        let keys = fetch_keys(&mut world);
        let peer = world.open(1, "/centrifuge/jwt");
        let exp = in_seconds(&world, 60);
        let pass = token(&json!({ "sub": "ann", "exp": exp, "channels": ["open:1", "open:2"] }));
        let command = json!({ "id": 1, "connect": { "token": pass } });
        assert_eq!(
            ask(&mut world, peer, &command.to_string()),
            Received::default()
        );
        let mut body = json!({ "user": "ann" });
        if method == "unsubscribe" {
            body["channel"] = json!("open:1");
        }
        call(&mut world, method, &body);
        keys.arrive();
        world.found(peer, IdentityResult::KeysFetched);
        let received = take(&mut world, peer);
        if method != "unsubscribe" {
            let code = received.closed.map(|(code, _)| code);
            assert!(matches!(code, Some(3503 | 3507)), "{method}: {code:?}");
            continue;
        }
        let subs = &received.lines[0]["connect"]["subs"];
        assert_eq!(subs, &json!({ "#ann": {}, "open:2": {} }));
    }
}

/// A user was disconnected while its client had no pending command. A connect command after that is accepted.
#[test]
fn a_call_before_another_connect_command_does_not_bind_it() {
    let mut world = world(2);
    let peer = world.open(1, "/centrifuge/jwt");
    let connect = |world: &mut World, seconds: u64| {
        let exp = in_seconds(world, 0) - 60 + seconds;
        let pass = token(&json!({ "sub": "ann", "exp": exp }));
        let command = json!({ "id": 1, "connect": { "token": pass } });
        ask(world, peer, &command.to_string())
    };
    let heard = connect(&mut world, 0);
    assert_eq!(heard.lines[0]["error"]["code"], 109, "{heard:?}");
    call(&mut world, "disconnect", &json!({ "user": "ann" }));
    let heard = connect(&mut world, 120);
    assert_eq!(heard.closed, None);
    assert!(heard.lines[0]["connect"].is_object(), "{heard:?}");
}

#[test]
fn a_subscription_whose_token_waits_for_keys_can_be_taken_back() {
    let mut world = world(2);
    let keys = fetch_keys(&mut world);
    let exp = in_seconds(&world, 60);
    let pass = token(&json!({ "sub": "ann", "exp": exp }));
    keys.arrive();
    let (peer, _) = connect(&mut world, 1, "/centrifuge/jwt", &json!({ "token": pass }));
    *keys.0.write().expect("one thread") = None;
    let of_channel = token(&json!({ "sub": "ann", "exp": exp, "channel": "token:1" }));
    let subscribe = json!({ "id": 2, "subscribe": { "channel": "token:1", "token": of_channel } });
    for is_ended in [true, false] {
        assert_eq!(
            ask(&mut world, peer, &subscribe.to_string()),
            Received::default()
        );
        if is_ended {
            let one = json!({ "user": "ann", "channel": "token:1" });
            call(&mut world, "unsubscribe", &one);
        }
        keys.arrive();
        world.found(peer, IdentityResult::KeysFetched);
        let received = take(&mut world, peer);
        assert_eq!(
            received.lines[0]["error"]["code"] == 103,
            is_ended,
            "{received:?}"
        );
        assert_eq!(handed(&mut world, "token:1"), u32::from(!is_ended));
        *keys.0.write().expect("one thread") = None;
    }
}

#[test]
fn a_client_that_is_ended_while_its_subscription_waits_for_keys_is_gone_at_once() {
    for method in ["disconnect", "block_user"] {
        let mut world = world(2);
        let keys = fetch_keys(&mut world);
        let exp = in_seconds(&world, 60);
        let pass = token(&json!({ "sub": "ann", "exp": exp }));
        keys.arrive();
        let (peer, _) = connect(&mut world, 1, "/centrifuge/jwt", &json!({ "token": pass }));
        *keys.0.write().expect("one thread") = None;
        let of_channel = token(&json!({ "sub": "ann", "exp": exp, "channel": "token:1" }));
        let subscribe =
            json!({ "id": 2, "subscribe": { "channel": "token:1", "token": of_channel } });
        assert_eq!(
            ask(&mut world, peer, &subscribe.to_string()),
            Received::default()
        );
        call(&mut world, method, &json!({ "user": "ann" }));
        let received = take(&mut world, peer);
        assert!(received.closed.is_some(), "{method}: {received:?}");
        keys.arrive();
        world.found(peer, IdentityResult::KeysFetched);
        assert_eq!(take(&mut world, peer), Received::default(), "{method}");
        assert_eq!(handed(&mut world, "token:1"), 0, "{method}");
    }
}

/// The connect hook receives the id of the connection, so a call may name a connection that is not open yet.
#[test]
fn a_call_about_one_client_binds_the_decision_that_lets_it_in() {
    for (method, is_it) in [
        ("disconnect", true),
        ("disconnect", false),
        ("unsubscribe", true),
        ("unsubscribe", false),
    ] {
        let mut world = world(2);
        let (peer, request) = connecting(&mut world);
        let client = match is_it {
            true => &*request.caller.client,
            false => "another",
        };
        assert!(!client.is_empty());
        let mut body = json!({ "user": "ann", "client": client });
        if method == "unsubscribe" {
            body["channel"] = json!("open:1");
        }
        call(&mut world, method, &body);
        let given = HookSubscription {
            channel: "open:1".into(),
            ..HookSubscription::default()
        };
        let grant = HookGrant {
            channels: vec![given],
            ..HookGrant::default()
        };
        world.deliver_decision(1, &request, granted(grant));
        let received = take(&mut world, peer);
        let is_gone = received.closed.is_some();
        assert_eq!(is_gone, is_it && method == "disconnect", "{received:?}");
        assert_eq!(handed(&mut world, "open:1"), u32::from(!is_it), "{method}");
    }
}

/// Returns a channel that clients may subscribe to and whose home is on this worker.
fn channel_at(world: &World, worker: usize) -> String {
    (0..)
        .map(|n| format!("open:{n}"))
        .find(|channel| world.home_of(channel) == worker)
        .expect("endless")
}

#[test]
fn closing_a_session_ends_whatever_its_command_waits_for() {
    for body in [
        json!({ "whitelist": ["another"] }),
        json!({}),
        json!({ "disconnect": { "code": 4000, "reason": "enough" } }),
    ] {
        let mut world = super::world(2);
        world.workers.iter_mut().for_each(|worker| {
            let process = Arc::new(Remembering::default());
            let shared = worker.shared_mut();
            shared.process = process;
            let site = Arc::get_mut(&mut shared.config).expect("the only one");
            site.limits.connections_per_user = 1;
        });
        let user = world.user_at(0);
        let target = format!("/centrifuge/named?user={user}");
        let (peer, _) = connect(&mut world, 0, &target, &json!({}));
        let channel = channel_at(&world, 1);
        let subscribe = json!({ "id": 2, "subscribe": { "channel": channel } });
        // The channel's home runs no turns, so the command keeps waiting.
        world.send(peer, &text(&subscribe.to_string()));
        assert_eq!(world.blocked(peer), Some(WaitReason::Answer));
        let mut wanted = body.clone();
        wanted["user"] = json!(user);
        let caller = world.connect(0, INTERNAL);
        world.send(
            caller,
            post("/api/disconnect", &wanted.to_string()).as_bytes(),
        );
        while world.turn(0) {}
        let received = super::parse_output(&world.take(peer));
        let (code, _) = received.closed.expect("it is closed");
        assert_eq!(world.blocked(peer), None, "{body}");
        // Another connection uses the index of the closed one at once, and the closed session no longer counts for
        // its user.
        let next = world.connect(0, PUBLIC);
        world.send(next, handshake(&target, "").as_bytes());
        while world.turn(0) {}
        let status = response(&world.take(next), true).0.status;
        assert_eq!(status, 101, "{body}: its user has no room");
        world.send(peer, &close(Some(code), ""));
        while world.turn(0) {}
        assert!(!world.is_open(peer), "{body}: it waits for the home");
    }
}

#[test]
fn a_session_that_ends_by_itself_while_its_command_waits_is_over_too() {
    let mut world = super::world(2);
    let exp = in_seconds(&world, 5);
    let pass = token(&json!({ "sub": "ann", "exp": exp }));
    let (peer, _) = connect(&mut world, 0, "/centrifuge/jwt", &json!({ "token": pass }));
    let channel = channel_at(&world, 1);
    let subscribe = json!({ "id": 2, "subscribe": { "channel": channel } });
    world.send(peer, &text(&subscribe.to_string()));
    world.advance_alone(0, 31_000);
    let received = super::parse_output(&world.take(peer));
    let (code, _) = received.closed.expect("its token is over");
    assert_eq!(world.blocked(peer), None);
    world.send(peer, &close(Some(code), ""));
    while world.turn(0) {}
    assert!(!world.is_open(peer));
}
