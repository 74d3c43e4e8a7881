//! Client protocols: one folder for each.

pub(crate) mod app;
pub(crate) mod centrifuge;
