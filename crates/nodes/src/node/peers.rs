//! The other nodes, and the time at which each was last seen.

use std::collections::BTreeMap;

use crate::engine::peer::LEASE_MS;
use crate::{Announcement, NodeId};

/// Maximum number of known nodes, which limits the memory that forged node ids can take. Further nodes are ignored.
const PEERS_MAX: usize = 1024;

/// The state of another node, as this node knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The last announcement received from the node.
    pub announcement: Announcement,
    /// The time of the last announcement, in milliseconds on the monotonic clock of this node.
    pub last_seen_ms: u64,
    /// A conflict of the node with this node, if there is one.
    pub disagreement: Option<Disagreement>,
}

/// A conflict between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disagreement {
    /// The two nodes have the same name.
    Name,
    /// Settings that must be equal on all nodes differ.
    Settings,
}

#[derive(Debug, Default)]
pub(super) struct PeerNodes(BTreeMap<NodeId, Peer>);

impl PeerNodes {
    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, &Peer)> {
        self.0.iter().map(|(id, peer)| (*id, peer))
    }

    pub(super) fn ids(&self) -> Vec<NodeId> {
        self.0.keys().copied().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Handles an announcement of a node. If the node disagrees with this node in a way that is not
    /// recorded yet, returns the disagreement.
    pub(super) fn announced(
        &mut self,
        id: NodeId,
        announcement: Announcement,
        own: &Announcement,
        now_ms: u64,
    ) -> Option<Disagreement> {
        let disagreement = if announcement.settings != own.settings {
            Some(Disagreement::Settings)
        } else if announcement.name == own.name {
            Some(Disagreement::Name)
        } else {
            None
        };
        let known = self.0.get(&id).map(|peer| peer.disagreement);
        if known.is_some() || self.0.len() < PEERS_MAX {
            let peer = Peer {
                announcement,
                last_seen_ms: now_ms,
                disagreement,
            };
            self.0.insert(id, peer);
        }
        disagreement.filter(|_| known.flatten() != disagreement)
    }

    pub(super) fn remove(&mut self, id: NodeId) {
        self.0.remove(&id);
    }

    /// Gives every node the full time of a lease to announce itself. Called after an interruption
    /// in which this node did not receive the announcements of others.
    pub(super) fn renew_all(&mut self, now_ms: u64) {
        for peer in self.0.values_mut() {
            peer.last_seen_ms = now_ms;
        }
    }

    pub(super) fn next_end_ms(&self) -> Option<u64> {
        let ends = self.0.values().map(|peer| peer.last_seen_ms + LEASE_MS);
        ends.min()
    }

    /// Returns the nodes whose lease has ended.
    pub(super) fn ended(&mut self, now_ms: u64) -> Vec<NodeId> {
        let ended = self
            .0
            .iter()
            .filter(|(_, peer)| now_ms >= peer.last_seen_ms + LEASE_MS);
        ended.map(|(id, _)| *id).collect()
    }
}
