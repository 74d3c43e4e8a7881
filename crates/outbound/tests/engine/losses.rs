//! Tests what happens to channels when the Redis server ends, returns or loses data.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::time::Instant;
use veche_calls::redis::RedisDatabase;
use veche_hub::{ChannelQuery, PublishOptions, RemoteEngine};
use veche_nodes::NodeId;
use veche_outbound::engine::EngineSettings;

use crate::bench::Bench;
use crate::relay::Relay;
use crate::server::Server;
use crate::{node, node_with};

/// After a restart without persistence, subscribers learn that their position is void, and continue in a new epoch.
#[test]
fn a_server_that_lost_all_begins_new_epochs() {
    let server = Arc::new(Server::start(&[]));
    let mut bench = node(&server, 1);
    bench.subscribe(1, None);
    let before = bench.publish_and_settle("a").position.expect("it is kept");
    server.crash();
    server.begin();
    for _ in 0..10 {
        bench.settle();
    }
    assert_eq!(bench.outlet.lost, [1]);
    let after = bench.publish_and_settle("b").position.expect("it is kept");
    assert_ne!(before.epoch, after.epoch);
    // A subscription in the old epoch receives no publication of the new one.
    assert_eq!(bench.outlet.texts(1), ["a"]);
}

/// A restart of the server without data loss does not affect subscribers.
#[test]
fn a_server_that_lost_nothing_goes_on() {
    let server = Arc::new(Server::start(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ]));
    let mut bench = node(&server, 1);
    bench.subscribe(1, None);
    let before = bench.publish_and_settle("a").position.expect("it is kept");
    server.crash();
    server.begin();
    for _ in 0..10 {
        bench.settle();
    }
    let after = bench.publish_and_settle("b").position.expect("it is kept");
    assert_eq!(
        (before.epoch, before.offset + 1),
        (after.epoch, after.offset)
    );
    assert_eq!(bench.outlet.lost, [0; 0]);
    assert_eq!(bench.outlet.texts(1), ["a", "b"]);
}

/// After a restart from an older file, known offsets are reused only in another epoch.
#[test]
fn a_server_that_lost_the_end_begins_new_epochs() {
    let server = Arc::new(Server::start(&[]));
    let mut bench = node(&server, 1);
    bench.subscribe(1, None);
    bench.publish_and_settle("a");
    server.cli(&["SAVE"]);
    let before = bench.publish_and_settle("b").position.expect("it is kept");
    server.crash();
    server.begin();
    for _ in 0..10 {
        bench.settle();
    }
    assert_eq!(bench.outlet.lost, [1]);
    let after = bench.publish_and_settle("c").position.expect("it is kept");
    assert_ne!(before.epoch, after.epoch);
    assert_eq!(bench.outlet.texts(1), ["a", "b"]);
}

/// A restart from an older file also begins a new epoch in a channel that no node uses any more: a client may still
/// have a position in it.
#[test]
fn a_channel_that_is_not_compared_begins_a_new_epoch() {
    let server = Arc::new(Server::start(&[]));
    let mut bench = node(&server, 1);
    bench.publish_and_settle("a");
    server.cli(&["SAVE"]);
    let before = bench.publish_and_settle("b").position.expect("it is kept");
    let mut begin_ms = 120_000;
    while bench.hub.gauges().streams > 0 {
        begin_ms += 1_000;
        assert!(begin_ms < 600_000, "the node still knows the channel");
        bench.pass(begin_ms);
    }
    server.crash();
    server.begin();
    for _ in 0..10 {
        bench.settle();
    }
    let after = bench.publish_and_settle("c").position.expect("it is kept");
    assert_ne!(before.epoch, after.epoch);
}

/// A loss in one channel does not affect another channel that a node has compared with the store.
#[test]
fn a_channel_without_a_loss_goes_on_beside_one_with() {
    let server = Arc::new(Server::start(&[]));
    let mut bench = node(&server, 1);
    bench.subscribe(1, None);
    let before = bench.publish_and_settle("a").position.expect("it is kept");
    server.cli(&["SAVE"]);
    bench.publish_as("kept:2", "lost", None);
    bench.settle();
    server.crash();
    server.begin();
    for _ in 0..10 {
        bench.settle();
    }
    let generation = server.cli(&["GET", "test:generation"]);
    assert!(generation.contains('/'), "the loss is known: {generation}");
    let after = bench.publish_and_settle("b").position.expect("it is kept");
    assert_eq!(
        (before.epoch, before.offset + 1),
        (after.epoch, after.offset)
    );
    assert_eq!(bench.outlet.lost, [0; 0]);
    assert_eq!(bench.outlet.texts(1), ["a", "b"]);
}

/// A cut connection causes a gap in the feed. The gap is filled, and subscribers are not notified.
#[test]
fn a_gap_is_healed() {
    let server = Arc::new(Server::start(&[]));
    let mut bench = node(&server, 1);
    bench.subscribe(1, None);
    bench.publish_and_settle("a");
    server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    for number in 0..50 {
        bench.publish(&number.to_string());
    }
    for _ in 0..5 {
        bench.settle();
    }
    let mut expected = vec!["a".to_owned()];
    expected.extend((0..50).map(|number| number.to_string()));
    assert_eq!(bench.outlet.texts(1), expected);
    assert_eq!(bench.outlet.lost, [0; 0]);
    assert_eq!(bench.failed, 0);
}

/// Publications that are in flight when the connection is cut are stored once each.
#[test]
fn publications_in_flight_are_stored_once() {
    let server = Arc::new(Server::start(&[]));
    let mut bench = node(&server, 1);
    bench.subscribe(1, None);
    bench.publish_and_settle("first");
    for round in 0..20 {
        for number in 0..20 {
            bench.publish(&format!("{round}.{number}"));
        }
        server.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
        bench.settle();
    }
    for _ in 0..5 {
        bench.settle();
    }
    assert_eq!(bench.published.len() + bench.failed, 401);
    let mut expected = vec!["first".to_owned()];
    for round in 0..20 {
        expected.extend((0..20).map(|number| format!("{round}.{number}")));
    }
    assert_eq!(bench.outlet.texts(1), expected);
    assert_eq!(bench.outlet.lost, [0; 0]);
}

#[test]
fn scripts_that_a_server_has_forgotten_are_loaded_again() {
    let server = Arc::new(Server::start(&[]));
    let mut bench = node(&server, 1);
    bench.subscribe(1, None);
    bench.publish_and_settle("a");
    server.cli(&["SCRIPT", "FLUSH"]);
    bench.publish("b");
    bench.publish("c");
    bench.settle();
    assert_eq!(bench.outlet.texts(1), ["a", "b", "c"]);
    assert_eq!(bench.failed, 0);
}

#[test]
fn an_emptied_server_begins_new_epochs_with_the_next_publication() {
    let server = Arc::new(Server::start(&[]));
    let mut bench = node(&server, 1);
    bench.subscribe(1, None);
    bench.publish_and_settle("a");
    server.cli(&["FLUSHALL"]);
    bench.publish_and_settle("b");
    assert_eq!(bench.outlet.lost, [1]);
    assert_eq!(bench.outlet.texts(1), ["a"]);
}

fn behind(relay: &Relay, server: &Arc<Server>) -> Bench<RemoteEngine> {
    behind_with(server.keyspace_by(relay.port), server)
}

fn behind_with(keyspace: Arc<RedisDatabase>, server: &Arc<Server>) -> Bench<RemoteEngine> {
    let settings = EngineSettings {
        keyspace,
        sentinel: None,
        prefix: "test".into(),
        trusts_failover: false,
        node: NodeId(1),
        notice: Arc::new(|_| {}),
    };
    node_with(server, settings)
}

/// A subscription whose connection is open but delivers nothing is detected by probes, and its gap is recovered.
#[test]
fn a_silent_feed_is_replaced() {
    let server = Arc::new(Server::start(&[]));
    let relay = Relay::to(server.port());
    let mut bench = behind(&relay, &server);
    bench.subscribe(1, None);
    bench.publish_and_settle("a");
    relay.silence_feeds();
    bench.publish_and_settle("b");
    assert_eq!(bench.outlet.texts(1), ["a"], "the feed is silent");
    let begin = Instant::now();
    while bench.outlet.texts(1).len() < 2 {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "the loss was not noticed"
        );
        bench.settle();
    }
    assert_eq!(bench.outlet.texts(1), ["a", "b"]);
    assert_eq!(bench.outlet.lost, [0; 0]);
}

/// The server receives no data for longer than the time limit: publications fail or are stored once.
#[test]
fn a_stall_doubles_and_loses_nothing() {
    let server = Arc::new(Server::start(&[]));
    let relay = Relay::to(server.port());
    let mut bench = behind(&relay, &server);
    bench.subscribe(1, None);
    bench.publish_and_settle("a");
    relay.stall(true);
    for number in 0..20 {
        bench.publish(&number.to_string());
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_secs(7));
            relay.stall(false);
        });
        for _ in 0..10 {
            bench.settle();
        }
    });
    for _ in 0..10 {
        bench.settle();
    }
    let mut expected = vec!["a".to_owned()];
    expected.extend((0..20).map(|number| number.to_string()));
    assert_eq!(bench.outlet.texts(1), expected);
    assert_eq!((bench.outlet.lost.len(), bench.failed), (0, 0));
}

/// Returns a node that reaches the Redis server through a relay and has a short timeout for answers.
fn impatient(relay: &Relay, server: &Arc<Server>) -> Bench<RemoteEngine> {
    let mut keyspace = (*server.keyspace_by(relay.port)).clone();
    keyspace.timeout = Duration::from_secs(1);
    behind_with(Arc::new(keyspace), server)
}

/// Publications are sent again on a new connection. The network delivers the first copies later.
#[test]
fn publications_that_arrive_behind_their_repetition_are_stored_once() {
    let server = Arc::new(Server::start(&[]));
    let relay = Relay::to(server.port());
    let mut bench = impatient(&relay, &server);
    bench.subscribe(1, None);
    bench.publish_and_settle("a");
    relay.hold();
    for number in 0..20 {
        bench.publish(&number.to_string());
    }
    bench.settle();
    let mut expected = vec!["a".to_owned()];
    expected.extend((0..20).map(|number| number.to_string()));
    assert_eq!(bench.outlet.texts(1), expected);
    relay.release();
    bench.settle();
    bench.publish_and_settle("b");
    expected.push("b".to_owned());
    assert_eq!(bench.outlet.texts(1), expected);
    assert_eq!(server.cli(&["XLEN", "test:s:kept:1"]), "22");
    assert_eq!((bench.outlet.lost.len(), bench.failed), (0, 0));
}

/// A removal is sent twice. If the first copy arrives late, it removes no later publications.
#[test]
fn a_removal_that_arrives_behind_its_repetition_removes_nothing() {
    let server = Arc::new(Server::start(&[]));
    let relay = Relay::to(server.port());
    let mut bench = impatient(&relay, &server);
    bench.subscribe(1, None);
    bench.publish_and_settle("a");
    relay.hold();
    bench.ask(ChannelQuery::RemoveHistory);
    bench.settle();
    assert_eq!(server.cli(&["XLEN", "test:s:kept:1"]), "0");
    bench.publish_and_settle("b");
    relay.release();
    assert_eq!(server.cli(&["XLEN", "test:s:kept:1"]), "1");
}

/// A join command is sent twice. If the first copy arrives after the member has left, it does not
/// bring the member back.
#[test]
fn a_member_that_arrives_behind_its_repetition_is_gone() {
    let server = Arc::new(Server::start(&[]));
    let relay = Relay::to(server.port());
    let mut bench = impatient(&relay, &server);
    bench.enter(1, "ann");
    relay.hold();
    bench.enter(2, "ben");
    assert_eq!(bench.presence(), (vec!["1".into(), "2".into()], (2, 2)));
    bench.leave(2);
    relay.release();
    assert_eq!(bench.presence(), (vec!["1".into()], (1, 1)));
}

/// A publication began an epoch, but its answer was lost: the repetition finds the publication in
/// the store.
#[test]
fn the_first_publication_of_an_epoch_is_stored_once() {
    let server = Arc::new(Server::start(&[]));
    let relay = Relay::to(server.port());
    let mut bench = impatient(&relay, &server);
    bench.subscribe(1, None);
    for text in ["a", "b", "c"] {
        bench.publish_and_settle(text);
    }
    relay.silence_replies();
    server.cli(&["FLUSHALL"]);
    let after = bench.publish_and_settle("d").position.expect("it is kept");
    assert_eq!(after.offset, 1);
    assert_eq!(bench.outlet.texts(1), ["a", "b", "c"]);
    assert_eq!(server.cli(&["XLEN", "test:s:kept:1"]), "1");
    assert_eq!((bench.outlet.lost.len(), bench.failed), (1, 0));
}

/// A publication with an idempotency key was stored, but its answer was lost. The repetition is not taken for another
/// publication with this key.
#[test]
fn a_repetition_with_a_key_is_not_skipped() {
    let server = Arc::new(Server::start(&[]));
    let relay = Relay::to(server.port());
    let mut bench = impatient(&relay, &server);
    bench.subscribe(1, None);
    bench.publish_and_settle("a");
    relay.silence_replies();
    let options = PublishOptions {
        idempotency_key: Some("key".into()),
        ..PublishOptions::default()
    };
    bench.publish_with("b", Some(options));
    bench.settle();
    let last = bench.published.last().expect("it is answered");
    assert!(!last.is_skipped);
    assert_eq!((bench.published.len(), bench.failed), (2, 0));
    assert_eq!(server.cli(&["XLEN", "test:s:kept:1"]), "2");
}
