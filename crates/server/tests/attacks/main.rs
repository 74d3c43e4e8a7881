//! Attacks on a running server, each known to have brought down another one: while it lasts, clients that behave are
//! served by the same worker as if nothing were, memory stays bounded, and afterwards nothing of it is left.
//!
//! [`attack`] is the frame: what an [`attack::Attack`] is, and what is asked of the server. Each test is one attack.
//! `README.md` beside this file has all classes of attacks and where each is tested; a test holds it to what there is.
//! `VECHE_ATTACK_SECONDS` says how long each attack lasts, less than one unless told.

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod apps;
mod attack;
mod backing;
mod bystanders;
mod churn;
mod deflate;
mod evidence;
mod floods;
mod frames;
mod handshake;
mod raw;
mod readers;
mod slow;
mod table;
mod tls;
