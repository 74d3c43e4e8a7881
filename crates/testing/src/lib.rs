//! `veche test`: runs the tests of an application, each in a simulated world.
//!
//! A *world* is a real worker on a simulated network and clock ([`world`]); a *run* executes one
//! test case with one seed in a separate world ([`runner`]). The server provides the worker
//! ([`TestServer`]). This crate finds the files and runs them; [`report`] and [`junit`] format the
//! results.

mod client;
mod junit;
mod outside;
mod report;
mod response;
mod runner;
mod world;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use veche_clock::now;
use veche_script::{Case, Ended, SourceCode};
use veche_terminal::plain;

pub use junit::junit;
pub use report::{Counts, ReportStyle, TestReport};
use runner::{LogLine, TestRun};
pub use world::{RunOptions, TestServer, TestWorker};

/// The suffix of test files.
const SUFFIX: &str = "_test.lua";

/// The names of folders that are not searched for tests.
const NOT_OURS: [&str; 3] = ["node_modules", "target", "vendor"];

/// The selection of tests.
#[derive(Clone, Debug)]
pub struct TestPlan {
    /// The test files, and folders that are searched for test files; empty for the configuration's folder.
    pub paths: Vec<PathBuf>,
    /// Runs only cases whose displayed file name and case name, as one text, contain this filter.
    pub filter: Option<String>,
    /// The seed of the first run of each case; each further run adds 1.
    pub seed: u64,
    /// The number of seeds for each case.
    pub runs: u64,
    /// The time limit of one run, in real time.
    pub within: Duration,
}

/// The results of one file.
#[derive(Clone, Debug)]
pub struct FileResults {
    /// The file's name as displayed.
    pub name: String,
    /// The results of the file's cases, in the order of the file.
    pub results: Vec<CaseResult>,
}

/// The result of one case.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// The name of the case.
    pub name: String,
    /// The line of the case in the file; 0 if the result is about the file as a whole.
    pub line: u32,
    /// The real time that all runs of the case took.
    pub took: Duration,
    /// Whether the case passed.
    pub result: Result<Passed, Box<Failed>>,
}

/// A case without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// Each run of the case passed.
    Ran,
    /// The file marks the case as skipped.
    Skipped,
}

/// A failed run, with the data to repeat it.
#[derive(Clone, Debug)]
pub struct Failed {
    /// The error message, with its position in a script.
    words: String,
    traceback: String,
    log: Vec<LogLine>,
    seed: u64,
}

/// The reason why no test was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestRunError {
    /// No test matches the paths and the filter.
    Nothing(String),
    /// The applications can't be loaded.
    Load(String),
}

/// Runs the selected tests of a folder on the server that `load` returns, and reports progress to `report`.
///
/// # Errors
/// See [`TestRunError`].
pub fn run(
    root: &Path,
    load: impl FnOnce() -> Result<Box<dyn TestServer>, String>,
    plan: &TestPlan,
    report: &mut impl FnMut(TestProgress<'_>),
) -> Result<Vec<FileResults>, TestRunError> {
    let paths = find(root, &plan.paths).map_err(TestRunError::Nothing)?;
    let server = load().map_err(TestRunError::Load)?;
    let mut files = Vec::new();
    for path in paths {
        let file = run_file(&*server, root, &path, plan, report);
        if !file.results.is_empty() {
            report(TestProgress::Ended(&file));
            files.push(file);
        }
    }
    if files.is_empty() {
        return Err(TestRunError::Nothing(match &plan.filter {
            Some(filter) => format!("no test has {filter:?} in its name"),
            None => "the files have no test.case".to_owned(),
        }));
    }
    Ok(files)
}

/// The progress of a run.
pub enum TestProgress<'a> {
    /// A case begins with its first seed.
    Begins {
        /// The file's name as displayed.
        file: &'a str,
        /// The name of the case.
        case: &'a str,
    },
    /// All cases of a file have ended.
    Ended(&'a FileResults),
}

fn run_file(
    server: &dyn TestServer,
    root: &Path,
    path: &Path,
    plan: &TestPlan,
    report: &mut impl FnMut(TestProgress<'_>),
) -> FileResults {
    let name = path
        .strip_prefix(root)
        .unwrap_or(path)
        .display()
        .to_string();
    let mut results = Vec::new();
    let loaded = SourceCode::read_within(root, path).map_err(|error| error.to_string());
    let loaded = loaded.and_then(|code| {
        let code = Arc::new(code);
        let cases = runner::load(&code, plan.seed)?.cases();
        Ok((code, cases))
    });
    match loaded {
        Err(words) => results.push(CaseResult {
            name: "the file is loaded".to_owned(),
            line: 0,
            took: Duration::ZERO,
            result: Err(Box::new(Failed {
                words,
                traceback: String::new(),
                log: Vec::new(),
                seed: plan.seed,
            })),
        }),
        Ok((code, cases)) => {
            for (number, case) in cases.iter().enumerate() {
                let full = format!("{name}: {}", case.name);
                if plan
                    .filter
                    .as_ref()
                    .is_some_and(|filter| !full.contains(filter))
                {
                    continue;
                }
                report(TestProgress::Begins {
                    file: &name,
                    case: &case.name,
                });
                results.push(run_case(server, &code, (number, case), &full, plan));
            }
        }
    }
    FileResults { name, results }
}

/// Runs a case once with each seed, up to the first failure.
fn run_case(
    server: &dyn TestServer,
    code: &Arc<SourceCode>,
    (number, case): (usize, &Case),
    full: &str,
    plan: &TestPlan,
) -> CaseResult {
    let began = now();
    let mut result = Ok(Passed::Ran);
    if case.is_skipped {
        result = Ok(Passed::Skipped);
    } else {
        for seed in (0..plan.runs).map(|run| plan.seed.wrapping_add(run)) {
            let own_seed = mix(seed, full);
            let run = runner::run(server, code, number, own_seed, plan.within);
            let run = run.unwrap_or_else(|words| TestRun {
                ended: Ended::Failed {
                    words,
                    traceback: String::new(),
                },
                log: Vec::new(),
            });
            if let Ended::Failed { words, traceback } = run.ended {
                result = Err(Box::new(Failed {
                    words,
                    traceback,
                    log: run.log,
                    seed,
                }));
                break;
            }
        }
    }
    CaseResult {
        name: case.name.clone(),
        line: case.line,
        took: began.elapsed(),
        result,
    }
}

/// Derives the seed of a case by hashing its name (FNV-1a), so that the seed does not depend on other cases and files.
fn mix(seed: u64, name: &str) -> u64 {
    let bytes = seed.to_le_bytes();
    let bytes = bytes.iter().chain(name.as_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns the paths of the test files in alphabetical order.
fn find(root: &Path, paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let failed = |path: &Path, error: io::Error| format!("{}: {}", path.display(), plain(&error));
    let roots = if paths.is_empty() {
        vec![root.to_owned()]
    } else {
        paths.to_vec()
    };
    for path in &roots {
        let metadata = fs::metadata(path).map_err(|error| failed(path, error))?;
        if metadata.is_dir() {
            let before = found.len();
            walk(path, &mut found).map_err(|error| failed(path, error))?;
            if found.len() == before {
                return Err(format!("{}: no file is named *{SUFFIX}", path.display()));
            }
        } else {
            found.push(path.clone());
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let kind = entry.file_type()?;
        let path = match folder == Path::new(".") {
            true => PathBuf::from(entry.file_name()),
            false => entry.path(),
        };
        // Symbolic links to folders are not followed, since they may form a cycle.
        if kind.is_dir() && !name.starts_with('.') && !NOT_OURS.contains(&&*name) {
            walk(&path, found)?;
        } else if !kind.is_dir() && name.ends_with(SUFFIX) && !name.starts_with('.') {
            found.push(path);
        }
    }
    Ok(())
}
