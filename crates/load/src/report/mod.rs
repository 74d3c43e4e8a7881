//! Reports: their data and their formats.
//!
//! [`model`] is the data and the public format of `--json`. [`text`] is for the terminal after the run, [`progress`]
//! during it, [`html`] is a page, [`files`] are for other programs, [`compare`] compares runs. None of them measures,
//! reads a clock or knows the destination of its output.

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
