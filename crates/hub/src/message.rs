//! Messages between the hubs of two workers.
//!
//! Messages from one worker to another arrive in the order of sending, across all classes. Credits and queues belong to
//! the mailbox: the hub only names the class, asks [`Outlet::has_credit`](crate::Outlet::has_credit) and calls
//! [`Outlet::return_credit`](crate::Outlet::return_credit).

use std::sync::Arc;

use crate::{
    Caller, ClientInfo, ConnectionId, Glob, HistoryQuery, HubReply, Payload, Publication,
    PublishOptions, SubscribeOptions, SubscribeOutcome, Ticket, UserCommand, WorkerId,
};

/// The resource that a message needs to be sent.
///
/// Publishing and delivering must never wait for each other's credits: a home that can't deliver keeps `Publish`
/// messages with their credits, so with a single pool two workers that publish to each other's channels would block
/// each other's deliveries forever. `Deliver` messages wait only for the sweep of the receiving worker. A mailbox with
/// one credit pool per lane satisfies this rule by allowing `Publish` only while more than half of the pool is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HubMessageClass {
    /// Takes a credit for publications from the sender to that home.
    Publish,
    /// Takes a credit for deliveries from the home to that worker.
    Deliver,
    /// Membership, replies and commands: has reserved room and can always be sent.
    Control,
}

/// Identifies a subscription for the home's reply; opaque outside its worker.
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
        /// The ticket to reply to.
        ticket: Ticket,
        /// The subscription to confirm.
        registration: Registration,
        /// The options of the subscription.
        subscribe_options: SubscribeOptions,
    },
    /// From the home: the subscriber is counted and receives all further publications.
    Subscribed {
        /// The session of the request.
        session: ConnectionId,
        /// The ticket of the request.
        ticket: Ticket,
        /// The subscription that is confirmed.
        registration: Registration,
        /// The state of a channel with history.
        joined: Option<Box<SubscribeOutcome>>,
    },
    /// To the home: removes a subscriber.
    Unsubscribe {
        /// Name of the channel to unsubscribe from.
        channel: Arc<str>,
        /// The member entry of the session.
        client: Option<Arc<ClientInfo>>,
        /// Copied from `Subscribe`, if its reply is pending.
        registration: Option<Registration>,
    },
    /// From the home: the engine can't follow the channel; the worker removes the subscription.
    Refused {
        /// The session of the request.
        session: ConnectionId,
        /// The ticket of the request.
        ticket: Ticket,
        /// The subscription that is removed.
        registration: Registration,
    },
    /// To the home: orders a publication.
    Publish {
        /// Name of the channel to publish to.
        channel: Arc<str>,
        /// The payload of the publication.
        payload: Payload,
        /// Options that differ from the defaults.
        terms: Option<Arc<PublishOptions>>,
        /// The session and ticket that wait for the result.
        reply: Option<(ConnectionId, Ticket)>,
    },
    /// From the home: delivers a publication to local subscribers.
    Deliver {
        /// Name of the channel that was published to.
        channel: Arc<str>,
        /// The publication, with its position if the channel has history.
        publication: Publication,
        /// The preceding payload, if a delta is needed.
        previous: Option<Payload>,
    },
    /// To the home: a query about a channel.
    Query {
        /// Name of the queried channel, whose home is the receiver.
        channel: Arc<str>,
        /// The kind of query, with its parameters.
        query: ChannelQuery,
        /// The session to reply to.
        session: ConnectionId,
        /// The ticket of that session.
        ticket: Ticket,
    },
    /// To every other home: lists channels.
    List {
        /// The pattern of their names.
        pattern: Arc<Glob>,
        /// The session to reply to.
        session: ConnectionId,
        /// The ticket of that session.
        ticket: Ticket,
    },
    /// From the home: the reply to a request.
    Answer {
        /// The session that made the request.
        session: ConnectionId,
        /// The ticket of that session.
        ticket: Ticket,
        /// The result, also if it is an error.
        answer: HubReply,
    },
    /// To the home: a command for all subscribers of a personal channel.
    CommandUser {
        /// Name of the personal channel, `#user`.
        channel: Arc<str>,
        /// The action, and the connections that it applies to.
        instruction: Arc<UserCommand>,
        /// The session and ticket that wait for the number of connections.
        reply: Option<(ConnectionId, Ticket)>,
    },
    /// From the home: the command for the local subscribers.
    Command {
        /// Name of the personal channel, `#user`.
        channel: Arc<str>,
        /// The action, and the connections that it applies to.
        instruction: Arc<UserCommand>,
        /// The caller that waits for completion.
        caller: Option<Caller>,
    },
    /// To a home: acknowledges a command to the caller, after all earlier messages of the sender are counted.
    Acknowledge {
        /// The caller of the API.
        caller: Caller,
    },
    /// From the home: publications of the channel may be missing and can't be recovered.
    Lost {
        /// Name of the channel whose position is lost.
        channel: Arc<str>,
    },
    /// From a home: whether its log is full.
    LogFull {
        /// The state until the next such message.
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

/// A query or an operation on a channel, answered by its home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelQuery {
    /// Reads a page of the history: [`HubReply::History`].
    History(HistoryQuery),
    /// Removes the publications; the position stays: [`HubReply::HistoryRemoved`].
    RemoveHistory,
    /// Lists the members: [`HubReply::Presence`].
    Presence,
    /// Counts the members: [`HubReply::PresenceStats`].
    PresenceStats,
    /// The online status of the user of a personal channel: [`HubReply::UserStatus`].
    UserStatus,
}

/// The worker that a request came from, and the session and ticket that wait for its result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) from: WorkerId,
    pub(crate) reply: Option<(ConnectionId, Ticket)>,
}
