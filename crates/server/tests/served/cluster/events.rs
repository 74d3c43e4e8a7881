//! Event webhooks of two nodes with one receiver: each event arrives once, whichever nodes the connections are on.

use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::{LEASE, knows, names, node_with};
use crate::asked::{Asked, answer};
use crate::support::backing::Backing;
use crate::support::{Server, Socket, now, until};

/// A time longer than the configured leave delay and the delivery of an event together.
const CALM: Duration = Duration::from_secs(3);

fn options(back_end: &Asked) -> String {
    format!(
        "[[route]]\npath = \"/hear\"\nhandler = \"push\"\nidentity = \"query:user\"\nchannels = [\"hall:*\", \"room:*\"]\n\
         [[namespace]]\nname = \"#\"\nevents = \"occupancy\"\nleave_delay = \"1s\"\n\
         [[namespace]]\nname = \"hall\"\nevents = \"members\"\nleave_delay = \"off\"\n\
         [[namespace]]\nname = \"room\"\nevents = \"members\"\nleave_delay = \"1s\"\n\
         [events]\nurl = \"http://{}/events\"\n",
        back_end.address
    )
}

struct World {
    _redis: Backing,
    back_end: Asked,
    nodes: Vec<Server>,
}

impl World {
    fn start() -> Self {
        let redis = Backing::redis();
        let back_end = Asked::new(|_| answer(204, "", ""));
        let more = options(&back_end);
        let nodes = ["a", "b"].map(|name| node_with(redis.port, name, &more));
        let nodes = Vec::from(nodes);
        for node in &nodes {
            knows(node, 2);
        }
        Self {
            _redis: redis,
            back_end,
            nodes,
        }
    }

    fn hear(&self, node: usize, user: &str, channel: &str) -> Socket {
        let target = format!("/hear?user={user}&channel={channel}");
        Socket::open(self.nodes[node].public, &target)
    }

    fn batches(&self) -> Vec<Value> {
        let body = |request: &String| {
            let (_, body) = request.split_once("\r\n\r\n").expect("a whole request");
            serde_json::from_str(body).expect("JSON")
        };
        self.back_end.heads().iter().map(body).collect()
    }

    /// Returns the events so far in the order of their times, each with its subject.
    fn event_lines(&self) -> Vec<String> {
        let mut events = Vec::new();
        for batch in self.batches() {
            for event in batch["events"].as_array().expect("events") {
                let kind = event["type"].as_str().expect("a type");
                let channel = event["channel"].as_str().unwrap_or_default();
                let user = event["user"].as_str().unwrap_or_default();
                let text = format!("{kind} {channel} {user}").replace("  ", " ");
                events.push((event["time"].as_u64(), text.trim().to_owned()));
            }
        }
        events.sort_by_key(|(at, _)| *at);
        events.into_iter().map(|(_, text)| text).collect()
    }

    fn count(&self, what: &str) -> usize {
        self.event_lines().iter().filter(|one| *one == what).count()
    }

    /// Asserts that exactly these new events arrive.
    fn expect(&self, known: &mut usize, expected: &[&str]) {
        until("the events", || {
            self.event_lines().len() >= *known + expected.len()
        });
        thread::sleep(CALM);
        let all = self.event_lines();
        let mut new: Vec<_> = all[*known..].iter().map(String::as_str).collect();
        new.sort_unstable();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(new, expected);
        *known = all.len();
    }
}

#[test]
fn each_event_comes_once_whatever_node_its_connections_are_on() {
    let world = World::start();
    let known = &mut 0;
    let here = world.hear(0, "ann", "hall:1");
    world.expect(
        known,
        &["online ann", "occupied hall:1", "joined hall:1 ann"],
    );
    // Ann is already online and the channel is already occupied, so only the join of the new connection is an event.
    let there = world.hear(1, "ann", "hall:1");
    world.expect(known, &["joined hall:1 ann"]);
    drop(here);
    world.expect(known, &["left hall:1 ann"]);
    // Ann joins a room and then moves to the other node within the leave delay. The room counts as occupied during
    // that delay.
    drop(there);
    let there = world.hear(1, "ann", "room:1");
    world.expect(
        known,
        &[
            "left hall:1 ann",
            "vacated hall:1",
            "occupied room:1",
            "joined room:1 ann",
        ],
    );
    drop(there);
    let here = world.hear(0, "ann", "room:1");
    world.expect(known, &[]);
    drop(here);
    world.expect(known, &["left room:1 ann", "vacated room:1", "offline ann"]);
    // Both nodes have sent batches under their own names, and no two batches have the same id.
    let batches = world.batches();
    for name in ["a", "b"] {
        assert!(batches.iter().any(|batch| batch["node"] == name), "{name}");
    }
    let mut ids: Vec<_> = batches
        .iter()
        .map(|batch| batch["id"].to_string())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), batches.len());
}

#[test]
fn the_channels_and_members_of_a_killed_node_leave_once() {
    let mut world = World::start();
    let (_ann, _ben) = (
        world.hear(0, "ann", "room:1"),
        world.hear(1, "ben", "room:1"),
    );
    let _eve = world.hear(1, "eve", "room:2");
    // Ann is a member of one room on both nodes.
    let _there = world.hear(1, "ann", "room:1");
    let _and_there = world.hear(1, "ann", "room:2");
    until("all to be there", || {
        world.count("online eve") == 1 && world.count("joined room:2 ann") == 1
    });
    thread::sleep(CALM);
    let known = &mut world.event_lines().len();
    drop(world.nodes.pop());
    let began = now();
    while names(&world.nodes[0]) != ["a"] {
        assert!(began.elapsed() < LEASE, "{:?}", names(&world.nodes[0]));
        thread::sleep(Duration::from_millis(100));
    }
    world.expect(
        known,
        &[
            "left room:1 ben",
            "left room:2 ann",
            "left room:2 eve",
            "offline ben",
            "offline eve",
            "vacated room:2",
        ],
    );
}
