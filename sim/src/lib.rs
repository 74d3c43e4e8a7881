//! The deterministic simulator: the hub, connections and several workers in one seeded world, with a network, a clock, a
//! disk and crashes that are not real.
//!
//! A [`seed`](explore) makes a world and a list of actions, plain data; all that happens follows from these. After each
//! action the promises are looked at, and more of them whenever the world has come to rest. One that is broken is
//! reported with its seed, its step and as few actions as break it too. How to replay one, and how to add an action or
//! a promise, is in `sim/README.md`. Begin with `world.rs`.
//!
//! It drives the worker that ships and knows no socket, thread or clock either. TLS and the drivers are not in it.

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
mod wildcard_view;
mod wire;
pub mod worker_driver;
mod world;

pub use apps::{BackEndApp, DialRequest};
pub use compare::{Difference, compare};
pub use coverage::Coverage;
pub use failure::Failure;
pub use lanes::SerializedCounts;
pub use report::{ACTIONS, Report, WorldSummary, explore, explore_serialized, replay};
