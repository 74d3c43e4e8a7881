//! Connections from their first byte to their last, tested from outside: bytes in, bytes out, and a clock that the
//! test sets.

mod admin;
mod api;
mod app_endings;
mod app_http;
mod app_parts;
mod app_waits;
mod boundaries;
mod busy;
mod carried_out;
mod centrifuge;
mod decision_log;
mod dialed;
mod drain;
mod http;
mod instructed;
mod lines;
mod list_connections;
mod lossy;
mod paths;
mod positions;
mod pressure;
mod process;
mod shares;
mod splits;
mod takeover;
mod upgrade;
mod websocket;
#[path = "../world/mod.rs"]
mod world;
