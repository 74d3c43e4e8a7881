//! Tests the budgets, eviction and expiry of streams.

use bytes::Bytes;

use super::*;
use crate::stream::UNUSED_TTL_MS;
use crate::{ClientInfo, PayloadKind, RecoveryMode};

const HISTORY: HistoryOptions = HistoryOptions {
    size: 10,
    ttl_ms: 1_000,
    position_ttl_ms: 10_000,
    recovery: RecoveryMode::Missed,
    budget: crate::Budget::COMMON,
};

fn publish(streams: &mut Streams, index: u32, now_ms: u64) {
    let payload = Payload {
        kind: PayloadKind::Text,
        bytes: Bytes::from(vec![b'x'; 1000]),
    };
    streams.append(index, (payload, None), now_ms, &HISTORY, now_ms);
}

/// Publishes to a stream as the given user.
fn publish_as(streams: &mut Streams, index: u32, user: &str, bytes: usize) {
    let payload = Payload {
        kind: PayloadKind::Text,
        bytes: Bytes::from(vec![b'x'; bytes]),
    };
    let client = ClientInfo {
        user: user.into(),
        client: "c".into(),
        conn_info: None,
        chan_info: None,
    };
    let info = PublicationInfo {
        client: Some(Arc::new(client)),
        ..PublicationInfo::default()
    };
    let history = HistoryOptions {
        size: u32::MAX,
        ..HISTORY
    };
    streams.append(index, (payload, Some(Arc::new(info))), 0, &history, 0);
}

fn three() -> Streams {
    let mut streams = Streams::new(EpochGenerator::new(1));
    for channel in 0..3 {
        assert_eq!(streams.open(channel, 8, 0), channel);
        publish(&mut streams, channel, 0);
        publish(&mut streams, channel, 0);
    }
    streams
}

fn kept(streams: &Streams, index: u32) -> usize {
    let stream = streams.get(index);
    (stream.position().offset + 1 - stream.lowest()) as usize
}

/// Sets the common budget to `bytes_max`, and evicts publications until they fit into it.
fn keep_to(streams: &mut Streams, bytes_max: usize) {
    streams.set_budgets(bytes_max, std::iter::empty());
    while streams.evict(usize::MAX) > 0 {}
    assert!(streams.held() <= bytes_max);
}

impl Streams {
    fn held(&self) -> usize {
        self.accounts.bytes()
    }
}

#[test]
fn of_equal_ones_the_idle_give_first() {
    let mut streams = three();
    publish(&mut streams, 1, 0);
    publish(&mut streams, 2, 0);
    publish(&mut streams, 0, 0);
    let full = streams.bytes();
    let left = |streams: &Streams| [0, 1, 2].map(|index| kept(streams, index));
    keep_to(&mut streams, full - 1);
    assert_eq!(left(&streams), [3, 2, 3]);
    keep_to(&mut streams, full - 2_500);
    assert_eq!(left(&streams), [2, 2, 2]);
    keep_to(&mut streams, 0);
    assert_eq!((streams.len(), streams.evicted()), (3, 9));
    assert_eq!(streams.get(1).position().offset, 3);
    streams.close(2);
    assert_eq!(streams.open(7, 8, 0), 2, "places are reused");
}

#[test]
fn eviction_stops_at_the_byte() {
    let mut streams = three();
    let full = streams.held();
    publish(&mut streams, 2, 0);
    let each = streams.held() - full;
    // A budget that is used up exactly is not exceeded.
    keep_to(&mut streams, full);
    assert_eq!((streams.held(), streams.evicted()), (full, 1));
    keep_to(&mut streams, full);
    assert_eq!((streams.held(), streams.evicted()), (full, 1));
    let less = full - each;
    keep_to(&mut streams, less);
    assert_eq!((streams.held(), streams.len()), (less, 3));
}

#[test]
fn the_heaviest_publisher_is_evicted_first() {
    let mut streams = Streams::new(EpochGenerator::new(1));
    for channel in 0..100 {
        streams.open(channel, 8, 0);
    }
    // The oldest publications are ann's. They must not be evicted because of mallory's flood.
    for _ in 0..50 {
        publish_as(&mut streams, 0, "ann", 1_000);
    }
    for index in 1..10 {
        publish_as(&mut streams, index, "bob", 1_000);
    }
    publish(&mut streams, 10, 0);
    let before = streams.held();
    streams.set_budgets(before + 200_000, std::iter::empty());
    for number in 0..10_000 {
        publish_as(&mut streams, 11 + number % 80, "mallory", 1_000);
        while streams.evict(usize::MAX) > 0 {}
        assert!(streams.held() <= before + 200_000);
    }
    assert_eq!(kept(&streams, 0), 50);
    assert!((1..=10).all(|index| kept(&streams, index) == 1));
    assert!(streams.evicted() > 9_000);
    // The budget is lowered: only publications of ann and mallory, the heaviest publishers, are evicted.
    keep_to(&mut streams, before);
    assert!((1..=10).all(|index| kept(&streams, index) == 1));
}

#[test]
fn the_back_end_gives_when_it_takes_sixteen_times_as_much_as_a_user() {
    let mut streams = Streams::new(EpochGenerator::new(1));
    for channel in 0..110 {
        streams.open(channel, 8, 0);
    }
    for index in 0..100 {
        (0..10).for_each(|_| publish(&mut streams, index, 0));
    }
    for _ in 0..10 {
        publish_as(&mut streams, 100, "ann", 1_000);
    }
    let full = streams.held();
    keep_to(&mut streams, full - 100_000);
    assert_eq!(kept(&streams, 100), 10);
    // A user's publications are evicted only when they take more than a sixteenth of the back end's bytes.
    for number in 0..1_000 {
        publish_as(&mut streams, 101 + number % 9, "mallory", 1_000);
        while streams.evict(usize::MAX) > 0 {}
    }
    assert_eq!(kept(&streams, 100), 10);
    let left: usize = (0..100).map(|index| kept(&streams, index)).sum();
    assert!(left > 750, "{left} of 900");
}

#[test]
fn a_stream_counts_to_its_main_publisher() {
    let mut streams = Streams::new(EpochGenerator::new(1));
    streams.open(0, 8, 0);
    let owner = |streams: &Streams| streams.slot(0).owner;
    let is_of = |streams: &Streams, user| streams.accounts.belongs_to(owner(streams), user);
    assert_eq!(owner(&streams), NO_MEMBER);
    publish_as(&mut streams, 0, "ann", 3_000);
    publish_as(&mut streams, 0, "bob", 1_000);
    publish(&mut streams, 0, 0);
    assert!(is_of(&streams, Some("ann")));
    publish_as(&mut streams, 0, "bob", 5_000);
    assert!(is_of(&streams, Some("bob")));
    // A stream counts for the publisher of its latest publications. One without publications has no owner.
    (0..5).for_each(|_| streams.shrink(0, Stream::drop_oldest));
    assert_eq!((owner(&streams), streams.held()), (NO_MEMBER, 0));
    publish_as(&mut streams, 0, "ann", 1);
    assert!(is_of(&streams, Some("ann")));
    (0..20).for_each(|_| publish(&mut streams, 0, 0));
    assert!(is_of(&streams, None));
    streams.close(0);
    assert_eq!((streams.held(), streams.bytes()), (0, 0));
}

#[test]
fn a_budget_is_for_its_namespace_alone() {
    let mut budgets = crate::Namespaces::new();
    let own = HistoryOptions {
        budget: budgets.add_budget("own", 0),
        ..HISTORY
    };
    let mut streams = Streams::new(EpochGenerator::new(1));
    let put = |streams: &mut Streams, index, history: &HistoryOptions| {
        let payload = Payload {
            kind: PayloadKind::Text,
            bytes: Bytes::from(vec![b'x'; 1000]),
        };
        streams.append(index, (payload, None), 0, history, 0);
        while streams.evict(usize::MAX) > 0 {}
    };
    for channel in 0..100 {
        streams.open(channel, 8, 0);
    }
    let set = |streams: &mut Streams, common, own| {
        streams.set_budgets(common, [("own", own)].into_iter());
        while streams.evict(usize::MAX) > 0 {}
    };
    set(&mut streams, 20_000, 20_000);
    (0..5).for_each(|_| put(&mut streams, 0, &own));
    (0..1_000).for_each(|number| put(&mut streams, 1 + number % 99, &HISTORY));
    assert_eq!(kept(&streams, 0), 5);
    let others = (1..100).map(|index| kept(&streams, index)).sum::<usize>();
    assert!((10..20).contains(&others), "{others}");
    (0..1_000).for_each(|_| put(&mut streams, 0, &own));
    assert_eq!(kept(&streams, 0), 10);
    let still = (1..100).map(|index| kept(&streams, index)).sum::<usize>();
    assert_eq!(still, others);
    // The namespace no longer has its own budget. After the next scan its stream counts against the
    // common budget.
    streams.set_budgets(40_000, std::iter::empty());
    let held = streams.held();
    let look = |streams: &mut Streams, history: HistoryOptions| {
        streams.scan(100, 0, false, |_| Some(history), |_| true, |_| ());
        while streams.evict(usize::MAX) > 0 {}
    };
    look(&mut streams, HISTORY);
    assert!(streams.held() < held, "it shares the account of the others");
    assert_eq!(kept(&streams, 0), 10);
    streams.set_budgets(8_000, std::iter::empty());
    while streams.evict(usize::MAX) > 0 {}
    assert!(kept(&streams, 0) < 6 && streams.held() <= 8_000);
    // The namespace gets its own, smaller budget.
    set(&mut streams, 40_000, 3_000);
    look(&mut streams, own);
    assert!(streams.held() <= 3_000);
    set(&mut streams, 0, 3_000);
    assert!(streams.held() > 1_000);
}

#[test]
fn only_the_heaviest_accounts_are_evicted() {
    const USERS: [&str; 6] = ["", "ann", "bob", "cid", "dan", "eve"];
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut streams = Streams::new(EpochGenerator::new(1));
        for channel in 0..40 {
            streams.open(channel, 8, 0);
        }
        let bytes_max = random.usize(20_000..400_000);
        streams.set_budgets(bytes_max, std::iter::empty());
        for _ in 0..5_000 {
            // Users at lower indices publish more than the others.
            let last = random.usize(0..USERS.len());
            let user = random.usize(0..=last);
            let bytes = random.usize(1..3_000);
            publish_as(&mut streams, random.u32(..40), USERS[user], bytes);
            let weights = |streams: &Streams| {
                let mut weights = [0; USERS.len()];
                for index in 0..40 {
                    let place = streams.slot(index);
                    let is_of = |user: &&str| {
                        place.owner != NO_MEMBER
                            && streams.accounts.belongs_to(place.owner, Some(user))
                    };
                    if let Some(user) = USERS.iter().position(is_of) {
                        weights[user] += place.held();
                    }
                }
                weights
            };
            let mut before = weights(&streams);
            while streams.evict(usize::MAX) > 0 {
                let after = weights(&streams);
                let most = before.iter().max().copied().unwrap_or_default();
                for (before, after) in before.iter().zip(after) {
                    // The margin of 1,000 bytes covers what an account uses in addition to its
                    // streams.
                    let is_heavy = 3 * (before + 1_000) >= 2 * most;
                    assert!(after == *before || is_heavy, "{seed}: {before} of {most}");
                }
                before = after;
            }
            let held: usize = before.iter().sum();
            assert!(held <= streams.held() && streams.held() <= bytes_max);
        }
        assert!(streams.evicted() > 100);
        for index in 0..40 {
            streams.close(index);
        }
        assert_eq!((streams.held(), streams.bytes()), (0, 0));
    }
}

#[test]
fn empty_streams_evict_no_history() {
    let mut streams = Streams::new(EpochGenerator::new(1));
    let index = streams.open(0, 8, 0);
    publish(&mut streams, index, 0);
    for channel in 1..100 {
        streams.open(channel, 255, 0);
    }
    let mut gone = 0;
    streams.scan(100, 0, true, |_| Some(HISTORY), |_| false, |_| gone += 1);
    assert_eq!(gone, 99);
    assert!(streams.get(index).has_records());
    // A stream to which nothing was published is kept for `UNUSED_TTL_MS`.
    streams.open(1, 255, 0);
    let mut look = |now_ms| {
        let mut gone = 0;
        let ttl = HistoryOptions {
            ttl_ms: u64::MAX,
            position_ttl_ms: u64::MAX,
            ..HISTORY
        };
        streams.scan(100, now_ms, false, |_| Some(ttl), |_| false, |_| gone += 1);
        gone
    };
    assert_eq!((look(UNUSED_TTL_MS - 1), look(UNUSED_TTL_MS)), (0, 1));
}

#[test]
fn a_single_stream_over_budget_loses_its_oldest() {
    let mut streams = Streams::new(EpochGenerator::new(1));
    let index = streams.open(0, 8, 0);
    for _ in 0..5 {
        publish(&mut streams, index, 0);
    }
    keep_to(&mut streams, 3_000);
    assert!(streams.held() > 1_500);
    keep_to(&mut streams, 0);
    assert_eq!(streams.evict(usize::MAX), 0);
    assert_eq!(
        (streams.held(), streams.empty_bytes()),
        (0, streams.bytes())
    );
    assert_eq!(streams.get(index).position().offset, 5);
}

#[test]
fn expired_streams_are_closed() {
    let mut streams = three();
    let mut gone = Vec::new();
    let mut look = |streams: &mut Streams, now_ms, used| {
        streams.scan(
            3,
            now_ms,
            false,
            |_| Some(HISTORY),
            |_| used,
            |one| gone.push(one.channel),
        );
        std::mem::take(&mut gone)
    };
    assert!(look(&mut streams, 999, false).is_empty());
    assert!(streams.get(0).has_records());
    assert!(look(&mut streams, 1_000, false).is_empty());
    assert!(!streams.get(0).has_records());
    assert!(look(&mut streams, 10_000, true).is_empty());
    let mut last = look(&mut streams, 10_000, false);
    last.sort_unstable();
    assert_eq!(last, [0, 1, 2]);
    assert_eq!((streams.len(), streams.bytes()), (0, 0));
}

#[test]
fn a_stream_that_takes_the_number_of_a_closed_one_closes_too() {
    let mut streams = three();
    // The scan has visited all streams in this round.
    streams.scan(3, 0, false, |_| Some(HISTORY), |_| true, |_| {});
    for index in 0..3 {
        streams.close(index);
    }
    assert_eq!((streams.len(), streams.scan_order.len()), (0, 0));
}

#[test]
fn each_round_visits_every_stream_once_while_others_close() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut streams = Streams::new(EpochGenerator::new(1));
        let mut alive: Vec<u32> = (0..200).collect();
        for channel in &alive {
            assert_eq!(streams.open(*channel, 8, 0), *channel);
        }
        let mut seen = std::cell::RefCell::new(std::collections::BTreeSet::new());
        while !alive.iter().all(|channel| seen.get_mut().contains(channel)) {
            let closed = alive.swap_remove(random.usize(..alive.len()));
            streams.close(closed);
            let mut gone = Vec::new();
            streams.scan(
                1,
                0,
                false,
                |channel| {
                    assert!(seen.borrow_mut().insert(channel), "{seed}: twice");
                    // The scan closes the streams of channels without history.
                    (channel % 7 > 0).then_some(HISTORY)
                },
                |_| false,
                |one| gone.push(one.channel),
            );
            assert!(gone.iter().all(|channel| channel % 7 == 0));
            alive.retain(|channel| !gone.contains(channel));
            assert_eq!(streams.len(), alive.len());
        }
    }
}
