//! The parts that commands share in their output: exit codes, problems of a TOML file with their positions, colours,
//! durations and sizes.
//!
//! The crate depends neither on the commands nor on the content of files: valid names and examples are passed in.

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
