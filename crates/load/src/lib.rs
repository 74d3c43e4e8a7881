//! The load tester behind `veche bench`: it opens connections, sends, checks each answer, and says what it found and
//! whether it can be believed.
//!
//! One thread is an engine: sockets of [`veche_net`], clients that speak through [`veche_proto`], and a load that
//! decides what is sent when. It knows nothing of the server beyond its URL.

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
