//! The rules of one hub, subject by subject, each at its limits: what one worker does, alone or as the home of channels
//! with subscribers on others, is exact and asserted as such. Random interleavings are in `joined.rs`, `members.rs` and
//! `overheard.rs`.

#[path = "../common/mod.rs"]
mod common;
mod node;

mod announcements;
mod credit;
mod fan_out;
mod happenings;
mod history;
mod log;
mod namespaces;
mod publishing;
mod sessions;
mod users;
mod values;
mod wildcards;
