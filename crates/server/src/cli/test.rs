//! `veche test`: options, and progress on the terminal.

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::Args;
use veche_clock::now;
use veche_config as config;
use veche_terminal::Colours;
use veche_terminal::duration;
use veche_terminal::exit::{CommandFailure, Exit, print};
use veche_terminal::plain;
use veche_testing::{
    Counts, ReportStyle, TestPlan, TestProgress, TestReport, TestRunError, TestServer,
};

use crate::server::WORKER_STACK_BYTES;
use crate::test_server::ConfiguredServer;

/// Flags of `veche test`.
#[derive(Args, Debug)]
pub(super) struct TestArgs {
    /// Files with tests, or folders; by default every *_test.lua in the configuration's folder
    #[arg(value_name = "FILE")]
    paths: Vec<PathBuf>,
    /// Run only tests whose file and name contain this text
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Seed of the order of simultaneous events and of all randomness
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Run each test with this many seeds, to find dependencies on an order
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    runs: u64,
    /// Time limit of one run of a test, in real time
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    timeout: Duration,
    /// Write the results to this file too, as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// Runs the tests of the configured applications.
pub(super) fn run(file: &Path, args: TestArgs) -> Result<(), CommandFailure> {
    let config = config::load(file)?;
    let plan = TestPlan {
        paths: args.paths,
        filter: args.filter,
        seed: args.seed,
        runs: args.runs,
        within: args.timeout,
    };
    // Scripts may nest C calls, so the thread has the stack of a worker.
    let thread = thread::Builder::new()
        .name("test".to_owned())
        .stack_size(WORKER_STACK_BYTES)
        .spawn(move || go_through(&config, &plan, args.junit.as_deref()))
        .map_err(|error| {
            CommandFailure::new(Exit::Failed, format!("can't start a thread: {error}"))
        })?;
    thread.join().unwrap_or_else(|_| {
        Err(CommandFailure::new(
            Exit::Failed,
            "the tests ended early because of a bug in Veche",
        ))
    })
}

fn go_through(
    config: &config::Config,
    plan: &TestPlan,
    junit: Option<&Path>,
) -> Result<(), CommandFailure> {
    let is_terminal = io::stdout().is_terminal();
    let report = TestReport {
        style: ReportStyle {
            colours: Colours::of(&io::stdout()),
            has_times: is_terminal,
        },
        has_many_seeds: plan.runs > 1,
    };
    let began = now();
    let mut printed = Ok(());
    let root = match config.file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let load = || Ok(Box::new(ConfiguredServer::load(config)?) as Box<dyn TestServer>);
    let files = veche_testing::run(root, load, plan, &mut |step| match step {
        TestProgress::Begins { file, case } if is_terminal => show_progress(file, case),
        TestProgress::Begins { .. } => {}
        TestProgress::Ended(file) => {
            let clear = if is_terminal { CLEAR_LINE } else { "" };
            let text = report.file(file);
            if printed.is_ok() {
                printed = print(format_args!("{clear}{text}"));
            }
        }
    });
    let files = files.map_err(|problem| match problem {
        TestRunError::Nothing(words) => CommandFailure::new(Exit::Usage, words),
        TestRunError::Load(words) => CommandFailure::new(Exit::Config, words),
    })?;
    printed?;
    print(format_args!(
        "{}",
        report.summary(&files, plan.seed, began.elapsed())
    ))?;
    if let Some(path) = junit {
        fs::write(path, veche_testing::junit(&files)).map_err(|error| {
            let words = format!("{}: {}", path.display(), plain(&error));
            CommandFailure::new(Exit::Failed, words)
        })?;
    }
    match Counts::of(&files).failed {
        0 => Ok(()),
        _ => Err(CommandFailure::silent(Exit::Config)),
    }
}

const CLEAR_LINE: &str = "\r\x1b[K";

fn show_progress(file: &str, case: &str) {
    let columns =
        rustix::termios::tcgetwinsize(io::stdout()).map_or(80, |size| size.ws_col.max(20));
    let line: String = format!("{file}: {case}")
        .chars()
        .take(usize::from(columns) - 1)
        .collect();
    let mut out = io::stdout().lock();
    // The line is soon overwritten, so errors are ignored.
    let _ = write!(out, "{CLEAR_LINE}{line}").and_then(|()| out.flush());
}
