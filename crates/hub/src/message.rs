//! Messages between the hubs of two workers.
//!
//! Messages from one worker to another arrive in the order of sending, whatever their classes. Credits and queues
//! belong to the mailbox: the hub only states the class of each message, asks
//! [`Outlet::has_credit`](crate::Outlet::has_credit) and calls [`Outlet::return_credit`](crate::Outlet::return_credit).

use std::sync::Arc;

use crate::{
    Caller, ClientInfo, ConnectionId, Glob, HistoryQuery, HubReply, Payload, Publication,
    PublishOptions, SubscribeOptions, SubscribeOutcome, Ticket, UserCommand, WorkerId,
};

/// The class of a message, which determines the kind of credit that it needs.
///
/// Publishing and delivering must never wait for each other's credits. A home that can't deliver keeps `Publish`
/// messages with their credits; if both classes shared one pool of credits, two workers that publish to each other's
/// channels could block each other's deliveries forever. `Deliver` messages wait only until the receiving worker next
/// empties its mailbox. A mailbox with one credit pool per lane satisfies this rule if it permits `Publish` only while
/// more than half of the pool is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HubMessageClass {
    /// A message from a publisher's worker to the channel's home. It takes a credit for publications.
    Publish,
    /// A message from the channel's home to a subscriber's worker. It takes a credit for deliveries.
    Deliver,
    /// Membership changes, replies and commands. They need no credit and can always be sent.
    Control,
}

/// Identifies a subscription in the home's reply. Only the subscriber's worker interprets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    pub(crate) slot: u32,
    /// Distinguishes successive registrations of the same slot.
    pub(crate) serial: u32,
}

/// A message between two hubs.
#[derive(Clone, Debug)]
pub enum HubMessage {
    /// To the home: registers a subscriber.
    Subscribe {
        /// Name of the channel to subscribe to.
        channel: Arc<str>,
        /// The subscribing session, on the sending worker.
        session: ConnectionId,
        /// The ticket that the reply must carry.
        ticket: Ticket,
        /// Identifies the subscription in the reply.
        registration: Registration,
        /// The options of the subscription.
        subscribe_options: SubscribeOptions,
    },
    /// From the home: the subscriber is counted and receives all publications that are ordered from now on.
    Subscribed {
        /// The session of the request.
        session: ConnectionId,
        /// The ticket of the request.
        ticket: Ticket,
        /// The subscription that is confirmed.
        registration: Registration,
        /// The state that the subscriber joins, if the channel has history.
        joined: Option<Box<SubscribeOutcome>>,
    },
    /// To the home: removes a subscriber.
    Unsubscribe {
        /// Name of the channel to unsubscribe from.
        channel: Arc<str>,
        /// The client, if the subscription made it a member of the channel.
        client: Option<Arc<ClientInfo>>,
        /// The registration of the `Subscribe` message, if the reply to it has not arrived.
        registration: Option<Registration>,
    },
    /// From the home: the engine can't follow the channel, so the worker must remove the subscription.
    Refused {
        /// The session of the request.
        session: ConnectionId,
        /// The ticket of the request.
        ticket: Ticket,
        /// The subscription that must be removed.
        registration: Registration,
    },
    /// To the home: orders a publication.
    Publish {
        /// Name of the channel to publish to.
        channel: Arc<str>,
        /// The payload of the publication.
        payload: Payload,
        /// The publish options, if they differ from the defaults.
        terms: Option<Arc<PublishOptions>>,
        /// The session that gets the result, and the ticket of its request; `None` if no session waits for the result.
        reply: Option<(ConnectionId, Ticket)>,
    },
    /// From the home: a publication for the subscribers on the receiving worker.
    Deliver {
        /// Name of the channel that was published to.
        channel: Arc<str>,
        /// The publication, with its position if the channel has history.
        publication: Publication,
        /// The payload of the preceding publication, if it is needed for a delta.
        previous: Option<Payload>,
    },
    /// A query about a channel. Sent to the channel's home.
    Query {
        /// Name of the queried channel, whose home is the receiver.
        channel: Arc<str>,
        /// The kind of query, with its parameters.
        query: ChannelQuery,
        /// The session to reply to.
        session: ConnectionId,
        /// The ticket of the session's request.
        ticket: Ticket,
    },
    /// To every other home: requests the names of its channels that match a pattern.
    List {
        /// The pattern of the channel names.
        pattern: Arc<Glob>,
        /// The session to reply to.
        session: ConnectionId,
        /// The ticket of the session's request.
        ticket: Ticket,
    },
    /// From the home: the reply to a request.
    Answer {
        /// The session that made the request.
        session: ConnectionId,
        /// The ticket of the session's request.
        ticket: Ticket,
        /// The result, including errors.
        answer: HubReply,
    },
    /// To the home of a personal channel: a command for the connections of its user.
    CommandUser {
        /// Name of the personal channel, `#user`.
        channel: Arc<str>,
        /// The action, and the connections that it applies to.
        instruction: Arc<UserCommand>,
        /// The session that gets the number of connections, and the ticket of its request; `None` if no session waits.
        reply: Option<(ConnectionId, Ticket)>,
    },
    /// A command for the connections on the receiving worker. Sent by the home of the user's personal channel.
    Command {
        /// Name of the personal channel, `#user`.
        channel: Arc<str>,
        /// The action, and the connections that it applies to.
        instruction: Arc<UserCommand>,
        /// The caller that waits until the command is complete, if any.
        caller: Option<Caller>,
    },
    /// To an affected home: a worker has executed a command. When the home receives this message, it has counted all
    /// earlier messages of that worker. It then acknowledges the command to the caller.
    Acknowledge {
        /// The caller that waits until the command is complete.
        caller: Caller,
    },
    /// From the home: publications of the channel may be missing and can't be recovered, so its subscriptions end.
    Lost {
        /// Name of the channel.
        channel: Arc<str>,
    },
    /// From a home: its log is full, or has room again.
    LogFull {
        /// Whether the log is full. This holds until the next `LogFull` message of the home.
        is_full: bool,
    },
}

impl HubMessage {
    /// Returns the class of the message.
    pub fn class(&self) -> HubMessageClass {
        match self {
            Self::Publish { .. } => HubMessageClass::Publish,
            Self::Deliver { .. } => HubMessageClass::Deliver,
            Self::Subscribe { .. }
            | Self::Subscribed { .. }
            | Self::Refused { .. }
            | Self::Unsubscribe { .. }
            | Self::Query { .. }
            | Self::List { .. }
            | Self::Answer { .. }
            | Self::CommandUser { .. }
            | Self::Command { .. }
            | Self::Acknowledge { .. }
            | Self::Lost { .. }
            | Self::LogFull { .. } => HubMessageClass::Control,
        }
    }
}

/// A query about a channel, or an operation on it, answered by the channel's home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelQuery {
    /// Reads a page of the history. Answered by [`HubReply::History`].
    History(HistoryQuery),
    /// Removes the stored publications; the position stays. Answered by [`HubReply::HistoryRemoved`].
    RemoveHistory,
    /// Lists the members. Answered by [`HubReply::Presence`].
    Presence,
    /// Counts the members. Answered by [`HubReply::PresenceStats`].
    PresenceStats,
    /// Returns the online status of the user of a personal channel. Answered by [`HubReply::UserStatus`].
    UserStatus,
}

/// The worker from which a request came, and the session and ticket that wait for its result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) from: WorkerId,
    pub(crate) reply: Option<(ConnectionId, Ticket)>,
}
