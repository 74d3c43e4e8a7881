//! The state of the cluster from this node's point of view: for `/api/info`, `veche status`, metrics and the admin
//! page.

use serde_json::{Value, json};
use veche_nodes::node::{Disagreement, Node, NodeCounts, Peer};
use veche_nodes::{Announcement, NodeId};

/// A snapshot of the cluster as this node sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Whether this node reaches the other nodes and has received all their bans and user commands.
    pub(crate) is_current: bool,
    pub(crate) counts: NodeCounts,
    id: Option<NodeId>,
    own: Announcement,
    /// The other nodes by id.
    peers: Vec<(NodeId, Peer)>,
}

impl Seen {
    pub(super) fn of(node: &Node) -> Self {
        Self {
            is_current: node.is_current(),
            counts: node.counts(),
            id: Some(node.id()),
            own: node.announced().clone(),
            peers: node.peers().map(|(id, peer)| (id, peer.clone())).collect(),
        }
    }

    /// Returns the name of this node.
    pub(crate) fn name(&self) -> &str {
        &self.own.name
    }

    /// Returns the number of nodes, this one included.
    pub(crate) fn nodes(&self) -> usize {
        self.peers.len() + 1
    }

    /// Returns the number of other nodes whose name or settings conflict with those of this node.
    pub(crate) fn disagreeing(&self) -> usize {
        let peers = self.peers.iter();
        peers
            .filter(|(_, peer)| peer.disagreement.is_some())
            .count()
    }

    pub(super) fn has(&self, id: &str) -> bool {
        let id = u64::from_str_radix(id, 16).map(NodeId);
        id.is_ok_and(|id| {
            self.peers
                .binary_search_by_key(&id, |(one, _)| *one)
                .is_ok()
        })
    }

    /// Returns the other nodes in the form of `/api/info`.
    pub(crate) fn info(&self) -> impl Iterator<Item = Value> {
        self.peers.iter().map(|(id, peer)| {
            let other = &peer.announcement;
            json!({
                "uid": id.to_string(),
                "name": other.name,
                "version": other.version,
                "num_clients": other.clients,
                "num_users": other.users,
                "num_channels": other.channels,
                "num_subs": other.subscriptions,
                "uptime": other.uptime_s,
            })
        })
    }

    /// Returns the state of the cluster for `veche status` and the admin page.
    pub(crate) fn status(&self, now_ms: u64) -> Value {
        let own = self.id.map(|id| row(id, &self.own, None, None));
        let others = self.peers.iter().map(|(id, peer)| {
            let since_seen_ms = now_ms.saturating_sub(peer.last_seen_ms);
            row(
                *id,
                &peer.announcement,
                Some(since_seen_ms),
                peer.disagreement,
            )
        });
        json!({
            "is_current": self.is_current,
            "nodes": own.into_iter().chain(others).collect::<Vec<_>>(),
            "questions": self.counts.asked,
            "partial_answers": self.counts.partial,
            "commands": self.counts.commands,
            "commands_lost": self.counts.lost,
        })
    }
}

fn row(
    id: NodeId,
    node: &Announcement,
    since_seen_ms: Option<u64>,
    disagreement: Option<Disagreement>,
) -> Value {
    json!({
        "id": id.to_string(),
        "name": node.name,
        "version": node.version,
        "is_own": since_seen_ms.is_none(),
        "is_draining": node.is_draining,
        "heard_ms": since_seen_ms,
        "uptime_s": node.uptime_s,
        "sessions": node.clients,
        "users": node.users,
        "channels": node.channels,
        "subscriptions": node.subscriptions,
        "disagrees": disagreement.map(|what| match what {
            Disagreement::Name => "name",
            Disagreement::Settings => "settings",
        }),
    })
}
