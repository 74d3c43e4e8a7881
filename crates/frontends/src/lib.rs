//! One connection's whole life, and the client protocols.
//!
//! Pure: no socket, no clock, no thread. The worker (`veche-worker`) hands in bytes, deadlines and the hub's answers, and
//! takes out what the outboxes hold, over sockets and in tests alike.
//! Begin with [`connection`].

#![forbid(unsafe_code)]

pub mod access;
pub mod admin;
mod api;
pub mod app;
pub mod backend;
pub mod blocks;
mod census;
mod centrifuge;
pub mod client;
pub mod close;
pub mod command;
pub mod connection;
pub mod guessing;
pub mod hooks;
mod http;
pub mod identity;
pub mod journal;
mod lines;
mod members;
mod note;
pub mod origin;
pub mod outbox;
pub mod pace;
mod pool;
pub mod publishing;
pub mod rate;
mod reply;
mod rest;
pub mod route;
pub mod shared;
pub mod site;
mod socket;
pub mod static_files;
pub mod stats;
mod step;
mod stream;
pub mod upgrade;
pub mod work;

pub use api::{Direct, DirectCall};
pub use app::{AppAnswer, AppId, Apps};
pub use census::Census;
pub use centrifuge::transport::{Address, Relay};
pub use client::{Caller, Dial, Terms};
pub use close::Parting;
pub use connection::Connection;
pub use journal::Journal;
pub use note::{Decision, Note, NoteLevel};
pub use outbox::{End, Outbox, Outboxes};
pub use shared::{Lane, Now, Ports, Post, Process, Shared};
pub use site::{ApiKey, Limits, Listener, Role, Site};
pub use socket::NotRenewed;
pub use stats::Stats;
pub use step::Block;
