//! The tester's counts against servers whose every fault is known: what it reports is what they did, no more and no
//! less.

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod bad_servers;
mod centrifugo;
mod http;
mod ledger;
mod open_loop;
mod overload;
mod reconnects;
mod recovery;
mod shootout;
mod tls;
