//! What clients and back ends receive from a node.

use veche_hub::{HubReply, Position, Ticket};

use crate::Failure;

/// An effect of a worker on a client or on the back end.
#[derive(Debug)]
pub(super) enum ClusterEffect {
    /// A client receives a publication.
    Delivered {
        client: usize,
        channel: Box<str>,
        offset: u64,
        number: u64,
    },
    /// A subscription is confirmed.
    Subscribed(Ticket, ConfirmedSubscription),
    /// A subscription has ended as requested.
    Unsubscribed(Ticket),
    /// A command of a client has failed, and may be repeated.
    Refused(Ticket),
    /// A subscription has ended because publications are missing.
    Lost { client: usize, channel: Box<str> },
    /// The back end receives a reply.
    Replied(Ticket, HubReply),
    /// A promise about a connection or a turn is broken.
    Broken(Failure),
}

/// The reply to a subscribe command.
#[derive(Debug)]
pub(super) struct ConfirmedSubscription {
    pub(super) position: Position,
    /// The outcome of the recovery, if the client requested one.
    pub(super) recovery: Option<ReceivedRecovery>,
}

/// The outcome of a recovery.
#[derive(Debug)]
pub(super) struct ReceivedRecovery {
    pub(super) is_complete: bool,
    /// Offsets and numbers of the missed publications.
    pub(super) publications: Vec<(u64, u64)>,
}
