//! Interfaces for back ends: API, push lines and commands, and the admin page.

pub mod admin;
pub(crate) mod api;
pub mod command;
mod execution;
pub(crate) mod lines;
mod socket;

pub(crate) use crate::http::api_error::status_of;
pub use crate::http::api_error::write_error;
pub use api::{DirectCall, DirectCallStatus};
pub(crate) use execution::Exchange;
pub use execution::{
    AnswerShape, Backend, CommandProgress, EXCHANGES_MAX, Rejection, bind_undecided,
};
