//! One connection's whole life, and the client protocols.
//!
//! Pure: no socket, no clock, no thread. The worker (`veche-worker`) hands in bytes, deadlines and the hub's answers,
//! and takes out what the outboxes hold, over sockets and in tests alike. Begin with [`connection`].
//!
//! The modules are layers, in the order of the declarations below; `connection` and `registry` stand above all.
//! `tests/tidy.rs` of the server checks which files may import from which.

#![forbid(unsafe_code)]

mod context;
pub mod outbox;

mod http;

mod websocket;

mod sessions;

pub mod backend;

pub mod connection;

pub mod registry;

pub use backend::{Direct, DirectCall, admin, bind_undecided, command};
pub use connection::{Connection, list_connections};
pub use context::app::{AppAnswer, AppId, Apps};
pub use context::census::Census;
pub use context::close::Parting;
pub use context::note::{Decision, Note, NoteLevel};
pub use context::process::Process;
pub use context::relay::{Address, Relay};
pub use context::shared::{Lane, Now, Ports, Post, Shared};
pub use context::site::{ApiKey, Limits, Listener, Role, Site};
pub use context::stats::Stats;
pub use context::step::Block;
pub use context::{
    access, app, blocks, close, guessing, hooks, identity, origin, pace, protocol, publishing,
    rate, route, shared, site, stats, work,
};
pub use http::{static_files, upgrade};
pub use outbox::journal::{self, Journal};
pub use outbox::{End, Outbox, Outboxes};
pub use websocket::NotRenewed;
pub use websocket::client::{self, Caller, Dial, Terms};
