//! `veche serve --unsupervised`: one process that listens and serves, for tools that can't follow a child process, such as
//! Valgrind.
//!
//! The process runs the code of a server process, and sends itself the first message over a control link, as a supervisor
//! would. But nothing restarts the process, serves the control socket or changes the user. SIGTERM drains the process.

use std::path::Path;
use std::process::ExitCode;

use super::listening::listen_on;
use super::reload::LoadedConfig;
use super::server::{SELF, introduce};
use super::{ServeError, worker_spawner};
use crate::link::ControlLink;
use crate::message::{StartMessage, ToSupervisor, VERSION};
use crate::process::{ServerProgram, run_on};
use crate::restarts::Restarts;
use veche_net::descriptors;
use veche_spawner::PendingSpawner;

/// Serves with the configuration at `file` until SIGTERM.
///
/// # Errors
/// The configuration is invalid or requires another user, an address can't be listened on, or the server can't start.
pub fn run(file: &Path, program: impl ServerProgram) -> Result<(), ServeError> {
    let LoadedConfig { config, text } = LoadedConfig::read(file)?;
    if config.server.run_as.is_some() {
        let why = "without a supervisor the server can't change to the user in server.user";
        return Err(ServeError::Server(why.to_owned()));
    }
    descriptors::raise()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = usize::from(config.server.workers.resolve(cores));
    let listening = listen_on(&config.listeners, workers, None)?;
    let start = StartMessage {
        version: VERSION,
        config_path: file.to_owned(),
        text,
        started_text: None,
        dev: false,
        restarts: Restarts::default(),
        is_unjudged: false,
        holds_services: false,
        has_spawner: false,
        listeners: Vec::new(),
    };
    worker_spawner::check_accounts(&config, None)?;
    let spawner = match worker_spawner::is_needed(&config) {
        true => {
            let setup = worker_spawner::setup(file, &start.text, None);
            let (prepared, socket) = PendingSpawner::new(&setup)?;
            worker_spawner::start(Path::new(SELF), prepared)?;
            Some(socket)
        }
        false => None,
    };
    let (mut link, theirs) = introduce(&listening, spawner, start)?;
    let ended = run_on(ControlLink::adopt(theirs, Vec::new()), program);
    if ended == ExitCode::SUCCESS {
        return Ok(());
    }
    link.receive()?;
    let why = std::iter::from_fn(|| link.next()).find_map(|message| match message {
        Ok(ToSupervisor::Failed { error }) => Some(error),
        _ => None,
    });
    Err(ServeError::Server(why.unwrap_or_else(|| {
        "the server can't continue; see its log".to_owned()
    })))
}
