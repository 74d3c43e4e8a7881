//! HTTP requests to back ends: hooks that decide on clients' commands, and event webhooks.
//!
//! Their common parts are public for other requests to back ends: a concurrency limit ([`Gate`]), a circuit
//! breaker ([`Breaker`]), signatures ([`sign`]) and complete responses ([`Answer`]). The crate knows the
//! format of hook requests and event batches. It does not know workers, sessions or the receivers of decisions.

#![forbid(unsafe_code)]

mod breaker;
pub mod events;
mod fetch;
mod gate;
pub mod hooks;
mod object;
mod signature;

pub use breaker::{Breaker, Ending};
pub use fetch::{Answer, CONNECTIONS_MAX, Request};
pub use gate::Gate;
pub use object::Object;
pub use signature::{HOOK, SIGNATURE, sign};
