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
//! * Whoever saw [`Answer::Subscribed`] gets every publication ordered from then on, and none that
//!   was ordered before its registration.
//! * A channel that remembers numbers its publications without a gap while its epoch lasts, and
//!   whoever comes back gets exactly what he has missed, or is told that something is missing.
//! * Where there is a log, nobody hears of what is to be remembered, neither its subscribers nor its
//!   publisher, before the log has it: what [`Hub::restore`] gets back goes on where anybody has got to.
//! * Whoever saw the answers to [`Hub::instruct`] publishes to those who are subscribed after it, whoever publishes:
//!   [`Answer::Settled`] comes from the homes.
//! * Nothing is dropped inside the hub: where there is no room, publishers are refused
//!   ([`NoCredit`]) or mail is kept with its credit, so that its source pauses.

mod accounts;
mod announcements;
mod audience;
mod chain;
mod channel;
mod connected;
pub mod engine;
mod engines;
mod few;
mod happenings;
mod history;
mod holds;
mod homes;
mod hub;
mod joins;
mod lines;
mod listing;
mod log;
mod log_record;
mod mail;
mod membership;
mod memory;
mod name;
mod namespace;
mod options;
mod outlet;
mod page;
mod pattern;
mod payload;
mod pending;
mod position;
mod presence;
mod publish;
mod question;
mod queue;
mod ranks;
mod recent;
mod records;
mod remote;
mod reply;
mod reports;
mod rest;
mod roster;
mod settling;
mod stalled;
mod stream;
mod streams;
mod subscription;
mod sweep;
mod user;
mod wildcard;

pub use audience::{Audience, Entry};
pub use engine::Engine;
pub use engines::NodeEngine;
pub use happenings::{About, Happening, What};
pub use homes::Homes;
pub use hub::{Counts, Hub, Outcome};
pub use log::SETTLED_MS;
pub use log_record::{Append, Batch, Restored};
pub use mail::{Class, Mail, Question, Registration};
pub use membership::SubscribeError;
pub use memory::MemoryEngine;
pub use name::{ChannelName, NAME_BYTES_MAX, NameError};
pub use namespace::{
    Access, Budget, Differences, History, Namespace, Namespaces, Publishing, Reading, Recovery,
    Subscribing, Told, USERS, Wildcards, namespace_of,
};
pub use options::{IMMEDIATE_MAX, Options};
pub use outlet::Outlet;
pub use page::{Page, Query};
pub use pattern::{Pattern, PatternError};
pub use payload::{Delivery, ENCODINGS_MAX, Encodings, Event, Format, Publication};
pub use publish::NoCredit;
pub use remote::RemoteEngine;
pub use reply::{
    Answer, HistoryError, Instructed, Joined, MEMBERS_MAX, PresenceError, PresenceStats, Published,
    RECOVERED_MAX, Recovered,
};
pub use veche_nodes::{
    CONNECTED_MAX, Caller, Connected, Connections, Deed, Glob, GlobError, Instruction, LISTED_MAX,
    Listing, Subscribe, Ticket, UserStatus,
};
pub use veche_types::{
    BadPosition, ClientInfo, ConnectionId, Epoch, Info, Now, Payload, PayloadKind, PayloadRef,
    Position, PublishOptions, Since, SubscribeOptions, Version, WorkerId,
};
