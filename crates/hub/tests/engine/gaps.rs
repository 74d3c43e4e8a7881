//! Tests of the engine's contract for feeds that lose items. Only engines outside the process have such feeds.

use veche_hub::PayloadKind;

use crate::bench::Bench;
use crate::pair::publication;
use crate::unruly::{Broken, Unruly};

fn elsewhere(bench: &mut Bench<Unruly>, text: &str) {
    let publication = publication(text);
    bench.hub.engine().publish_elsewhere(0, publication);
}

fn bench(broken: Broken) -> Bench<Unruly> {
    let mut bench = crate::unruly(false, broken);
    bench.subscribe(1, None);
    bench
}

fn gap_with(broken: Broken) {
    let mut bench = bench(broken);
    bench.publish_and_settle("a");
    bench.hub.engine().losing = 2;
    for text in ["b", "c", "d", "e"] {
        elsewhere(&mut bench, text);
    }
    bench.settle();
    assert_eq!(bench.outlet.texts(1), ["a", "b", "c", "d", "e"]);
    assert_eq!(bench.hub.engine().reads, 1, "one read heals a gap");
    assert!(bench.outlet.lost.is_empty());
}

#[test]
fn gap() {
    gap_with(Broken::Nothing);
}

#[test]
#[should_panic(expected = "left == right")]
fn link() {
    gap_with(Broken::Link);
}

/// Although the feed loses, repeats and reorders items of two nodes, subscribers get all publications in order.
#[test]
fn feed_of_two_nodes() {
    for seed in 0..200 {
        let mut bench = Bench::on(Unruly::new(seed, Broken::Nothing));
        bench.subscribe(1, None);
        bench.hub.engine().is_lossy = true;
        let mut random = fastrand::Rng::with_seed(seed);
        let mut texts = Vec::new();
        for number in 0..60 {
            let text = number.to_string();
            match random.bool() {
                true => bench.publish(&text),
                false => elsewhere(&mut bench, &text),
            }
            texts.push(text);
            for _ in 0..random.usize(..3) {
                bench.hub.engine().arrive();
            }
            bench.hub.take_reports(&mut bench.outlet);
        }
        bench.hub.engine().is_lossy = false;
        bench.settle();
        texts.push("last".to_owned());
        bench.publish_and_settle("last");
        assert_eq!(bench.outlet.texts(1), texts, "seed {seed}");
        assert!(bench.outlet.lost.is_empty());
    }
}

#[test]
fn lost() {
    let mut bench = bench(Broken::Nothing);
    bench.publish_and_settle("a");
    bench.hub.engine().losing = 1;
    bench.hub.engine().is_forgetful = true;
    elsewhere(&mut bench, "b");
    elsewhere(&mut bench, "c");
    bench.settle();
    // The subscription ends with the gap, so the item after the gap is not delivered.
    assert_eq!(bench.outlet.texts(1), ["a"]);
    assert_eq!(bench.outlet.lost, [1]);
    // A session that subscribes again gets the items that follow its new subscription.
    bench.subscribe(1, None);
    bench.publish_and_settle("d");
    assert_eq!(bench.outlet.texts(1), ["a", "d"]);
    assert_eq!(bench.outlet.lost, [1]);
}

#[test]
fn epoch() {
    let mut bench = bench(Broken::Nothing);
    let before = bench.publish_and_settle("a").position.expect("it is kept");
    bench.hub.engine().begin_epoch(0, 99);
    bench.settle();
    assert_eq!(bench.outlet.lost, [1]);
    let after = bench.publish_and_settle("b").position.expect("it is kept");
    assert_ne!(before.epoch, after.epoch);
    assert_eq!(bench.outlet.texts(1), ["a"]);
}

#[test]
fn a_failed_publication_can_be_repeated() {
    let mut bench = bench(Broken::Nothing);
    let keyed = || veche_hub::PublishOptions {
        idempotency_key: Some("key".into()),
        ..Default::default()
    };
    bench.hub.engine().is_silent = true;
    bench.publish_with("a", Some(keyed()));
    bench.settle();
    assert_eq!((bench.failed, bench.published.len()), (1, 0));
    bench.hub.engine().is_silent = false;
    bench.publish_with("a", Some(keyed()));
    bench.settle();
    assert_eq!(bench.outlet.texts(1), ["a"]);
    assert_eq!(bench.published.len(), 1);
}

fn retry_with(broken: Broken) {
    let mut bench = bench(broken);
    bench.hub.engine().is_mute = true;
    // If the publisher sets no idempotency key, the engine retries the publication with a key that
    // it has generated.
    bench.publish_and_settle("a");
    let keyed = || veche_hub::PublishOptions {
        idempotency_key: Some("key".into()),
        ..Default::default()
    };
    bench.publish_with("b", Some(keyed()));
    bench.settle();
    assert_eq!((bench.failed, bench.published.len()), (1, 1));
    bench.hub.engine().is_mute = false;
    // A publisher that sets an idempotency key retries itself. The first attempt was stored, so the retry is
    // skipped and its reply has the position of the stored publication.
    bench.publish_with("b", Some(keyed()));
    bench.settle();
    let second = bench.published.pop().expect("it is answered");
    assert!(second.is_skipped);
    assert_eq!(bench.outlet.texts(1), ["a", "b"]);
    let offset = second.position.map(|position| position.offset);
    assert_eq!(offset, bench.outlet.offsets(1).last().copied());
}

#[test]
fn retry() {
    retry_with(Broken::Nothing);
}

#[test]
#[should_panic(expected = "[\"a\", \"a\", \"b\"]")]
fn retry_broken() {
    retry_with(Broken::Retry);
}

#[test]
fn room() {
    let mut bench = bench(Broken::Nothing);
    bench.hub.engine().is_full = true;
    let payload = veche_hub::PayloadRef {
        kind: PayloadKind::Text,
        bytes: b"a",
    };
    let channel = crate::common::name(crate::bench::CHANNEL);
    let (hub, outlet) = (&mut bench.hub, &mut bench.outlet);
    let outcome = hub.publish(None, channel, payload, None, outlet);
    assert_eq!(outcome, Err(veche_hub::NoCredit));
    hub.engine().is_full = false;
    bench.publish_and_settle("a");
    assert_eq!(bench.outlet.texts(1), ["a"]);
}
