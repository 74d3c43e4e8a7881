//! Applications: the layer between scripts and connections.
//!
//! The front ends know applications only by the trait [`Apps`](veche_frontends::Apps), and scripts act only through
//! effects. [`AppHosts`] connects both on each worker, and [`AppRegistry`] holds the code for all workers.
//!
//! The crate knows which application a session belongs to, how its effects apply to connections and channels, and how
//! code is replaced while handlers are suspended. It does not know the order of the worker's turn, sockets, threads or
//! Lua.

#![forbid(unsafe_code)]

mod api_calls;
mod app_hosts;
mod calls;
mod channel_query;
mod deferred_publishes;
mod dial;
mod events;
mod execute;
#[cfg(test)]
mod execute_tests;
mod handover;
mod hooks;
mod host;
mod hosted;
mod notices;
mod recorder;
mod registry;
mod remote_sends;
mod requester;
mod service;
mod user_search;

pub use app_hosts::AppHosts;
pub use calls::CallExecutor;
pub use dial::{DialAction, OutgoingConnection};
pub use notices::Notices;
pub use recorder::{AppRecorder, RecordedEntry};
pub use registry::{AppRegistry, AppSet, seeded, warnings};
pub use remote_sends::AppWorkerMessage;
pub use veche_pool::{PoolFigures, PoolGauges, PoolRegistry, RestartReason};
