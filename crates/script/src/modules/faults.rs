//! Error texts of functions, as scripts see them.

use crate::{raw, utf8};

/// Creates a script error with a text.
pub(crate) fn fault(words: impl Into<String>) -> mlua::Error {
    mlua::Error::RuntimeError(words.into())
}

/// Fails if the current run has to end. Long operations call it periodically, since no hook interrupts them.
pub(crate) fn go_on() -> mlua::Result<()> {
    match raw::is_run_over() {
        false => Ok(()),
        true => Err(fault(raw::kill_reason().to_string_lossy())),
    }
}

/// Returns whether a text is UTF-8.
pub(super) fn is_utf8(text: &[u8]) -> mlua::Result<bool> {
    match utf8::check(text) {
        Some(is_utf8) => Ok(is_utf8),
        None => go_on().map(|()| false),
    }
}

/// Returns the text of an error of a Rust function: the innermost cause, and the line of the script that called the
/// function.
pub(crate) fn words(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, traceback } => {
            let reason = words(cause);
            match script_line(traceback) {
                Some(line) if !reason.starts_with(line) => format!("{line}: {reason}"),
                _ => reason,
            }
        }
        mlua::Error::RuntimeError(words) => words.clone(),
        mlua::Error::ExternalError(cause) => cause.to_string(),
        mlua::Error::MemoryError(words) => words.clone(),
        other => other.to_string(),
    }
}

/// The prefix of positions in Veche's own Lua files (`crates/script/lua`).
pub(super) const OWN_PLACE: &str = "veche:";

/// Removes a position in Veche's own Lua files from a message: only positions in scripts are useful.
pub(crate) fn without_own_place(message: &str) -> &str {
    let behind = message.strip_prefix(OWN_PLACE);
    let behind = behind.and_then(|place| place.split_once(": "));
    behind.map_or(message, |(_, message)| message)
}

/// Maximum length in bytes of the position of an error (a file and a line).
pub(super) const PLACE_BYTES_MAX: usize = 4096;

/// Removes the position from a message that begins with a position in Veche's own Lua files. The
/// message may have any length and encoding.
pub(super) fn behind_own_place(message: &[u8]) -> &[u8] {
    let start = &message[..message.len().min(PLACE_BYTES_MAX)];
    let place = start.windows(2).position(|pair| pair == b": ");
    place.map_or(message, |place| &message[place + 2..])
}

/// Adds the line number to the first entry of a traceback, if the entry has none. LuaJIT omits this number if an operation
/// such as an addition or a call of nil failed. The number is copied from the beginning of the error text.
pub(crate) fn with_line(words: &str, traceback: String) -> String {
    const HEAD: &str = "stack traceback:\n\t";
    let placed = || {
        let start = traceback.find(HEAD)? + HEAD.len();
        let (file, rest) = traceback[start..].split_once(": in ")?;
        let line = words.strip_prefix(file)?.strip_prefix(':')?;
        let (line, _) = line.split_once(':')?;
        let is_line = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit());
        let head = &traceback[..start];
        is_line.then(|| format!("{head}{file}:{line}: in {rest}"))
    };
    placed().unwrap_or(traceback)
}

/// Returns the first `file:line` of a traceback that is in a script.
fn script_line(traceback: &str) -> Option<&str> {
    traceback
        .lines()
        .filter_map(|line| line.strip_prefix('\t'))
        .filter(|line| !line.starts_with("[C]") && !line.starts_with("veche:"))
        .find_map(|line| line.split_once(": in ").map(|(place, _)| place))
}
