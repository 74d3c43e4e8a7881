//! The data of reports and their output formats.
//!
//! [`model`] defines the data, which is also the public format of `--json`. [`progress`] writes the
//! progress line during a run, and [`text`] the report after it. [`html`] creates a page, [`files`]
//! exports data for other programs, and [`compare`] compares runs. None of these modules measures,
//! reads a clock or depends on the destination of its output.

pub mod compare;
pub mod files;
pub mod html;
pub mod model;
pub mod progress;
pub mod text;

mod causes;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod schema;
pub(crate) mod units;
mod wording;

pub use model::Report;
pub use text::Style;
