//! Who hears what: users, channels, subscriptions, publications. Pure.
//!
//! There is one [`Hub`] per worker, and it plays two roles. As the *home* of the channels whose
//! hash falls to this worker it orders their publications and knows how many subscribers each
//! worker has. As the *local* hub it knows which sessions of this worker are subscribed, and fans
//! out to them. A user is a personal channel, `#user`: whatever channels learn to do, users get.
//!
//! The hub knows no socket, clock, thread or wire format. What it wants done goes through
//! [`Outlet`]: mail to the hubs of other workers, deliveries to sessions, answers to tickets.
//! From there the bytes go to a front end, which encodes them (once per format, see
//! [`Encodings`]) into the outbox of a connection.
//!
//! What orders and stores publications is an [`Engine`], whose contract is the text of [`engine`].
//!
//! # Calls of a turn
//!
//! * *commands*: [`Hub::subscribe`], [`Hub::unsubscribe`], [`Hub::close`], [`Hub::publish`],
//!   [`Hub::instruct`]: a session or the back end asks.
//! * behind sessions that have been told something: [`Hub::settle`].
//! * *handle*: [`Hub::receive`] for each mail, [`Hub::take_reports`] once the engine has something to
//!   report; sessions get their answers behind each of these calls.
//! * before all of them: [`Hub::set_now`]; about once a second [`Hub::look_after`].
//! * *drain*: [`Hub::take_happenings`], and [`Hub::sweep`] once a turn, after the rest, which also
//!   retries what waits for credit; when it says that more is left, the next turn must not wait. Where there is a log, [`Hub::take_batch`]
//!   for it behind that, and [`Hub::durable`] when it has it.
//!
//! # What it promises
//!
//! * Publications of a channel reach every subscriber in the one order that its home chose, each
//!   once.
//! * Whoever saw [`HubReply::Subscribed`] gets every publication ordered from then on, and none that
//!   was ordered before its registration.
//! * A channel that remembers numbers its publications without a gap while its epoch lasts, and
//!   whoever comes back gets exactly what he has missed, or is told that something is missing.
//! * Where there is a log, nobody hears of what is to be remembered, neither its subscribers nor its
//!   publisher, before the log has it: what [`Hub::restore`] gets back goes on where anybody has got to.
//! * Whoever saw the answers to [`Hub::instruct`] publishes to those who are subscribed after it, whoever publishes:
//!   [`HubReply::Settled`] comes from the homes.
//! * Nothing is dropped inside the hub: where there is no room, publishers are refused
//!   ([`NoCredit`]) or mail is kept with its credit, so that its source pauses.

mod accounts;
mod audience;
mod channel;
mod channel_events;
mod channel_members;
mod channel_query;
mod command_acknowledgement;
mod diagnostics;
pub mod engine;
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
mod reports;
mod sessions;
mod small_list;
mod stalled;
mod stream;
mod streams;
mod subscription;
mod sweep;
mod user;
mod weight_classes;
mod wildcard;

pub use audience::{Audience, EntryRequirement};
pub use channel_events::{ChannelEvent, ChannelEventKind, EventFields, EventLevel};
pub use channel_query::ChannelQuery;
pub use command_acknowledgement::CommandDispatch;
pub use engine::Engine;
pub use history::{HistoryError, SubscribeOutcome};
pub use hub::{Hub, HubGauges, RequestOutcome};
pub use log::{LogBatch, LogRecord, RESTORE_GRACE_MS, RestoredStream};
pub use membership::SubscribeError;
pub use memory::MemoryEngine;
pub use message::{HubMessage, HubMessageClass, Registration};
pub use name::{ChannelName, NAME_BYTES_MAX, NameError};
pub use namespace::{
    Budget, ChannelAccess, DeltaMode, HistoryOptions, NamespaceOptions, Namespaces, PublishAccess,
    ReadAccess, RecoveryMode, SubscribeAccess, USERS, namespace_of,
};
pub use options::{IMMEDIATE_MAX, Options};
pub use outlet::{HubReply, Outlet};
pub use page::{HistoryPage, HistoryQuery};
pub use pattern::{PathPattern, PatternError};
pub use payload::{Delivery, ENCODINGS_MAX, EncodingId, Encodings, FeedEvent, Publication};
pub use presence::{MEMBERS_MAX, PresenceError, PresenceStats};
pub use publish::{NoCredit, PublishOutcome};
pub use stream::{RECOVERED_MAX, Recovered};
pub use veche_nodes::{
    CHANNELS_LISTED_MAX, CONNECTIONS_LISTED_MAX, Caller, ChannelList, ConnectionInfo,
    ConnectionList, Glob, GlobError, SubscribeAction, Ticket, UserAction, UserCommand, UserStatus,
};
pub use veche_types::{
    ClientInfo, ConnectionId, Epoch, Now, Payload, PayloadKind, PayloadRef, Position,
    PositionError, PublicationInfo, PublishOptions, Since, SubscribeOptions, Version, WorkerId,
};
pub use wildcard::Wildcards;
