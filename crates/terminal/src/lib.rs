//! What commands share in front of a person: exit codes, problems of a TOML file with their places, colours, durations and
//! sizes as people write them.
//!
//! Knows neither the commands nor what is in a file: the names that a file may have, and the examples shown beside a
//! problem, are passed in.

#![forbid(unsafe_code)]

mod colours;
mod document;
pub mod exit;
mod problems;
mod units;

pub use colours::{Colour, Colours};
pub use document::{
    describe, document, masked_text, masked_urls, plain, read, read_text, unreadable,
};
pub use exit::{CommandFailure, Exit};
pub use problems::{
    Excerpt, Problem, ProblemReport, Problems, SourceLocation, did_you_mean, nearest_hint, shown,
};
pub use units::{as_ms, duration, format_duration, format_size, parse_duration, parse_size};
