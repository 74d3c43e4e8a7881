//! Performs one run of the load tester, writes its report and determines the exit code.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;
use std::time::SystemTime;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use veche_terminal::exit::{self, CommandFailure, Exit};

use super::options::{CommonArgs, OutputArgs};
use super::{plan, progress_line};
use crate::RunProgress;
use crate::plan::Plan;
use crate::report::{Report, files, html, text};
use crate::run::{RunControl, RunError, run as run_plan};

/// Performs a run and returns its report.
pub(super) fn measure(
    kind: &str,
    common: &CommonArgs,
    plan: Plan,
    pid: Option<u32>,
    interrupts: &AtomicUsize,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(RunProgress),
) -> Result<Report, CommandFailure> {
    let settings = plan::settings(common, &plan);
    let started = started();
    let report = run_plan(
        plan,
        RunControl {
            pid,
            interrupts,
            stop,
            worker_args: Some(itself()?),
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

/// Returns the current time for reports as RFC 3339.
#[expect(
    clippy::disallowed_methods,
    reason = "a report contains the current time"
)]
pub(super) fn started() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Returns the failure for a run that has no report.
pub(super) fn not_run(error: &RunError) -> CommandFailure {
    let exit = match error {
        RunError::NoProcess(_) => Exit::Usage,
        RunError::System(_) => Exit::Failed,
    };
    CommandFailure::new(exit, error.to_string())
}

/// Returns the command that starts this program as a worker process.
pub(super) fn itself() -> Result<Command, CommandFailure> {
    let program = std::env::current_exe().map_err(|error| {
        CommandFailure::new(
            Exit::Failed,
            format!("can't find the file of this program: {error}"),
        )
    })?;
    let mut command = Command::new(program);
    command.args(["bench", "member"]);
    Ok(command)
}

/// Writes the report in the requested formats.
pub(super) fn deliver(report: &Report, output: &OutputArgs) -> Result<(), CommandFailure> {
    write_page(report, output.html.as_deref())?;
    write_timeline(report, output.csv.as_deref())?;
    if let Some(file) = &output.hgrm {
        // Without answers there is no distribution. An empty file is written, so that the file of an earlier run does not
        // remain.
        write_file(file, &files::hgrm(report).unwrap_or_default())?;
    }
    if output.json {
        print_json(report)
    } else {
        exit::print(format_args!(
            "{}",
            text::text(report, progress_line::style())
        ))
    }
}

pub(super) fn write_page(report: &Report, file: Option<&Path>) -> Result<(), CommandFailure> {
    let Some(file) = file else {
        return Ok(());
    };
    let page = html::html(report).map_err(unwritable)?;
    write_file(file, &page)
}

pub(super) fn write_timeline(report: &Report, file: Option<&Path>) -> Result<(), CommandFailure> {
    let Some(file) = file else {
        return Ok(());
    };
    let csv = files::csv(report).map_err(|error| {
        CommandFailure::new(Exit::Failed, format!("can't write the timeline: {error}"))
    })?;
    write_file(file, &csv)
}

fn write_file(file: &Path, text: &str) -> Result<(), CommandFailure> {
    fs::write(file, text)
        .map_err(|error| CommandFailure::new(Exit::Failed, format!("{}: {error}", file.display())))
}

pub(super) fn print_json(report: &Report) -> Result<(), CommandFailure> {
    let json = serde_json::to_string_pretty(report).map_err(unwritable)?;
    exit::print_line(format_args!("{json}"))
}

pub(super) fn unwritable(error: serde_json::Error) -> CommandFailure {
    CommandFailure::new(Exit::Failed, format!("can't write the report: {error}"))
}

/// Fails if the run was interrupted.
pub(super) fn check_complete(report: &Report) -> Result<(), CommandFailure> {
    if report.interrupted {
        let words =
            "the run was interrupted: the report is partial and covers only the time until then";
        return Err(CommandFailure::new(Exit::Interrupted, words));
    }
    Ok(())
}

/// Returns the result that determines the exit code.
pub(super) fn exit_result(report: &Report) -> Result<(), CommandFailure> {
    check_complete(report)?;
    check_reached(report)?;
    let faults = report.ledger.as_ref().map_or(0, |ledger| {
        ledger.lost + ledger.duplicated + ledger.reordered + ledger.corrupted
    });
    let counts = [
        (report.errors.count(), "errors"),
        (report.messages.unanswered, "without an answer"),
        (report.messages.duplicated, "duplicate answers"),
        (faults, "lost or faulty deliveries"),
    ];
    let mut parts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if report.incomplete {
        let lost = &report.generator.lost;
        let of = report.settings.processes;
        parts.insert(0, format!("{} of {of} tester processes lost", lost.len()));
    }
    if !parts.is_empty() {
        let words = format!("the run had faults: {}; see the report", parts.join(", "));
        return Err(CommandFailure::new(Exit::Errors, words));
    }
    Ok(())
}

/// Fails if no connection was opened at all.
pub(super) fn check_reached(report: &Report) -> Result<(), CommandFailure> {
    let errors = &report.errors;
    // An interrupted or incomplete run does not show whether the server can be reached.
    let is_whole = !report.interrupted && !report.incomplete;
    if report.connections.opened == 0 && is_whole {
        let (exit, cause) = if errors.refused > 0 {
            (Exit::NoServer, "refused")
        } else if errors.tls > 0 {
            (Exit::Refused, "tls")
        } else if errors.bad_handshake > 0 {
            (Exit::Refused, "bad_handshake")
        } else if errors.reset > 0 {
            // A reset shows that the server is reachable and refused the connection.
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
        return Err(CommandFailure::new(
            exit,
            format!("{}: no connection was opened: {why}", report.target),
        ));
    }
    Ok(())
}

/// Counts Ctrl-C and SIGTERM.
pub(super) fn interrupts() -> Result<Arc<AtomicUsize>, CommandFailure> {
    let count = Arc::new(AtomicUsize::new(0));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(|error| {
        CommandFailure::new(Exit::Failed, format!("can't handle signals: {error}"))
    })?;
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        for _ in signals.forever() {
            counted.fetch_add(1, SeqCst);
        }
    });
    Ok(count)
}
