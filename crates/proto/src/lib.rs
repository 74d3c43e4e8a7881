//! Wire formats: HTTP/1.x for servers, WebSocket in both roles, and PROXY headers.
//!
//! The crate is pure: it uses no socket, clock or thread. Input arrives as slices, and output is appended to a
//! `Vec<u8>`; `veche-frontends` decides what to do with both.

pub mod http;
pub mod proxy;
pub mod websocket;
