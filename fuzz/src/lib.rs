//! The code of the fuzz targets. Tests of the crates include these files to replay the corpora.

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
