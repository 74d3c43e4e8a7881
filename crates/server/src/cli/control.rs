//! The client side of the control socket: one line of JSON in each direction.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use veche_clock::now;
use veche_config as config;

use veche_net::scm_rights;
use veche_supervisor::request::{ANSWER_BYTES_MAX, ControlCommand, ControlRequest};
use veche_terminal::exit::{CommandFailure, Exit, print_line};
use veche_terminal::shown;

/// How to find the running server.
#[derive(Args, Debug)]
pub(super) struct ControlArgs {
    /// The server's control socket; by default server.control of the configuration
    #[arg(long, value_name = "SOCKET")]
    pub(super) control: Option<PathBuf>,
}

/// Maximum wait for a response. Most responses arrive at once. A reload takes longer because it compiles scripts and
/// checks the configuration, and a restart or upgrade takes until the new server process is ready.
const ANSWER_WAIT: Duration = Duration::from_secs(45);
/// How long to wait for the supervisor to execute the new program; far more than it needs.
const CHANGE_WAIT: Duration = Duration::from_secs(5);
/// The time that a server may take to end after its drain time.
const STOP_GRACE: Duration = Duration::from_secs(15);
/// The interval between checks of whether the server has ended.
const STOP_LOOK: Duration = Duration::from_millis(20);

/// The control socket of a running server, and the configuration file that names the socket.
pub(super) struct ControlTarget {
    socket: PathBuf,
    file: PathBuf,
}

/// Returns `given` as the control socket, or else the socket that the configuration names. The other settings of the
/// configuration may be invalid.
pub(super) fn find(file: &Path, given: Option<PathBuf>) -> Result<ControlTarget, CommandFailure> {
    let socket = match given {
        Some(socket) => socket,
        None => config::control_of(file).map_err(|error| {
            CommandFailure::new(
                Exit::Config,
                format!("{}: {}", shown(file), veche_terminal::unreadable(&error)),
            )
        })?,
    };
    Ok(ControlTarget {
        socket,
        file: file.to_owned(),
    })
}

impl ControlTarget {
    /// Sends a command and returns the response, an object with `"ok": true`.
    pub(super) fn ask(&self, command: ControlCommand) -> Result<Value, CommandFailure> {
        self.open(&ControlRequest::new(command))
            .map(|(answer, _)| answer)
    }

    /// Sends a request like [`ask`](Self::ask), and also returns the connection, which the server keeps open as long as
    /// the client does.
    fn open(
        &self,
        request: &ControlRequest,
    ) -> Result<(Value, BufReader<UnixStream>), CommandFailure> {
        self.open_with(request, None)
    }

    /// Sends a request like [`open`](Self::open), and passes a descriptor with it.
    pub(super) fn open_with(
        &self,
        request: &ControlRequest,
        descriptor: Option<OwnedFd>,
    ) -> Result<(Value, BufReader<UnixStream>), CommandFailure> {
        let socket = UnixStream::connect(&self.socket).map_err(|error| self.not_running(&error))?;
        let (line, connection) =
            exchange(socket, request, descriptor).map_err(|error| self.not_responding(&error))?;
        let answer: Value = serde_json::from_str(&line).map_err(|_| {
            let socket = self.socket.display();
            CommandFailure::new(
                Exit::NoServer,
                format!("the program that answers at {socket} is not a Veche server"),
            )
        })?;
        if answer["ok"] != true {
            let why = answer["error"]
                .as_str()
                .unwrap_or("the server refused without a reason");
            return Err(CommandFailure::new(Exit::Refused, why));
        }
        Ok((answer, connection))
    }

    fn not_running(&self, error: &io::Error) -> CommandFailure {
        let socket = self.socket.display();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                let file = shown(&self.file);
                // The configuration may be invalid, so the path of the socket in it may be wrong. The hint names that
                // possibility.
                let hint = match config::load(&self.file) {
                    Err(report) if !report.unreadable => {
                        format!(
                            "{file} has errors, so the socket may be elsewhere: run veche check, or use --control SOCKET"
                        )
                    }
                    _ => format!("is it running? (veche serve -c {file})"),
                };
                let why = format!("no server answers at {socket}: {hint}");
                CommandFailure::new(Exit::NoServer, why)
            }
            io::ErrorKind::PermissionDenied => CommandFailure::new(
                Exit::NoServer,
                format!("{socket}: permission denied: run this as the user of the server"),
            ),
            _ => CommandFailure::new(Exit::NoServer, format!("{socket}: {error}")),
        }
    }

    fn not_responding(&self, error: &io::Error) -> CommandFailure {
        let socket = self.socket.display();
        let why = match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!(" within {} s", ANSWER_WAIT.as_secs())
            }
            io::ErrorKind::UnexpectedEof => ": the connection was closed".to_owned(),
            _ => format!(": {error}"),
        };
        CommandFailure::new(
            Exit::NoServer,
            format!("the server at {socket} did not respond{why}"),
        )
    }
}

fn exchange(
    mut socket: UnixStream,
    request: &ControlRequest,
    descriptor: Option<OwnedFd>,
) -> io::Result<(String, BufReader<UnixStream>)> {
    socket.set_read_timeout(Some(ANSWER_WAIT))?;
    socket.set_write_timeout(Some(ANSWER_WAIT))?;
    let line = format!("{}\n", serde_json::to_string(request)?);
    let sent = match descriptor {
        None => 0,
        Some(descriptor) => scm_rights::send(&socket, line.as_bytes(), &[descriptor.as_fd()])?,
    };
    socket.write_all(&line.as_bytes()[sent..])?;
    let mut connection = BufReader::new(socket);
    let mut line = String::new();
    (&mut connection)
        .take(ANSWER_BYTES_MAX as u64)
        .read_line(&mut line)?;
    if line.is_empty() {
        Err(io::ErrorKind::UnexpectedEof.into())
    } else {
        Ok((line, connection))
    }
}

/// Runs `veche reload`: prints the warnings, and what was reloaded.
pub(super) fn reload(control: &ControlTarget) -> Result<(), CommandFailure> {
    let answer = control.ask(ControlCommand::Reload)?;
    let listed = |name: &str| -> Vec<String> {
        let items = answer[name].as_array().into_iter().flatten();
        items
            .map(|item| {
                item.as_str()
                    .map_or_else(|| item.to_string(), str::to_owned)
            })
            .collect()
    };
    for warning in listed("warnings") {
        eprintln!("{warning} (warning)");
    }
    let (mut changed, restart) = (listed("changed"), listed("needs_restart"));
    // Every reload reads scripts again, without reporting whether they changed.
    if answer["has_scripts"] == true {
        changed.push("scripts that changed".to_owned());
    }
    if !changed.is_empty() {
        print_line(format_args!("reloaded: {}", changed.join(", ")))?;
    } else if restart.is_empty() {
        print_line(format_args!("reloaded: nothing changed"))?;
    }
    if !restart.is_empty() {
        eprintln!(
            "veche: these changes take effect only after a restart: {}",
            restart.join(", ")
        );
    }
    Ok(())
}

/// Runs `veche upgrade`: replaces the server process; its clients have `limits.upgrade_drain_time` to reconnect.
pub(super) fn upgrade(control: &ControlTarget) -> Result<(), CommandFailure> {
    replace(
        control,
        ControlCommand::Upgrade,
        "limits.upgrade_drain_time",
    )
}

/// Runs `veche restart`: replaces the server process; its clients have `limits.drain_time` to reconnect.
pub(super) fn restart(control: &ControlTarget) -> Result<(), CommandFailure> {
    replace(control, ControlCommand::Restart, "limits.drain_time")
}

/// Sends `command`, which replaces the server process. `directive` is the name of the setting for the old process's
/// drain time.
fn replace(
    control: &ControlTarget,
    command: ControlCommand,
    directive: &str,
) -> Result<(), CommandFailure> {
    let before = control.ask(ControlCommand::Status)?;
    let (answer, mut connection) = control.open(&ControlRequest::new(command))?;
    let (from, to) = (text(&answer["from"]), text(&answer["to"]));
    let (old, new) = (&answer["old_pid"], &answer["pid"]);
    print_line(format_args!(
        "server process {old} → {new}: the new process accepts connections and publications"
    ))?;
    let connections = before["status"]["report"]["connections"]
        .as_u64()
        .unwrap_or(0);
    if connections > 0 {
        print_line(format_args!(
            "the old one had {connections} connections and closes them within {} s ({directive}), WebSockets with \
             1012; clients miss publications until they have reconnected",
            answer["drain_ms"].as_u64().unwrap_or(0).div_ceil(1_000),
        ))?;
    }
    // The supervisor closes the connection when it executes the new program.
    let deadline = now() + CHANGE_WAIT;
    while !is_closed(&mut connection) && now() < deadline {
        thread::sleep(STOP_LOOK);
    }
    // The new configuration may name another control socket.
    let answer = loop {
        let asked = control.ask(ControlCommand::Status).or_else(|failure| {
            let other = find(&control.file, None)?;
            other.ask(ControlCommand::Status).map_err(|_| failure)
        });
        match asked {
            Err(_) if now() < deadline => thread::sleep(STOP_LOOK),
            other => break other?,
        }
    };
    let status = &answer["status"];
    if let Some(error) = status["upgrade_error"].as_str() {
        return Err(CommandFailure::new(
            Exit::Failed,
            format!("the supervisor still has version {from}: {error}"),
        ));
    }
    print_line(format_args!(
        "supervisor {from} → {to}: the new one has pid {}",
        status["supervisor"]["pid"]
    ))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

/// Returns how long `stop` waits by default.
pub(super) fn stop_wait(file: &Path, now: bool) -> Duration {
    match config::load(file) {
        _ if now => STOP_GRACE,
        Ok(config) => config.limits.lame_duck_time + config.limits.drain_time + STOP_GRACE,
        // The configuration can't be read, so the server's drain time is unknown. A minute is
        // longer than the default drain time.
        Err(_) => Duration::from_secs(60) + STOP_GRACE,
    }
}

/// `veche stop`: requests a stop, then waits until the process has ended.
pub(super) fn stop(
    control: &ControlTarget,
    now: bool,
    wait: Duration,
) -> Result<(), CommandFailure> {
    // The status is requested before the stop, since the server may be gone afterwards.
    let status = control.ask(ControlCommand::Status).unwrap_or_default();
    let pid = pid_of(&status);
    let (answer, mut connection) = control.open(&ControlRequest {
        now,
        ..ControlRequest::new(ControlCommand::Stop)
    })?;
    let pid = pid_of(&answer).or(pid);
    if let Some(line) = waits_for(&status, wait).filter(|_| !now) {
        eprintln!("{line}");
    }
    let mut waited = Duration::ZERO;
    while waited < wait {
        let gone = match pid {
            Some(pid) => !is_alive(pid),
            None => is_closed(&mut connection),
        };
        if gone {
            return print_line(format_args!("stopped"));
        }
        thread::sleep(STOP_LOOK);
        waited += STOP_LOOK;
    }
    let process = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
    Err(CommandFailure::new(
        Exit::TimedOut,
        format!(
            "the server{process} is still running after {} s; veche stop --now stops it immediately",
            wait.as_secs()
        ),
    ))
}

/// Describes the connections that a stop waits for, and their drain time. `None` without connections.
fn waits_for(status: &Value, wait: Duration) -> Option<String> {
    let open = status["status"]["report"]["connections"]
        .as_u64()
        .filter(|open| *open > 0)?;
    let plural = if open == 1 { "" } else { "s" };
    Some(format!(
        "draining {open} connection{plural}, at most {} s; veche stop --now stops immediately",
        wait.as_secs()
    ))
}

/// Returns the pid of the process that owns the control socket: the supervisor, or the server process if there is no
/// supervisor.
pub(super) fn pid_of(answer: &Value) -> Option<u64> {
    let status = answer.get("status").unwrap_or(answer);
    status["supervisor"]["pid"]
        .as_u64()
        .or_else(|| status["pid"].as_u64())
}

/// Returns whether a process is running. Zombies don't count.
fn is_alive(pid: u64) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // In `/proc/PID/stat` the state follows the name, which is in parentheses and may contain any character.
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('Z' | 'X'))
}

/// Returns whether the server has closed the connection, as it does when it ends or executes a new program.
fn is_closed(connection: &mut BufReader<UnixStream>) -> bool {
    // A timeout of zero would be rejected.
    let timeout_set = connection
        .get_ref()
        .set_read_timeout(Some(Duration::from_millis(1)));
    match timeout_set.and_then(|()| connection.read(&mut [0; 64])) {
        Ok(count) => count == 0,
        Err(error) => !matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
        ),
    }
}
