//! Attacks on a running server, each known to have brought down some other server. During an
//! attack, well-behaved clients of the same worker are served as usual and memory stays bounded;
//! afterwards the server has no state of the attack.
//!
//! [`attack`] is the framework: it defines an [`attack::Attack`] and the requirements for the
//! server. Each test is one attack. `README.md` beside this file lists all classes of attacks and
//! their tests. A test verifies that the list is complete. `VECHE_ATTACK_SECONDS` sets the duration
//! of each attack; the default is less than one second.

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
mod lua_worst;
mod raw;
mod readers;
mod slow;
mod table;
mod tls;
