//! What a run found: the data, and the ways to show it.
//!
//! [`model`] is the data and the published form of `--json`. [`text`] is for the terminal after the run, [`progress`]
//! for the terminal during it, [`html`] is a page to keep and to send, [`files`] are for other programs, [`compare`] puts runs beside each other. None of
//! them measures, reads a clock or knows where its words are written to.

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
