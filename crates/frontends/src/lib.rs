//! The whole life of a connection, and the client protocols.
//!
//! The crate is pure: it uses no socket, clock or thread. The worker (`veche-worker`) passes in received bytes,
//! deadlines and the hub's replies, and takes the contents of the outboxes; tests do the same without sockets. Start
//! reading with [`connection`].
//!
//! The modules are layers in this order: `outbox`, `context`, `http`, `websocket`, `sessions`, `backend`. Each may use
//! the earlier ones; `connection` and `registry` may use all of them. A test of the server, `tests/tidy/layers.rs`,
//! checks this.

#![forbid(unsafe_code)]

mod context;
pub mod outbox;

mod http;

mod websocket;

mod sessions;

pub mod backend;

pub mod connection;

pub mod registry;

pub use backend::{DirectCall, DirectCallStatus, admin, bind_undecided, command};
pub use connection::{Connection, list_connections};
pub use context::app::{AppAnswer, AppId, Apps};
pub use context::frontend_config::{
    ApiKey, ConnectionLimits, FrontendConfig, FrontendListener, ListenerRole,
};
pub use context::log_note::{AuthDecision, LogNote, NoteLevel};
pub use context::process::ProcessServices;
pub use context::relay::{EmulationAddress, EmulationRequest};
pub use context::session_info::ListConnections;
pub use context::shutdown_reason::ShutdownReason;
pub use context::stats::Stats;
pub use context::step::WaitReason;
pub use context::worker_context::{Context, HubMailer, Now, Requests, WorkerLane};
pub use context::{
    access, app, credential_kind, frontend_config, hooks, identity, issued_token, origin, protocol,
    publish_limiter, rate, rate_limiter, route, shutdown_reason, stats, work_budget,
    worker_context,
};
pub use http::{static_files, upgrade};
pub use outbox::access_log_buffer::{self, AccessLogBuffer};
pub use outbox::{Outbox, Outboxes, TransportEnd};
pub use websocket::RenewError;
pub use websocket::client::{self, ClientOptions, DialCommand, DialId};
