//! The deterministic simulator: the hub, connections and several workers in one seeded world, with a simulated network,
//! clock, disk and crashes.
//!
//! A [`seed`](explore) determines a world and a list of actions, plain data, and thereby everything that happens. After
//! each action the promises are checked, and more of them whenever the world is at rest. A broken promise is reported
//! with its seed, its step and a minimal list of actions that breaks it too. `sim/README.md` explains how to replay
//! one, and how to add an action or a promise. Start with `world.rs`.
//!
//! It drives the real worker, and knows no socket, thread or clock either. TLS and the drivers are not included.

#![forbid(unsafe_code)]

mod action;
mod apps;
mod asking;
mod back_end;
mod caller;
mod carrier;
mod channels;
mod client;
mod compare;
mod data;
mod decided;
mod decider;
mod dialed;
mod disconnect;
mod disk;
mod drain;
mod driven;
mod failure;
mod fate;
mod fossil;
pub mod glue;
mod lanes;
mod ledger;
mod listener;
mod network;
mod one_way;
mod overhearing;
mod peers;
mod phase;
mod posting;
mod posts;
mod process;
mod protobuf;
mod report;
mod response;
mod run;
mod seen;
mod settle;
mod setup;
mod shrink;
mod site;
mod stall;
mod subscription;
mod trace;
mod transports;
mod watch;
mod wire;
mod worker;
mod world;

pub use apps::{BackEndApp, Wanted};
pub use compare::{Difference, compare};
pub use failure::Failure;
pub use lanes::AsBytes;
pub use report::{ACTIONS, Report, World, explore, explore_as_bytes, replay};
pub use seen::Seen;
