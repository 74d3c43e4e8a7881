//! Commands for the streaming response of another connection, and the address that finds it.

pub use veche_nodes::{EmulationAddress, EmulationRequest};
