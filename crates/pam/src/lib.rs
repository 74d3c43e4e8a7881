//! Names and passwords are judged by PAM, in a process of its own.
//!
//! PAM blocks, for seconds where a password was wrong, and loads modules of others into the process that asks it. So it
//! is asked by [`helper`]s: each is this program once more, with nothing but a socket to whoever has started it, and
//! judges one password at a time. What travels over the socket is in [`wire`]; libpam is loaded by the helper alone, when
//! it starts ([`library`]), so that no other process depends on it.
//!
//! It does not know HTTP, who waits for an answer, or how many helpers there are.

pub mod client;
pub mod helper;
pub mod library;
mod raw;
pub mod service;
pub mod wire;

pub use service::PamService;
pub use wire::{PamReply, PamRequest};
