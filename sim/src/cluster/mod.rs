//! Clusters: two to ten nodes, each with its real workers and its real part in the cluster, on a model of the store that they
//! share.
//!
//! The model does what the engine on Redis does, and everything that may happen to it: it loses acknowledged writes, it is
//! promoted, restarted, emptied and evicted from, it refuses and stalls; connections are cut, and answers and feed come late and
//! in any order to each other. Subscribers move between nodes and recover; back ends publish and repeat. As with other worlds,
//! a seed determines everything, and a failure is reported with a minimal list of actions.

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
