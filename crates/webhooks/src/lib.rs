//! HTTP requests to back ends: hooks that decide on clients' commands, and event webhooks.
//!
//! Both stand on the same parts, which are here for others that ask back ends as well: concurrency ([`Gate`]), a breaker for
//! back ends that fail ([`Breaker`]), signatures ([`sign`]), whole answers ([`Answer`]). The crate knows what a question and a
//! batch of events look like on the wire. It does not know workers, sessions or where verdicts go from its callers.

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
