//! What all connections of a worker share, and the plain data that the parts of this crate exchange.

pub mod access;
pub mod app;
pub mod blocks;
pub(crate) mod census;
pub mod close;
pub(crate) mod files;
pub mod guessing;
pub(crate) mod hears;
pub mod hooks;
pub mod identity;
pub mod journal;
pub(crate) mod look;
pub(crate) mod members;
pub(crate) mod note;
pub mod origin;
pub mod pace;
pub mod publishing;
pub mod rate;
pub(crate) mod relay;
mod rest;
pub mod route;
pub mod shared;
pub mod site;
pub mod stats;
pub(crate) mod step;
pub mod work;
