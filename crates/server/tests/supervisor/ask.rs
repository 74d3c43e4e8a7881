//! The other end of the control socket, as simple as it can be.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::supervisor::request::Request;

pub(crate) use crate::supervisor::request::Command;

/// Longer than any answer takes: a reload waits for the server process.
const ANSWER_WAIT: Duration = Duration::from_secs(15);
/// Longest answer taken.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Why there is no good answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// Nobody is there.
    #[error("no veche answers on {path}: {source}; is it running, and with this config?")]
    NotRunning {
        path: String,
        source: std::io::Error,
    },
    /// It broke off, or took too long.
    #[error("veche on {path} gave no answer: {reason}")]
    NoAnswer { path: String, reason: String },
    /// It said no, and why.
    #[error("{0}")]
    Refused(String),
}

/// Asks the supervisor on the control socket `path`, and returns its answer's object. With `stop` this returns
/// when the supervisor has exited; `now` is for `stop` too.
pub(crate) fn ask(path: &Path, command: Command, now: bool) -> Result<Value, AskError> {
    let shown = path.display().to_string();
    let mut socket = UnixStream::connect(path).map_err(|source| AskError::NotRunning {
        path: shown.clone(),
        source,
    })?;
    let no_answer = |reason: String| AskError::NoAnswer {
        path: shown.clone(),
        reason,
    };
    let io = |error: std::io::Error| no_answer(error.to_string());
    socket.set_read_timeout(Some(ANSWER_WAIT)).map_err(io)?;
    let request = Request {
        now,
        ..Request::new(command)
    };
    let mut line = serde_json::to_vec(&request).map_err(|e| no_answer(e.to_string()))?;
    line.push(b'\n');
    socket.write_all(&line).map_err(io)?;
    let mut reader = BufReader::new(socket.take(ANSWER_BYTES_MAX));
    let mut answer = String::new();
    reader.read_line(&mut answer).map_err(io)?;
    if answer.is_empty() {
        return Err(no_answer("it closed the connection".to_owned()));
    }
    let answer: Value = serde_json::from_str(&answer).map_err(|e| no_answer(e.to_string()))?;
    if answer["ok"] != true {
        let reason = answer["error"].as_str().unwrap_or("it did not say why");
        return Err(AskError::Refused(reason.to_owned()));
    }
    if command == Command::Stop {
        reader
            .get_ref()
            .get_ref()
            .set_read_timeout(None)
            .map_err(io)?;
        reader.read_to_string(&mut String::new()).map_err(io)?;
    }
    Ok(answer)
}
