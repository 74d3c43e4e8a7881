//! A server that refuses commands, and other programs that publish on its channels.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::server::Server;
use crate::{WORLD, node};
use tokio::time::Instant;

/// A server without memory rejects publications: they fail, the connection stays open, and publishing works again once
/// there is memory.
#[test]
fn a_server_without_memory_refuses_and_goes_on() {
    let server = Arc::new(Server::start(&[]));
    let mut bench = node(&server, 1);
    bench.subscribe(1, None);
    bench.publish_and_settle("a");
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    bench.publish("b");
    bench.settle();
    assert_eq!((bench.published.len(), bench.failed), (1, 1));
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    bench.publish_and_settle("c");
    assert_eq!(bench.outlet.texts(1), ["a", "c"]);
    assert_eq!(bench.outlet.lost, [0; 0]);
    let losses = WORLD.with_borrow(|world| {
        let figures = world.as_ref().expect("a world").store.figures();
        figures.losses.load(Ordering::Relaxed)
    });
    assert_eq!(losses, 0);
}

/// A primary that becomes a replica is no longer used; publications wait until there is a primary.
#[test]
fn a_demoted_server_is_not_published_to() {
    let server = Arc::new(Server::start(&[]));
    let mut bench = node(&server, 1);
    bench.subscribe(1, None);
    bench.publish_and_settle("a");
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    bench.publish("b");
    let begin = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(1));
            server.cli(&["REPLICAOF", "NO", "ONE"]);
        });
        bench.settle();
    });
    assert!(
        begin.elapsed() > Duration::from_secs(1),
        "it was published to a replica"
    );
    for _ in 0..10 {
        bench.settle();
    }
    assert_eq!(bench.published.len(), 2);
    // The server has been promoted again, and the subscriber was notified that its position is void.
    assert_eq!(bench.outlet.lost, [1]);
    bench.subscribe(1, None);
    bench.publish_and_settle("c");
    assert_eq!(bench.outlet.texts(1).last(), Some(&"c"));
}

#[test]
fn foreign_messages_are_counted_and_ignored() {
    let server = Arc::new(Server::start(&[]));
    let mut bench = node(&server, 1);
    bench.subscribe(1, None);
    bench.publish_and_settle("a");
    let garbage = ["", "hello", "p1:2:", "p1:x:data", "u", "9:kept:1"];
    for message in garbage {
        server.cli(&["PUBLISH", "test:c:kept:1", message]);
    }
    bench.publish_and_settle("b");
    assert_eq!(bench.outlet.texts(1), ["a", "b"]);
    assert_eq!(bench.outlet.lost, [0; 0]);
    let ignored = WORLD.with_borrow(|world| {
        let figures = world.as_ref().expect("a world").store.figures();
        figures.ignored.load(Ordering::Relaxed)
    });
    let all = ignored + bench.hub.engine().ignored();
    assert_eq!(all, garbage.len() as u64);
}
