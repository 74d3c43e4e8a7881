//! Tests commands that need a hook decision: the requests, the effects of decisions, and what continues while a
//! decision is pending.

use bytes::Bytes;
use serde_json::{Value, json};
use veche_frontends::WaitReason;
use veche_frontends::hooks::{
    HookDecision, HookGrant, HookKind, HookRequest, HookSubscription, HookTarget,
};
use veche_hub::{Payload, PayloadKind};

use super::{CONNECT, Received, ask, take};
use crate::world::wire::{handshake, message, response, server_messages};
use crate::world::{Options, PUBLIC, Peer, World};

pub(super) const PATH: &str = "/centrifuge/asked/x/websocket";

fn world() -> World {
    super::world(3)
}

/// Returns the only pending hook request of a worker.
fn hook_request(world: &mut World, worker: usize) -> HookRequest {
    let mut requests = world.hook_requests(worker);
    assert_eq!(requests.len(), 1, "{requests:?}");
    requests.remove(0)
}

pub(super) fn granted(grant: HookGrant) -> HookDecision {
    HookDecision::Granted(Box::new(grant))
}

fn json_payload(text: &'static str) -> Option<Payload> {
    Some(Payload {
        kind: PayloadKind::Json,
        bytes: Bytes::from_static(text.as_bytes()),
    })
}

fn error(code: u32, message: &str) -> HookDecision {
    HookDecision::Error {
        code,
        message: message.into(),
        is_temporary: false,
    }
}

fn disconnect(code: u16, reason: &str) -> HookDecision {
    HookDecision::Disconnect {
        code,
        reason: reason.into(),
    }
}

/// Sends a command and makes this decision on it; returns the hook request and the output.
pub(super) fn decide(
    world: &mut World,
    peer: Peer,
    command: &str,
    decision: HookDecision,
) -> (HookRequest, Received) {
    let before = ask(world, peer, command);
    assert_eq!(before, Received::default(), "it is answered before");
    assert_eq!(world.blocked(peer), Some(WaitReason::HookDecision));
    let request = hook_request(world, 1);
    world.deliver_decision(1, &request, decision);
    (request, take(world, peer))
}

/// Returns a client on worker 1 that a connect hook has admitted as this user.
pub(super) fn let_in(world: &mut World, user: &str) -> Peer {
    let peer = world.open(1, PATH);
    let grant = HookGrant {
        user: user.into(),
        ..HookGrant::default()
    };
    let (_, received) = decide(world, peer, CONNECT, granted(grant));
    assert!(
        received.lines[0]["connect"]["client"].is_string(),
        "{received:?}"
    );
    peer
}

#[test]
fn connecting_is_decided_with_what_the_client_says_and_gets() {
    let mut world = world();
    let peer = world.connect(1, PUBLIC);
    let headers = "Cookie: a=b\r\nX-Secret: s\r\n";
    world.ask(peer, handshake(PATH, headers));
    let connect = json!({"id": 1, "connect": {
        "token": "t", "data": {"k": 1}, "name": "js", "version": "7",
        "headers": {"X-Custom": "c", "Cookie": "forged=1", "X-Other": "o"},
        "subs": {"news": {"recover": true, "epoch": "e", "offset": 1}},
    }});
    let grant = HookGrant {
        user: "ann".into(),
        expires_at_s: Some(super::in_seconds(&world, 60)),
        info: json_payload(r#"{"name":"Ann"}"#),
        data: json_payload("[1]"),
        channels: vec![
            HookSubscription {
                channel: "chat:1".into(),
                data: json_payload("\"hi\""),
                ..HookSubscription::default()
            },
            HookSubscription {
                channel: "news".into(),
                ..HookSubscription::default()
            },
            HookSubscription {
                channel: "chat:1".into(),
                ..HookSubscription::default()
            },
        ],
        ..HookGrant::default()
    };
    let (request, received) = decide(&mut world, peer, &connect.to_string(), granted(grant));
    assert_eq!(request.kind, HookKind::Connect);
    assert_eq!((&*request.user, &*request.token.0), ("", "t"));
    assert_eq!(request.data, json_payload(r#"{"k":1}"#));
    assert_eq!(request.channels, ["news".into()]);
    let caller = &request.caller;
    assert_eq!((&*caller.name, &*caller.version), ("js", "7"));
    assert_eq!(caller.transport, "websocket");
    let headers: Vec<(&str, &[u8])> = caller
        .headers
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    let expected: [(&str, &[u8]); 2] = [("cookie", b"a=b"), ("x-custom", b"c")];
    assert_eq!(headers, expected);
    let reply = &received.lines[0]["connect"];
    assert_eq!(reply["client"], json!(&*caller.client));
    assert_eq!(reply["data"], json!([1]));
    assert_eq!(reply["subs"]["chat:1"]["data"], "hi");
    let subs = reply["subs"].as_object().expect("channels");
    let names: Vec<&String> = subs.keys().collect();
    assert_eq!(names, ["#ann", "chat:1", "news"]);
    // The public data that the hook granted is visible in presence.
    let presence = r#"{"id":2,"presence":{"channel":"chat:1"}}"#;
    let lines = ask(&mut world, peer, presence).lines;
    let client = &lines[0]["presence"]["presence"][&*caller.client];
    assert_eq!(client["conn_info"], json!({"name": "Ann"}), "{lines:?}");
}

#[test]
fn refusals_reach_the_client_as_they_are() {
    let internal = json!({"code": 100, "message": "internal server error", "temporary": true});
    let own = json!({"code": 1000, "message": "no"});
    for (command, key) in [
        (r#"{"id":2,"rpc":{"method":"m"}}"#, "rpc"),
        (r#"{"id":2,"subscribe":{"channel":"asked:1"}}"#, "subscribe"),
        (
            r#"{"id":2,"publish":{"channel":"asked:1","data":1}}"#,
            "publish",
        ),
    ] {
        for (decision, error) in [
            (error(1000, "no"), &own),
            (error(0, "nothing"), &internal),
            (HookDecision::Failed, &internal),
            (disconnect(1000, "not so"), &internal),
        ] {
            let mut world = world();
            let peer = let_in(&mut world, "ann");
            let (request, received) = decide(&mut world, peer, command, decision);
            assert_eq!((request.kind.name(), &*request.user), (key, "ann"));
            assert_eq!(received.lines, [json!({"id": 2, "error": error})]);
            assert_eq!(received.closed, None);
        }
        let mut world = world();
        let peer = let_in(&mut world, "ann");
        let (_, received) = decide(&mut world, peer, command, disconnect(4501, "out"));
        assert_eq!(received.closed, Some((4501, "out".to_owned())), "{key}");
    }
    for (decision, error, closed) in [
        (error(1000, "no"), Some(&own), None),
        (HookDecision::Failed, Some(&internal), None),
        (disconnect(4000, ""), None, Some((4000, String::new()))),
        // Decisions with an invalid user or invalid channels count as failed.
        (
            granted(HookGrant {
                user: "a\nb".into(),
                ..HookGrant::default()
            }),
            Some(&internal),
            None,
        ),
        (
            granted(HookGrant {
                channels: vec![HookSubscription::default()],
                ..HookGrant::default()
            }),
            Some(&internal),
            None,
        ),
    ] {
        let mut world = world();
        let peer = world.open(1, PATH);
        let (_, received) = decide(&mut world, peer, CONNECT, decision);
        let lines: Vec<&Value> = received.lines.iter().map(|line| &line["error"]).collect();
        assert_eq!(lines, error.into_iter().collect::<Vec<_>>());
        assert_eq!(received.closed, closed);
    }
}

#[test]
fn anonymous_clients_request_three_decisions() {
    let mut world = world();
    let peer = world.open(1, PATH);
    for (id, secret) in [(1, "a"), (2, "b"), (3, "c")] {
        let connect = json!({"id": id, "connect": {"headers": {"X-Custom": secret}}});
        let (request, received) = decide(&mut world, peer, &connect.to_string(), error(1000, "no"));
        // The hook receives only the headers of the current connect command, not those of an earlier one.
        let values: Vec<&[u8]> = request.caller.headers.iter().map(|one| &*one.1).collect();
        assert_eq!(values, [secret.as_bytes()]);
        assert_eq!((received.lines.len(), received.closed), (1, None));
    }
    let received = ask(&mut world, peer, CONNECT);
    assert_eq!(received.closed.map(|(code, _)| code), Some(3502));
    assert!(world.hook_requests(1).is_empty());
}

#[test]
fn a_client_is_not_given_more_channels_than_it_can_have() {
    let mut world = world();
    let peer = world.open(1, PATH);
    let channels = (0..1000).map(|number| HookSubscription {
        channel: format!("chat:{number}").into(),
        ..HookSubscription::default()
    });
    let grant = HookGrant {
        channels: channels.collect(),
        ..HookGrant::default()
    };
    let (_, received) = decide(&mut world, peer, CONNECT, granted(grant));
    assert_eq!(received.closed.map(|(code, _)| code), Some(3505));

    let names: serde_json::Map<_, _> = (0..1000)
        .map(|number| (format!("chat:{number}"), json!({})))
        .collect();
    let peer = world.open(1, PATH);
    let connect = json!({"id": 1, "connect": {"subs": names}}).to_string();
    let (request, _) = decide(&mut world, peer, &connect, granted(HookGrant::default()));
    assert_eq!(request.channels.len(), 128);
}

#[test]
fn an_identified_client_keeps_its_user() {
    let mut world = world();
    let peer = world.open(1, "/centrifuge/asked-named?user=ann");
    let grant = |user: &str| {
        granted(HookGrant {
            user: user.into(),
            ..HookGrant::default()
        })
    };
    let (request, received) = decide(&mut world, peer, CONNECT, grant("bob"));
    assert_eq!(&*request.user, "ann");
    assert_eq!(received.lines[0]["error"]["code"], 100);
    let (_, received) = decide(&mut world, peer, CONNECT, grant(""));
    let subs = &received.lines[0]["connect"]["subs"];
    assert!(subs["#ann"].is_object(), "{received:?}");
    // A token determines the user, so no hook request is sent.
    let exp = super::in_seconds(&world, 60);
    let token = super::token(&json!({"sub": "eve", "exp": exp}));
    let connect = json!({"token": token});
    let (_, reply) = super::connect(&mut world, 1, "/centrifuge/asked-jwt", &connect);
    assert!(reply["subs"]["#eve"].is_object());
    assert!(world.hook_requests(1).is_empty());
    // For a client without a token the hook decides.
    let peer = world.open(1, "/centrifuge/asked-jwt");
    let (_, received) = decide(&mut world, peer, CONNECT, grant("dan"));
    assert!(received.lines[0]["connect"]["subs"]["#dan"].is_object());
}

#[test]
fn commands_wait_in_their_order_and_others_do_not() {
    let mut world = world();
    let (ann, bob) = (let_in(&mut world, "ann"), let_in(&mut world, "bob"));
    let commands = [
        r#"{"id":2,"rpc":{"method":"first","data":{"a":1}}}"#,
        r#"{"id":3,"ping":{}}"#,
        r#"{"id":4,"rpc":{"method":"second"}}"#,
    ];
    assert_eq!(
        ask(&mut world, ann, &commands.join("\n")),
        Received::default()
    );
    let first = hook_request(&mut world, 1);
    assert_eq!(&*first.method, "first");
    assert_eq!(first.data, json_payload(r#"{"a":1}"#));
    // All later commands of the client wait for the decision, while other clients are served.
    assert_eq!(
        ask(&mut world, ann, r#"{"id":5,"ping":{}}"#),
        Received::default()
    );
    let pong = ask(&mut world, bob, r#"{"id":9,"ping":{}}"#);
    assert_eq!(pong.lines, [json!({"id": 9, "ping": {}})]);
    assert!(world.hook_requests(1).is_empty());
    // A decision on another request, or for another session, has no effect.
    let mut other = first.clone();
    other.id.0 += 1;
    world.deliver_decision(1, &other, error(1, "wrong"));
    let mut other = first.clone();
    other.session.generation += 1;
    world.deliver_decision(1, &other, error(1, "wrong"));
    assert_eq!(take(&mut world, ann), Received::default());
    let data = |text| {
        granted(HookGrant {
            data: json_payload(text),
            ..HookGrant::default()
        })
    };
    world.deliver_decision(1, &first, data("\"one\""));
    let received = take(&mut world, ann);
    assert_eq!(
        received.lines,
        [
            json!({"id": 2, "rpc": {"data": "one"}}),
            json!({"id": 3, "ping": {}})
        ]
    );
    let second = hook_request(&mut world, 1);
    assert_eq!(&*second.method, "second");
    assert_ne!(second.id, first.id);
    // A second decision on the same request is ignored.
    world.deliver_decision(1, &first, data("\"again\""));
    world.deliver_decision(1, &second, granted(HookGrant::default()));
    let received = take(&mut world, ann);
    assert_eq!(
        received.lines,
        [json!({"id": 4, "rpc": {}}), json!({"id": 5, "ping": {}})]
    );
}

#[test]
fn a_client_that_leaves_during_a_hook_leaves_no_state() {
    let mut world = world();
    let (gone, closed) = (let_in(&mut world, "ann"), let_in(&mut world, "bob"));
    let rpc = r#"{"id":2,"rpc":{"method":"m"}}"#;
    for peer in [gone, closed] {
        assert_eq!(ask(&mut world, peer, rpc), Received::default());
    }
    let requests = world.hook_requests(1);
    assert_eq!(requests.len(), 2);
    world.reset(gone);
    world.settle();
    // A drain closes sessions without waiting for pending decisions.
    world.drain();
    let received = take(&mut world, closed);
    assert_eq!(received.closed.map(|(code, _)| code), Some(3001));
    assert_eq!(world.blocked(closed), None);
    for request in &requests {
        world.deliver_decision(1, request, granted(HookGrant::default()));
    }
    assert_eq!(take(&mut world, closed), Received::default());
    world.reset_all();
    world.check_empty();
}

#[test]
fn a_waiting_client_is_pinged_and_kept() {
    let mut world = world();
    let peer = world.open(1, PATH);
    assert_eq!(ask(&mut world, peer, CONNECT), Received::default());
    let first = hook_request(&mut world, 1);
    // The decision takes longer than the time within which a client has to connect.
    world.advance(60_000);
    assert_eq!(take(&mut world, peer), Received::default());
    world.deliver_decision(1, &first, granted(HookGrant::default()));
    assert!(take(&mut world, peer).lines[0]["connect"].is_object());
    let rpc = r#"{"id":2,"rpc":{"method":"m"}}"#;
    assert_eq!(ask(&mut world, peer, rpc), Received::default());
    let second = hook_request(&mut world, 1);
    for _ in 0..90 {
        world.advance(1_000);
    }
    let received = take(&mut world, peer);
    assert_eq!(
        (received.lines.clone(), received.closed),
        (vec![json!({}); 3], None)
    );
    world.deliver_decision(1, &second, granted(HookGrant::default()));
    assert_eq!(take(&mut world, peer).lines, [json!({"id": 2, "rpc": {}})]);
}

#[test]
fn publications_are_published_as_decided() {
    let mut world = world();
    let (ann, bob) = (let_in(&mut world, "ann"), let_in(&mut world, "bob"));
    let subscribe =
        r#"{"id":2,"subscribe":{"channel":"asked:1","data":{"as":"guest"},"token":"x"}}"#;
    let grant = HookGrant {
        info: json_payload("\"guest\""),
        data: json_payload("{\"hello\":1}"),
        ..HookGrant::default()
    };
    let (request, received) = decide(&mut world, bob, subscribe, granted(grant));
    assert_eq!((&*request.channel, &*request.token.0), ("asked:1", "x"));
    assert_eq!(request.data, json_payload(r#"{"as":"guest"}"#));
    assert_eq!(received.lines[0]["subscribe"]["data"], json!({"hello": 1}));
    let publish = r#"{"id":2,"publish":{"channel":"asked:1","data":{"text":"darn"}}}"#;
    for (data, published) in [
        (None, json!({"text": "darn"})),
        (json_payload(r#"{"text":"****"}"#), json!({"text": "****"})),
    ] {
        let grant = HookGrant {
            data,
            ..HookGrant::default()
        };
        let (request, received) = decide(&mut world, ann, publish, granted(grant));
        assert_eq!(
            (request.kind, &*request.channel),
            (HookKind::Publish, "asked:1")
        );
        assert_eq!(request.data, json_payload(r#"{"text":"darn"}"#));
        assert_eq!(received.lines, [json!({"id": 2, "publish": {}})]);
        let received = take(&mut world, bob);
        let push = &received.lines[0]["push"];
        assert_eq!(push["pub"]["data"], published);
        assert_eq!(push["pub"]["info"]["user"], "ann");
    }
    // Commands for other users' channels and malformed commands are refused without a hook request,
    // since no decision could permit them.
    for (command, code) in [
        (r#"{"id":3,"subscribe":{"channel":"asked:1#eve"}}"#, 103),
        (
            r#"{"id":3,"publish":{"channel":"asked:1#eve","data":1}}"#,
            103,
        ),
        (r#"{"id":3,"publish":{"channel":"asked:1"}}"#, 107),
        (r#"{"id":3,"publish":{"channel":"token:1","data":1}}"#, 103),
        (
            r#"{"id":3,"subscribe":{"channel":"asked:1","type":1}}"#,
            108,
        ),
    ] {
        let received = ask(&mut world, ann, command);
        assert_eq!(received.lines[0]["error"]["code"], code, "{command}");
    }
    let received = ask(
        &mut world,
        bob,
        r#"{"id":3,"subscribe":{"channel":"asked:1"}}"#,
    );
    assert_eq!(received.lines[0]["error"]["code"], 105);
    assert!(world.hook_requests(1).is_empty());
}

#[test]
fn binary_data_are_base64_in_json() {
    let binary = Payload {
        kind: PayloadKind::Binary,
        bytes: Bytes::from_static(&[0, 255]),
    };
    let grant = HookGrant {
        data: Some(binary),
        ..HookGrant::default()
    };
    let mut world = World::new(Options {
        workers: 2,
        ..Options::default()
    });
    let peer = let_in(&mut world, "ann");
    let rpc = r#"{"id":2,"rpc":{"method":"m"}}"#;
    let (_, received) = decide(&mut world, peer, rpc, granted(grant.clone()));
    assert_eq!(
        received.lines,
        [json!({ "id": 2, "rpc": { "data": "AP8=" } })]
    );
    // A Protobuf client receives bytes. It sends a connect command (id 1) and then an rpc command (id 2, method "m").
    let peer = world.connect(1, PUBLIC);
    let headers = "Sec-WebSocket-Protocol: centrifuge-protobuf\r\n";
    let answer = world.ask(peer, handshake(PATH, headers));
    assert_eq!(response(&answer, false).0.status, 101);
    let binary = veche_proto::websocket::MessageKind::Binary;
    world.ask(peer, message(binary, &[0x04, 0x08, 0x01, 0x22, 0x00]));
    let connect = hook_request(&mut world, 1);
    world.deliver_decision(1, &connect, granted(HookGrant::default()));
    world.settle();
    world.take(peer);
    let rpc = [0x07, 0x08, 0x02, 0x6a, 0x03, 0x12, 0x01, b'm'];
    world.ask(peer, message(binary, &rpc));
    let asked = hook_request(&mut world, 1);
    assert_eq!(&*asked.method, "m");
    world.deliver_decision(1, &asked, granted(grant));
    world.settle();
    let reply = format!("{:?}", server_messages(&world.take(peer)));
    assert!(
        reply.contains("Binary([8, 8, 2, 106, 4, 10, 2, 0, 255])"),
        "{reply}"
    );
}

/// Advances the time in steps of a second, and answers pings for the client. Returns the client's received messages
/// except pings, and the hook requests.
fn pass(world: &mut World, peer: Peer, seconds: u64) -> (Received, Vec<HookRequest>) {
    let (mut all, mut requests) = (Received::default(), Vec::new());
    for _ in 0..seconds {
        world.advance(1_000);
        requests.extend(world.hook_requests(1));
        let received = take(world, peer);
        all.lines.extend(received.lines);
        all.closed = all.closed.or(received.closed);
        if all.closed.is_none() {
            let received = ask(world, peer, "{}");
            all.closed = received.closed;
        }
    }
    all.lines.retain(|line| *line != json!({}));
    (all, requests)
}

fn until(world: &World, seconds: u64) -> HookDecision {
    granted(HookGrant {
        user: "ann".into(),
        expires_at_s: Some(super::in_seconds(world, seconds)),
        ..HookGrant::default()
    })
}

#[test]
fn connections_last_until_expiry_unless_refreshed() {
    let expired = granted(HookGrant {
        is_expired: true,
        ..HookGrant::default()
    });
    for (last, code) in [(expired, 3005), (disconnect(4500, "out"), 4500)] {
        let mut world = world();
        let peer = world.open(1, PATH);
        let decision = until(&world, 30);
        let (_, received) = decide(&mut world, peer, CONNECT, decision);
        // The hook renews the connection, so the client is not told that it expires.
        assert_eq!(received.lines[0]["connect"]["expires"], Value::Null);
        let (received, requests) = pass(&mut world, peer, 29);
        assert_eq!((received.closed, requests), (None, Vec::new()));
        let (_, requests) = pass(&mut world, peer, 2);
        assert_eq!(requests.len(), 1, "{requests:?}");
        assert_eq!(
            (requests[0].kind, &*requests[0].user),
            (HookKind::Refresh, "ann")
        );
        // While the decision is pending the session continues and its commands are executed.
        let pong = ask(&mut world, peer, r#"{"id":2,"ping":{}}"#);
        assert_eq!(pong.lines, [json!({"id": 2, "ping": {}})]);
        let decision = until(&world, 40);
        world.deliver_decision(1, &requests[0], decision);
        let (received, requests) = pass(&mut world, peer, 39);
        assert_eq!((received, requests), (Received::default(), Vec::new()));
        let (_, requests) = pass(&mut world, peer, 2);
        assert_eq!(requests.len(), 1);
        // A request to which the hook gave no decision is repeated a minute later.
        world.deliver_decision(1, &requests[0], HookDecision::Failed);
        let (received, requests) = pass(&mut world, peer, 58);
        assert_eq!((received, requests), (Received::default(), Vec::new()));
        let (_, requests) = pass(&mut world, peer, 4);
        assert_eq!(requests.len(), 1);
        world.deliver_decision(1, &requests[0], last);
        let received = take(&mut world, peer);
        assert_eq!(received.closed.map(|(code, _)| code), Some(code));
    }
    // If no decision arrives, the connection ends after the grace period that clients have to renew a token.
    let mut world = world();
    let peer = world.open(1, PATH);
    let decision = until(&world, 10);
    decide(&mut world, peer, CONNECT, decision);
    let (received, requests) = pass(&mut world, peer, 40);
    assert_eq!(requests.len(), 1);
    assert_eq!(received.closed.map(|(code, _)| code), Some(3005));
}

#[test]
fn subscriptions_last_until_expiry_unless_refreshed() {
    let mut world = world();
    let peer = let_in(&mut world, "ann");
    let subscribe = r#"{"id":2,"subscribe":{"channel":"asked:1"}}"#;
    let decision = until(&world, 30);
    let (_, received) = decide(&mut world, peer, subscribe, decision);
    assert_eq!(received.lines, [json!({"id": 2, "subscribe": {}})]);
    let (_, requests) = pass(&mut world, peer, 32);
    assert_eq!(requests.len(), 1);
    let first = &requests[0];
    assert_eq!(
        (first.kind, &*first.channel, &*first.user),
        (HookKind::SubRefresh, "asked:1", "ann")
    );
    let decision = until(&world, 30);
    world.deliver_decision(1, first, decision);
    let (received, requests) = pass(&mut world, peer, 29);
    assert_eq!((received, requests), (Received::default(), Vec::new()));
    let (_, requests) = pass(&mut world, peer, 3);
    assert_eq!(requests.len(), 1);
    let expired = granted(HookGrant {
        is_expired: true,
        ..HookGrant::default()
    });
    world.deliver_decision(1, &requests[0], expired.clone());
    let received = take(&mut world, peer);
    let push = json!({"channel": "asked:1", "unsubscribe": {"code": 2501, "reason": "subscription expired"}});
    assert_eq!(received.lines, [json!({ "push": push })]);
    // The client may subscribe again. A subscription that the client has ended is not renewed.
    let decision = until(&world, 5);
    decide(&mut world, peer, subscribe, decision);
    let (_, requests) = pass(&mut world, peer, 6);
    let lines = ask(
        &mut world,
        peer,
        r#"{"id":3,"unsubscribe":{"channel":"asked:1"}}"#,
    )
    .lines;
    assert_eq!(lines, [json!({"id": 3, "unsubscribe": {}})]);
    world.deliver_decision(1, &requests[0], expired);
    let (received, requests) = pass(&mut world, peer, 60);
    assert_eq!((received, requests), (Received::default(), Vec::new()));
}

#[test]
fn messages_without_a_reply_wait_in_their_order_too() {
    let mut world = world();
    let peer = let_in(&mut world, "ann");
    let commands = [
        r#"{"send":{"data":{"n":1}}}"#,
        r#"{"send":{"data":{"n":2}}}"#,
        r#"{"send":{}}"#,
        r#"{"id":2,"ping":{}}"#,
    ];
    assert_eq!(
        ask(&mut world, peer, &commands.join("\n")),
        Received::default()
    );
    // A message has no reply, so the client does not learn the decision.
    for (data, decision) in [
        (json_payload(r#"{"n":1}"#), granted(HookGrant::default())),
        (json_payload(r#"{"n":2}"#), error(1000, "no")),
    ] {
        let request = hook_request(&mut world, 1);
        assert_eq!((request.kind, &request.data), (HookKind::Message, &data));
        assert!(matches!(request.target, HookTarget::App { .. }));
        world.deliver_decision(1, &request, decision);
        assert_eq!(take(&mut world, peer), Received::default());
    }
    let third = hook_request(&mut world, 1);
    world.deliver_decision(1, &third, HookDecision::Failed);
    let received = take(&mut world, peer);
    assert_eq!(received.lines, [json!({"id": 2, "ping": {}})]);
    for (decision, closed) in [
        (disconnect(1000, "not so"), None),
        (disconnect(4501, "out"), Some((4501, "out".to_owned()))),
    ] {
        let (_, received) = decide(&mut world, peer, commands[0], decision);
        assert_eq!((received.lines.len(), received.closed), (0, closed));
    }
}

#[test]
fn a_disconnect_is_reported_once_with_the_first_reason() {
    let mut world = world();
    // The disconnect of a client that has not connected yet is not reported to the hook.
    let path = "/centrifuge/asked-gone";
    let let_in = |world: &mut World| {
        let peer = world.open(1, path);
        let grant = HookGrant {
            user: "ann".into(),
            ..HookGrant::default()
        };
        decide(world, peer, CONNECT, granted(grant));
        peer
    };
    let fresh = world.open(1, path);
    world.reset(fresh);
    world.settle();
    assert!(world.hook_requests(1).is_empty());
    let peer = let_in(&mut world);
    world.reset(peer);
    world.settle();
    let gone = hook_request(&mut world, 1);
    assert_eq!((gone.kind, &*gone.user), (HookKind::Disconnect, "ann"));
    assert_eq!(gone.disconnect.map(|(code, _)| code), Some(1006));
    // If a decision closes the client and the transport is then reset, the code of the decision is
    // reported.
    let peer = let_in(&mut world);
    let (_, received) = decide(
        &mut world,
        peer,
        r#"{"id":2,"rpc":{"method":"m"}}"#,
        disconnect(4501, "out"),
    );
    assert_eq!(received.closed, Some((4501, "out".to_owned())));
    world.reset(peer);
    world.settle();
    let gone = hook_request(&mut world, 1);
    assert_eq!(gone.disconnect, Some((4501, "out".into())));
    // A decision on this request has no effect, since the session has ended.
    world.deliver_decision(1, &gone, disconnect(4000, "late"));
    world.settle();
    world.reset_all();
    world.check_empty();
}
