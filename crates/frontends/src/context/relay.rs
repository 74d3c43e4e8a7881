//! Commands that a client sends in a request of their own for its streaming response on another connection, and how
//! they find it.

pub use veche_nodes::{EmulationAddress, EmulationRequest};
