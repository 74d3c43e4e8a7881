//! Applications: the layer between scripts and connections.
//!
//! The front ends call applications only through the trait [`Apps`](veche_frontends::Apps), and scripts act only
//! through effects. On each worker [`AppHosts`] connects the front ends with the scripts. [`AppRegistry`] holds the
//! code for all workers.
//!
//! The crate determines which application a session belongs to, applies the application's effects to connections and
//! channels, and replaces code while handlers are suspended. It does not depend on the order of the worker's turn, on
//! sockets, on threads or on Lua.

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
