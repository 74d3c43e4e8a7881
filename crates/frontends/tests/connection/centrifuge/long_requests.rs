//! Messages that are longer than the usual limit of the protocol, on routes that permit them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::streams::{objects, open};
use super::{ask, publish};
use crate::world::wire::{post, responses};
use crate::world::{PUBLIC, PUSH, World};

/// Size of a message in bytes, more than 64 KiB.
const LONG: usize = 70_000;

fn world() -> World {
    let mut world = super::world(2);
    for worker in &mut world.workers {
        let site = Arc::get_mut(&mut worker.shared_mut().config).expect("the only one");
        for route in &mut site.routes {
            let route = Arc::get_mut(route).expect("the only one");
            route.message_limits.message_bytes_max = 1 << 20;
        }
    }
    world
}

#[test]
fn one_way_clients_connect_with_long_requests() {
    let request = json!({ "data": "x".repeat(LONG), "subs": { "open:1": {} } }).to_string();
    let mut world = world();
    let back_end = world.connect(0, PUSH);
    let socket = world.open(0, "/centrifuge/all/uni_websocket");
    let heard = ask(&mut world, socket, &request);
    assert_eq!(heard.lines[0]["connect"]["ping"], 25, "{heard:?}");
    for path in ["uni_http_stream", "uni_sse"] {
        let request = post(&format!("/centrifuge/all/{path}"), &request);
        let (peer, said) = open(&mut world, 1, &request);
        assert_eq!(said[0]["connect"]["ping"], 25, "{path}: {said:?}");
        publish(&mut world, back_end, "open:1", 7);
        let expected = json!({ "channel": "open:1", "pub": { "data": 7 } });
        assert_eq!(objects(&mut world, peer), [expected], "{path}");
    }
}

#[test]
fn long_commands_beside_a_response_are_relayed() {
    let mut world = world();
    let request = post("/centrifuge/all/http_stream", super::CONNECT);
    let (peer, said) = open(&mut world, 0, &request);
    let publish = json!({ "channel": "open:1", "data": "x".repeat(LONG) });
    let command = json!({ "id": 2, "publish": publish }).to_string();
    let body = json!({ "session": said[0]["connect"]["session"], "node": "", "data": command });
    for worker in 0..2 {
        let caller = world.connect(worker, PUBLIC);
        let request = post("/centrifuge/all/emulation", &body.to_string());
        assert_eq!(responses(&world.ask(caller, request))[0].status, 204);
        let expected: Value = json!({ "id": 2, "publish": {} });
        assert_eq!(objects(&mut world, peer), [expected]);
    }
}
