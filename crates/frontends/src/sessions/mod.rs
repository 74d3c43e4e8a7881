//! The client protocols: a folder for each, registered in [`crate::registry`].

pub(crate) mod app;
pub(crate) mod centrifuge;
pub(crate) mod echo;
pub(crate) mod push;
