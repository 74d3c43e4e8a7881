//! Clusters of two to ten nodes that share a model of the store. The hubs and the cluster code of the nodes are real.
//!
//! The model behaves like the engine on Redis, including its faults: acknowledged writes are lost; a replica is
//! promoted; the server is restarted, is emptied, evicts data, refuses commands and stalls; connections are cut;
//! answers and items of the feed are late, and their relative order is not kept. Subscribers move between nodes and
//! recover; back ends publish and repeat publications. As in the other simulations, a seed determines everything, and
//! a failure is reported with a minimal list of actions.

mod action;
mod carry;
mod channels;
mod client;
mod config;
mod control;
mod coverage;
mod effect;
mod ledger;
mod link;
mod node;
mod reactions;
mod report;
mod session;
mod settle;
mod setup;
mod store;
mod trace;
mod world;

pub use coverage::Coverage;
pub use report::{ACTIONS, BrokenCluster, Summary, explore, replay};
pub use trace::print_traces;
