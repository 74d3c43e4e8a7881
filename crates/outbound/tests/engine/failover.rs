//! Tests with Sentinels that promote a replica.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use veche_nodes::NodeId;
use veche_outbound::Outbound;
use veche_outbound::engine::{EngineSettings, Notice, Sentinel};

use crate::bench::Bench;
use crate::node_with;
use crate::server::Server;
use veche_hub::RemoteEngine;

/// A primary with a replica, and a Sentinel that watches them.
struct Group {
    primary: Arc<Server>,
    replica: Server,
    sentinel: Server,
    notices: Arc<Mutex<Vec<Notice>>>,
}

impl Group {
    fn start() -> Self {
        let primary = Arc::new(Server::start(&[]));
        let port = primary.port().to_string();
        let replica = Server::start(&["--replicaof", "127.0.0.1", &port]);
        let config = format!(
            "sentinel monitor main 127.0.0.1 {port} 1\nsentinel down-after-milliseconds main 500\n\
             sentinel failover-timeout main 2000\n"
        );
        let sentinel = Server::sentinel(&config);
        let begin = Instant::now();
        let knows_it = || {
            let replicas = sentinel.cli(&["SENTINEL", "replicas", "main"]);
            let link = replica.cli(&["INFO", "replication"]);
            replicas.contains(&replica.port().to_string()) && link.contains("master_link_status:up")
        };
        while !knows_it() {
            assert!(begin.elapsed() < Duration::from_secs(30), "no replica");
            std::thread::sleep(Duration::from_millis(100));
        }
        Self {
            primary,
            replica,
            sentinel,
            notices: Arc::default(),
        }
    }

    fn node(&self, trusts_failover: bool) -> Bench<RemoteEngine> {
        let settings = self.settings(1, trusts_failover, &self.notices);
        node_with(&self.primary, settings)
    }

    /// Returns the settings of a node that adds its notices to `notices`.
    fn settings(
        &self,
        number: u64,
        trusts_failover: bool,
        notices: &Arc<Mutex<Vec<Notice>>>,
    ) -> EngineSettings {
        let notices = Arc::clone(notices);
        EngineSettings {
            keyspace: self.sentinel.keyspace(),
            sentinel: Some(Sentinel {
                primary: "main".into(),
                others: Vec::new(),
                user: None,
                password: None,
            }),
            prefix: "test".into(),
            trusts_failover,
            node: NodeId(number),
            notice: Arc::new(move |notice| notices.lock().push(notice.clone())),
        }
    }

    /// Waits until the replica has all data of the primary.
    ///
    /// Replication is asynchronous, so a write that the primary has acknowledged may be lost when the primary ends.
    fn wait_for_replication(&self) {
        let begin = Instant::now();
        let offset_in = |server: &Server, field| {
            let info = server.cli(&["INFO", "replication"]);
            let line = info.lines().find_map(|line| line.strip_prefix(field));
            line.map(|digits| digits.trim().parse().expect("an offset"))
        };
        let written: Option<u64> = offset_in(&self.primary, "master_repl_offset:");
        while offset_in(&self.replica, "slave_repl_offset:") < written {
            assert!(begin.elapsed() < Duration::from_secs(30), "no replication");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills the primary, and waits until the replica serves.
    fn fail_over(&self, bench: &mut Bench<RemoteEngine>) {
        self.wait_for_replication();
        self.primary.crash();
        let begin = Instant::now();
        while !self.replica.cli(&["ROLE"]).starts_with("master") {
            assert!(begin.elapsed() < Duration::from_secs(30), "no failover");
            bench.settle();
        }
        let is_connected = || self.notices.lock().contains(&Notice::Connected);
        while !is_connected() {
            assert!(begin.elapsed() < Duration::from_secs(30), "not connected");
            bench.settle();
        }
        for _ in 0..10 {
            bench.settle();
        }
    }
}

#[test]
fn a_promotion_begins_new_epochs() {
    let group = Group::start();
    let mut bench = group.node(false);
    bench.subscribe(1, None);
    let before = bench.publish_and_settle("a").position.expect("it is kept");
    group.fail_over(&mut bench);
    let notices = group.notices.lock().clone();
    assert!(notices.contains(&Notice::Promoted), "{notices:?}");
    assert_eq!(bench.outlet.lost, [1]);
    let after = bench.publish_and_settle("b").position.expect("it is kept");
    assert_ne!(before.epoch, after.epoch);
    assert_eq!(bench.outlet.texts(1), ["a"]);
}

#[test]
fn a_trusted_promotion_changes_nothing() {
    let group = Group::start();
    let mut bench = group.node(true);
    bench.subscribe(1, None);
    let before = bench.publish_and_settle("a").position.expect("it is kept");
    group.fail_over(&mut bench);
    assert!(group.notices.lock().contains(&Notice::Trusted));
    assert_eq!(bench.outlet.lost, [0; 0]);
    let after = bench.publish_and_settle("b").position.expect("it is kept");
    assert_eq!(
        (before.epoch, before.offset + 1),
        (after.epoch, after.offset)
    );
}

/// Each node reports a promotion once, although only the first one that connects records it in the store.
#[test]
fn each_node_reports_a_promotion() {
    for trusts_failover in [false, true] {
        let group = Group::start();
        let mut bench = group.node(trusts_failover);
        let outbound = Outbound::default();
        let others = Arc::default();
        let settings = group.settings(2, trusts_failover, &others);
        let store = outbound.engine(settings).expect("a server");
        let ports = [(); 2].map(|()| store.channels(|| {}).expect("threads"));
        bench.publish_and_settle("a");
        group.fail_over(&mut bench);
        let begin = Instant::now();
        while !others.lock().contains(&Notice::Connected) {
            assert!(begin.elapsed() < Duration::from_secs(30), "not connected");
            bench.settle();
        }
        drop(ports);
        let expected = match trusts_failover {
            true => Notice::Trusted,
            false => Notice::Promoted,
        };
        for notices in [&group.notices, &others] {
            let notices = notices.lock();
            let count = notices.iter().filter(|one| **one == expected).count();
            assert_eq!(count, 1, "{notices:?}");
        }
    }
}
