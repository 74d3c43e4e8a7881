//! Messages between nodes through an engine: the node's own channel, the channel of all nodes, the
//! numbered control stream, and the lease by which other nodes know that the node is alive.

use std::sync::Arc;

use bytes::Bytes;
use veche_types::Position;

use super::StoreState;
use crate::NodeId;

/// An order of a node to its engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Sends bytes to one node or to all nodes, including this one. They arrive at most once, and
    /// are lost if there is no connection. The order has no answer.
    Send {
        /// The receiving node; `None`: all nodes.
        to: Option<NodeId>,
        /// The encoded envelope to send.
        bytes: Bytes,
    },
    /// Appends an entry to the control stream. All nodes, including this one, receive it as
    /// [`Event::Control`]. Answered by [`Event::Appended`]. The entry is stored once, even if the
    /// append has to be sent again.
    Append {
        /// The number with which the answer refers to this order.
        ticket: u64,
        /// The encoded envelope to append.
        bytes: Bytes,
    },
    /// Reads the control stream. Answered by [`Event::ControlRead`].
    ReadControl {
        /// The number with which the answer refers to this order.
        ticket: u64,
        /// Entries after this offset are read. It is one below the offset of the last known entry,
        /// so that this entry is read again. 0 reads all entries.
        since: u64,
    },
    /// Sets the text that the node publishes with its lease, and renews the lease immediately.
    /// From the first connection on, the engine also renews the lease at intervals of
    /// [`LEASE_RENEWAL_MS`]. Before this order, the text is empty.
    Announce(Bytes),
    /// Ends the lease after all earlier orders were executed. The node's members then leave their
    /// channels.
    Leave,
    /// Reads all valid leases. Answered by [`Event::Leases`].
    ReadLeases {
        /// The number with which the answer refers to this order.
        ticket: u64,
    },
    /// Stores a value, for example a ban, under a name for the whole cluster. Answered by
    /// [`Event::Stored`].
    Store {
        /// The number with which the answer refers to this order.
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
        /// The number with which the answer refers to this order.
        ticket: u64,
        /// The name of the table.
        table: Arc<str>,
    },
}

/// Interval between renewals of a lease, in milliseconds.
pub const LEASE_RENEWAL_MS: u64 = 3_000;

/// The time after its last renewal at which a lease ends, in milliseconds.
pub const LEASE_MS: u64 = 9_000;

/// An event of an engine for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection for orders was opened, or the subscription to the node's channels has begun.
    /// Each is reported separately, and again after each loss of the connection or subscription.
    /// Earlier messages may be lost, so the node must read the control stream from its last known
    /// entry.
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
        /// The ticket of the order that this event answers.
        ticket: u64,
        /// The position of the entry; `None` if it is unknown whether the entry was stored.
        position: Option<Position>,
    },
    /// The answer to [`Order::ReadControl`].
    ControlRead {
        /// The ticket of the order that this event answers.
        ticket: u64,
        /// The entries that were read; `None` if the stream can't be read.
        stream: Option<Entries>,
    },
    /// The answer to [`Order::ReadLeases`].
    Leases {
        /// The ticket of the order that this event answers.
        ticket: u64,
        /// The nodes with a valid lease, including this one, and the texts of their leases; `None`
        /// if they can't be read.
        nodes: Option<Vec<(NodeId, Bytes)>>,
    },
    /// The answer to [`Order::Store`].
    Stored {
        /// The ticket of the order that this event answers.
        ticket: u64,
        /// Whether the value was stored or removed as ordered.
        is_stored: bool,
    },
    /// The answer to [`Order::ReadTable`].
    Table {
        /// The ticket of the order that this event answers.
        ticket: u64,
        /// The names and values of the table; `None` if they can't be read.
        values: Option<Vec<(Bytes, Bytes)>>,
    },
}

/// Entries read from a stream. Entries of the control stream are consecutive and end with its
/// latest entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries {
    /// The position of the latest entry of the stream.
    pub top: Position,
    /// The offset of the entry before the first of these entries, or the offset of `top` if there
    /// are none. If it is above the requested offset, the entries in between are no longer stored.
    pub before: u64,
    /// The entries with their offsets, oldest first.
    pub entries: Vec<(u64, Bytes)>,
}
