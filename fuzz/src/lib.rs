//! What the targets do with their input. The tests of the crates include these files and replay the corpora with them.

pub mod centrifuge;
pub mod connection;
pub mod http;
pub mod nodes;
pub mod proxy;
pub mod runtime;
pub mod script;
pub mod session;
pub mod table;
pub mod websocket;
