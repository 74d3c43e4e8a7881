//! Applications: where scripts meet connections.
//!
//! The front ends know applications by the trait [`Apps`](veche_frontends::Apps) only, scripts know the world by
//! effects only; [`Here`] stands between them in each worker, [`Library`] has the code for all workers.

mod calls;
mod carry;
#[cfg(test)]
mod carry_tests;
mod commands;
mod decide;
mod dev;
mod dial;
mod events;
mod far;
mod find;
mod handover;
mod held;
mod here;
mod host;
mod inquire;
mod journal;
mod library;
mod service;

pub(crate) use calls::Gate;
pub(crate) use dial::{Asked, Outgoing};
pub(crate) use far::AppMail;
pub(crate) use here::{Here, Wake};
pub(crate) use journal::{Entry, Journal};
pub(crate) use library::{Library, Shelf, seeded, warnings};
