//! The back end's side: its API, push lines and commands, and the admin page.

pub mod admin;
pub(crate) mod api;
pub mod command;
mod execution;
pub(crate) mod lines;
pub mod spelling;

pub use api::{Direct, DirectCall};
pub use execution::{
    BAD_REQUEST, Backend, EXCHANGES_MAX, METHOD_NOT_FOUND, PERMISSION_DENIED, Progress, Shape,
    UNAUTHORIZED, UNKNOWN_CHANNEL, Unwilling, write_error,
};
pub(crate) use execution::{Exchange, status_of};
