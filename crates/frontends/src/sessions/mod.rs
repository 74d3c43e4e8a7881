//! The client protocols. Each has a folder here, and is registered in [`crate::registry`].

pub(crate) mod app;
pub(crate) mod centrifuge;
pub(crate) mod echo;
pub(crate) mod push;
