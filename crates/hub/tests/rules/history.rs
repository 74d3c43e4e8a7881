//! Tests history over time: expiry, maintenance scans, the budget and recovery.

use std::sync::Arc;

use veche_hub::{
    ChannelQuery, HistoryError, HistoryOptions, HistoryQuery, HubReply, NamespaceOptions,
    RecoveryMode, RequestOutcome, Since, SubscribeOptions,
};

use crate::common::session;
use crate::node::{Node, POSITION_TTL_MS, START_MS, TTL_MS, back_from, namespaces};

/// As in `src/memory.rs`: a full scan takes `LOOKS` calls, and a call scans from `LOOK_MIN` to `LOOK_MAX` streams.
const LOOKS: u32 = 30;
const LOOK_MIN: u32 = 256;
const LOOK_MAX: u32 = 8192;

fn fill(node: &mut Node, count: u32) {
    for number in 0..count {
        node.put("a", &format!("kept:{number}"));
    }
}

/// Returns the memory in bytes that `count` streams still use after their publications were
/// removed.
fn bytes_of_empty(count: u32) -> u64 {
    let mut node = Node::alone();
    fill(&mut node, count);
    for number in 0..count {
        node.ask(&format!("kept:{number}"), ChannelQuery::RemoveHistory);
    }
    node.hub.gauges().history_bytes
}

#[test]
fn expired_publications_are_neither_recovered_nor_read() {
    let mut node = Node::alone();
    node.put("a", "kept:1");
    node.at(START_MS + TTL_MS - 1);
    assert_eq!(node.page("kept:1").len(), 1);
    node.at(START_MS + TTL_MS);
    assert!(node.page("kept:1").is_empty());

    let mut node = Node::alone();
    node.put("a", "kept:1");
    node.at(START_MS + TTL_MS - 1);
    let joined = node.join(session(0), "kept:1", &back_from(0));
    let recovered = joined
        .and_then(|joined| joined.recovered)
        .expect("asked for");
    assert!(recovered.is_complete && recovered.publications.len() == 1);
    node.at(START_MS + TTL_MS);
    let joined = node.join(session(1), "kept:1", &back_from(0));
    let joined = joined.expect("it remembers");
    assert_eq!(joined.position.offset, 1);
    let recovered = joined.recovered.expect("asked for");
    assert!(!recovered.is_complete && recovered.publications.is_empty());
    // The position is kept longer than the publication, so a subscriber at the top has missed nothing.
    let joined = node.join(session(2), "kept:1", &back_from(1));
    let recovered = joined.and_then(|joined| joined.recovered);
    assert!(recovered.expect("asked for").is_complete);
}

#[test]
fn a_full_expiry_pass_takes_thirty_calls_of_equal_size() {
    const STREAMS: u32 = 30_000;
    let mut node = Node::alone();
    fill(&mut node, STREAMS);
    let full = node.hub.gauges().history_bytes;
    let empty = bytes_of_empty(STREAMS);
    let each = (full - empty) / u64::from(STREAMS);
    node.at(START_MS + TTL_MS);
    node.hub.maintain();
    let gone = (full - node.hub.gauges().history_bytes) / each;
    assert_eq!(gone, u64::from(STREAMS / LOOKS), "in the first call");
    for _ in 1..LOOKS {
        node.hub.maintain();
    }
    assert_eq!(node.hub.gauges().history_bytes, empty);
    assert_eq!(node.hub.gauges().streams, STREAMS);
}

#[test]
fn an_expiry_call_keeps_its_lower_and_upper_limit() {
    for (streams, looked) in [(1_000, LOOK_MIN), (LOOKS * LOOK_MAX + 3_000, LOOK_MAX)] {
        let mut node = Node::alone();
        fill(&mut node, streams);
        node.at(START_MS + POSITION_TTL_MS);
        node.hub.maintain();
        assert_eq!(node.hub.gauges().streams, streams - looked);
    }
}

#[test]
fn closed_streams_add_no_expiry_calls() {
    let mut node = Node::alone();
    fill(&mut node, 100_000);
    node.at(START_MS + POSITION_TTL_MS);
    while node.hub.gauges().streams > 0 {
        node.hub.maintain();
    }
    assert_eq!(node.hub.gauges().history_bytes, 0);
    // Creates the minimum number of streams that a call scans.
    let left = LOOK_MIN;
    fill(&mut node, left);
    let bytes = node.hub.gauges().history_bytes;
    node.at(START_MS + POSITION_TTL_MS + TTL_MS);
    node.hub.maintain();
    let counts = node.hub.gauges();
    assert!(counts.history_bytes < bytes);
    assert_eq!(counts.history_bytes, bytes_of_empty(left));
    assert_eq!(counts.streams, left);
}

#[test]
fn nothing_is_evicted_below_the_budget() {
    let mut node = Node::alone();
    fill(&mut node, 100);
    assert_eq!(node.hub.evicted_total(), 0);
}

#[test]
fn reads_of_disabled_history_and_of_another_epoch_are_refused() {
    let mut node = Node::alone();
    let all = HistoryQuery {
        limit: 9,
        ..HistoryQuery::default()
    };
    let off = RequestOutcome::Done(HubReply::History(Err(HistoryError::Off)));
    assert_eq!(node.ask("chat:1", ChannelQuery::History(all)), off);
    let off = RequestOutcome::Done(HubReply::HistoryRemoved(Err(HistoryError::Off)));
    assert_eq!(node.ask("chat:1", ChannelQuery::RemoveHistory), off);
    assert_eq!(node.hub.gauges().entries, 0);

    node.put("a", "kept:1");
    node.put("b", "kept:2");
    let other = node.page("kept:2").position;
    let since = Since::from(other);
    let foreign = HistoryQuery {
        since: Some(since),
        ..all
    };
    let lost = RequestOutcome::Done(HubReply::History(Err(HistoryError::Unrecoverable)));
    assert_eq!(node.ask("kept:1", ChannelQuery::History(foreign)), lost);
    let removed = RequestOutcome::Done(HubReply::HistoryRemoved(Ok(())));
    assert_eq!(node.ask("kept:1", ChannelQuery::RemoveHistory), removed);
    let page = node.page("kept:1");
    assert_eq!((page.len(), page.position.offset), (0, 1));
}

#[test]
fn look_after_is_due_only_while_streams_exist() {
    let mut node = Node::alone();
    assert!(!node.hub.needs_maintenance());
    node.put("a", "chat:1");
    assert!(!node.hub.needs_maintenance());
    node.put("a", "kept:1");
    assert!(node.hub.needs_maintenance());
    node.at(START_MS + POSITION_TTL_MS);
    node.hub.maintain();
    assert!(!node.hub.needs_maintenance());
}

#[test]
fn a_channel_with_subscribers_keeps_its_position() {
    let mut node = Node::alone();
    node.subscribe(0, "kept:1");
    node.put("a", "kept:1");
    node.put("a", "kept:2");
    node.at(START_MS + 2 * POSITION_TTL_MS);
    node.hub.maintain();
    assert_eq!(node.hub.gauges().streams, 1);
    let joined = node.join(session(1), "kept:1", &SubscribeOptions::default());
    assert_eq!(joined.expect("it remembers").position.offset, 1);
    for index in 0..2 {
        node.unsubscribe(index, "kept:1");
    }
    node.hub.maintain();
    assert_eq!(node.hub.gauges().streams, 0);
}

#[test]
fn each_worker_has_its_share_of_the_budget() {
    const BUDGET: u64 = 400_000;
    let mut node = Node::home();
    node.hub
        .set_history(Arc::new(namespaces()), BUDGET as usize);
    let channels: [String; 50] = node.names("kept");
    for _ in 0..10 {
        for channel in &channels {
            node.put(&"x".repeat(1_000), channel);
        }
    }
    let bytes = node.hub.gauges().history_bytes;
    assert!(
        (BUDGET / 4 - 2_000..=BUDGET / 4).contains(&bytes),
        "{bytes}"
    );
    assert!(node.hub.evicted_total() > 300);
}

#[test]
fn history_reads_are_refused_while_replies_hold_too_many_dropped_bytes() {
    const SIZE: u32 = 200;
    let mut all = namespaces();
    let history = HistoryOptions {
        size: SIZE,
        ttl_ms: TTL_MS,
        position_ttl_ms: POSITION_TTL_MS,
        recovery: RecoveryMode::Missed,
        budget: veche_hub::Budget::COMMON,
    };
    let long = NamespaceOptions {
        history: Some(history),
        ..NamespaceOptions::default()
    };
    all.insert("long", long);
    let mut node = Node::alone();
    node.hub.set_history(Arc::new(all), 400_000);
    let fill = |node: &mut Node| {
        for _ in 0..SIZE {
            node.put(&"x".repeat(1_000), "long:1");
        }
    };
    fill(&mut node);
    let page = node.page("long:1");
    assert_eq!(page.len(), SIZE as usize);
    fill(&mut node);
    let busy = RequestOutcome::Done(HubReply::History(Err(HistoryError::Busy)));
    let query = || ChannelQuery::History(HistoryQuery::default());
    assert_eq!(node.ask("long:1", query()), busy);
    assert_eq!(node.ask("kept:1", query()), busy);
    let offsets = page.iter().map(|one| one.position.map(|at| at.offset));
    assert!(
        offsets.eq((1..=u64::from(SIZE)).map(Some)),
        "it stays as it was"
    );
    drop(page);
    assert_eq!(node.page("long:1").len(), SIZE as usize);
}

#[test]
fn a_budget_met_exactly_closes_no_stream() {
    let mut node = Node::alone();
    for number in 0..3 {
        node.page(&format!("kept:{number}"));
    }
    let bytes = node.hub.gauges().history_bytes as usize;
    // Streams without publications may use a quarter of the limit in addition to the limit itself.
    for (bytes_max, streams) in [(4 * bytes + 4, 3), (4 * bytes, 3), (4 * bytes - 1, 0)] {
        node.hub.set_history(Arc::new(namespaces()), bytes_max);
        node.hub.maintain();
        assert_eq!(node.hub.gauges().streams, streams);
    }
}

#[test]
fn the_length_of_a_channel_name_is_part_of_its_cost() {
    let bytes = |channel: &str| {
        let mut node = Node::alone();
        node.page(channel);
        node.hub.gauges().history_bytes
    };
    assert_eq!(bytes("kept:12345678") - bytes("kept:1"), 7);
}

#[test]
fn recovery_of_the_latest_publication() {
    let mut node = Node::alone();
    let recovered = |node: &mut Node, index, subscribe_options: &SubscribeOptions| {
        let joined = node.join(session(index), "latest:1", subscribe_options);
        let recovered = joined.and_then(|joined| joined.recovered);
        let recovered = recovered.expect("asked for");
        let offsets = recovered.publications.iter().map(|one| one.position);
        let offsets = offsets.map(|position| position.expect("kept").offset);
        let offsets: Vec<_> = offsets.collect();
        (recovered.is_complete, recovered.is_latest_only, offsets)
    };
    let picky = |offset| SubscribeOptions {
        recover_all: true,
        ..back_from(offset)
    };
    assert_eq!(
        recovered(&mut node, 0, &back_from(9)),
        (false, true, vec![])
    );
    assert_eq!(
        recovered(&mut node, 1, &back_from(0)),
        (true, false, vec![])
    );
    for _ in 0..3 {
        node.put("a", "latest:1");
    }
    assert_eq!(
        recovered(&mut node, 2, &back_from(0)),
        (true, true, vec![3])
    );
    assert_eq!(
        recovered(&mut node, 3, &back_from(3)),
        (true, false, vec![])
    );
    // A session with a filter (`recover_all`) gets every publication that it has missed.
    assert_eq!(
        recovered(&mut node, 4, &picky(1)),
        (true, false, vec![2, 3])
    );
    assert_eq!(
        recovered(&mut node, 5, &picky(9)),
        (true, true, vec![1, 2, 3])
    );
}

#[test]
fn pages_are_equal_where_their_publications_are() {
    let mut node = Node::alone();
    for text in ["a", "b"] {
        node.put(text, "kept:1");
    }
    let page = node.page("kept:1");
    assert_eq!(page, node.page("kept:1"));
    node.put("c", "kept:1");
    assert_ne!(page, node.page("kept:1"));
}
