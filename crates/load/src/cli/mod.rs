//! `veche bench`: the load tester's flags, progress and reports.
//!
//! Scripted users need the server's script runtime, which the caller passes in ([`StartUsers`]).

mod command;
mod limits;
mod mask;
mod options;
mod plan;
mod progress_line;
mod running;
mod scenario;
mod script;
mod search;

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use clap::Args;
use veche_terminal::exit::{self, CommandFailure, Exit};

use crate::report::{Report, compare};
use command::BenchCommand;
use options::CompareArgs;
use progress_line::ProgressLine;
use running::{deliver, exit_result, interrupts, measure, unwritable};
pub use script::{EndUsers, ScriptUsers, StartUsers};

/// Measure a server with simulated clients
#[derive(Args, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
    /// Replaces the global option with the id `config`, which would claim `-c`
    #[arg(
        id = "config",
        long = "config",
        value_name = "FILE",
        global = true,
        hide = true
    )]
    _config: Option<PathBuf>,
}

/// Runs the command; `start_users` starts the runtime of a script.
///
/// # Errors
/// The run produced no report, or the report shows that it failed, for example because of errors or
/// missed objectives.
pub fn run(args: &BenchArgs, start_users: &StartUsers) -> Result<(), CommandFailure> {
    match &args.command {
        BenchCommand::Script(args) => return script::run(args, start_users),
        BenchCommand::Scenario(args) => return scenario::run(args),
        BenchCommand::Compare(args) => return compare(args),
        BenchCommand::Member => return member(),
        _ => {}
    }
    let Some((kind, common, plan)) = args.command.plan() else {
        return Ok(());
    };
    let plan = plan?;
    limits::check(&[&plan])?;
    let interrupts = interrupts()?;
    let promises = args.command.promises();
    if !promises.is_empty() {
        return search::run(kind, common, &plan, promises, &interrupts);
    }
    let planned_ns = plan.duration_ns.map(|ns| ns + plan.warmup_ns);
    let mut shown = ProgressLine::new(common.output.json, planned_ns);
    let report = measure(
        kind,
        common,
        plan,
        common.output.pid,
        &interrupts,
        &AtomicBool::new(false),
        &mut |progress| {
            shown.show(&progress);
        },
    );
    shown.clear();
    let report = report?;
    deliver(&report, &common.output)?;
    exit_result(&report)
}

fn member() -> Result<(), CommandFailure> {
    crate::worker_process::serve(io::stdin(), io::stdout())
        .map_err(|error| CommandFailure::new(Exit::Failed, error.to_string()))
}

/// Compares the reports in JSON files and prints the differences.
fn compare(args: &CompareArgs) -> Result<(), CommandFailure> {
    let reports = args
        .reports
        .iter()
        .map(|file| {
            let shown = file.display().to_string();
            let bad = |error: &dyn fmt::Display| {
                CommandFailure::new(Exit::Usage, format!("{shown}: {error}"))
            };
            let json = fs::read_to_string(file).map_err(|error| bad(&error))?;
            let report: Report = serde_json::from_str(&json).map_err(|error| bad(&error))?;
            Ok((shown, report))
        })
        .collect::<Result<Vec<_>, CommandFailure>>()?;
    if let Some((first, again)) = compare::same_run(&reports) {
        let words = if first == again {
            format!("{first} is listed twice: a run can't be compared with itself")
        } else {
            format!("{again} is the same run as {first}: a run can't be compared with itself")
        };
        return Err(CommandFailure::new(Exit::Usage, words));
    }
    let comparison = compare::compare(&reports);
    if args.json {
        let json = compare::to_json(&comparison).map_err(unwritable)?;
        exit::print_line(format_args!("{json}"))
    } else {
        exit::print(format_args!(
            "{}",
            compare::text(&comparison, progress_line::style())
        ))
    }
}
