//! Commands that a client sends in a request of their own for its streaming response on another connection, and the
//! address by which they find that response.

pub use veche_nodes::{EmulationAddress, EmulationRequest};
