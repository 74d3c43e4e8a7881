//! `veche check`: reports all problems of a configuration, for people or for an editor.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use veche_apps::AppRegistry;
use veche_config::{self as config, Config};
use veche_terminal::{Colour, Colours};

use veche_terminal::exit::{CommandFailure, Exit, print_line};
use veche_terminal::{Problem, ProblemReport};

/// Flags of `veche check`.
#[derive(Args, Debug)]
pub(super) struct CheckArgs {
    /// Print the problems as one JSON object, for editors
    #[arg(long)]
    json: bool,
}

/// The result of a check.
enum CheckResult {
    Fine(Box<Config>),
    Bad(ProblemReport),
    /// A script can't be loaded.
    BadScript(String),
}

/// Checks the file and prints its problems.
pub(super) fn run(file: &Path, args: &CheckArgs) -> Result<(), CommandFailure> {
    let found = check(file);
    if args.json {
        return print_json(file, &found);
    }
    let config = match found {
        CheckResult::Fine(config) => config,
        CheckResult::Bad(report) => return Err(report.into()),
        CheckResult::BadScript(why) => return Err(CommandFailure::new(Exit::Config, why)),
    };
    let colours = Colours::of(&io::stderr());
    for warning in &config.warnings {
        eprintln!("{} (warning)", warning.explained(Colour::Yellow, colours));
    }
    let count = |number: usize, word: &str| {
        format!("{number} {word}{}", if number == 1 { "" } else { "s" })
    };
    let mut counts = vec![
        count(config.listeners.len(), "listener"),
        count(config.routes.len(), "route"),
    ];
    if !config.services.is_empty() {
        counts.push(count(config.services.len(), "service"));
    }
    let (file, counts) = (veche_terminal::shown(file), counts.join(", "));
    print_line(format_args!("{file}: ok ({counts})"))?;
    match config.engine {
        config::EngineConfig::Memory => Ok(()),
        config::EngineConfig::Redis(_) => print_line(format_args!(
            "The nodes of a cluster have to agree on {}.",
            config::AGREED
        )),
    }
}

fn check(file: &Path) -> CheckResult {
    let loaded =
        veche_terminal::read(file).and_then(|text| Ok((config::parse(file, &text)?, text)));
    let (config, text) = match loaded {
        Ok(loaded) => loaded,
        Err(report) => return CheckResult::Bad(report),
    };
    let problems = config::problems(&config, &text);
    if !problems.is_empty() {
        return CheckResult::Bad(ProblemReport {
            problems,
            unreadable: false,
        });
    }
    match AppRegistry::default().load(&config) {
        Err(why) => CheckResult::BadScript(why),
        Ok(_) => CheckResult::Fine(Box::new(config)),
    }
}

fn print_json(file: &Path, found: &CheckResult) -> Result<(), CommandFailure> {
    let listed = |all: &[Problem], severity: &str| -> Vec<Value> {
        all.iter().map(|one| one.to_json(severity)).collect()
    };
    let problems = match found {
        CheckResult::Fine(config) => listed(&config.warnings, "warning"),
        CheckResult::Bad(report) => listed(&report.problems, "error"),
        CheckResult::BadScript(why) => vec![script_problem(file, why)],
    };
    let ok = matches!(found, CheckResult::Fine(_));
    print_line(format_args!("{}", json!({"ok": ok, "problems": problems})))?;
    match ok {
        true => Ok(()),
        false => Err(CommandFailure::silent(Exit::Config)),
    }
}

/// Returns a script's error as a JSON problem. If the error contains a position, as in `app "chat": app.lua:3: …`, the
/// problem has the script's path and line.
fn script_problem(file: &Path, why: &str) -> Value {
    let folder = file.parent().unwrap_or(Path::new(""));
    let place = why.split(": ").find_map(|part| {
        let (script, line) = part.rsplit_once(':')?;
        let (script, line) = (PathBuf::from(script), line.parse::<u32>().ok()?);
        let found = [script.clone(), folder.join(&script)];
        Some((found.into_iter().find(|path| path.is_file())?, line))
    });
    match place {
        Some((script, line)) => json!({
            "severity": "error", "file": veche_terminal::shown(&script).to_string(), "line": line,
            "message": why,
        }),
        None => json!({
            "severity": "error", "file": veche_terminal::shown(file).to_string(), "message": why,
        }),
    }
}
