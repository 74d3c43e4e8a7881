//! Bytes to requests, frames and messages, and back: HTTP/1.x and WebSocket, both roles; and what proxies say before.
//!
//! Pure: nothing here knows a socket, a clock or a thread. Bytes come in as slices and go out by appending to a
//! `Vec<u8>`; what to do with them is decided in `veche-frontends`.

pub mod http;
pub mod proxy;
pub mod websocket;
