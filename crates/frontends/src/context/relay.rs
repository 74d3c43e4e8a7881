//! Commands of a client that receives through a streaming response and therefore sends each command
//! in a separate request, and the address that leads from such a request to the response.

pub use veche_nodes::{EmulationAddress, EmulationRequest};
