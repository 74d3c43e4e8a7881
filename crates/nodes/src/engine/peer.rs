//! Messages between nodes through an engine: the node's own channel, the channel of all nodes, the numbered control stream,
//! and the lease that shows that the node is alive.

use std::sync::Arc;

use bytes::Bytes;
use veche_types::Position;

use super::StoreState;
use crate::NodeId;

/// An order of a node to its engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Sends bytes to the channel of a node, or of all nodes (this one included) if `to` is `None`. At most once,
    /// without an answer; lost without a connection.
    Send {
        /// The receiving node; `None`: all nodes.
        to: Option<NodeId>,
        /// The encoded envelope to send.
        bytes: Bytes,
    },
    /// Appends an entry to the control stream, which all nodes receive as [`Event::Control`], this one included.
    /// Answered by [`Event::Appended`]. The entry is stored once, even if the carrier repeats it.
    Append {
        /// Identifies the order in its answer.
        ticket: u64,
        /// The encoded envelope to append.
        bytes: Bytes,
    },
    /// Reads the control stream after an offset, or only its last entry if there is none. Answered by
    /// [`Event::ControlRead`].
    ReadControl {
        /// Identifies the order in its answer.
        ticket: u64,
        /// The offset before the last known entry, which is read again.
        since: Option<u64>,
    },
    /// Sets the text that the node publishes with its lease, and renews the lease now. From its first connection on,
    /// the carrier renews the lease every [`LEASE_RENEWAL_MS`]; until the first announcement the text is empty.
    Announce(Bytes),
    /// Ends the lease, after all earlier orders are carried out. The node's members leave presence with it.
    Leave,
    /// Reads all valid leases. Answered by [`Event::Leases`].
    ReadLeases {
        /// Identifies the order in its answer.
        ticket: u64,
    },
    /// Stores a value under a name for the whole cluster; `None` removes it. For snapshots such as bans. Answered by
    /// [`Event::Stored`].
    Store {
        /// Identifies the order in its answer.
        ticket: u64,
        /// The name of the table.
        table: Arc<str>,
        /// The name of the value.
        name: Bytes,
        /// The value to store; `None` removes it.
        value: Option<Bytes>,
        /// The time at which it is removed, in seconds since 1970; `None`: it stays.
        until_s: Option<u64>,
    },
    /// Reads all values of a table. Answered by [`Event::Table`].
    ReadTable {
        /// Identifies the order in its answer.
        ticket: u64,
        /// The name of the table.
        table: Arc<str>,
    },
}

/// Interval between renewals of a lease, in milliseconds.
pub const LEASE_RENEWAL_MS: u64 = 3_000;

/// A lease ends after this time without a renewal, in milliseconds.
pub const LEASE_MS: u64 = 9_000;

/// An event of an engine for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection for orders is open, or the node's channels are subscribed: each is reported separately, and again
    /// after a loss. Earlier messages may be lost; the control stream must be read from the last known offset.
    Up(StoreState),
    /// The connection was lost. Pending orders get no answer.
    Down,
    /// Bytes that were sent to this node or to all.
    Received(Bytes),
    /// An entry of the control stream.
    Control {
        /// The position of the entry.
        position: Position,
        /// The offset of the previous entry, in the same epoch.
        before: u64,
        /// The encoded envelope that was appended.
        bytes: Bytes,
    },
    /// The answer to [`Order::Append`]: the position of the entry, or `None` where it is not known whether it was stored.
    Appended {
        /// The ticket of the answered order.
        ticket: u64,
        /// The position of the entry.
        position: Option<Position>,
    },
    /// The answer to [`Order::ReadControl`].
    ControlRead {
        /// The ticket of the answered order.
        ticket: u64,
        /// The stream, or `None` if it can't be read.
        stream: Option<Entries>,
    },
    /// The answer to [`Order::ReadLeases`]: nodes with the texts of their leases, or `None` if they can't be read.
    Leases {
        /// The ticket of the answered order.
        ticket: u64,
        /// The nodes, this one included.
        nodes: Option<Vec<(NodeId, Bytes)>>,
    },
    /// The answer to [`Order::Store`]: whether it is stored.
    Stored {
        /// The ticket of the answered order.
        ticket: u64,
        /// Whether the value is stored.
        is_stored: bool,
    },
    /// The answer to [`Order::ReadTable`]: names and values, or `None` if they can't be read.
    Table {
        /// The ticket of the answered order.
        ticket: u64,
        /// The values by name.
        values: Option<Vec<(Bytes, Bytes)>>,
    },
}

/// Entries of a stream; those of the control stream are contiguous up to its top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries {
    /// The position of the latest entry.
    pub top: Position,
    /// The offset before the first of these entries, or that of the top without entries. Where it is above the offset that
    /// was requested, the entries between are not stored any more.
    pub before: u64,
    /// The entries with their offsets, oldest first.
    pub entries: Vec<(u64, Bytes)>,
}
