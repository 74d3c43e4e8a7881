//! Tests presence in a channel whose members are on several nodes.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use tokio::time::Instant;
use veche_nodes::engine::peer::{LEASE_MS, LEASE_RENEWAL_MS, Order};

use crate::server::Server;
use crate::{WORLD, node};

/// Returns the events about this client that a subscriber of the channel has received.
fn events_of(texts: &[&str], client: u32) -> Vec<String> {
    let of = |text: &&&str| text.ends_with(&format!(" {client}"));
    texts.iter().filter(of).map(ToString::to_string).collect()
}

/// Ends a second node that has a member. If `is_clean`, the node leaves the cluster first. Returns
/// the time until its members are removed.
fn end_of_a_node(is_clean: bool) -> Duration {
    let server = Arc::new(Server::start(&[]));
    let mut bench = node(&server, 1);
    bench.enter(1, "ann");
    let (sender, receiver) = sync_channel::<()>(0);
    let (end, ended) = sync_channel::<()>(0);
    let own = Arc::clone(&server);
    let other = thread::spawn(move || {
        let mut bench = node(&own, 2);
        bench.enter(2, "ben");
        sender.send(()).expect("a test");
        ended.recv().expect("a test");
        WORLD.with_borrow_mut(|world| {
            let mut world = world.take().expect("a world");
            if is_clean {
                world.peers.push(Order::Leave);
                world.peers.flush();
                thread::sleep(Duration::from_millis(200));
            }
            // If the node does not leave first, its connections are cut without notice when `world`
            // is dropped at the end of this thread.
        });
    });
    receiver.recv().expect("it has entered");
    bench.settle();
    assert_eq!(bench.presence(), (vec!["1".into(), "2".into()], (2, 2)));
    assert_eq!(events_of(&bench.outlet.texts(1), 2), ["Joined 2"]);
    end.send(()).expect("it waits");
    other.join().expect("it ended");
    let begin = Instant::now();
    while bench.presence().0.len() > 1 {
        assert!(begin.elapsed() < Duration::from_secs(20), "it stays");
    }
    let gone = begin.elapsed();
    while events_of(&bench.outlet.texts(1), 2) != ["Joined 2", "Left 2"] {
        assert!(begin.elapsed() < Duration::from_secs(20), "not a word");
        bench.settle();
    }
    assert_eq!(bench.presence(), (vec!["1".into()], (1, 1)));
    gone
}

#[test]
fn members_of_a_dead_node_leave_with_its_lease() {
    let gone = end_of_a_node(false);
    assert!(gone < Duration::from_millis(LEASE_MS + 5_000), "{gone:?}");
    assert!(
        gone > Duration::from_millis(LEASE_MS - LEASE_RENEWAL_MS - 1_000),
        "{gone:?}"
    );
}

#[test]
fn members_of_a_node_that_leaves_are_gone_at_once() {
    let gone = end_of_a_node(true);
    assert!(gone < Duration::from_millis(LEASE_MS / 2), "{gone:?}");
}

/// After a server was emptied, the next renewal of the lease stores the members again.
#[test]
fn members_come_back_to_an_emptied_server() {
    let server = Arc::new(Server::start(&[]));
    let mut bench = node(&server, 1);
    bench.enter(1, "ann");
    server.cli(&["FLUSHALL"]);
    assert_eq!(bench.presence(), (Vec::new(), (0, 0)));
    let begin = Instant::now();
    while bench.presence().0.is_empty() {
        let late = Duration::from_millis(2 * LEASE_RENEWAL_MS + 10_000);
        assert!(begin.elapsed() < late, "they stay away");
        bench.hub.maintain();
    }
}
