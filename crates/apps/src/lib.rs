//! Applications: where scripts meet connections.
//!
//! The front ends know applications by the trait [`Apps`](veche_frontends::Apps) only, scripts know the world by
//! effects only; [`Here`] stands between them in each worker, [`Library`] has the code for all workers.
//!
//! The crate knows which application a session belongs to, what its effects do to connections and channels, and how
//! code is replaced while handlers wait. It does not know the worker's turn, sockets, threads or Lua.

#![forbid(unsafe_code)]

mod calls;
mod carry;
#[cfg(test)]
mod carry_tests;
mod commands;
mod decide;
mod dial;
mod events;
mod far;
mod find;
mod handover;
mod held;
mod here;
mod host;
mod hosted;
mod inquire;
mod journal;
mod library;
mod notices;
mod service;

pub use calls::Gate;
pub use dial::{Asked, Outgoing};
pub use far::AppMail;
pub use here::{Here, Wake};
pub use journal::{Entry, Journal};
pub use library::{Library, Shelf, seeded, warnings};
pub use notices::Notices;
