//! The server process: drops privileges, and then starts the server.
//!
//! [`veche_supervisor::process`] calls this module, and controls the process from the supervisor's first message to the
//! end of the drain.

use tracing::{info, warn};
use veche_config::Config;
use veche_files::make_folder;
use veche_supervisor::process::{ServerProgram, StartOptions};

use crate::memory;
use crate::sandbox::{self, SandboxState};
use crate::server::{self, RunningServer};

/// A server process before its server starts.
#[derive(Debug, Default)]
pub(crate) struct ServerProcess {
    /// The sandbox of the process, if any.
    confined: Option<SandboxState>,
    /// The boot id of the machine, read outside of the sandbox.
    boot: Option<String>,
    /// The error that prevents the allocator from returning unused memory while the process is
    /// idle, if any.
    keeps_memory: Option<String>,
}

impl ServerProgram for ServerProcess {
    type Control = RunningServer;

    fn confine(&mut self, config: &Config) -> Result<(), String> {
        // The boot ID is read now, because its file is not accessible in the sandbox.
        self.boot = veche_archive::boot_id();
        self.confined = confine(config)?;
        self.keeps_memory = memory::release_when_idle().err();
        Ok(())
    }

    fn log_confined(&self) {
        if let Some(error) = &self.keeps_memory {
            warn!(
                error,
                "can't start the allocator's background thread, so unused memory is returned to the system with a delay"
            );
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
                "server.sandbox: back ends on this port can't be reached until a restart"
            );
        }
    }

    fn start(&mut self, start: StartOptions) -> Result<RunningServer, String> {
        server::start(start, self.boot.take(), None)
    }
}

/// Drops privileges while the process is single-threaded.
fn confine(config: &Config) -> Result<Option<SandboxState>, String> {
    rustix::thread::set_no_new_privs(true).map_err(|error| format!("no_new_privs: {error}"))?;
    // Errors are ignored here: they are reported when a certificate has to be stored.
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
