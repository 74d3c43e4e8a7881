//! The parent's side of a helper process: starts it, sends one request at a time, and kills it if it takes too long.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::wire::{PamReply, PamRequest};

/// The path of this program, which also serves as the helper.
const PROGRAM: &str = "/proc/self/exe";

/// Maximum time to load libpam when only a configuration check waits for it.
const PROBE_WAIT: Duration = Duration::from_secs(3);

/// The reason why there is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelperError {
    /// The helper had ended before the request was sent.
    Unsent,
    /// The helper did not reply in time.
    Unanswered,
    /// The helper ended before it replied.
    Gone,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the caller waits for another process"
)]
fn now() -> Instant {
    Instant::now()
}

/// A running helper: a child of the thread that started it. The kernel kills the helper when that
/// thread ends. Dropping this value kills the helper and the processes that its modules have
/// started in its process group, and reaps the helper. Nothing else reaps it, so its process id
/// can't have been reused.
#[derive(Debug)]
pub struct Helper {
    child: Child,
    socket: UnixStream,
}

/// Checks whether a helper can be started.
///
/// # Errors
/// The reason, as a message for the operator.
pub fn probe() -> Result<(), String> {
    Helper::start(PROBE_WAIT).map(|_| ())
}

impl Helper {
    /// Starts a helper and waits until it has loaded libpam.
    ///
    /// # Errors
    /// The reason, as a message for the operator.
    pub fn start(wait: Duration) -> Result<Self, String> {
        let mut command = Command::new(PROGRAM);
        command.arg0("veche").arg(crate::helper::ARGUMENT);
        let helper = Self::spawn(command);
        let mut helper =
            helper.map_err(|why| format!("the helper process can't be started: {why}"))?;
        match helper.receive(now() + wait) {
            Ok(PamReply::Ready) => Ok(helper),
            Ok(PamReply::Unusable(why)) => Err(why),
            Ok(_) => Err("the helper process sent an unexpected first message".to_owned()),
            Err(HelperError::Unanswered) => {
                Err("the helper process took too long to load PAM".to_owned())
            }
            Err(_) => Err("the helper process ended during its start".to_owned()),
        }
    }

    fn spawn(mut command: Command) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        command
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // Output of modules is arbitrary and is discarded.
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn()?;
        // The command owns the other end of the socket, which must be closed in this process.
        // Dropping the command closes it.
        Ok(Self {
            child,
            socket: ours,
        })
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Returns whether the helper process is still running.
    pub fn is_alive(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(waitid(WaitId::Pid(self.pid()), look), Ok(None))
    }

    /// Sends a request and waits for the reply. After an error the helper must not be used again.
    ///
    /// # Errors
    /// There was no reply.
    pub fn ask(&mut self, request: &PamRequest, until: Instant) -> Result<PamReply, HelperError> {
        let sent = request.write(&mut self.socket);
        sent.map_err(|_| HelperError::Unsent)?;
        self.receive(until)
    }

    fn receive(&mut self, until: Instant) -> Result<PamReply, HelperError> {
        let left = until.saturating_duration_since(now());
        if left.is_zero() {
            return Err(HelperError::Unanswered);
        }
        let limited = self.socket.set_read_timeout(Some(left));
        limited.map_err(|_| HelperError::Gone)?;
        match PamReply::read(&mut self.socket) {
            Ok(Some(answer)) => Ok(answer),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(HelperError::Unanswered),
            Ok(None) | Err(_) => Err(HelperError::Gone),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // These calls fail only if the process no longer exists, which is impossible before it is reaped.
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread::sleep;

    use super::*;

    fn runs(pid: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    }

    #[test]
    fn a_helpers_children_end_with_it() {
        let name = format!("veche-helper-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        for is_killed in [false, true] {
            let mut command = Command::new("/bin/sh");
            let script = format!("sleep 600 & echo $! > {}; wait", file.display());
            command.args(["-c", &script]);
            let helper = Helper::spawn(command).expect("it starts");
            assert!(helper.is_alive());
            let mut pid = String::new();
            while !pid.ends_with('\n') {
                sleep(Duration::from_millis(5));
                pid = fs::read_to_string(&file).unwrap_or_default();
            }
            let pid = pid.trim();
            assert!(runs(pid));
            if is_killed {
                rustix::process::kill_process(helper.pid(), Signal::KILL).expect("ours");
                while helper.is_alive() {
                    sleep(Duration::from_millis(5));
                }
            }
            drop(helper);
            for _ in 0..1_000 {
                if runs(pid) {
                    sleep(Duration::from_millis(5));
                }
            }
            assert!(!runs(pid));
            fs::remove_file(&file).expect("ours");
        }
    }
}
