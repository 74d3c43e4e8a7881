//! Tests channels whose names admit certain users. For every name and user, all ways to access the channel must give
//! the same result.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{ask, connect, in_seconds, parse_output, take, token};
use crate::world::wire::{handshake, post, response, responses, text};
use crate::world::{INTERNAL, PUBLIC, PUSH, Peer, World};

/// The name of a channel and its parts, so that the test knows the admitted users without parsing the name.
#[derive(Clone, Debug)]
struct Made {
    name: String,
    /// Whether the channel is private, in a namespace that otherwise grants every permission.
    is_private: bool,
    owner: Option<&'static str>,
    named: Option<Vec<&'static str>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Expected {
    Any,
    ByName,
    None,
}

impl Made {
    fn includes(&self, user: &str) -> bool {
        let owns = self.owner.is_none_or(|owner| owner == user);
        let named = self.named.as_ref();
        let is_named = named.is_none_or(|named| named.contains(&user));
        let is_limited = self.owner.is_some() || self.named.is_some();
        owns && is_named && !(is_limited && user.is_empty())
    }

    fn expected(&self, user: &str) -> Expected {
        match (self.includes(user), self.is_private) {
            (false, _) => Expected::None,
            (true, true) => Expected::ByName,
            (true, false) => Expected::Any,
        }
    }

    fn is_everyone(&self) -> bool {
        !self.is_private && self.owner.is_none() && self.named.is_none()
    }
}

const USERS: [&str; 4] = ["ann", "bob", "eve", "ann,bob"];

fn made() -> impl Strategy<Value = Made> {
    let begin = prop_oneof![
        Just(("wide:", false, None)),
        Just(("wide:a$", false, None)),
        Just(("wide:x:$", false, None)),
        Just(("wide:$", true, None)),
        Just(("$wide:", true, None)),
        Just(("$wide:$", true, None)),
        Just(("/users/ann/", false, Some("ann"))),
        Just(("/users/bob/", false, Some("bob"))),
        Just(("/rooms/", false, None)),
    ];
    let local = prop_oneof![Just("7"), Just("a,b"), Just("x#eve"), Just("né")];
    let users = proptest::sample::subsequence(vec!["ann", "bob", "anna", "", " ann"], 0..=3);
    let named = proptest::option::of(users.prop_shuffle());
    (begin, local, named).prop_map(|((begin, is_private, owner), local, named)| {
        let users = named.as_ref().map(|named| format!("#{}", named.join(",")));
        let name = format!("{begin}{local}{}", users.unwrap_or_default());
        // A `#` in the free text of the name limits the channel to named users as well.
        let named = named.or_else(|| local.contains('#').then(|| vec!["eve"]));
        Made {
            name,
            is_private,
            owner,
            named,
        }
    })
}

fn encoded(name: &str) -> String {
    let bytes = name.bytes();
    bytes.map(|byte| format!("%{byte:02X}")).collect()
}

/// Returns a client of this user that connected without a token. The user `""` means an anonymous client.
fn client(world: &mut World, user: &str) -> Peer {
    let target = match user {
        "" => "/centrifuge".to_owned(),
        user => format!("/centrifuge/named?user={}", encoded(user)),
    };
    connect(world, 0, &target, &json!({})).0
}

/// Sends a command; returns the code of its error, if it fails.
fn refused(world: &mut World, peer: Peer, command: &Value) -> Option<u64> {
    let received = ask(world, peer, &command.to_string());
    let reply = received
        .lines
        .iter()
        .find(|line| line["id"] == command["id"]);
    reply.expect("a reply")["error"]["code"].as_u64()
}

fn of_connection(world: &World, user: &str, claims: &[(&str, Value)]) -> Value {
    let mut all = json!({ "sub": user, "exp": in_seconds(world, 60) });
    for (name, value) in claims {
        all[*name] = value.clone();
    }
    json!({ "token": token(&all) })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn each_way_in_agrees_with_the_name(
        made in made(),
        user in prop_oneof![Just(""), proptest::sample::select(&USERS[..])],
    ) {
        let name = &*made.name;
        let expected = made.expected(user);
        let mut world = super::world(1);

        // A handshake on a push route whose pattern matches all names.
        let target = match user {
            "" => format!("/open?channel={}", encoded(name)),
            user => format!("/positions?user={}&channel={}", encoded(user), encoded(name)),
        };
        let peer = world.connect(0, PUBLIC);
        let answer = world.ask(peer, handshake(&target, ""));
        let status = if expected == Expected::Any { 101 } else { 403 };
        prop_assert_eq!(response(&answer, true).0.status, status, "a push route");

        // Commands of Centrifugo's protocol by a client that is not subscribed: queries are refused; publications are
        // permitted if the channel's name admits the user.
        let place = json!({ "channel": name });
        let mut peer = client(&mut world, user);
        for look in ["history", "presence", "presence_stats"] {
            let code = refused(&mut world, peer, &json!({ "id": 2, look: place }));
            // Code 108 means that the channel has no history or presence for any client.
            prop_assert!(matches!(code, Some(103 | 108)), "{}: {:?}", look, code);
        }
        let publish = json!({ "id": 3, "publish": { "channel": name, "data": 1 } });
        let may_publish = expected == Expected::Any;
        let code = refused(&mut world, peer, &publish);
        prop_assert_eq!(code, (!may_publish).then_some(103), "publish");
        let subscribe = json!({ "id": 4, "subscribe": place });
        let code = refused(&mut world, peer, &subscribe);
        prop_assert_eq!(code, (expected != Expected::Any).then_some(103), "subscribe");

        // Tries to subscribe with the connect request of a one-way client.
        peer = world.open(0, "/centrifuge/all/uni_websocket");
        if user.is_empty() {
            let reply = ask(&mut world, peer, &json!({ "subs": { name: {} } }).to_string());
            let has = !reply.lines[0]["connect"]["subs"][name].is_null();
            prop_assert_eq!(has, expected == Expected::Any, "one way");
        }

        // Tries a subscription token for the channel, and a connection token that lists the channel.
        if !user.is_empty() {
            let good = of_connection(&world, user, &[]);
            peer = connect(&mut world, 0, "/centrifuge/jwt", &good).0;
            let claims = json!({ "sub": user, "channel": name, "exp": in_seconds(&world, 60) });
            let with_token = json!({ "channel": name, "token": token(&claims) });
            let code = refused(&mut world, peer, &json!({ "id": 2, "subscribe": with_token }));
            prop_assert_eq!(code, (expected == Expected::None).then_some(103), "token");
            let naming = of_connection(&world, user, &[("channels", json!([name]))]);
            let (_, reply) = connect(&mut world, 0, "/centrifuge/jwt", &naming);
            prop_assert!(reply["subs"][name].is_object(), "{}: a back end has said so", reply);
        }

        // A subscriber of the wildcard channel receives publications only of channels that are open to all users.
        peer = client(&mut world, "eve");
        prop_assert_eq!(refused(&mut world, peer, &json!({ "id": 2, "subscribe": { "channel": "wide:*" } })), None);
        let listener = world.open(0, "/open?channel=wide:*");
        let back_end = world.connect(0, PUSH);
        world.ask(back_end, json!({ "channel": name, "data": 5 }).to_string() + "\n");
        let hears = made.is_everyone() && name.starts_with("wide:");
        prop_assert_eq!(take(&mut world, peer).lines.len(), usize::from(hears), "wildcard");
        prop_assert_eq!(crate::world::wire::texts(&world.take(listener)).len(), usize::from(hears));
    }
}

#[test]
fn personal_channels_of_other_users_are_not_granted() {
    let mut world = super::world(1);
    for (channel, is_good) in [("#ann", true), ("#bob", false), ("open:1#bob", true)] {
        let naming = of_connection(&world, "ann", &[("channels", json!([channel]))]);
        let peer = world.open(0, "/centrifuge/jwt");
        let command = json!({ "id": 1, "connect": naming }).to_string();
        let bytes = world.ask(peer, text(&command));
        let received = parse_output(&bytes);
        assert_eq!(
            received.closed.is_none(),
            is_good,
            "{channel}: {received:?}"
        );
        if !is_good {
            assert_eq!(received.closed.map(|(code, _)| code), Some(3500));
        }
    }
    // Commands of back ends for bob affect no other user.
    let caller = world.connect(0, INTERNAL);
    let answer = world.ask(
        caller,
        post("/api/user_status", &json!({ "user": "bob" }).to_string()),
    );
    let body = &responses(&answer)[0].body;
    assert!(body.contains("\"connections\":0"), "{body}");
}
