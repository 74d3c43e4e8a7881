//! Tests that messages of other programs on the channels of a cluster are counted and ignored.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::json;

use super::{pair, result, user};
use crate::support::backing::Backing;
use crate::support::metrics::Metrics;
use crate::support::{Server, until};

fn publish(redis: &Backing, channel: &str, message: &[u8]) {
    let port = redis.port.to_string();
    let mut child = Command::new("redis-cli")
        .args(["-p", &port, "-x", "PUBLISH", channel])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("make setup");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(message).expect("written");
    drop(input);
    assert!(child.wait().expect("it ran").success());
}

fn ignored(node: &Server, reason: &str) -> u64 {
    let metrics = Metrics::scrape(node.internal);
    metrics.sum(
        "veche_cluster_messages_ignored_total",
        &[&format!("reason=\"{reason}\"")],
    ) as u64
}

/// The header of a message between nodes.
fn header(major: u8, kind: u16) -> Vec<u8> {
    let mut bytes = b"vche".to_vec();
    bytes.extend([major, 0]);
    bytes.extend(kind.to_be_bytes());
    bytes.extend([7; 20]);
    bytes
}

#[test]
fn foreign_oversized_and_later_messages_are_counted_and_ignored() {
    let redis = Backing::redis();
    let nodes = pair(&redis);
    let mut socket = user(&nodes[1], "ann");
    for (reason, message) in [
        ("foreign", b"hello".to_vec()),
        ("too_large", vec![b'x'; (8 << 20) + 1]),
        ("other_version", header(2, 1)),
        ("unknown", header(1, 0x7fff)),
        ("malformed", header(1, 1)),
    ] {
        publish(&redis, "veche:nodes", &message);
        for node in &nodes {
            until(reason, || ignored(node, reason) == 1);
        }
    }
    let engine = || {
        let metrics = Metrics::scrape(nodes[1].internal);
        metrics.sum("veche_engine_messages_ignored_total", &[]) as u64
    };
    // Foreign data arrives on a channel of publications, and on the channel of commands.
    for channel in ["veche:c:#ann", "veche:control"] {
        let before = engine();
        publish(&redis, channel, b"hello");
        publish(&redis, channel, &vec![b'p'; (16 << 20) + 1]);
        until(channel, || engine() == before + 2);
    }
    result(&nodes[0], "push", json!({"user": "ann", "data": "hello"}));
    assert!(socket.text().contains("hello"));
    let answer = result(&nodes[0], "disconnect", json!({"user": "ann"}));
    assert_eq!(answer, json!({"disconnected": 1}));
    assert_eq!(socket.closed(), 3503);
}
