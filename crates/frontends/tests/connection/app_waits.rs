//! Tests suspended handlers: messages that are queued while a handler is suspended, their order and the queue's limits.

use proptest::prelude::*;
use veche_frontends::WaitReason;
use veche_frontends::app::{QUEUED_BYTES_HIGH, QUEUED_MESSAGES_MAX};
use veche_frontends::outbox::SendResult;
use veche_proto::websocket::{MessageKind, Opcode};

use crate::world::apps::{AppCall, app_message, closed, opened};
use crate::world::wire::{ServerMessage, close, control, message, server_messages, text, texts};
use crate::world::{Options, Peer, World};

/// Returns the messages that were passed to the application, as text.
fn messages(calls: &[AppCall]) -> Vec<String> {
    let text = |call: &AppCall| match call {
        AppCall::Message(_, data) => Some(String::from_utf8_lossy(data).into_owned()),
        _ => None,
    };
    calls.iter().filter_map(text).collect()
}

#[test]
fn messages_wait_behind_a_handler_and_pings_do_not() {
    let mut world = World::new(Options::default());
    let (peer, other) = (world.open(0, "/app/x"), world.open(0, "/app/x"));
    let bytes = [
        text("wait"),
        text("say one"),
        control(Opcode::Ping, b"!"),
        text("say two"),
    ];
    let answer = world.ask(peer, bytes.concat());
    assert_eq!(
        server_messages(&answer),
        [ServerMessage::Pong(b"!".to_vec())]
    );
    assert_eq!(
        world.app_calls(peer),
        [opened("/app/x"), app_message("wait")]
    );
    // Other connections of the application are not delayed.
    assert_eq!(texts(&world.ask(other, text("say hi"))), ["hi"]);
    assert!(world.end_wait(peer));
    world.settle();
    assert_eq!(texts(&world.take(peer)), ["one", "two"]);
    assert_eq!(
        world.app_calls(peer),
        [app_message("say one"), app_message("say two")]
    );
    assert_eq!(texts(&world.ask(peer, text("say three"))), ["three"]);
}

#[test]
fn an_opening_handler_may_wait() {
    let mut world = World::new(Options::default());
    let peer = world.connect(0, crate::world::PUBLIC);
    let handshake = crate::world::wire::handshake("/app/x?open=wait", "");
    let answer = world.ask(peer, [handshake.into_bytes(), text("say one")].concat());
    let (head, frames) = crate::world::wire::response(&answer, true);
    assert_eq!((head.status, frames), (101, &b""[..]));
    assert_eq!(world.app_calls(peer), [opened("/app/x")]);
    world.end_wait(peer);
    world.settle();
    assert_eq!(texts(&world.take(peer)), ["one"]);
}

#[test]
fn queued_messages_are_limited_by_count() {
    let mut world = World::new(Options::default());
    let peer = world.open(0, "/app/x");
    world.send(peer, &text("wait"));
    for n in 0..QUEUED_MESSAGES_MAX {
        assert_eq!(world.blocked(peer), None, "{n}");
        world.send(peer, &text(&format!("{n}")));
    }
    // The queue is full, but the connection is blocked only once further input arrives.
    assert_eq!(world.blocked(peer), None);
    world.send(peer, &control(Opcode::Ping, b"not seen"));
    world.settle();
    assert_eq!(
        (world.blocked(peer), world.take(peer)),
        (Some(WaitReason::App), Vec::new())
    );
    assert_eq!(
        world.stats(0).messages_received.read(),
        1 + QUEUED_MESSAGES_MAX as u64
    );
    for n in QUEUED_MESSAGES_MAX..100 {
        world.send(peer, &text(&format!("{n}")));
    }
    // The client is silent only because the server does not read. It is therefore neither pinged
    // nor closed.
    world.advance(600_000);
    assert!(world.is_open(peer));
    assert_eq!(world.take(peer), b"");
    world.end_wait(peer);
    world.settle();
    assert_eq!(
        server_messages(&world.take(peer)),
        [ServerMessage::Pong(b"not seen".to_vec())]
    );
    let expected: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    assert_eq!(messages(&world.app_calls(peer))[1..], expected);
    assert_eq!(world.blocked(peer), None);
}

#[test]
fn queued_messages_are_limited_by_bytes() {
    let mut world = World::new(Options::default());
    let peer = world.open(0, "/app/x");
    world.send(peer, &text("wait"));
    let long = message(MessageKind::Binary, &[7; 60_000]);
    for _ in 0..5 {
        world.send(peer, &long);
    }
    world.settle();
    assert!(world.waits_for_app(peer));
    let taken = world.stats(0).message_bytes_received.read() as usize;
    assert_eq!(taken, 4 + 2 * 60_000);
    assert!(taken < QUEUED_BYTES_HIGH + 60_004);
    world.end_wait(peer);
    world.settle();
    assert_eq!(messages(&world.app_calls(peer)).len(), 6);
}

#[test]
fn each_of_many_handlers_may_wait() {
    let mut world = World::new(Options::default());
    let peer = world.open(0, "/app/x");
    let mut bytes = Vec::new();
    for n in 0..100 {
        bytes.extend(text(&format!("wait {n}")));
    }
    bytes.extend(close(Some(1000), ""));
    world.send(peer, &bytes);
    for n in 0..84 {
        world.settle();
        let calls = world.app_calls(peer);
        assert_eq!(messages(&calls), [format!("wait {n}")]);
        assert!(world.end_wait(peer));
    }
    // Only 15 messages are left in the queue now, so the Close frame after them is read. The
    // application gets the 15 messages right before the end of the connection.
    world.settle();
    let calls = world.app_calls(peer);
    assert_eq!(messages(&calls).len(), 16);
    assert_eq!(calls.last(), Some(&closed(1000, "")));
    assert!(!world.end_wait(peer));
}

#[test]
fn an_unread_response_stops_reading() {
    let mut world = World::new(Options::default());
    let peer = world.open(0, "/app/x");
    world.read_at_most(peer, 0);
    world.send(peer, &text("wait"));
    let long = format!("say {}", "x".repeat(30_000));
    for _ in 0..3 {
        world.send(peer, &text(&long));
    }
    world.settle();
    world.app_calls(peer);
    world.end_wait(peer);
    world.settle();
    // The outbox now has three echoes of 30,000 bytes each. Together they exceed the threshold above which input waits.
    assert_eq!(messages(&world.app_calls(peer)).len(), 3);
    for _ in 0..8 {
        world.send(peer, &text(&long));
    }
    world.settle();
    assert_eq!(world.blocked(peer), Some(WaitReason::Output));
    assert_eq!(world.app_calls(peer), []);
    world.read_at_most(peer, usize::MAX);
    world.settle();
    assert_eq!(texts(&world.take(peer)).len(), 11);
    assert_eq!(messages(&world.app_calls(peer)).len(), 8);
}

#[test]
fn a_full_outbox_and_its_relief_are_reported() {
    let mut world = World::new(Options::default());
    let peer = world.open(0, "/app/x");
    // The client reads at once. The outbox becomes full, but the flush of the same turn makes room in it.
    world.ask(peer, text("flood"));
    let calls = world.app_calls(peer);
    assert_eq!(calls[2], AppCall::Flooded(66, SendResult::Full));
    assert_eq!(calls[3], AppCall::Drained);
    // The client reads nothing. The application is notified only after the client has read most of the data.
    world.read_at_most(peer, 0);
    world.ask(peer, text("flood"));
    let calls = world.app_calls(peer);
    assert_eq!(calls[1..], [AppCall::Flooded(66, SendResult::Full)]);
    for _ in 0..5 {
        world.read_at_most(peer, 10_000);
        world.settle();
    }
    assert_eq!(
        world.app_calls(peer),
        [AppCall::Drained],
        "at a quarter of the mark"
    );
    world.read_at_most(peer, usize::MAX);
    world.settle();
    assert_eq!(world.app_calls(peer), [], "once");
}

#[test]
fn sending_into_a_full_outbox_closes_only_that_client() {
    let mut world = World::new(Options::default());
    let (peer, other) = (world.open(0, "/app/x"), world.open(0, "/app/x"));
    world.read_at_most(peer, 0);
    world.ask(peer, text("flood on"));
    let calls = world.app_calls(peer);
    let AppCall::Flooded(count, SendResult::Refused) = calls[2] else {
        panic!("{calls:?}")
    };
    assert_eq!(count, (256 << 10) / 1004);
    assert_eq!(calls[3..], [closed(1013, "too slow: try again later")]);
    assert_eq!(world.stats(0).slow_consumers.read(), 1);
    world.read_at_most(peer, usize::MAX);
    world.settle();
    let answer = server_messages(&world.take(peer));
    assert_eq!(answer.len(), count + 1, "what was accepted arrives");
    assert!(matches!(
        answer.last(),
        Some(ServerMessage::Close(Some(1013), _))
    ));
    assert_eq!(texts(&world.ask(other, text("say hi"))), ["hi"]);
}

#[test]
fn completion_of_an_abandoned_wait_is_ignored() {
    let mut world = World::new(Options::default());
    let peer = world.open(0, "/app/x");
    let id = world.id(peer);
    for _ in 0..3 {
        world.workers[0].shared_mut().app_ready.push(id);
    }
    world.settle();
    world.send(peer, &text("wait"));
    world.send(peer, &text("kept"));
    world.settle();
    assert_eq!(messages(&world.app_calls(peer)), ["wait"]);
    // The end of the handler's wait is reported after the connection was closed and another connection has taken its
    // index.
    world.reset(peer);
    let next = world.open(0, "/app/x");
    world.send(next, &text("wait"));
    world.send(next, &text("kept"));
    world.workers[0].shared_mut().app_ready.push(id);
    world.settle();
    assert_eq!(messages(&world.app_calls(next)), ["wait"]);
}

/// A step of a client, or of its application.
#[derive(Clone, Debug)]
enum Act {
    Say(usize, bool),
    Ping,
    EndWait,
    Settle,
    Read(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => (0..3000usize, any::<bool>()).prop_map(|(length, waits)| Act::Say(length, waits)),
        1 => Just(Act::Ping),
        3 => Just(Act::EndWait),
        3 => Just(Act::Settle),
        1 => (0..20_000usize).prop_map(Act::Read),
    ];
    prop::collection::vec(act, 1..80)
}

/// Executes the steps; the client's bytes are split at random.
fn play(acts: &[Act], seed: u64) -> (World, Peer, Vec<String>, usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut world = World::new(Options::default());
    let peer = world.open(0, "/app/x");
    let (mut messages, mut pings) = (Vec::new(), 0);
    for act in acts {
        match act {
            Act::Say(length, waits) => {
                let word = if *waits { "wait" } else { "say" };
                let what = format!("{word} {} {}", messages.len(), "x".repeat(*length));
                world.send_split(peer, &text(&what), |left| random.usize(1..=left));
                messages.push(what);
            }
            Act::Ping => {
                world.send_split(peer, &control(Opcode::Ping, b"p"), |_| 1);
                pings += 1;
            }
            Act::EndWait => {
                world.end_wait(peer);
            }
            Act::Settle => world.settle(),
            Act::Read(bytes) => world.read_at_most(peer, *bytes),
        }
    }
    (world, peer, messages, pings)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// However the input is split and handlers are suspended, messages are handled and answered in the order in which
    /// they were sent. The test application asserts that no message is passed while a handler is suspended.
    #[test]
    fn no_message_overtakes_another(acts in acts(), seed: u64) {
        let (mut world, peer, sent, pings) = play(&acts, seed);
        world.read_at_most(peer, usize::MAX);
        world.settle();
        while world.end_wait(peer) {
            world.settle();
        }
        prop_assert_eq!(world.blocked(peer), None);
        prop_assert_eq!(messages(&world.app_calls(peer)), sent.clone());
        let answers = server_messages(&world.take(peer));
        let pongs = answers.iter().filter(|reply| matches!(reply, ServerMessage::Pong(_))).count();
        prop_assert_eq!(pongs, pings);
        let expected: Vec<ServerMessage> = sent
            .iter()
            .filter_map(|what| what.strip_prefix("say "))
            .map(|what| ServerMessage::Text(what.to_owned()))
            .collect();
        let answered: Vec<ServerMessage> = answers.into_iter().filter(|reply| matches!(reply, ServerMessage::Text(_))).collect();
        prop_assert_eq!(answered, expected);
        world.reset(peer);
        world.check_empty();
    }

    /// The peer's Close is handled after all of its earlier messages. A reset loses only messages that were not
    /// received yet.
    #[test]
    fn the_end_comes_last(acts in acts(), seed: u64, resets: bool) {
        let (mut world, peer, sent, _) = play(&acts, seed);
        if resets {
            world.reset(peer);
        } else {
            world.send(peer, &close(Some(1000), "end"));
        }
        world.read_at_most(peer, usize::MAX);
        world.settle();
        while world.end_wait(peer) {
            world.settle();
        }
        let calls = world.app_calls(peer);
        let handled = messages(&calls);
        prop_assert!(sent.starts_with(&handled));
        if !resets {
            prop_assert_eq!(handled.len(), sent.len());
        }
        let end = if resets { closed(1006, "") } else { closed(1000, "end") };
        prop_assert_eq!(calls.last(), Some(&end));
        prop_assert_eq!(calls.iter().filter(|call| matches!(call, AppCall::Closed(..))).count(), 1);
        world.reset_all();
        world.check_empty();
    }
}
