//! Clusters: two to ten nodes, each with its real hubs and its real part in the cluster, on a model of the store that
//! they share.
//!
//! The model behaves like the engine on Redis, including its faults: acknowledged writes are lost; the server is
//! promoted, restarted, emptied, evicts data, refuses commands and stalls; connections are cut; answers and feed are
//! late and not ordered relative to each other. Subscribers move between nodes and recover; back ends publish and
//! repeat publications. As in other worlds, a seed determines everything, and a failure is reported with a minimal list
//! of actions.

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
