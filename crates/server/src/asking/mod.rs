//! What it takes to ask others over HTTP, whatever is asked and of whom: requests and whole answers, signatures, a breaker
//! that leaves alone who fails, counts.

mod breaker;
mod count;
mod fetch;
mod latency;
mod object;
mod seldom;
mod signature;

pub(crate) use breaker::Breaker;
pub(crate) use count::Count;
pub(crate) use fetch::{Answer, CONNECTIONS_MAX, Request};
pub(crate) use latency::Latency;
pub(crate) use object::Object;
pub(crate) use seldom::Seldom;
pub(crate) use signature::{SIGNATURE, sign};
