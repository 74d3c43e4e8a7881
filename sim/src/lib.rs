//! The deterministic simulator: the hub, connections and several workers in one seeded world, with a simulated network,
//! clock, disk and crashes.
//!
//! A [`seed`](explore) determines a world and a list of actions, and thereby everything that happens. After each action
//! the promises are checked, and more of them whenever the world is at rest. A broken promise is reported with its
//! seed, its step and a minimal list of actions that breaks it too. `sim/README.md` explains how to replay a world, and
//! how to add an action or a promise. Start with `world.rs`.
//!
//! The simulator drives the real worker and uses no sockets, threads or real clock. TLS and the network drivers are not
//! simulated.

#![forbid(unsafe_code)]

mod action;
mod api_client;
mod apps;
mod back_end;
mod channels;
mod client;
mod client_commands;
mod client_decisions;
mod client_transport;
pub mod cluster;
mod compare;
mod coverage;
mod data;
mod dialed;
mod disconnect;
mod disk;
mod drain;
mod driven;
mod emulation;
mod emulation_connection;
mod failure;
mod fairness;
mod fossil;
mod frontend_config;
mod hook_outcome;
mod hooks;
mod lanes;
mod ledger;
mod network;
mod one_way;
mod peers;
mod phase;
mod process;
mod protobuf;
mod push_listener;
mod report;
mod response;
mod run;
mod settle;
mod setup;
mod shrink;
mod simulated_driver;
mod stall;
mod subscription;
mod trace;
mod transports;
mod turn_order;
mod wildcard_view;
mod wire;
pub mod worker_driver;
mod world;

pub use apps::{BackEndApp, DialRequest};
pub use compare::{Difference, compare};
pub use coverage::Coverage;
pub use failure::Failure;
pub use lanes::SerializedCounts;
pub use report::{ACTIONS, BrokenWorld, WorldSummary, explore, explore_serialized, replay};
