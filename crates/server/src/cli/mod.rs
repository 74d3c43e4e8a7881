//! The command line of `veche`.
//!
//! `serve` passes a checked configuration to [`veche_supervisor`]; the other commands are short-lived and use the
//! configuration, the control socket or the push listener. An error is one actionable line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory as _, Parser, Subcommand};
use veche_config as config;
use veche_migrate as migrate;
use veche_supervisor::{self as supervisor, Signals, SupervisorEnd};

use crate::process::ServerProcess;

mod check;
mod control;
mod dev;
mod dump;
mod generate;
mod history;
mod log;
#[cfg(test)]
mod lua_reference;
mod new;
mod play;
mod push;
#[cfg(test)]
mod reference;
mod status;
mod test;

use control::ControlArgs;
use push::PushArgs;
use status::OutputFormat;
use veche_load::cli::{self as bench, BenchArgs};
use veche_terminal::{CommandFailure, Exit, duration, exit};

/// The realtime application server: like nginx, but for WebSocket.
#[derive(Debug, Parser)]
#[command(name = "veche", version, about, after_help = exit::table(), disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// The configuration file; by default ./veche.toml, or without one there /etc/veche/veche.toml
    #[arg(short, long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create a folder with an application to start from
    New(new::NewArgs),
    /// Start the server in the foreground
    Serve {
        /// One process and no supervisor, for tools that follow one process: SIGTERM stops it, and nothing restarts it
        #[arg(long, hide = true)]
        unsupervised: bool,
    },
    /// Start the server and reload scripts and configuration whenever a file is saved
    Dev,
    /// Run the tests of the applications: each *_test.lua, with simulated clients and clock
    Test(test::TestArgs),
    /// Check the configuration and load the scripts, without starting the server; report all errors
    Check(check::CheckArgs),
    /// Print every effective value and its source
    Config,
    /// Convert the configuration of another server to a veche.toml
    Migrate {
        #[command(subcommand)]
        from: migrate::MigrationSource,
    },
    /// Push a message to users or a channel, through the push listener
    Push(PushArgs),
    /// Measure a server: connections, messages, requests, pushes
    #[command(after_help = exit::table())]
    Bench(Box<BenchArgs>),
    /// Show the state of the running server
    Status {
        /// Print the response as one JSON object
        #[arg(long)]
        json: bool,
        /// Show the slowest operations of the last minutes: turns of workers' event loops, handlers of scripts, requests
        #[arg(long, conflicts_with = "json")]
        slow: bool,
        /// Show the nodes of the cluster
        #[arg(long, conflicts_with_all = ["json", "slow"])]
        cluster: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Follow decisions about clients: accepted and refused connections, subscriptions and publications, with reasons
    Log(log::LogArgs),
    /// Print the rows of a table of the running server; without a name, list the tables
    Dump(dump::DumpArgs),
    /// Maintain the history on disk while no server uses it
    History {
        #[command(subcommand)]
        command: HistoryCommand,
    },
    /// Reload the configuration and scripts; no connection is closed
    Reload {
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Replace the server process and apply the whole configuration, without refusing a connection
    ///
    /// Directives that a reload cannot change take effect, including addresses of [[listen]]. The old process closes its
    /// connections over limits.drain_time, with 1012, and clients reconnect to the new one; an upgrade does so over
    /// limits.upgrade_drain_time. Refused with history on disk.
    Restart {
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Replace the running server by the installed program, without refusing a connection
    Upgrade {
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Print a completion script for a shell
    Completions {
        /// For example: veche completions bash > /etc/bash_completion.d/veche
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a folder
    #[command(hide = true)]
    Man {
        /// An existing folder
        folder: PathBuf,
    },
    /// Stop the running server and wait for its end
    Stop {
        /// Do not drain: close all connections at once
        #[arg(long)]
        now: bool,
        /// Time limit for its end; by default limits.lame_duck_time, limits.drain_time and 15 seconds
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        timeout: Option<Duration>,
        #[command(flatten)]
        control: ControlArgs,
    },
}

/// The commands for the history on disk.
#[derive(Debug, Subcommand)]
enum HistoryCommand {
    /// Give all channels new epochs at the next start: for a folder restored from a backup
    RenewEpochs,
}

/// Runs the command line of this process.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(mut error) => {
            suggest(&mut error);
            // Help and version are not errors.
            let exit = if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Ok
            };
            // If the error can't be printed, there is no way to report that.
            let _ = error.print();
            return exit.into();
        }
    };
    match run(cli) {
        Ok(()) => Exit::Ok.into(),
        Err(failure) => {
            failure.print();
            failure.exit.into()
        }
    }
}

/// Adds the nearest subcommand to an error about an unknown one. clap suggests nothing for short names such as "nwe".
fn suggest(error: &mut clap::Error) {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand) else {
        return;
    };
    if error.get(ContextKind::SuggestedSubcommand).is_some() {
        return;
    }
    let cli = Cli::command();
    let names = cli.get_subcommands().filter(|one| !one.is_hide_set());
    if let Some(meant) = veche_types::nearest(given, names.map(clap::Command::get_name)) {
        let meant = ContextValue::Strings(vec![meant.to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, meant);
    }
}

/// The configuration file in the current folder, and the one that the package installs.
const FILES: [&str; 2] = ["./veche.toml", "/etc/veche/veche.toml"];

/// Returns the first of these files that exists; if none does, the first one.
fn found_of(files: [&str; 2]) -> PathBuf {
    let there = files.iter().find(|file| Path::new(file).exists());
    PathBuf::from(there.unwrap_or(&files[0]))
}

fn run(cli: Cli) -> Result<(), CommandFailure> {
    let file = match (cli.config, &cli.command) {
        (Some(file), _) => file,
        // `veche dev` and `veche test` use the configuration in the current folder, never the one that a package has
        // installed.
        (None, Command::Dev | Command::Test(_)) => FILES[0].into(),
        (None, _) => found_of(FILES),
    };
    match cli.command {
        Command::New(args) => new::run(&args),
        Command::Serve { unsupervised: true } => {
            let served = supervisor::unsupervised::run(&file, ServerProcess::default());
            served.map_err(|error| CommandFailure::new(Exit::Failed, error.to_string()))
        }
        Command::Serve { .. } => {
            if !supervisor::goes_on() {
                // The configuration is loaded here because its errors have an exit code of their own; the supervisor
                // loads it again.
                config::load(&file)?;
            }
            serve(file, false)
        }
        Command::Dev => {
            // An invalid configuration is an error, unless this process replaces another version of the program. In
            // that case it continues without a file watcher.
            let _watch =
                match config::load(&file) {
                    Err(_) if supervisor::goes_on() => None,
                    loaded => {
                        let watch = Signals::keep_from(|| dev::watch(&loaded?));
                        Some(watch.map_err(|error| {
                            CommandFailure::new(Exit::Failed, error.to_string())
                        })??)
                    }
                };
            serve(file, true)
        }
        Command::Test(args) => test::run(&file, args),
        Command::Check(args) => check::run(&file, &args),
        Command::Config => {
            let config = config::load(&file)?;
            exit::print(format_args!("{}", config.effective))
        }
        Command::Migrate { from } => migrate::run(&from),
        Command::Push(args) => push::run(&file, args),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { folder } => generate::man(&folder),
        Command::Bench(args) => bench::run(&args, &play::start),
        Command::Status {
            json,
            slow,
            cluster,
            control,
        } => {
            let form = match (json, slow, cluster) {
                (true, ..) => OutputFormat::Json,
                (_, true, _) => OutputFormat::Slow,
                (.., true) => OutputFormat::Cluster,
                _ => OutputFormat::Table,
            };
            status::run(&control::find(&file, control.control)?, form)
        }
        Command::Log(args) => log::run(&file, args),
        Command::Dump(args) => dump::run(&file, args),
        Command::History {
            command: HistoryCommand::RenewEpochs,
        } => history::renew_epochs(&file),
        Command::Reload { control } => control::reload(&control::find(&file, control.control)?),
        Command::Restart { control } => control::restart(&control::find(&file, control.control)?),
        Command::Upgrade { control } => control::upgrade(&control::find(&file, control.control)?),
        Command::Stop {
            now,
            timeout,
            control,
        } => {
            let wait = timeout.unwrap_or_else(|| control::stop_wait(&file, now));
            control::stop(&control::find(&file, control.control)?, now, wait)
        }
    }
}

fn serve(file: PathBuf, dev: bool) -> Result<(), CommandFailure> {
    match supervisor::run(file, dev) {
        Ok(SupervisorEnd::Drained) => Ok(()),
        Ok(SupervisorEnd::Killed) => Err(CommandFailure::new(
            Exit::Killed,
            "the server was killed before its drain was done",
        )),
        Err(error) => Err(CommandFailure::new(Exit::Failed, error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_s_configuration_is_the_fallback() {
        let folder = std::env::temp_dir().join(format!("veche-found-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let [here, packaged] = ["here", "packaged"].map(|name| folder.join(name));
        let files = [&here, &packaged].map(|file| file.to_str().expect("text"));
        assert_eq!(found_of(files), here, "neither is there");
        std::fs::write(&packaged, "").expect("written");
        assert_eq!(found_of(files), packaged);
        std::fs::write(&here, "").expect("written");
        assert_eq!(found_of(files), here);
        let _ = std::fs::remove_dir_all(&folder);
    }
}
