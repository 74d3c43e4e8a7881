//! Metrics of the cluster.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::process_state::ProcessState;

/// Reads this node's view of the cluster at each scrape; without a cluster the metrics are those of a single node.
pub(super) struct Nodes(pub(super) Arc<ProcessState>);

impl fmt::Debug for Nodes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Nodes")
    }
}

impl Collector for Nodes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let cluster = self.0.cluster.as_ref();
        let is_current = cluster.is_none_or(|cluster| cluster.seen().is_current);
        let seen = cluster.map(|cluster| cluster.seen()).unwrap_or_default();
        for (name, help, value) in [
            (
                "veche_cluster_nodes",
                "Nodes with a valid lease, this one included",
                seen.nodes(),
            ),
            (
                "veche_cluster_nodes_disagreeing",
                "Other nodes whose name or settings conflict with those of this one",
                seen.disagreeing(),
            ),
            (
                "veche_cluster_current",
                "1 while this node can reach the other nodes and has executed all their commands, otherwise 0",
                usize::from(is_current),
            ),
        ] {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value as i64).encode(family)?;
        }
        let counts = seen.counts;
        for (name, help, count) in [
            (
                "veche_cluster_questions",
                "Queries and commands sent by this node to all nodes",
                counts.asked,
            ),
            (
                "veche_cluster_partial_answers",
                "Queries and commands sent by this node that were not answered by all nodes",
                counts.partial,
            ),
            (
                "veche_cluster_commands",
                "Commands of other nodes that this node has executed",
                counts.commands,
            ),
            (
                "veche_cluster_gaps",
                "Gaps in the commands received from other nodes; this node then read the missing ones again",
                counts.gaps,
            ),
            (
                "veche_cluster_commands_lost",
                "Times that commands of other nodes were lost and all clients had to connect again",
                counts.lost,
            ),
        ] {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(count).encode(family)?;
        }
        let ignored = counts.ignored;
        let help = "Messages between nodes that were ignored";
        let name = "veche_cluster_messages_ignored";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (reason, count) in [
            ("foreign", ignored.foreign),
            ("too_large", ignored.too_large),
            ("other_version", ignored.other_version),
            ("unknown", ignored.unknown),
            ("malformed", ignored.malformed),
        ] {
            let labels = [("reason", reason)];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
