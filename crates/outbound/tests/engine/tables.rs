//! Tests the values that nodes store in the Redis server: bans and revoked tokens.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::time::Instant;
use veche_nodes::engine::peer::{Event, LEASE_RENEWAL_MS, Order};
use veche_nodes::node::BLOCKS;

use crate::server::Server;
use crate::{WORLD, node};

fn store(name: &str, value: Option<&'static str>, until_s: Option<u64>) -> Order {
    Order::Store {
        ticket: 1,
        table: BLOCKS.into(),
        name: Bytes::copy_from_slice(name.as_bytes()),
        value: value.map(|value| Bytes::from_static(value.as_bytes())),
        until_s,
    }
}

/// Executes orders on the server, and returns how many values were stored.
fn carry_out(orders: Vec<Order>) -> usize {
    WORLD.with_borrow_mut(|world| {
        let peers = &mut world.as_mut().expect("a world").peers;
        let expected = orders.len();
        for order in orders {
            peers.push(order);
        }
        peers.flush();
        let begin = Instant::now();
        let mut stored = 0;
        let mut events = Vec::new();
        while stored < expected {
            assert!(begin.elapsed() < Duration::from_secs(20), "no answer");
            peers.take(&mut events);
            for event in events.drain(..) {
                stored += usize::from(matches!(
                    event,
                    Event::Stored {
                        is_stored: true,
                        ..
                    }
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        stored
    })
}

#[test]
fn values_whose_time_has_passed_are_removed() {
    let server = Arc::new(Server::start(&[]));
    let mut bench = node(&server, 1);
    bench.settle();
    let now_s = SystemTime::UNIX_EPOCH
        .elapsed()
        .expect("after it")
        .as_secs();
    let names = || {
        let names = server.cli(&["HKEYS", "test:t:blocks"]);
        let mut names: Vec<_> = names.lines().map(str::to_owned).collect();
        names.sort_unstable();
        names
    };
    // These are more expired values than one run of the script in the server removes.
    let over = (0..250).map(|number| store(&format!("over{number}"), Some("x"), Some(now_s)));
    carry_out(over.collect());
    carry_out(vec![
        store("soon", Some("x"), Some(now_s + 4)),
        store("later", Some("x"), Some(now_s + 1_000)),
        store("never", Some("x"), None),
        // The expiry of these values is postponed, or removed.
        store("longer", Some("x"), Some(now_s + 1)),
        store("longer", Some("y"), Some(now_s + 1_000)),
        store("always", Some("x"), Some(now_s + 1)),
        store("always", Some("x"), None),
        store("ended", Some("x"), Some(now_s + 1_000)),
        store("ended", None, None),
    ]);
    let begin = Instant::now();
    while names() != ["always", "later", "longer", "never"] {
        let late = Duration::from_millis(4_000 + 3 * LEASE_RENEWAL_MS + 10_000);
        assert!(begin.elapsed() < late, "{:?}", names());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(server.cli(&["ZCARD", "test:te:blocks"]), "2");
}
