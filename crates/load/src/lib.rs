//! The load tester behind `veche bench`: it opens connections, sends messages, checks each answer, and reports the
//! results and their reliability.
//!
//! Each thread runs an engine: sockets of [`veche_net`], clients that use the protocols of
//! [`veche_proto`], and a load that decides what to send and when. Apart from its URL, the tester
//! knows nothing about the server.
//!
//! # Counting
//!
//! A run has one measured window. Three sets of answers belong to it, and no figure mixes them:
//!
//! - answers to messages that were *due* in the window (closed loop: answers that arrived in it)
//!   determine `received` and the percentiles. From a slow server, they may arrive after the end of
//!   the window;
//! - answers that *arrived* in the window, whenever their messages were due, determine the
//!   throughput, the CPU per message and the timeline. Both the answers and the time are those of
//!   the window: a queue that drains after the end adds to neither;
//! - answers to messages due in the window that arrived *in time*, by its end or shortly after
//!   (`engine::EngineState::answered`), decide whether the rate was reached: at least 99 of 100 must
//!   be in time.
//!
//! Errors, connections and the ledger cover the whole run. A verdict (the exit code, an objective) is a function of the
//! finished [`report::Report`]; threads only count.

pub mod cli;
mod client;
mod clock;
mod control;
mod engine;
pub mod heartbeat;
mod latency;
pub mod ledger;
pub mod loads;
pub mod memory;
pub mod payload;
pub mod plan;
pub mod report;
mod resource_usage;
pub mod run;
pub mod schedule;
pub mod script;
mod tally;
pub mod target;
mod thread_group;
pub mod worker_process;

pub use thread_group::{RunProgress, RunStage};
