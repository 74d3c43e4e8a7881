//! Subscribers of wildcard channels on an engine outside the process, whose feed is interrupted.

use std::sync::Arc;

use veche_hub::{
    Budget, HistoryOptions, Hub, NamespaceOptions, Namespaces, Options, RecoveryMode, RemoteEngine,
    SubscribeOptions, Ticket, Wildcards, WorkerId,
};
use veche_nodes::engine::StoreState;
use veche_nodes::engine::channel::Event;

use crate::bench::Bench;
use crate::common::{name, session, subscribe};

const WILDCARD: &str = "news:*";

/// A subscriber of all channels of a namespace.
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

/// A channel that this node has never heard of may have had a publication meanwhile.
#[test]
fn an_interrupted_feed_is_a_loss_to_wildcard_subscribers() {
    let history = HistoryOptions {
        size: 100,
        ttl_ms: 60_000,
        position_ttl_ms: 60_000,
        recovery: RecoveryMode::Missed,
        budget: Budget::COMMON,
    };
    for (history, lost) in [(Some(history), &[1][..]), (None, &[])] {
        let mut bench = bench(history);
        assert_eq!(
            bench.outlet.lost, [0; 0],
            "the first subscription has no gap"
        );
        tell(&mut bench, Event::Followed(WILDCARD.into()));
        assert_eq!(bench.outlet.lost, lost);
    }
}
