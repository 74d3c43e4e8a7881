//! What the hubs of two workers say to each other.
//!
//! Mail from one worker to another arrives in the order of sending, over all classes. Credits and
//! queues are the mailbox's: the hub only names the class, asks
//! [`Outlet::has_credit`](crate::Outlet::has_credit) and says
//! [`Outlet::mail_done`](crate::Outlet::mail_done).

use std::sync::Arc;

use crate::{
    Answer, Caller, ClientInfo, ConnectionId, Glob, Instruction, Joined, Payload, Publication,
    PublishOptions, Query, SubscribeOptions, Ticket, WorkerId,
};

/// What a mail needs to be sent.
///
/// Publishing and delivering must never wait for each other's credits: a home that can't deliver
/// keeps `Publish` mail and its credits, so with one pool for both two workers that publish to each
/// other's channels would starve each other's deliveries for ever. `Deliver` mail waits for nothing
/// but the receiving worker's own sweep. A mailbox with one pool of credits per lane keeps this
/// rule by allowing `Publish` only while more than half of the pool is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Takes a credit of the sender's publications to that home.
    Publish,
    /// Takes a credit of the home's deliveries to that worker.
    Deliver,
    /// Membership, answers, disconnects: has room of its own and is always sent.
    Control,
}

/// Finds a subscription again when its home answers; opaque outside its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    pub(crate) slot: u32,
    /// Tells apart the registrations that used the same slot one after the other.
    pub(crate) serial: u32,
}

/// A message between two hubs.
#[derive(Clone, Debug)]
pub enum Mail {
    /// To the home: one more subscriber here.
    Subscribe {
        /// Where.
        channel: Arc<str>,
        /// Whose.
        session: ConnectionId,
        /// Whom to answer.
        ticket: Ticket,
        /// What to make live.
        registration: Registration,
        /// How it is subscribed.
        joining: SubscribeOptions,
    },
    /// From the home: the subscriber is counted; the next publication reaches it.
    Subscribed {
        /// From `Subscribe`.
        session: ConnectionId,
        /// From `Subscribe`.
        ticket: Ticket,
        /// From `Subscribe`.
        registration: Registration,
        /// What it joins, where the channel remembers.
        joined: Option<Box<Joined>>,
    },
    /// To the home: one subscriber less here.
    Unsubscribe {
        /// Where.
        channel: Arc<str>,
        /// As whom others saw it there.
        client: Option<Arc<ClientInfo>>,
        /// From `Subscribe`, if that was not answered yet.
        registration: Option<Registration>,
    },
    /// From the home: the engine can't follow the channel; the worker removes the subscription.
    Refused {
        /// From `Subscribe`.
        session: ConnectionId,
        /// From `Subscribe`.
        ticket: Ticket,
        /// From `Subscribe`.
        registration: Registration,
    },
    /// To the home: order this.
    Publish {
        /// Where.
        channel: Arc<str>,
        /// What.
        payload: Payload,
        /// Where it is not to be taken as usual.
        terms: Option<Arc<PublishOptions>>,
        /// Who wants to know to how many it was handed.
        reply: Option<(ConnectionId, Ticket)>,
    },
    /// From the home: give this to the subscribers here.
    Deliver {
        /// Where.
        channel: Arc<str>,
        /// What.
        publication: Publication,
        /// What was published before, if it goes out together with that.
        previous: Option<Payload>,
    },
    /// To the home: tell, or do.
    Ask {
        /// Of which channel.
        channel: Arc<str>,
        /// What.
        question: Question,
        /// Whom to answer.
        session: ConnectionId,
        /// By what he knows it.
        ticket: Ticket,
    },
    /// To every other home: list channels.
    List {
        /// Which.
        pattern: Arc<Glob>,
        /// Whom to answer.
        session: ConnectionId,
        /// By what he knows it.
        ticket: Ticket,
    },
    /// From the home: what came of it.
    Answer {
        /// Who asked.
        session: ConnectionId,
        /// By what he knows it.
        ticket: Ticket,
        /// For him.
        answer: Answer,
    },
    /// To the home: have this done to all subscribers of a personal channel.
    InstructAll {
        /// The personal channel.
        channel: Arc<str>,
        /// What.
        instruction: Arc<Instruction>,
        /// Who wants to know how many they were.
        reply: Option<(ConnectionId, Ticket)>,
    },
    /// From the home: have it done to those that are here.
    Instruct {
        /// The personal channel.
        channel: Arc<str>,
        /// What.
        instruction: Arc<Instruction>,
        /// The caller that waits until it is done.
        caller: Option<Caller>,
    },
    /// To a home: answer this caller. What was sent before is counted then.
    Settle {
        /// The caller of the API that waits.
        caller: Caller,
    },
    /// From the home: publications of this channel may be missing and can't be had any more.
    Lost {
        /// The channel.
        channel: Arc<str>,
    },
    /// From a home: whether its log takes no more publications that are to be kept.
    LogFull {
        /// Until it says otherwise.
        is_full: bool,
    },
}

impl Mail {
    /// What it needs to be sent.
    pub fn class(&self) -> Class {
        match self {
            Self::Publish { .. } => Class::Publish,
            Self::Deliver { .. } => Class::Deliver,
            Self::Subscribe { .. }
            | Self::Subscribed { .. }
            | Self::Refused { .. }
            | Self::Unsubscribe { .. }
            | Self::Ask { .. }
            | Self::List { .. }
            | Self::Answer { .. }
            | Self::InstructAll { .. }
            | Self::Instruct { .. }
            | Self::Settle { .. }
            | Self::Lost { .. }
            | Self::LogFull { .. } => Class::Control,
        }
    }
}

/// What somebody wants to know of a channel, or have done to it, by its home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// A part of its history: [`Answer::History`].
    History(Query),
    /// Its publications are to be let go of; its position stays: [`Answer::HistoryRemoved`].
    RemoveHistory,
    /// Who is there: [`Answer::Presence`].
    Presence,
    /// How many are there: [`Answer::PresenceStats`].
    PresenceStats,
    /// Whether the user is there whose channel it is: [`Answer::UserStatus`].
    UserStatus,
}

/// Where a request came from, and who wants to know what became of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) from: WorkerId,
    pub(crate) reply: Option<(ConnectionId, Ticket)>,
}
