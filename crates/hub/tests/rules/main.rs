//! The rules of a single hub by subject: exact deliveries, replies, gauges and limits, as the only worker and as the
//! home of channels with subscribers on other workers. Random interleavings of several hubs are tested in `joined.rs`,
//! `members.rs` and `wildcard.rs`.

#[path = "../common/mod.rs"]
mod common;
mod node;

mod announcements;
mod channel_events;
mod credit;
mod fan_out;
mod history;
mod holds;
mod log;
mod namespaces;
mod publishing;
mod sessions;
mod users;
mod values;
mod wildcards;
