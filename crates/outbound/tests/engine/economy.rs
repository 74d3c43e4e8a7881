//! Tests that the engine does not send unnecessary commands to Redis.

use std::sync::Arc;

use veche_hub::HistoryQuery;

use crate::bench::{Bench, CHANNEL};
use crate::node;
use crate::server::Server;

/// The lifetime of history in these tests, in milliseconds.
const TTL_MS: u64 = 60_000;

fn calls(server: &Server, command: &str) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let head = format!("cmdstat_{command}:calls=");
    let mut counts = stats.lines().filter_map(|line| {
        let (count, _) = line.strip_prefix(&head)?.split_once(',')?;
        count.parse::<u64>().ok()
    });
    counts.next().unwrap_or_default()
}

fn lifetime_ms(server: &Server, key: &str) -> u64 {
    let answer = server.cli(&["PTTL", &format!("test:{key}:{CHANNEL}")]);
    answer.parse().expect("a key that ends")
}

#[test]
fn lifetimes_of_keys_are_not_set_by_each_publication() {
    let server = Arc::new(Server::start(&[]));
    let mut bench = node(&server, 1);
    bench.publish_and_settle("a");
    for key in ["s", "m"] {
        assert!(lifetime_ms(&server, key) >= TTL_MS);
        server.cli(&["PEXPIRE", &format!("test:{key}:{CHANNEL}"), "30000"]);
    }
    bench.publish_and_settle("b");
    assert!(lifetime_ms(&server, "s") <= 30_000);
    assert!(lifetime_ms(&server, "m") <= 30_000);
    // Field `x` records when both lifetimes were last set, field `y` when the lifetime of the position was last set.
    // The value 1 lies far in the past.
    for (mark, text) in [("x", "c"), ("y", "d")] {
        server.cli(&["HSET", &format!("test:m:{CHANNEL}"), mark, "1"]);
        bench.publish_and_settle(text);
        assert!(lifetime_ms(&server, "s") >= TTL_MS, "{mark}");
        assert!(lifetime_ms(&server, "m") >= TTL_MS, "{mark}");
        for key in ["s", "m"] {
            server.cli(&["PEXPIRE", &format!("test:{key}:{CHANNEL}"), "30000"]);
        }
    }
}

/// Comparisons and reads set the lifetime of a channel's position, but not each time.
#[test]
fn the_lifetime_of_a_position_is_not_set_by_each_comparison() {
    let server = Arc::new(Server::start(&[]));
    let mut bench = node(&server, 1);
    bench.publish_and_settle("a");
    let stream_ms = lifetime_ms(&server, "s");
    let subscribe = |bench: &mut Bench<_>, index| {
        let before = calls(&server, "pexpire");
        bench.subscribe(index, None);
        bench.settle();
        bench.leave(index);
        calls(&server, "pexpire") - before
    };
    let read = |bench: &mut Bench<_>| {
        let before = calls(&server, "pexpire");
        bench.read(HistoryQuery::default());
        calls(&server, "pexpire") - before
    };
    assert_eq!((subscribe(&mut bench, 1), read(&mut bench)), (0, 0));
    let make_old = || server.cli(&["HSET", &format!("test:m:{CHANNEL}"), "y", "1"]);
    make_old();
    assert_eq!((subscribe(&mut bench, 2), read(&mut bench)), (1, 0));
    assert_eq!(subscribe(&mut bench, 3), 0);
    make_old();
    assert_eq!((read(&mut bench), read(&mut bench)), (1, 0));
    assert_eq!(subscribe(&mut bench, 4), 0);
    assert!(lifetime_ms(&server, "s") <= stream_ms);
    // In a channel without publications, too, only the first comparison sets the lifetime.
    server.cli(&[
        "DEL",
        &format!("test:m:{CHANNEL}"),
        &format!("test:s:{CHANNEL}"),
    ]);
    assert_eq!((subscribe(&mut bench, 5), subscribe(&mut bench, 6)), (1, 0));
}

#[test]
fn a_stream_that_was_evicted_begins_with_a_lifetime() {
    let server = Arc::new(Server::start(&[]));
    let mut bench = node(&server, 1);
    bench.publish_and_settle("a");
    server.cli(&["DEL", &format!("test:s:{CHANNEL}")]);
    let after = bench.publish_and_settle("b").position.expect("it is kept");
    assert_eq!(after.offset, 2);
    assert!(lifetime_ms(&server, "s") >= TTL_MS);
}

#[test]
fn comparisons_of_many_channels_share_commands() {
    let server = Arc::new(Server::start(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ]));
    let mut bench = node(&server, 1);
    // The comparisons of this many channels fill three batches.
    for number in 0..5_000 {
        bench.publish_as(&format!("kept:{number}"), "a", None);
    }
    bench.settle();
    server.crash();
    server.begin();
    for _ in 0..10 {
        bench.settle();
    }
    let (scripts, compared) = (calls(&server, "evalsha"), calls(&server, "hmget"));
    assert!(
        compared >= 5_000 && scripts < 400,
        "{scripts} scripts for {compared} channels"
    );
    bench.publish_as("kept:4999", "b", None);
    bench.settle();
    let last = bench.published.last().expect("it is answered");
    assert_eq!(last.position.expect("it is kept").offset, 2);
}

/// The first subscriber of a channel returns: one script looks up the position at which the feed begins and reads what
/// the subscriber has missed.
#[test]
fn the_recovery_of_one_subscriber_is_one_script() {
    let server = Arc::new(Server::start(&[]));
    let mut bench = node(&server, 1);
    for text in ["a", "b", "c"] {
        bench.publish_and_settle(text);
    }
    let commands = ["subscribe", "evalsha", "mget", "hmget", "xrevrange"];
    let before = commands.map(|command| calls(&server, command));
    let all = |server: &Server| {
        let stats = server.cli(&["INFO", "commandstats"]);
        let calls = stats.lines().filter_map(|line| {
            let (name, rest) = line.split_once(":calls=")?;
            let is_own = name != "cmdstat_info" && name != "cmdstat_hello";
            is_own.then(|| rest.split(',').next()?.parse::<u64>().ok())?
        });
        calls.sum::<u64>()
    };
    let all_before = all(&server);
    let joined = bench.subscribe(1, Some(1));
    let recovered = joined.recovered.expect("it asked");
    assert!(recovered.is_complete);
    assert_eq!(recovered.publications.len(), 2);
    for (command, before) in commands.into_iter().zip(before) {
        assert_eq!(calls(&server, command) - before, 1, "{command}");
    }
    assert_eq!(all(&server) - all_before, 5);
}
