//! Requests of the server's own over HTTP, whatever they ask: their concurrency, their signatures, whole answers, a
//! breaker for back ends that fail, counts.

mod breaker;
mod count;
mod fetch;
mod gate;
mod latency;
mod object;
mod signature;

pub(crate) use breaker::{Breaker, Ending};
pub(crate) use count::Count;
pub(crate) use fetch::{Answer, CONNECTIONS_MAX, Request};
pub(crate) use gate::Gate;
pub(crate) use latency::Latency;
pub(crate) use object::Object;
pub(crate) use signature::{HOOK, SIGNATURE, sign};
