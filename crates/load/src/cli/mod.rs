//! `veche bench`: the load tester's flags, its progress and its reports.
//!
//! Users that a script plays need the server's script runtime, which the caller passes in ([`StartUsers`]).

mod limits;
mod mask;
mod options;
mod plan;
mod scenario;
mod screen;
mod script;
mod search;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;
use std::time::SystemTime;

use crate::Progress;
use crate::plan::Plan;
use crate::report::{Report, compare, files, html, text};
use crate::run::{Around, RunError, run as run_plan};
use clap::{Args, Subcommand};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use options::{
    BroadcastArgs, Common, CompareArgs, EchoArgs, HttpArgs, Output, PushArgs, ScriptArgs,
    ShootoutArgs, StormArgs,
};
use scenario::ScenarioArgs;
use screen::Line;
pub use script::{EndUsers, ScriptUsers, StartUsers};
use veche_terminal::exit::{self, Exit, Failure};

/// Measure a server.
#[derive(Args, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    question: Question,
    /// In place of the global option of that id, which would claim `-c`
    #[arg(
        id = "config",
        long = "config",
        value_name = "FILE",
        global = true,
        hide = true
    )]
    _config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Question {
    /// Open many connections, and exchange one message on each
    Storm(StormArgs),
    /// Send messages and time their answers
    Echo(EchoArgs),
    /// Publish to all receivers, time the deliveries, and keep a ledger of every one
    Broadcast(BroadcastArgs),
    /// Push to users one by one, as a back end does, and keep a ledger of every one
    Push(PushArgs),
    /// Add clients until round trips take too long, in the protocol of "websocket-shootout"
    Shootout(ShootoutArgs),
    /// Send HTTP requests and time their responses
    Http(HttpArgs),
    /// Let a script play the users, and time what they do
    Script(ScriptArgs),
    /// Run the phases of a file, and hold the server to its promises
    Scenario(ScenarioArgs),
    /// Put reports of --json side by side, with ratios, and say what is noise
    Compare(CompareArgs),
    /// One process of several; started by the first
    #[command(hide = true)]
    Member,
}

impl Question {
    /// Its name, its flags, and the plan that they come to; `None` for what is no single run.
    fn plan(&self) -> Option<(&'static str, &Common, Result<Plan, Failure>)> {
        Some(match self {
            Self::Storm(args) => ("storm", &args.common, plan::storm(args)),
            Self::Echo(args) => ("echo", &args.common, plan::echo(args)),
            Self::Broadcast(args) => ("broadcast", &args.common, plan::broadcast(args)),
            Self::Push(args) => ("push", &args.common, plan::push(args)),
            Self::Shootout(args) => ("shootout", &args.common, plan::shootout(args)),
            Self::Http(args) => ("http", &args.common, plan::http(args)),
            Self::Script(_) | Self::Scenario(_) | Self::Compare(_) | Self::Member => return None,
        })
    }
}

impl Question {
    /// The promises of a search for the highest rate; empty without one.
    fn promises(&self) -> &[String] {
        match self {
            Self::Echo(args) => &args.find_rate,
            Self::Http(args) => &args.find_rate,
            Self::Broadcast(args) => &args.publish.find_rate,
            Self::Push(args) => &args.publish.find_rate,
            Self::Storm(_)
            | Self::Shootout(_)
            | Self::Script(_)
            | Self::Scenario(_)
            | Self::Compare(_)
            | Self::Member => &[],
        }
    }
}

/// Runs what was asked for; `start_users` is for a script.
///
/// # Errors
/// Why there is no report, or what went wrong in the run that it is of.
pub fn run(args: &BenchArgs, start_users: &StartUsers) -> Result<(), Failure> {
    match &args.question {
        Question::Script(args) => return script::run(args, start_users),
        Question::Scenario(args) => return scenario::run(args),
        Question::Compare(args) => return compare(args),
        Question::Member => return member(),
        _ => {}
    }
    let Some((kind, common, plan)) = args.question.plan() else {
        return Ok(());
    };
    let plan = plan?;
    limits::check(&[&plan])?;
    let interrupts = interrupts()?;
    let promises = args.question.promises();
    if !promises.is_empty() {
        return search::run(kind, common, &plan, promises, &interrupts);
    }
    let planned_ns = plan.duration_ns.map(|ns| ns + plan.warmup_ns);
    let mut shown = Line::new(common.output.json, planned_ns);
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
    verdict(&report)
}

/// One run and its report.
fn measure(
    kind: &str,
    common: &Common,
    plan: Plan,
    pid: Option<u32>,
    interrupts: &AtomicUsize,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, Failure> {
    let settings = plan::settings(common, &plan);
    let started = started();
    let report = run_plan(
        plan,
        Around {
            pid,
            interrupts,
            stop,
            member: Some(itself()?),
            hold_ns: plan::ns(common.hold.unwrap_or_default()),
            progress,
        },
    );
    let mut report = report.map_err(|error| not_run(&error))?;
    kind.clone_into(&mut report.kind);
    report.started = started;
    report.settings = settings;
    Ok(report)
}

/// The time of a report, as RFC 3339.
#[expect(
    clippy::disallowed_methods,
    reason = "when a report was made is not in its arguments"
)]
fn started() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Why there is no report.
fn not_run(error: &RunError) -> Failure {
    let exit = match error {
        RunError::NoProcess(_) => Exit::Usage,
        RunError::System(_) => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}

/// This program as one process of several.
fn itself() -> Result<Command, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(Exit::Failed, format!("this program: {error}")))?;
    let mut command = Command::new(program);
    command.args(["bench", "member"]);
    Ok(command)
}

fn member() -> Result<(), Failure> {
    crate::member::serve(io::stdin(), io::stdout())
        .map_err(|error| Failure::new(Exit::Failed, error.to_string()))
}

/// Gives out the report in the forms that were asked for.
fn deliver(report: &Report, output: &Output) -> Result<(), Failure> {
    write_page(report, output.html.as_deref())?;
    write_timeline(report, output.csv.as_deref())?;
    if let Some(file) = &output.hgrm {
        // Without answers there is no distribution, but the file does not stay as an earlier run left it.
        write_file(file, &files::hgrm(report).unwrap_or_default())?;
    }
    if output.json {
        print_json(report)
    } else {
        exit::print(format_args!("{}", text::text(report, screen::style())))
    }
}

fn write_page(report: &Report, file: Option<&Path>) -> Result<(), Failure> {
    let Some(file) = file else {
        return Ok(());
    };
    let page = html::html(report).map_err(unwritable)?;
    write_file(file, &page)
}

fn write_timeline(report: &Report, file: Option<&Path>) -> Result<(), Failure> {
    let Some(file) = file else {
        return Ok(());
    };
    let csv = files::csv(report)
        .map_err(|error| Failure::new(Exit::Failed, format!("the timeline: {error}")))?;
    write_file(file, &csv)
}

fn write_file(file: &Path, text: &str) -> Result<(), Failure> {
    fs::write(file, text)
        .map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", file.display())))
}

fn print_json(report: &Report) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(report).map_err(unwritable)?;
    exit::print_line(format_args!("{json}"))
}

fn unwritable(error: serde_json::Error) -> Failure {
    Failure::new(Exit::Failed, format!("the report: {error}"))
}

/// Puts reports side by side.
fn compare(args: &CompareArgs) -> Result<(), Failure> {
    let reports = args
        .reports
        .iter()
        .map(|file| {
            let shown = file.display().to_string();
            let bad =
                |error: &dyn fmt::Display| Failure::new(Exit::Usage, format!("{shown}: {error}"));
            let json = fs::read_to_string(file).map_err(|error| bad(&error))?;
            let report: Report = serde_json::from_str(&json).map_err(|error| bad(&error))?;
            Ok((shown, report))
        })
        .collect::<Result<Vec<_>, Failure>>()?;
    if let Some((first, again)) = compare::same_run(&reports) {
        let words = if first == again {
            format!("{first} is given twice: a run can't be compared with itself")
        } else {
            format!("{again} is the same run as {first}: a run can't be compared with itself")
        };
        return Err(Failure::new(Exit::Usage, words));
    }
    let comparison = compare::compare(&reports);
    if args.json {
        let json = compare::to_json(&comparison).map_err(unwritable)?;
        exit::print_line(format_args!("{json}"))
    } else {
        exit::print(format_args!(
            "{}",
            compare::text(&comparison, screen::style())
        ))
    }
}

/// Fails if the run was interrupted.
fn was_whole(report: &Report) -> Result<(), Failure> {
    if report.interrupted {
        let words = "interrupted: the report is partial, of what was measured until then";
        return Err(Failure::new(Exit::Interrupted, words));
    }
    Ok(())
}

/// What a shell gets back.
fn verdict(report: &Report) -> Result<(), Failure> {
    was_whole(report)?;
    somebody_was_there(report)?;
    let faults = report.ledger.as_ref().map_or(0, |ledger| {
        ledger.lost + ledger.duplicated + ledger.reordered + ledger.corrupted
    });
    let counts = [
        (report.errors.count(), "errors"),
        (report.messages.unanswered, "without an answer"),
        (report.messages.duplicated, "answers that came again"),
        (faults, "faults in the ledger"),
    ];
    let mut said: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if report.incomplete {
        let lost = &report.generator.lost;
        let of = report.settings.processes;
        said.insert(0, format!("{} of {of} processes lost", lost.len()));
    }
    if !said.is_empty() {
        let words = format!("not all went well: {}; see the report", said.join(", "));
        return Err(Failure::new(Exit::Errors, words));
    }
    Ok(())
}

/// Fails if no connection was opened at all.
fn somebody_was_there(report: &Report) -> Result<(), Failure> {
    let errors = &report.errors;
    // Of a run that was cut short, or of which a part is missing, nobody knows.
    let is_whole = !report.interrupted && !report.incomplete;
    if report.connections.opened == 0 && is_whole {
        let (exit, cause) = if errors.refused > 0 {
            (Exit::NoServer, "refused")
        } else if errors.tls > 0 {
            (Exit::Refused, "tls")
        } else if errors.bad_handshake > 0 {
            (Exit::Refused, "bad_handshake")
        } else if errors.reset > 0 {
            // It was there, and did not want us.
            (Exit::Refused, "reset")
        } else if errors.timed_out > 0 {
            (Exit::NoServer, "timed_out")
        } else {
            (Exit::Failed, "system")
        };
        let why = errors
            .examples
            .get(cause)
            .or_else(|| errors.examples.values().next())
            .map_or("unknown", String::as_str);
        return Err(Failure::new(
            exit,
            format!("{}: no connection was opened: {why}", report.target),
        ));
    }
    Ok(())
}

/// Counts Ctrl-C and SIGTERM.
fn interrupts() -> Result<Arc<AtomicUsize>, Failure> {
    let count = Arc::new(AtomicUsize::new(0));
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| Failure::new(Exit::Failed, format!("signals: {error}")))?;
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        for _ in signals.forever() {
            counted.fetch_add(1, SeqCst);
        }
    });
    Ok(count)
}
