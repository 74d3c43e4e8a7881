//! What the targets do with their input. The proto crate's tests include these files and replay the corpora with them.

pub mod http;
pub mod websocket;
