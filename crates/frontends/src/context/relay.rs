//! Commands of clients that receive through a streaming response. Such a client sends each command
//! in a separate request, which contains the address of the response.

pub use veche_nodes::{EmulationAddress, EmulationRequest};
