//! `veche bench script`: users that a Lua script plays.
//!
//! The script runs as a service of a server without listeners, in this process: one instance, and so one VM, for each
//! thread. What users do is counted by [`ScriptRun`].

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use veche_frontends::Parting;
use veche_load::report::Report;
use veche_load::report::model::Settings;
use veche_load::run::{Around, run_script};
use veche_load::script::{ScriptPlan, ScriptRun};
use veche_load::target::Target;
use veche_script::LoadRun;

use super::options::ScriptArgs;
use super::screen::Line;
use super::{deliver, interrupts, mask, not_run, plan, started, verdict};
use crate::config::{self, Config};
use crate::process::{Restarts, ServerControl, Start};
use crate::{logging, server};
use veche_net::descriptors;
use veche_terminal::exit::{Exit, Failure};

/// Time for closing handshakes at the end.
const DRAIN: Duration = Duration::from_millis(500);
/// Interval of checking whether connections have closed.
const LOOK: Duration = Duration::from_millis(10);

pub(super) fn run(args: &ScriptArgs) -> Result<(), Failure> {
    Target::parse(&args.url).map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    descriptors::raise()
        .map_err(|error| Failure::new(Exit::Failed, format!("descriptors: {error}")))?;
    let config = Arc::new(configure(args)?);
    let logs = logging::start(&config.server.log, None)
        .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    let interrupts = interrupts()?;
    let run = Arc::new(ScriptRun::new(script_plan(args)));
    let users = server::start(Start {
        config,
        listeners: Vec::new(),
        dev: false,
        log: logs.seen(),
        boot: None,
        holds_services: false,
        load_run: Some(Arc::new(Users(Arc::clone(&run)))),
        restarts: Restarts::default(),
    })
    .map_err(|error| Failure::new(Exit::Usage, error))?;
    let planned_ns = run.plan().duration_ns + run.plan().warmup_ns;
    let mut shown = Line::new(args.output.json, Some(planned_ns));
    let started = started();
    let report = run_script(
        &run,
        Around {
            pid: args.output.pid,
            interrupts: &interrupts,
            stop: &AtomicBool::new(false),
            member: None,
            hold_ns: 0,
            progress: &mut |progress| shown.show(&progress),
        },
    );
    shown.clear();
    users.drain(DRAIN, Parting::Stopping);
    for _ in 0..DRAIN.as_millis() / LOOK.as_millis() {
        if users.drained() {
            break;
        }
        thread::sleep(LOOK);
    }
    logs.flush();
    let mut report = report.map_err(|error| not_run(&error))?;
    report.started = started;
    report.settings = settings(args);
    deliver(&report, &args.output)?;
    verdict(&report)?;
    has_acted(&report)
}

/// The configuration of a server that does nothing but run the script.
fn configure(args: &ScriptArgs) -> Result<Config, Failure> {
    let script = args.script.canonicalize().map_err(|error| {
        let words = format!(
            "{}: {}",
            args.script.display(),
            veche_terminal::plain(&error)
        );
        Failure::new(Exit::Usage, words)
    })?;
    // A configuration has a listener; this one is never opened.
    let text = format!(
        "[server]\nworkers = {threads}\nlog = \"warn\"\n\n[[listen]]\naddress = \"127.0.0.1:1\"\n\n[[service]]\n\
         name = \"users\"\nscript = {script}\ninstances = {threads}\nrestart = \"never\"\nmemory = \"{memory}\"\n",
        threads = args.threads,
        script = toml::Value::String(script.display().to_string()),
        memory = args.memory,
    );
    config::parse(Path::new("veche bench script"), &text)
        .map_err(|report| Failure::new(Exit::Usage, report.to_string()))
}

fn script_plan(args: &ScriptArgs) -> ScriptPlan {
    ScriptPlan {
        url: args.url.trim_end_matches('/').to_owned(),
        users: args.users,
        users_per_second: args.user_rate,
        threads: args.threads,
        duration_ns: plan::ns(args.span.duration),
        warmup_ns: plan::ns(args.span.warmup),
        grace_ns: plan::ns(args.timeout),
    }
}

fn settings(args: &ScriptArgs) -> Settings {
    Settings {
        // Without the program's name and "bench".
        command: mask::mask(std::env::args().skip(2)),
        label: args.output.label.clone(),
        connections: u64::from(args.users),
        duration_s: Some(args.span.duration.as_secs_f64()),
        warmup_s: args.span.warmup.as_secs_f64(),
        threads: u64::from(args.threads),
        processes: 1,
        ..Settings::default()
    }
}

/// Fails if nothing was timed.
fn has_acted(report: &Report) -> Result<(), Failure> {
    if report.messages.received == 0 {
        let words = "no action ended in the measured time: the script times those in bench.action";
        return Err(Failure::new(Exit::Errors, words));
    }
    Ok(())
}

/// The run, as scripts know it.
#[derive(Debug)]
struct Users(Arc<ScriptRun>);

impl LoadRun for Users {
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
