//! A hub with a log: how many publications may wait for the log, and when the log takes a batch.

use std::sync::Arc;

use veche_hub::{
    ChannelQuery, HubReply, LogRecord, Namespaces, NoCredit, PublishOptions, RequestOutcome,
    Wildcards,
};

use crate::node::{Node, START_MS, TTL_MS};

/// The limits in `src/pending.rs` and `src/log.rs`.
const PENDING_MAX: u32 = 8192;
const PENDING_BYTES_MAX: usize = 8 << 20;
const CHANGES_MAX: usize = 1024;

/// The time for which an unused stream is kept, in milliseconds: `UNUSED_TTL_MS` in `src/stream.rs`.
const FRESH_MS: u64 = 60_000;

fn passing() -> PublishOptions {
    PublishOptions {
        skip_history: true,
        ..PublishOptions::default()
    }
}

#[test]
fn unkept_publications_count_against_the_log_only_while_waiting() {
    let mut node = Node::logged();
    let large = "x".repeat(PENDING_BYTES_MAX / 16);
    for round in 0..40 {
        let kept = node.publish("kept", "kept:1");
        assert_eq!(kept, Ok(RequestOutcome::Pending), "{round}");
        let passed = node.publish_with(&large, "kept:1", passing());
        assert_eq!(passed, Ok(RequestOutcome::Pending), "{round}");
        assert_eq!(node.hub.gauges().pending, 2);
        node.write_log();
        assert_eq!(node.hub.gauges().pending, 0);
    }
    // Publications count against the limits of waiting publications only until the log has stored
    // them.
    assert_eq!(node.publish("kept", "kept:1"), Ok(RequestOutcome::Pending));
    for _ in 0..16 {
        let passed = node.publish_with(&large, "kept:1", passing());
        assert_eq!(passed, Ok(RequestOutcome::Pending));
    }
    let refused = node.publish_with(&large, "kept:1", passing());
    assert_eq!(refused, Err(NoCredit));
}

/// The channel loses its history while one of its publications still waits for the log. The next
/// publication must not overtake the waiting one.
#[test]
fn a_channel_that_stops_keeping_history_keeps_the_order() {
    let mut node = Node::logged();
    node.subscribe(0, "kept:1");
    node.texts();
    assert_eq!(node.publish("first", "kept:1"), Ok(RequestOutcome::Pending));
    let without = Namespaces::with_wildcards(Wildcards::new(["news"]));
    node.hub.set_history(Arc::new(without), usize::MAX);
    assert_eq!(node.publish("second", "kept:1"), Err(NoCredit));
    assert_eq!(node.texts(), [""; 0]);
    node.write_log();
    assert_eq!(node.texts(), ["first"]);
    node.put("second", "kept:1");
    assert_eq!(node.texts(), ["second"]);
}

#[test]
fn the_number_of_publications_waiting_for_the_log_is_limited() {
    let mut node = Node::logged();
    for _ in 0..PENDING_MAX {
        assert_eq!(node.publish("", "kept:1"), Ok(RequestOutcome::Pending));
    }
    assert_eq!(node.publish("", "kept:1"), Err(NoCredit));
    assert_eq!(node.hub.gauges().pending, PENDING_MAX);
    // A full log does not affect channels without history.
    node.subscribe(0, "chat:1");
    assert_eq!(node.put("a", "chat:1").receivers, Some(1));
    node.write_log();
    assert_eq!(node.hub.gauges().pending, 0);
    assert_eq!(node.publish("", "kept:1"), Ok(RequestOutcome::Pending));
}

#[test]
fn many_unawaited_changes_make_a_batch() {
    let mut node = Node::logged();
    assert!(!node.hub.has_changes());
    for number in 0..1_200 {
        let published = node.publish("a", &format!("kept:{number}"));
        assert_eq!(published, Ok(RequestOutcome::Pending));
    }
    assert!(node.hub.has_changes());
    node.write_log();
    assert!(!node.hub.has_changes());
    assert_eq!(node.hub.take_batch(false), None);
    assert_eq!(node.hub.take_batch(true), None);

    node.at(START_MS + TTL_MS);
    let each = 256;
    for _ in 0..CHANGES_MAX / each - 1 {
        node.hub.maintain();
        assert_eq!(node.hub.take_batch(false), None);
        assert!(node.hub.has_changes());
    }
    node.hub.maintain();
    let batch = node.hub.take_batch(false).expect("the limit is reached");
    assert_eq!(batch.records.len(), CHANGES_MAX);
    let is_trimmed = |append: &LogRecord| matches!(append, LogRecord::Trimmed { below: 2, .. });
    assert!(batch.records.iter().all(is_trimmed));
    assert!(!node.hub.has_changes());
    // The remaining changes are fewer than `CHANGES_MAX`, so they do not cause another batch.
    node.hub.maintain();
    assert_eq!(node.hub.take_batch(false), None);
    let batch = node.hub.take_batch(true).expect("all of it");
    assert_eq!(batch.records.len(), 1_200 - CHANGES_MAX);
}

#[test]
fn repeated_trims_of_one_stream_are_one_change() {
    let mut node = Node::logged();
    for _ in 0..CHANGES_MAX + 100 {
        assert_eq!(node.publish("a", "kept:1"), Ok(RequestOutcome::Pending));
    }
    node.write_log();
    assert!(node.hub.has_changes());
    assert_eq!(node.hub.take_batch(false), None);
    let batch = node.hub.take_batch(true).expect("all of it");
    assert!(matches!(batch.records[..], [LogRecord::Trimmed { .. }]));
}

#[test]
fn a_stream_with_pending_publications_is_not_closed() {
    let mut node = Node::logged();
    assert_eq!(node.publish("a", "kept:1"), Ok(RequestOutcome::Pending));
    node.at(START_MS + 2 * FRESH_MS);
    node.hub.maintain();
    assert_eq!(node.hub.gauges().streams, 1);
    node.write_log();
    let answers = std::mem::take(&mut node.outlet.answers);
    let [(_, HubReply::Published(published))] = answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!(published.position.map(|position| position.offset), Some(1));
}

#[test]
fn opened_streams_are_logged_with_epoch_and_time() {
    let mut node = Node::logged();
    let epoch = node.page("kept:1").position.epoch;
    let batch = node.hub.take_batch(false).expect("its epoch is known");
    let opened = LogRecord::Opened {
        channel: "kept:1".into(),
        epoch,
        at_ms: START_MS,
    };
    assert_eq!((batch.number, batch.records), (1, vec![opened]));
}

#[test]
fn removing_an_empty_history_waits_for_an_empty_batch() {
    let mut node = Node::logged();
    node.page("kept:1");
    node.write_log();
    assert!(!node.hub.has_changes());
    let outcome = node.ask("kept:1", ChannelQuery::RemoveHistory);
    assert_eq!(outcome, RequestOutcome::Pending);
    assert!(node.hub.has_changes());
    let batch = node.hub.take_batch(false).expect("an answer waits for it");
    assert_eq!((batch.number, batch.records), (2, vec![]));
    assert!(node.outlet.answers.is_empty());
    node.hub.batch_durable(2, &mut node.outlet);
    assert!(matches!(
        node.outlet.answers[..],
        [(_, HubReply::HistoryRemoved(Ok(())))]
    ));
    assert!(!node.hub.has_changes());
}
