//! Authentication of user names and passwords with PAM, in separate processes.
//!
//! PAM blocks, for seconds after a wrong password, and loads third-party modules into the calling
//! process. So it runs in [`helper`] processes. Each helper is another instance of this program, has
//! only a socket to its parent, and handles one password at a time. [`wire`] defines the protocol on
//! the socket. Only helpers load libpam, when they start ([`library`]), so that no other process
//! depends on it.
//!
//! The crate does not depend on HTTP, on the origin of requests, or on the number of helpers.

pub mod client;
pub mod helper;
pub mod library;
mod raw;
pub mod service;
pub mod wire;

pub use service::PamService;
pub use wire::{PamReply, PamRequest};
