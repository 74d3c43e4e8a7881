//! The load tester behind `veche bench`: it opens connections, sends, checks each answer, and says what it found and
//! whether it can be believed.
//!
//! One thread is an engine: sockets of [`veche_net`], clients that speak through [`veche_proto`], and a load that
//! decides what is sent when. It knows nothing of the server beyond its URL.
//!
//! # What is counted when
//!
//! A run has one measured window. Three sets of answers belong to it, and no figure mixes them:
//!
//! - those to what was *due* in the window (closed loop: those that came in it): `received` and the percentiles. A slow
//!   server is late and not excused, so these may come after the end;
//! - those that *came* in the window, whenever they were due: throughput, CPU per message, the timeline. Count and time
//!   belong together, so a queue that drains after the end adds to neither;
//! - those to what was due in the window that came *in time*, by its end and a little more (`engine::Net::answered`): if they
//!   are fewer than 99 of 100, the rate that was asked for was not reached.
//!
//! Errors, connections and the ledger are of the whole run. A verdict, be it the exit code or a promise, is made of a
//! finished [`report::Report`] alone, never of what a thread knows.

mod client;
mod clock;
mod control;
mod crew;
mod engine;
mod latency;
pub mod ledger;
pub mod loads;
pub mod member;
pub mod memory;
mod pace;
pub mod payload;
pub mod plan;
pub mod report;
pub mod run;
mod tally;
pub mod target;
mod watch;

pub use crew::{Progress, Stage};
