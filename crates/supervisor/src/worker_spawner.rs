//! Starts the spawners of worker processes: one for each server process, and a further one for each configuration that it
//! loads.
//!
//! A spawner has the supervisor's rights and reads the commands and accounts of `[[app]]` from the configuration. The server
//! process gets the spawner's socket, which allows it to start only these commands. The spawner ends when that socket is closed
//! and its worker processes have ended; the supervisor only reaps it.

use std::io;
use std::path::Path;

use veche_config::{self as config, Account, AccountError, AppConfig, Config};
use veche_spawner::{PendingSpawner, SpawnerSetup, Start, WorkerProgram};

use super::{handover, notify, stored};

/// Returns the worker programs of a configuration. Called in the spawner's process.
///
/// # Errors
/// The configuration is invalid, or an account is unknown.
pub fn programs(setup: &SpawnerSetup) -> Result<Vec<WorkerProgram>, String> {
    let config = config::parse_again(&setup.config, &setup.text);
    let config = config.map_err(|report| report.to_string())?;
    let server = setup.account.map(|(uid, gid)| Account { uid, gid });
    let programs = config.apps.iter().filter_map(|app| {
        let processes = app.processes.as_ref()?;
        let account = match Account::of_app(app, server.as_ref()) {
            Ok(account) => account,
            Err(error) => return Some(Err(error.to_string())),
        };
        Some(Ok(WorkerProgram {
            app: app.name.clone(),
            command: processes.command.clone(),
            folder: processes.folder.clone(),
            account: account.map(|account| (account.uid, account.gid)),
        }))
    });
    programs.collect()
}

/// Checks that the accounts of all applications exist.
pub(super) fn check_accounts(
    config: &Config,
    server: Option<&Account>,
) -> Result<(), AccountError> {
    let mut apps = config.apps.iter();
    apps.try_for_each(|app| Account::of_app(app, server).map(drop))
}

/// Returns whether a configuration has applications in worker processes.
pub(super) fn is_needed(config: &Config) -> bool {
    let has_processes = |app: &AppConfig| app.processes.is_some();
    config.apps.iter().any(has_processes)
}

/// Returns the setup of a spawner for the configuration `file` with the content `text`.
pub(super) fn setup(file: &Path, text: &str, account: Option<&Account>) -> SpawnerSetup {
    SpawnerSetup {
        config: file.to_owned(),
        text: text.to_owned(),
        account: account.map(|account| (account.uid, account.gid)),
    }
}

/// Starts a spawner without the environment variables that only server processes may have.
pub(super) fn start(binary: &Path, prepared: PendingSpawner) -> io::Result<()> {
    let mut removed = stored::VARIABLES.to_vec();
    removed.extend([handover::HANDOVER_VARIABLE, notify::SOCKET]);
    let how = Start {
        binary,
        removed: &removed,
    };
    // The handle is dropped, since `orphans` reaps the process.
    prepared.start(how).map(drop)
}
