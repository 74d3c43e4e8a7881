//! `veche bench script`: users simulated by a Lua script.
//!
//! The caller provides the script runtime, which [`StartUsers`] starts and [`EndUsers`] ends. [`ScriptRun`] counts the
//! users' actions.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use veche_net::descriptors;
use veche_terminal::exit::{CommandFailure, Exit};

use super::options::ScriptArgs;
use super::progress_line::ProgressLine;
use super::running::{deliver, exit_result, interrupts, not_run, started};
use super::{mask, plan};
use crate::report::Report;
use crate::report::model::Settings;
use crate::run::{RunControl, run_script};
use crate::script::{ScriptPlan, ScriptRun};
use crate::target::Target;

/// The users of a script, as input for the runtime that simulates them.
#[derive(Debug)]
pub struct ScriptUsers {
    /// The script's file, as on the command line.
    pub script: PathBuf,
    /// Number of threads, each with a VM.
    pub threads: u32,
    /// Memory limit of each VM in bytes.
    pub memory: usize,
    /// The run that counts the users' actions.
    pub run: Arc<ScriptRun>,
}

/// Starts a runtime that simulates users, and returns a function that ends it.
pub type StartUsers = dyn Fn(ScriptUsers) -> Result<EndUsers, CommandFailure>;

/// Closes the connections of users and ends their runtime.
pub type EndUsers = Box<dyn FnOnce()>;

pub(super) fn run(args: &ScriptArgs, start_users: &StartUsers) -> Result<(), CommandFailure> {
    Target::parse(&args.url)
        .map_err(|error| CommandFailure::new(Exit::Usage, error.to_string()))?;
    descriptors::raise().map_err(|error| {
        CommandFailure::new(
            Exit::Failed,
            format!("can't raise the limit of file descriptors: {error}"),
        )
    })?;
    let interrupts = interrupts()?;
    let run = Arc::new(ScriptRun::new(script_plan(args)));
    let end_users = start_users(ScriptUsers {
        script: args.script.clone(),
        threads: args.threads,
        memory: args.memory,
        run: Arc::clone(&run),
    })?;
    let planned_ns = run.plan().duration_ns + run.plan().warmup_ns;
    let mut shown = ProgressLine::new(args.output.json, Some(planned_ns));
    let started = started();
    let report = run_script(
        &run,
        RunControl {
            pid: args.output.pid,
            interrupts: &interrupts,
            stop: &AtomicBool::new(false),
            worker_args: None,
            hold_ns: 0,
            progress: &mut |progress| shown.show(&progress),
        },
    );
    shown.clear();
    end_users();
    let mut report = report.map_err(|error| not_run(&error))?;
    report.started = started;
    report.settings = settings(args);
    deliver(&report, &args.output)?;
    exit_result(&report)?;
    check_timed(&report)
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
        // The arguments without the program's name and "bench".
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

/// Fails if the script timed no action.
fn check_timed(report: &Report) -> Result<(), CommandFailure> {
    if report.messages.received == 0 {
        let words = "no action ended in the measured time; an action is a function that the script passes to bench.action";
        return Err(CommandFailure::new(Exit::Errors, words));
    }
    Ok(())
}
