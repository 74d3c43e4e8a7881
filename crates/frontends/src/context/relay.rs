//! Commands that come for a response of another connection, and the address by which they find it.

pub use veche_nodes::{EmulationAddress, EmulationRequest};
