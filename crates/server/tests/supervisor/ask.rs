//! A minimal client of the control socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use crate::support::SOON;

/// Sends `{"version":1,` and the rest of a request; returns the response object or the error. With `stop` this returns
/// when the supervisor has exited.
pub(crate) fn ask(path: &Path, request: &str) -> Result<Value, String> {
    let answer = exchange(path, request).map_err(|error| error.to_string())?;
    if answer["ok"] == true {
        Ok(answer)
    } else {
        Err(answer["error"].to_string())
    }
}

fn exchange(path: &Path, request: &str) -> std::io::Result<Value> {
    let mut socket = UnixStream::connect(path)?;
    socket.set_read_timeout(Some(SOON))?;
    writeln!(socket, "{{\"version\":1,{request}")?;
    let mut reader = BufReader::new(socket);
    let mut answer = String::new();
    reader.read_line(&mut answer)?;
    if request == STOP || request == STOP_NOW {
        reader.read_to_string(&mut String::new())?;
    }
    Ok(serde_json::from_str(&answer)?)
}

pub(crate) const STATUS: &str = "\"command\":\"status\"}";
pub(crate) const RELOAD: &str = "\"command\":\"reload\"}";
pub(crate) const UPGRADE: &str = "\"command\":\"upgrade\"}";
pub(crate) const STOP: &str = "\"command\":\"stop\"}";
pub(crate) const STOP_NOW: &str = "\"command\":\"stop\",\"now\":true}";
