//! HTTP requests to back ends: hooks that decide on clients' commands, and event webhooks.
//!
//! Their common parts are public for other requests to back ends: a concurrency limit ([`ConcurrencyLimit`]), a circuit
//! breaker ([`CircuitBreaker`]), signatures ([`sign`]) and complete responses ([`FetchResponse`]). The crate defines the
//! format of hook requests and event batches. It does not depend on workers, sessions or the receivers of decisions.

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
