//! Tests subscribers of wildcard channels with an engine outside the process: interruptions of the
//! feed, and channels that are new to the node.

use std::sync::Arc;

use veche_hub::{
    Budget, HistoryOptions, Hub, NamespaceOptions, Namespaces, Options, RecoveryMode, RemoteEngine,
    SubscribeOptions, Ticket, Wildcards, WorkerId,
};
use veche_nodes::engine::StoreState;
use veche_nodes::engine::channel::{Event, Order};

use crate::bench::Bench;
use crate::common::{name, session, subscribe};
use crate::restarts::at;

const WILDCARD: &str = "news:*";

/// Returns a hub with a subscriber of a wildcard channel.
fn bench(history: Option<HistoryOptions>) -> Bench<RemoteEngine> {
    let engine = RemoteEngine::new(1);
    let hub = Hub::with_engine(WorkerId(0), 1, 7, Options::default(), engine);
    let mut bench = Bench::with(hub);
    let mut namespaces = Namespaces::with_wildcards(Wildcards::new(["news"]));
    let options = NamespaceOptions {
        history,
        ..NamespaceOptions::default()
    };
    namespaces.insert("news", options);
    bench.hub.set_history(Arc::new(namespaces), usize::MAX);
    tell(&mut bench, Event::Up(1, StoreState::Same));
    let (hub, outlet) = (&mut bench.hub, &mut bench.outlet);
    let options = SubscribeOptions::default();
    let joined = subscribe(hub, session(1), name(WILDCARD), Ticket(1), &options, outlet);
    joined.expect("there is room");
    tell(&mut bench, Event::Followed(WILDCARD.into()));
    bench
}

fn tell(bench: &mut Bench<RemoteEngine>, event: Event) {
    bench.hub.engine().handle(event);
    while bench.hub.take_reports(&mut bench.outlet) {}
    bench.hub.engine().take_orders().clear();
}

const HISTORY: HistoryOptions = HistoryOptions {
    size: 100,
    ttl_ms: 60_000,
    position_ttl_ms: 60_000,
    recovery: RecoveryMode::Missed,
    budget: Budget::COMMON,
};

/// During an interruption of the feed, a channel that this node does not know may have had a publication. If the
/// channels have history, wildcard subscribers are notified that publications may be lost.
#[test]
fn an_interrupted_feed_is_a_loss_to_wildcard_subscribers() {
    for (history, lost) in [(Some(HISTORY), &[1][..]), (None, &[])] {
        let mut bench = bench(history);
        assert_eq!(
            bench.outlet.lost, [0; 0],
            "the first subscription has no gap"
        );
        tell(&mut bench, Event::Followed(WILDCARD.into()));
        assert_eq!(bench.outlet.lost, lost);
    }
}

/// The first item that this node receives of a channel is delivered although its predecessor was never received.
#[test]
fn a_channel_that_is_new_to_this_node_reaches_wildcard_subscribers() {
    let mut bench = bench(Some(HISTORY));
    bench.publish_as("news:2", "a", None);
    let orders = std::mem::take(bench.hub.engine().take_orders());
    let data = orders.into_iter().find_map(|order| match order {
        Order::Publish(publish) => Some(publish.data),
        _ => None,
    });
    let item = Event::Item {
        channel: "news:1".into(),
        place: Some((at(1, 5), 4)),
        data: data.expect("it is submitted"),
    };
    tell(&mut bench, item);
    assert_eq!(bench.outlet.texts(1), ["a"]);
}
