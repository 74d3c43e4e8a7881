//! Channels, subscriptions, publications, presence and users, as a crate without I/O.
//!
//! Each worker has one [`Hub`], with two roles. As the *home* of the channels whose hash maps to this worker, it orders
//! their publications and counts the subscribers of each worker. As the *local* hub, it stores the subscriptions of
//! this worker's sessions, and fans out publications to them. (Comments say "At the channel's home" and "On the
//! subscriber's worker".) A user is a personal channel, `#user`, so every feature of channels applies to users.
//!
//! The hub uses no socket, clock, thread or wire format. Its effects go through [`Outlet`]: messages to the hubs of
//! other workers, deliveries to sessions, replies to tickets. A front end encodes the delivered publications (once per
//! format, see [`Encodings`]) into the outbox of a connection.
//!
//! An [`Engine`] orders and stores publications; its contract is the documentation of [`engine`].
//!
//! # Order of calls in a turn
//!
//! * *first*: [`Hub::set_now`]; about once a second [`Hub::maintain`].
//! * *commands* of a session or the back end: [`Hub::subscribe`], [`Hub::unsubscribe`], [`Hub::close`],
//!   [`Hub::publish`], [`Hub::send_user_command`].
//! * *messages and reports*: [`Hub::receive`] for each message, [`Hub::take_reports`] when the engine has reports; sessions
//!   process their replies after each of these calls.
//! * *completion of user commands*, after the sessions have executed them: [`Hub::acknowledge_command`].
//! * *output*: [`Hub::take_channel_events`], and once at the end of a turn [`Hub::sweep`], which also retries
//!   publications that wait for credit. If [`Hub::sweep`] returns `true`, work is left, and the next turn must begin
//!   without waiting. With a log, [`Hub::take_batch`] follows, and [`Hub::batch_durable`] when the batch is on disk.
//!
//! # Guarantees
//!
//! * Every subscriber receives the publications of a channel in the order chosen by the channel's home, each exactly once.
//! * A session that has received [`HubReply::Subscribed`] gets every publication ordered from then on, and none that was
//!   ordered before its registration at the home.
//! * The offsets of a channel with history increase within an epoch. A returning subscriber either
//!   gets exactly the publications that it has missed, or learns that some are missing.
//! * With a log, neither subscribers nor the publisher of a stored publication learn of it before it is durable, so
//!   after [`Hub::restore`] every client can continue from its position.
//! * Once the replies to [`Hub::send_user_command`] have arrived, any later publication is delivered according to the
//!   subscriptions as the command left them: [`HubReply::CommandAcknowledged`] comes from the affected homes.
//! * The hub drops no publication: where there is no room, publishers are refused ([`NoCredit`]) or messages keep their
//!   credit, so that their source pauses. Joins and leaves are dropped when their queue is full.

mod accounts;
mod audience;
mod channel;
mod channel_events;
mod channel_members;
mod channel_query;
mod command_acknowledgement;
mod diagnostics;
pub mod engine;
mod engines;
mod epoch_generator;
mod feed_queue;
mod history;
mod history_segment;
mod hub;
mod idempotency;
mod join_leave_queue;
mod listing;
mod log;
mod log_backpressure;
mod log_record;
mod membership;
mod memory;
mod message;
mod name;
mod namespace;
mod options;
mod outlet;
mod page;
mod pattern;
mod payload;
mod pending;
mod pending_joins;
mod presence;
mod publish;
mod queue;
mod records;
mod remote;
mod reply;
mod reports;
mod sessions;
mod small_list;
mod stalled;
mod stream;
mod streams;
mod subscription;
mod sweep;
mod undecided;
mod user;
mod weight_classes;
mod wildcard;

pub use audience::{Audience, EntryRequirement};
pub use channel::Homes;
pub use channel_events::{ChannelEvent, ChannelEventKind, EventFields};
pub use engine::Engine;
pub use engines::NodeEngine;
pub use hub::{Hub, HubGauges, RequestOutcome};
pub use log::RESTORE_GRACE_MS;
pub use log_record::{LogBatch, LogRecord, RestoredStream};
pub use membership::SubscribeError;
pub use memory::MemoryEngine;
pub use message::{ChannelQuery, HubMessage, HubMessageClass, Registration};
pub use name::{ChannelName, NAME_BYTES_MAX, NameError};
pub use namespace::{
    Budget, ChannelAccess, DeltaMode, EventLevel, HistoryOptions, NamespaceOptions, Namespaces,
    PublishAccess, ReadAccess, RecoveryMode, SubscribeAccess, USERS, Wildcards, namespace_of,
};
pub use options::{IMMEDIATE_MAX, Options};
pub use outlet::Outlet;
pub use page::{HistoryPage, HistoryQuery};
pub use pattern::{PathPattern, PatternError};
pub use payload::{Delivery, ENCODINGS_MAX, EncodingId, Encodings, FeedEvent, Publication};
pub use publish::NoCredit;
pub use remote::RemoteEngine;
pub use reply::{
    CommandDispatch, HistoryError, HubReply, MEMBERS_MAX, PresenceError, PresenceStats,
    PublishOutcome, RECOVERED_MAX, Recovered, SubscribeOutcome,
};
pub use veche_nodes::{
    CHANNELS_LISTED_MAX, CONNECTIONS_LISTED_MAX, Caller, ChannelList, ConnectionInfo,
    ConnectionList, Glob, GlobError, SubscribeAction, Ticket, UserAction, UserCommand, UserStatus,
};
pub use veche_types::{
    ClientInfo, ConnectionId, Epoch, Now, Payload, PayloadKind, PayloadRef, Position,
    PositionError, PublicationInfo, PublishOptions, Since, SubscribeOptions, Version, WorkerId,
};
