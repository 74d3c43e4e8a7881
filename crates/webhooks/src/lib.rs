//! HTTP requests to back ends: hooks that decide on clients' commands, and event webhooks.
//!
//! Both stand on the same parts, which are here for others that ask back ends as well: concurrency ([`ConcurrencyLimit`]), a breaker for
//! back ends that fail ([`CircuitBreaker`]), signatures ([`sign`]), whole answers ([`FetchResponse`]). The crate knows what a question and a
//! batch of events look like on the wire. It does not know workers, sessions or where verdicts go from its callers.

#![forbid(unsafe_code)]

mod breaker;
mod concurrency_limit;
pub mod events;
mod fetch;
pub mod hooks;
mod object;
mod signature;

pub use breaker::{BackendResult, CircuitBreaker};
pub use concurrency_limit::ConcurrencyLimit;
pub use fetch::{CONNECTIONS_MAX, FetchRequest, FetchResponse};
pub use object::Object;
pub use signature::{HOOK, SIGNATURE, sign};
