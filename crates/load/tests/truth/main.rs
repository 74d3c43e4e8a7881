//! Runs the tester against servers with known faults: its reports must contain exactly what the
//! servers did.

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
