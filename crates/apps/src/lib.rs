//! Applications: the layer between scripts and connections.
//!
//! The front ends know applications only by the trait [`Apps`](veche_frontends::Apps), and scripts act only through
//! effects. [`Here`] connects both on each worker, and [`Library`] holds the code for all workers.
//!
//! The crate knows which application a session belongs to, how its effects apply to connections and channels, and how
//! code is replaced while handlers are suspended. It does not know the order of the worker's turn, sockets, threads or
//! Lua.

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
