//! Tests connect requests that one-way clients send in the URL of the handshake.

use serde_json::json;

use super::one_way::encoded;
use super::{ask, in_seconds, parse_output, publish, take, token};
use crate::world::wire::{handshake, response};
use crate::world::{PUBLIC, PUSH};

#[test]
fn a_handshake_may_bring_the_connect_request() {
    let mut world = super::world(1);
    let back_end = world.connect(0, PUSH);
    let token = token(&json!({ "sub": "ann", "exp": in_seconds(&world, 600) }));
    let request = json!({ "token": token, "subs": { "open:1": {} } }).to_string();
    let route = "/centrifuge/tokens/uni_websocket";
    let peer = world.connect(0, PUBLIC);
    let target = format!("{route}?cf_connect={}", encoded(&request));
    let answer = world.ask(peer, handshake(&target, ""));
    let (opened, rest) = response(&answer, false);
    assert_eq!(opened.status, 101);
    let connect = parse_output(rest).lines[0]["connect"].clone();
    let subs = connect["subs"].as_object().expect("subs");
    assert_eq!(subs.keys().collect::<Vec<_>>(), ["#ann", "open:1"]);
    // Input after the connect request is ignored.
    assert!(ask(&mut world, peer, &request).lines.is_empty());
    publish(&mut world, back_end, "open:1", 1);
    let expected = json!({ "channel": "open:1", "pub": { "data": 1 } });
    assert_eq!(take(&mut world, peer).lines, [expected]);
    // An empty `cf_connect` counts as missing: the first message is the connect request.
    let peer = world.open(0, &format!("{route}?cf_connect="));
    assert!(take(&mut world, peer).lines.is_empty());
    let reply = ask(&mut world, peer, &request).lines;
    assert_eq!(reply[0]["connect"]["ttl"], 600);
    for bad in ["{", "[]", r#"{"token":7}"#] {
        let peer = world.connect(0, PUBLIC);
        let target = format!("{route}?cf_connect={}", encoded(bad));
        let answer = world.ask(peer, handshake(&target, ""));
        assert_eq!(response(&answer, false).0.status, 400, "{bad}");
    }
}
