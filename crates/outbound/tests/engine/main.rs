//! Tests that the engine on Redis fulfils the contract of engines (`hub/src/engine.rs`), with a
//! real Redis server.

#[path = "../../../hub/tests/common/mod.rs"]
mod common;

#[expect(dead_code, reason = "other engines need more of it")]
#[path = "../../../hub/tests/engine/bench.rs"]
mod bench;
#[path = "../../../hub/tests/engine/clauses.rs"]
mod clauses;
mod economy;
mod failover;
mod faults;
mod losses;
mod members;
#[path = "../../../../tests/ports.rs"]
mod ports;
mod refusals;
mod relay;
mod server;
mod tables;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use bench::{Bench, Driven, TestOutlet};
use server::Server;
use tokio::time::Instant;
use veche_hub::{Engine as _, Hub, Options, RemoteEngine, WorkerId};
use veche_nodes::NodeId;
use veche_nodes::engine::channel::{Event, Order};
use veche_nodes::engine::peer;
use veche_outbound::Outbound;
use veche_outbound::engine::{EnginePort, EngineSettings, RemoteStore};

/// The engine of one test, with its server. Each test runs on its own thread.
struct World {
    port: EnginePort<Order, Event>,
    /// The node's port for messages to other nodes. The port also renews the node's lease.
    peers: EnginePort<peer::Order, peer::Event>,
    store: RemoteStore,
    server: Arc<Server>,
    _outbound: Outbound,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// If no event arrives within this time, none is on its way.
const QUIET: Duration = Duration::from_millis(150);

/// The time limit for operations that wait for an answer of the server.
const ANSWERED: Duration = Duration::from_secs(15);

impl Driven for RemoteEngine {
    const KNOWS_SUBSCRIBERS: bool = false;

    fn drive(hub: &mut Hub<Self>, outlet: &mut TestOutlet) -> bool {
        WORLD.with_borrow_mut(|world| {
            let port = &mut world.as_mut().expect("a world").port;
            port.append(hub.engine().take_orders());
            port.flush();
            let joins = "subscriptions waiting for the engine";
            let is_awaited = hub.engine().gauges().waiting > 0
                || hub.pending_work().any(|(name, _)| name == joins);
            let within = if is_awaited { ANSWERED } else { QUIET };
            let begin = Instant::now();
            let mut events = Vec::new();
            loop {
                port.take(&mut events);
                if !events.is_empty() {
                    break;
                }
                if begin.elapsed() > within {
                    return false;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            for event in events {
                hub.engine().handle(event);
            }
            while hub.take_reports(outlet) {}
            port.append(hub.engine().take_orders());
            port.flush();
            true
        })
    }

    fn forget_members(&mut self) {
        WORLD.with_borrow(|world| {
            let server = &world.as_ref().expect("a world").server;
            server.cli(&["DEL", "test:p:room:1"]);
        });
        self.handle(Event::Forgotten);
    }
}

/// Creates the engine of node `number` on a server.
fn node(server: &Arc<Server>, number: u64) -> Bench<RemoteEngine> {
    let settings = EngineSettings {
        keyspace: server.keyspace(),
        sentinel: None,
        prefix: "test".into(),
        trusts_failover: false,
        node: NodeId(number),
        notice: Arc::new(|_| {}),
    };
    node_with(server, settings)
}

fn node_with(server: &Arc<Server>, settings: EngineSettings) -> Bench<RemoteEngine> {
    let outbound = Outbound::default();
    let number = settings.node.0;
    let store = outbound.engine(settings).expect("a server");
    let port = store.channels(|| {}).expect("threads");
    let world = World {
        port,
        peers: store.peers(|| {}).expect("threads"),
        store,
        server: Arc::clone(server),
        _outbound: outbound,
    };
    WORLD.set(Some(world));
    let engine = RemoteEngine::new(number);
    let options = Options::default();
    let mut bench = Bench::with(Hub::with_engine(WorkerId(0), 1, 7, options, engine));
    bench.settle();
    bench
}

fn redis() -> Bench<RemoteEngine> {
    node(&Arc::new(Server::start(&[])), 1)
}

macro_rules! clauses {
    ($($clause:ident),* $(,)?) => {
        mod redis_7 {
            $(#[test] fn $clause() { super::clauses::$clause(super::redis()); })*
        }
    };
}

clauses! {
    order, answer, stale, increase, feed, stored, join, top, removal, removal_of_what_waits, handed, chain, member, lease,
    presence, occupancy,
}
