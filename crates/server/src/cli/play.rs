//! The script runtime of `veche bench script`: a server without listeners, in this process.
//!
//! The script runs as a service with one instance, and thus one VM, for each thread. Users' actions are counted by
//! [`ScriptRun`].

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use veche_config::{self as config, Config};
use veche_load::cli::{EndUsers, ScriptUsers};
use veche_load::script::ScriptRun;
use veche_logging as logging;
use veche_script::LoadRun;
use veche_supervisor::Restarts;
use veche_supervisor::process::{DrainReason, ServerControl as _, StartOptions};
use veche_terminal::exit::{CommandFailure, Exit};

use crate::server;

/// The time limit for closing handshakes at the end of the run.
const DRAIN: Duration = Duration::from_millis(500);
/// The interval of checking whether the users' connections have closed.
const LOOK: Duration = Duration::from_millis(10);

/// Starts a server that does nothing but simulate `users`.
pub(super) fn start(users: ScriptUsers) -> Result<EndUsers, CommandFailure> {
    let config = Arc::new(configure(&users)?);
    let logs = logging::start(&config.server.log, None)
        .map_err(|error| CommandFailure::new(Exit::Failed, error.to_string()))?;
    let start = StartOptions {
        config,
        listeners: Vec::new(),
        dev: false,
        log: logs.seen(),
        holds_services: false,
        restarts: Restarts::default(),
        spawner: None,
    };
    let server = server::start(start, None, Some(Arc::new(LoadUsers(users.run))))
        .map_err(|error| CommandFailure::new(Exit::Usage, error))?;
    Ok(Box::new(move || {
        server.drain(DRAIN, DrainReason::Stopping);
        for _ in 0..DRAIN.as_millis() / LOOK.as_millis() {
            if server.drained() {
                break;
            }
            thread::sleep(LOOK);
        }
        logs.flush();
    }))
}

/// Returns the configuration of a server that does nothing but simulate `users`.
fn configure(users: &ScriptUsers) -> Result<Config, CommandFailure> {
    let script = users.script.canonicalize().map_err(|error| {
        let words = format!(
            "{}: {}",
            users.script.display(),
            veche_terminal::plain(&error)
        );
        CommandFailure::new(Exit::Usage, words)
    })?;
    // A configuration requires a listener, but this listener is never opened.
    let text = format!(
        "[server]\nworkers = {threads}\nlog = \"warn\"\n\n[[listen]]\naddress = \"127.0.0.1:1\"\n\n[[service]]\n\
         name = \"users\"\nscript = {script}\ninstances = {threads}\nrestart = \"never\"\nmemory = \"{memory}\"\n",
        threads = users.threads,
        script = toml::Value::String(script.display().to_string()),
        memory = users.memory,
    );
    config::parse(Path::new("veche bench script"), &text)
        .map_err(|report| CommandFailure::new(Exit::Usage, report.to_string()))
}

/// Gives scripts access to the load run.
#[derive(Debug)]
struct LoadUsers(Arc<ScriptRun>);

impl LoadRun for LoadUsers {
    fn url(&self) -> &str {
        &self.0.plan().url
    }

    fn users(&self, thread: u32) -> Range<u32> {
        self.0.users(thread)
    }

    fn begins_in(&self, user: u32) -> Option<f64> {
        self.0.begins_in(user)
    }

    fn user_begins(&self) {
        self.0.user_begins();
    }

    fn is_over(&self) -> bool {
        self.0.is_over()
    }

    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    fn action_begins(&self, thread: u32) -> Option<u64> {
        self.0.action_begins(thread)
    }

    fn action_ended(&self, thread: u32, name: &str, began_ns: u64, error: Option<&str>) {
        self.0.action_ended(thread, name, began_ns, error);
    }

    fn record(&self, thread: u32, name: &str, latency_ns: u64) {
        self.0.record(thread, name, latency_ns);
    }

    fn session_ended(&self, thread: u32, is_well: bool, error: Option<&str>) {
        self.0.session_ended(thread, is_well, error);
    }
}
