//! The program that starts a worker process: it makes sure that the process ends together with its spawner, then
//! executes the configured command in its place.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Moves the socket from standard input to descriptor 3, then executes the command. Without unsafe code, only a shell
/// can do that.
const SHELL: &str = r#"exec "$0" "$@" 3<&0 </dev/null"#;

/// Executes the command in the arguments of this process, which begin with the spawner's process id. Returns only if
/// that fails.
pub fn launch() -> ExitCode {
    let mut arguments = std::env::args_os().skip(2);
    let parent = arguments.next();
    let parent = parent.and_then(|pid| pid.to_str()?.parse::<i32>().ok());
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        eprintln!("veche: the worker process can't be bound to its spawner: {error}");
        return ExitCode::FAILURE;
    }
    // The spawner may have ended before the call above.
    if parent.is_none() || getppid().map(|pid| pid.as_raw_nonzero().get()) != parent {
        return ExitCode::FAILURE;
    }
    let error = Command::new("/bin/sh")
        .arg("-c")
        .arg(SHELL)
        .args(arguments)
        .exec();
    eprintln!("veche: can't run /bin/sh: {error}");
    ExitCode::from(127)
}
