//! The server process: what it gives up before it serves, and what the supervisor's library starts in it.
//!
//! Its life, from the first message of the supervisor to the end of the drain, is led by [`veche_supervisor::process`].

use tracing::{info, warn};
use veche_config::Config;
use veche_files::make_folder;
use veche_supervisor::process::{Program, StartOptions};

use crate::memory;
use crate::sandbox::{self, SandboxState};
use crate::server::{self, RunningServer};

/// A server process before its server runs.
#[derive(Debug, Default)]
pub(crate) struct ServerProcess {
    /// The sandbox, if it is in one.
    confined: Option<SandboxState>,
    /// Which start of the machine this is, as read outside of the sandbox.
    boot: Option<String>,
    /// The reason why unused memory is given back late.
    keeps_memory: Option<String>,
}

impl Program for ServerProcess {
    type Control = RunningServer;

    fn confine(&mut self, config: &Config) -> Result<(), String> {
        // The sandbox hides it.
        self.boot = veche_archive::boot_id();
        self.confined = confine(config)?;
        self.keeps_memory = memory::release_when_idle().err();
        Ok(())
    }

    fn log_confined(&self) {
        if let Some(error) = &self.keeps_memory {
            warn!(error, "unused memory is given back late");
        }
        if let Some(confined) = &self.confined {
            info!(enforced = %confined, missing = confined.missing(), "sandbox");
        }
    }

    fn warn_unreachable(&self, config: &Config) {
        for port in self
            .confined
            .iter()
            .flat_map(|confined| confined.out_of_reach(config))
        {
            warn!(
                port,
                "server.sandbox: what is named on another port is out of reach until a restart"
            );
        }
    }

    fn start(&mut self, start: StartOptions) -> Result<RunningServer, String> {
        server::start(start, self.boot.take(), None)
    }
}

/// Gives up what the process does not need, while it has one thread only.
fn confine(config: &Config) -> Result<Option<SandboxState>, String> {
    rustix::thread::set_no_new_privs(true).map_err(|error| format!("no_new_privs: {error}"))?;
    // Where that fails, it is told when something is to be kept there.
    let _ = veche_acme::prepare(config);
    let history = config.history.iter().map(|history| &history.path);
    for folder in history.chain(&config.server.snapshots) {
        let _ = make_folder(folder, None);
    }
    match config.server.sandbox {
        true => sandbox::enter(config)
            .map(Some)
            .map_err(|error| error.to_string()),
        false => Ok(None),
    }
}
