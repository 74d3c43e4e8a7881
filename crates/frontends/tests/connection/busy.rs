//! Back ends that exceed the publish rate, and a server that is short of memory.

use veche_frontends::rate::Rate;

use crate::world::wire::{handshake, post, responses, server_messages, statuses, text, texts};
use crate::world::{INTERNAL, Options, PUBLIC, PUSH, World};

fn keyed(key: &str, body: &str) -> String {
    let head = format!("\r\nX-API-Key: {key}\r\n\r\n");
    post("/api/push", body).replacen("\r\n\r\n", &head, 1)
}

#[test]
fn each_key_publishes_at_its_rate() {
    let mut world = World::new(Options {
        api_keys: vec!["one", "two"],
        publish_rate: Some(Rate::new(2, 10_000)),
        ..Options::default()
    });
    world.advance(1_000);
    let ann = world.open(0, "/ws?user=ann");
    let caller = world.connect(0, INTERNAL);
    let push = "{\"user\":\"ann\",\"data\":1}";
    let answers = responses(&world.ask(caller, keyed("one", push).repeat(3)));
    let seen: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(seen, [200, 200, 429]);
    assert_eq!(answers[2].header("retry-after"), Some("5"));
    assert!(
        answers[2].body.contains("\"code\":111"),
        "{}",
        answers[2].body
    );
    // Another API key on the same connection has a publish rate of its own. Each recipient of a publication
    // is counted.
    let many = "{\"users\":[\"ann\",\"bob\"],\"data\":1}";
    let bytes = world.ask(caller, keyed("two", many) + &keyed("two", push));
    assert_eq!(statuses(&bytes), [200, 429]);
    // Push lines have no key; together they are counted against one rate of their own.
    let lines = world.connect(0, PUSH);
    let errors = world.ask(lines, format!("{push}\n").repeat(3));
    let errors = String::from_utf8(errors).expect("text");
    assert!(
        errors.starts_with("{\"error\":{\"code\":111,\"message\":\"line 3: "),
        "{errors}"
    );
    assert_eq!(texts(&world.take(ann)).len(), 2 + 1 + 2);
    assert_eq!(world.stats(0).push_connections_rejected[0].read(), 3);
    assert_eq!(world.stats(0).pushes_refused.read(), 0);
    // After five seconds the rate permits one publication again. A disconnect is no publication and is always
    // permitted.
    world.advance(5_000);
    let bytes = world.ask(caller, keyed("one", push).repeat(2));
    assert_eq!(statuses(&bytes), [200, 429]);
    let end = post("/api/disconnect", "{\"user\":\"ann\"}");
    let end = end.replacen("\r\n\r\n", "\r\nX-API-Key: one\r\n\r\n", 1);
    assert_eq!(statuses(&world.ask(caller, end)), [200]);
}

#[test]
fn short_of_memory_nothing_new_is_begun() {
    let mut world = World::new(Options::default());
    let mut echo = world.open(0, "/echo");
    let ann = world.open(0, "/ws?user=ann");
    let (caller, lines) = (world.connect(0, INTERNAL), world.connect(0, PUSH));
    let socket = world.open_on(0, INTERNAL, "/api/socket");
    let push = "{\"user\":\"ann\",\"data\":1}";

    world.workers[0].shared_mut().is_short_of_memory = true;
    let late = world.connect(0, PUBLIC);
    let answer = responses(&world.ask(late, handshake("/ws?user=bob", ""))).remove(0);
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("retry-after"), Some("1"));
    let answer = responses(&world.ask(caller, post("/api/push", push))).remove(0);
    assert_eq!(answer.status, 503);
    assert!(answer.body.contains("\"code\":106"), "{}", answer.body);
    let line = String::from_utf8(world.ask(lines, format!("{push}\n"))).expect("text");
    assert!(line.contains("\"code\":106"), "{line}");
    let answer = format!("{:?}", server_messages(&world.ask(socket, text(push))));
    assert!(answer.contains("106"), "{answer}");
    // Sessions that are already open are still served.
    assert_eq!(texts(&world.ask(echo, text("still here"))), ["still here"]);
    assert_eq!(world.take(ann), b"");
    assert_eq!(world.stats(0).push_connections_rejected[1].read(), 3);

    world.workers[0].shared_mut().is_short_of_memory = false;
    assert_eq!(statuses(&world.ask(caller, post("/api/push", push))), [200]);
    assert_eq!(texts(&world.take(ann)), ["1"]);
    echo = world.open(0, "/echo");
    assert!(world.is_open(echo));
}
