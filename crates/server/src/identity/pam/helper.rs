//! One helper process, from this side: started, asked one question at a time, and killed if it takes too long.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use veche_pam::{Answer, Question};

use super::pool::Trouble;
use crate::process::now;
use crate::supervisor::SELF;

/// How long a helper may take to load the library.
const START_WAIT: Duration = Duration::from_secs(10);
/// The same when nobody but the check of a configuration waits for it.
const PROBE_WAIT: Duration = Duration::from_secs(3);

/// A running helper. It is the child of the thread that has started it, and the kernel kills it when that thread ends;
/// dropping it kills and reaps it.
#[derive(Debug)]
pub(super) struct Helper {
    child: Child,
    socket: UnixStream,
}

/// Whether there can be a helper at all.
///
/// # Errors
/// Why not, as a line to act on.
pub(crate) fn probe() -> Result<(), String> {
    Helper::start_within(PROBE_WAIT).map(|_| ())
}

impl Helper {
    /// Starts one and waits until it has loaded libpam.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(super) fn start() -> Result<Self, String> {
        Self::start_within(START_WAIT)
    }

    fn start_within(wait: Duration) -> Result<Self, String> {
        let failed = |why: io::Error| format!("a helper can't be started: {why}");
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(SELF);
        command
            .arg0("veche")
            .arg(veche_pam::helper::ARGUMENT)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // What modules print may be anything.
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().map_err(failed)?;
        // It has the other end of the socket, which is to close with it.
        drop(command);
        let mut helper = Self {
            child,
            socket: ours,
        };
        match helper.hear(now() + wait) {
            Ok(Answer::Ready) => Ok(helper),
            Ok(Answer::Unusable(why)) => Err(why),
            Ok(_) => Err("a helper did not begin as it should".to_owned()),
            Err(Trouble::Late) => Err("a helper took too long to load PAM".to_owned()),
            Err(_) => Err("a helper has ended before it began".to_owned()),
        }
    }

    /// Whether nobody has killed it.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Has it judge a password. After an error there is no use for it.
    pub(super) fn ask(&mut self, question: &Question, until: Instant) -> Result<Answer, Trouble> {
        let sent = question.write(&mut self.socket);
        sent.map_err(|_| gone())?;
        self.hear(until)
    }

    fn hear(&mut self, until: Instant) -> Result<Answer, Trouble> {
        let left = until.saturating_duration_since(now());
        if left.is_zero() {
            return Err(Trouble::Late);
        }
        let limited = self.socket.set_read_timeout(Some(left));
        limited.map_err(|_| gone())?;
        match Answer::read(&mut self.socket) {
            Ok(Some(answer)) => Ok(answer),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Trouble::Late),
            Ok(None) | Err(_) => Err(gone()),
        }
    }
}

fn gone() -> Trouble {
    Trouble::Helper("the helper has ended in the middle of a check".to_owned())
}

impl Drop for Helper {
    fn drop(&mut self) {
        // Both can fail only if it is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
