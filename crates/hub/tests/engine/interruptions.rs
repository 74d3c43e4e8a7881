//! Tests which comparisons with the store a home orders, and when, after it has lost the connection for orders and the
//! connection of the feed. The engine is outside the process; the tests pass each of its events to the hub.

use veche_nodes::engine::StoreState;
use veche_nodes::engine::channel::{Event, Order};

use crate::bench::CHANNEL;
use crate::restarts::{at, bench, check_of, found, item, publish, tell};

fn checks_of(orders: &[Order]) -> Vec<bool> {
    let checks = orders.iter().filter_map(|order| match order {
        Order::Check(check) => Some(check.is_verifying),
        _ => None,
    });
    checks.collect()
}

/// The store was restarted and both connections were lost. The channel is compared once, when its feed continues, so
/// that the comparison also finds the items that the feed has missed.
#[test]
fn an_interrupted_channel_is_compared_once() {
    for feed_is_first in [false, true] {
        let mut bench = bench();
        let data = publish(&mut bench, "a", at(1, 3));
        tell(&mut bench, Event::Interrupted);
        tell(&mut bench, Event::Down);
        let (up, followed) = (
            Event::Up(2, StoreState::Restarted),
            Event::Followed(CHANNEL.into()),
        );
        let (first, second) = match feed_is_first {
            true => (followed, up),
            false => (up, followed),
        };
        assert!(checks_of(&tell(&mut bench, first)).is_empty());
        let orders = tell(&mut bench, second);
        assert_eq!(checks_of(&orders), [true]);
        let latest = Some((0, data));
        let orders = tell(
            &mut bench,
            found(check_of(&orders).ticket, at(1, 5), 9, latest),
        );
        assert!(checks_of(&orders).is_empty());
        assert_eq!(bench.outlet.offsets(1), [5]);
        assert!(bench.outlet.lost.is_empty());
    }
}

/// Nothing is published to an interrupted channel before the comparison, whether the publication was submitted before
/// or after the reconnection.
#[test]
fn a_publication_follows_the_comparison() {
    for is_before in [false, true] {
        let mut bench = bench();
        publish(&mut bench, "a", at(1, 3));
        tell(&mut bench, Event::Interrupted);
        tell(&mut bench, Event::Down);
        if is_before {
            bench.publish("b");
        }
        let mut orders = tell(&mut bench, Event::Up(2, StoreState::Restarted));
        if !is_before {
            bench.publish("b");
            orders = std::mem::take(bench.hub.engine().take_orders());
        }
        let kinds = orders.iter().filter_map(|order| match order {
            Order::Check(check) => Some(check.is_verifying),
            Order::Publish(_) => Some(false),
            _ => None,
        });
        assert_eq!(kinds.collect::<Vec<_>>(), [true, false]);
        // The store may have stored items between the comparison and the return of the feed, so a second comparison
        // follows. It must not begin a new epoch, because later publications may have displaced the known one.
        let orders = tell(&mut bench, Event::Followed(CHANNEL.into()));
        assert_eq!(checks_of(&orders), [false]);
    }
}

/// If the feed does not continue, the channel is compared without it, because other nodes may publish to the channel.
#[test]
fn a_channel_without_a_feed_is_compared_later() {
    let mut bench = bench();
    publish(&mut bench, "a", at(1, 3));
    tell(&mut bench, Event::Interrupted);
    tell(&mut bench, Event::Down);
    tell(&mut bench, Event::Up(2, StoreState::Restarted));
    let mut ticks = 0;
    let orders = loop {
        bench.hub.maintain();
        let orders = std::mem::take(bench.hub.engine().take_orders());
        ticks += 1;
        if !checks_of(&orders).is_empty() || ticks > 10 {
            break orders;
        }
    };
    assert_eq!((ticks, checks_of(&orders)), (2, vec![true]));
}

/// If the connection is lost again before a comparison is answered, the comparison is repeated on the next connection,
/// before the publications are sent.
#[test]
fn a_comparison_that_got_no_answer_comes_first_again() {
    let mut bench = bench();
    publish(&mut bench, "a", at(1, 3));
    tell(&mut bench, Event::Down);
    bench.publish("b");
    for number in [2, 3] {
        let orders = tell(&mut bench, Event::Up(number, StoreState::Restarted));
        let is_publication = |order: &Order| matches!(order, Order::Publish(_));
        let publication = orders.iter().position(is_publication);
        let is_check = |order: &Order| matches!(order, Order::Check(check) if check.is_verifying);
        assert_eq!(orders.iter().filter(|order| is_check(order)).count(), 1);
        assert!(orders.iter().position(is_check) < publication);
        tell(&mut bench, Event::Down);
    }
}

/// Both connections were lost, but the store is the same. The comparison only looks for missed items, whichever
/// connection returns first. It must not begin a new epoch, because other nodes may have displaced the known
/// publication.
#[test]
fn a_cut_network_begins_no_epoch() {
    for feed_is_first in [false, true] {
        let mut bench = bench();
        publish(&mut bench, "a", at(1, 3));
        tell(&mut bench, Event::Interrupted);
        tell(&mut bench, Event::Down);
        let mut events = [
            Event::Up(2, StoreState::Same),
            Event::Followed(CHANNEL.into()),
        ];
        if feed_is_first {
            events.reverse();
        }
        let orders = events.map(|event| checks_of(&tell(&mut bench, event)));
        assert_eq!(orders.concat(), [false]);
    }
}

/// A verification that got no answer is replaced on the next connection by a comparison that names the publication
/// known by then. If the store is the same, the new comparison is an ordinary one.
#[test]
fn a_repeated_comparison_names_the_latest_publication() {
    for store in [StoreState::Same, StoreState::Restarted] {
        let mut bench = bench();
        let data = publish(&mut bench, "a", at(1, 3));
        tell(&mut bench, item(at(1, 3), 0, &data));
        // The store is found to be behind the known publication.
        let orders = tell(&mut bench, Event::Followed(CHANNEL.into()));
        let orders = tell(
            &mut bench,
            found(check_of(&orders).ticket, at(1, 2), 9, None),
        );
        assert_eq!(checks_of(&orders), [true]);
        tell(&mut bench, item(at(1, 5), 3, &data));
        tell(&mut bench, Event::Down);
        let orders = tell(&mut bench, Event::Up(2, store));
        assert_eq!(checks_of(&orders), [store == StoreState::Restarted]);
        let seen = check_of(&orders).seen.map(|(seen, _)| seen);
        assert_eq!(seen, Some(at(1, 5)));
    }
}

/// An item has overtaken the answer to an ordinary comparison. Although the answer has a lower offset than the item,
/// the store has lost nothing, so the channel is not verified: later publications may already have displaced the item,
/// and a verification would then begin a new epoch.
#[test]
fn an_overtaken_answer_verifies_nothing() {
    let mut bench = bench();
    let data = publish(&mut bench, "a", at(1, 3));
    tell(&mut bench, item(at(1, 3), 0, &data));
    let check = check_of(&tell(&mut bench, Event::Followed(CHANNEL.into())));
    tell(&mut bench, item(at(1, 5), 3, &data));
    let orders = tell(&mut bench, found(check.ticket, at(1, 3), 9, None));
    assert!(checks_of(&orders).is_empty());
    assert_eq!(bench.outlet.offsets(1), [3, 5]);
}

/// Only the channels whose verification got no answer are verified when a connection to the same store is opened.
#[test]
fn a_second_cut_verifies_only_what_was_open() {
    for is_answered in [true, false] {
        let mut bench = bench();
        publish(&mut bench, "a", at(1, 3));
        tell(&mut bench, Event::Interrupted);
        tell(&mut bench, Event::Down);
        tell(&mut bench, Event::Up(2, StoreState::Restarted));
        let check = check_of(&tell(&mut bench, Event::Followed(CHANNEL.into())));
        if is_answered {
            tell(&mut bench, found(check.ticket, at(1, 3), 9, None));
        }
        tell(&mut bench, Event::Down);
        let orders = tell(&mut bench, Event::Up(3, StoreState::Same));
        let verified = checks_of(&orders).contains(&true);
        assert_eq!(verified, !is_answered);
    }
}

/// A comparison that was abandoned for lack of a connection is repeated on the next connection.
#[test]
fn a_comparison_that_was_given_up_is_repeated() {
    let mut bench = bench();
    publish(&mut bench, "a", at(1, 3));
    tell(&mut bench, Event::Interrupted);
    tell(&mut bench, Event::Down);
    tell(&mut bench, Event::Followed(CHANNEL.into()));
    for _ in 0..6 {
        bench.hub.maintain();
    }
    let orders = tell(&mut bench, Event::Up(2, StoreState::Same));
    assert_eq!(checks_of(&orders), [false]);
}
