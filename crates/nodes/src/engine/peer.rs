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
    /// Sends bytes to a node or to all nodes, this one included. They arrive at most once, the order has no answer, and
    /// without a connection they are lost.
    Send {
        /// The receiving node; `None`: all nodes.
        to: Option<NodeId>,
        /// The encoded envelope to send.
        bytes: Bytes,
    },
    /// Appends an entry to the control stream, which all nodes, this one included, receive as [`Event::Control`].
    /// Answered by [`Event::Appended`]. If the carrier has to repeat the append, the entry is stored once all the same.
    Append {
        /// Identifies the order in its answer.
        ticket: u64,
        /// The encoded envelope to append.
        bytes: Bytes,
    },
    /// Reads the control stream. Answered by [`Event::ControlRead`].
    ReadControl {
        /// Identifies the order in its answer.
        ticket: u64,
        /// Entries after this offset are read. It is one below the last known entry, so that entry is read again.
        /// 0: all entries are read.
        since: u64,
    },
    /// Sets the text that the node publishes with its lease, and renews the lease at once. From the first connection
    /// on, the carrier renews the lease every [`LEASE_RENEWAL_MS`]; the text is empty until this order.
    Announce(Bytes),
    /// Ends the lease after all earlier orders were executed. With the lease, the node's members leave their channels.
    Leave,
    /// Reads all valid leases. Answered by [`Event::Leases`].
    ReadLeases {
        /// Identifies the order in its answer.
        ticket: u64,
    },
    /// Stores a value under a name for the whole cluster, for example a ban. Answered by [`Event::Stored`].
    Store {
        /// Identifies the order in its answer.
        ticket: u64,
        /// The name of the table.
        table: Arc<str>,
        /// The name of the value.
        name: Bytes,
        /// The value to store; `None` removes the stored value.
        value: Option<Bytes>,
        /// The time at which the value expires, in seconds since 1970; `None`: never.
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

/// The time without a renewal after which a lease ends, in milliseconds.
pub const LEASE_MS: u64 = 9_000;

/// An event of an engine for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection for orders was opened, or the subscription of the node's channels has begun. Both are reported
    /// separately, and again after each loss. Earlier messages may be lost; the node must read the control stream from
    /// its last known entry.
    Up(StoreState),
    /// The connection was lost. Pending orders get no answer.
    Down,
    /// Bytes that a node has sent to this node or to all nodes.
    Received(Bytes),
    /// A new entry of the control stream.
    Control {
        /// The position of the entry.
        position: Position,
        /// The offset of the previous entry in the same epoch.
        before: u64,
        /// The encoded envelope that was appended.
        bytes: Bytes,
    },
    /// The answer to [`Order::Append`].
    Appended {
        /// The ticket of the answered order.
        ticket: u64,
        /// The position of the entry; `None` if it is unknown whether the entry was stored.
        position: Option<Position>,
    },
    /// The answer to [`Order::ReadControl`].
    ControlRead {
        /// The ticket of the answered order.
        ticket: u64,
        /// The entries that were read; `None` if the stream can't be read.
        stream: Option<Entries>,
    },
    /// The answer to [`Order::ReadLeases`].
    Leases {
        /// The ticket of the answered order.
        ticket: u64,
        /// The nodes with a valid lease, this one included, with the texts of their leases; `None` if they can't be
        /// read.
        nodes: Option<Vec<(NodeId, Bytes)>>,
    },
    /// The answer to [`Order::Store`].
    Stored {
        /// The ticket of the answered order.
        ticket: u64,
        /// Whether the value was stored or removed as ordered.
        is_stored: bool,
    },
    /// The answer to [`Order::ReadTable`].
    Table {
        /// The ticket of the answered order.
        ticket: u64,
        /// The values of the table, each after its name; `None` if they can't be read.
        values: Option<Vec<(Bytes, Bytes)>>,
    },
}

/// Entries read from a stream. Those of the control stream are consecutive and reach up to its latest entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries {
    /// The position of the latest entry of the stream.
    pub top: Position,
    /// The offset before the first of these entries, or the offset of `top` if there are none. If it is above the
    /// offset after which to read, the entries between the two are no longer stored.
    pub before: u64,
    /// The entries after their offsets, oldest first.
    pub entries: Vec<(u64, Bytes)>,
}
