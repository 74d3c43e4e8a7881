//! `veche`: the realtime application server.
//!
//! The binary only calls [`main`]. A server consists of up to four kinds of processes. `veche serve` is the supervisor
//! ([`veche_supervisor`]). It starts the same binary as the server [`process`], in which [`server`] starts a [`worker`]
//! per core. If PAM checks passwords, the server process starts helpers ([`veche_pam::helper`]). If applications run in
//! worker processes, the supervisor starts a [spawner](veche_spawner) of them. The other commands are short-lived
//! ([`cli`]). ARCHITECTURE.md has the map.

#![forbid(unsafe_code)]

use std::process::ExitCode;

mod access_log;
mod addresses;
mod back_end;
mod bans;
mod cli;
mod cluster;
#[cfg(test)]
mod codes;
mod decisions;
mod dev;
mod dump;
mod engine;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(test)]
#[path = "../../config/src/generated_page.rs"]
mod generated_page;
#[cfg(test)]
mod glue;
mod history;
mod memory;
mod metrics;
mod process;
mod process_state;
mod sandbox;
mod server;
mod site;
mod slow_log;
#[cfg(any(test, feature = "fuzzing"))]
pub mod stage;
mod test_server;
mod tls_listeners;
mod users;
mod worker;

/// Runs the program with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(argument) if argument == veche_supervisor::SERVER_PROCESS => {
            veche_supervisor::process::run(process::ServerProcess::default())
        }
        Some(argument) if argument == veche_pam::helper::ARGUMENT => veche_pam::helper::run(),
        Some(argument) if argument == veche_spawner::SPAWNER => {
            veche_spawner::run(veche_supervisor::worker_programs)
        }
        Some(argument) if argument == veche_spawner::LAUNCHER => veche_spawner::launch(),
        _ => cli::main(),
    }
}
