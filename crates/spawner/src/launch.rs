//! The first program of a worker process: it makes the kernel end the process together with its spawner, then executes the
//! configured command in the same process.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// A shell script that moves the socket from standard input to descriptor 3, then executes the command. A shell is used because
/// Rust can't assign a descriptor number without `unsafe`.
const SHELL: &str = r#"exec "$0" "$@" 3<&0 </dev/null"#;

/// Executes the command in the arguments of this process, where it follows the spawner's process id. Returns only on failure.
pub fn launch() -> ExitCode {
    let mut arguments = std::env::args_os().skip(2);
    let parent = arguments.next();
    let parent = parent.and_then(|pid| pid.to_str()?.parse::<i32>().ok());
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        eprintln!("veche: can't arrange for the worker process to end with its spawner: {error}");
        return ExitCode::FAILURE;
    }
    // If the spawner ended before this process requested the signal, the kernel does not end this process.
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
