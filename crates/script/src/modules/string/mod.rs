//! `string.find`, `match`, `gmatch`, `gsub` and `rep` with bounded cost.
//!
//! LuaJIT's own functions match in C, where no hook interrupts them: one unlucky pattern would block the worker. So
//! `shim.lua` replaces them with functions that call [`crate::pattern`] through this module. Scripts can't tell the
//! replacements from the originals. The functions of this module return errors as text instead of raising them, because
//! an error raised in Rust would reach the script as userdata without a position. A search stops when the CPU time of
//! its run is used up.

#[cfg(test)]
mod tests;

use std::ops::Range;

use mlua::{Integer, Lua, LuaString, Result, Value, Variadic};

use crate::pattern::{
    Capture, Caret, Error, Matcher, Pattern, StepBudget, append, find_plain,
    harmless_searched_bytes, has_specials,
};
use crate::raw::{is_run_over, kill_reason};

/// Maximum number of steps that a call of LuaJIT's own function may take in the worst case. They take less than a
/// millisecond.
const NATIVE_STEPS_MAX: u64 = 300_000;

/// The return values for `shim.lua`: an error text or false, followed by positions.
type Answer = (Value, Variadic<Integer>);

const NO_FAILURE: Value = Value::Boolean(false);

/// Stands for a missing position: the end of a position capture, or the start of the next match
/// after the last match.
const NO_POSITION: Integer = -1;

/// Maximum number of values returned at once, since they pass through the Lua stack. Fewer are
/// returned if the last match would be incomplete.
const BATCH_VALUES_MAX: usize = 256;

/// Limits of one call of a `string` function.
pub(crate) struct Limits {
    /// The maximum number of steps of one call. For `gmatch`, and for `gsub` with callbacks, it applies
    /// to each batch of matches.
    pub(crate) steps_max: u64,
    /// A call whose steps are known not to exceed this number uses LuaJIT's own functions. With 0,
    /// LuaJIT's functions are never used.
    pub(crate) native_steps_max: u64,
    /// The longest result of `gsub` and `rep`.
    pub(crate) string_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // This number of steps takes a few milliseconds, and about ten in the worst case.
            steps_max: 5_000_000,
            native_steps_max: NATIVE_STEPS_MAX,
            string_bytes_max: 16 << 20,
        }
    }
}

/// Replaces the functions in the global table `string`, which also provides the methods of strings.
/// Must be called before any script runs. Exceeding a limit is an error of the script.
pub(crate) fn replace(lua: &Lua, limits: Limits) -> Result<()> {
    let Limits {
        steps_max,
        native_steps_max,
        string_bytes_max,
    } = limits;
    let shim = lua.load(include_str!("shim.lua")).set_name("=string");
    shim.call((
        lua.create_function(move |_, pattern: LuaString| {
            let (matched, searched) = harmless_bytes(&pattern.as_bytes(), native_steps_max);
            let bound = |bytes: Option<usize>| bytes.map_or(-1, |bytes| bytes as Integer);
            Ok((bound(matched), bound(searched)))
        })?,
        lua.create_function(
            move |lua, (subject, pattern, position, is_find, is_plain)| {
                let call = Call::new(subject, pattern, steps_max);
                call.search(lua, position, is_find, is_plain)
            },
        )?,
        lua.create_function(move |lua, (subject, pattern, position, room, collected)| {
            Call::new(subject, pattern, steps_max).collect(lua, position, room, collected)
        })?,
        lua.create_function(move |lua, (subject, pattern, template, count)| {
            let call = Call::new(subject, pattern, steps_max);
            call.substitute(lua, &template, count, string_bytes_max)
        })?,
        lua.create_function(|_, number: f64| Ok(whole(number)))?,
        string_bytes_max,
    ))
}

/// Returns the maximum length of subjects for which LuaJIT's matching functions may be used, and the maximum length for
/// `find`. `None` means that LuaJIT's functions must not be used.
fn harmless_bytes(text: &[u8], steps: u64) -> (Option<usize>, Option<usize>) {
    let matched = Pattern::new(text, Caret::Anchors).harmless_subject_bytes(steps);
    let searched = if has_specials(text, is_run_over) != Ok(false) {
        matched
    } else {
        harmless_searched_bytes(text, steps)
    };
    (matched, searched)
}

/// The arguments and the limit of one call of a replaced function.
struct Call {
    subject: LuaString,
    pattern: LuaString,
    steps_max: u64,
}

/// The purpose of a series of matches, numbered as in `shim.lua`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MatchUse {
    /// All captures, as `gmatch` returns them.
    All,
    /// All captures, which `gsub` passes to a function.
    Replaced,
    /// The first capture, which `gsub` looks up in a table.
    LookedUp,
}

impl Call {
    fn new(subject: LuaString, pattern: LuaString, steps_max: u64) -> Self {
        Self {
            subject,
            pattern,
            steps_max,
        }
    }

    fn budget(&self) -> StepBudget {
        StepBudget::new(self.steps_max, is_run_over)
    }

    /// Implements `find` and `match` from `position`, counted from 1. Returns an error text or false, followed by the
    /// positions of the match and of its captures if there is a match.
    fn search(&self, lua: &Lua, position: usize, is_find: bool, is_plain: bool) -> Result<Answer> {
        let mut positions = Variadic::with_capacity(8);
        match self.push_found(position - 1, is_find, is_plain, &mut positions) {
            Ok(()) => Ok((NO_FAILURE, positions)),
            Err(error) => Ok((self.failure(lua, error)?, Variadic::new())),
        }
    }

    fn push_found(
        &self,
        from: usize,
        is_find: bool,
        is_plain: bool,
        positions: &mut Vec<Integer>,
    ) -> std::result::Result<(), Error> {
        let subject = &*self.subject.as_bytes();
        let pattern = &*self.pattern.as_bytes();
        if is_find && (is_plain || !has_specials(pattern, is_run_over)?) {
            if let Some(at) = find_plain(subject, pattern, from, is_run_over)? {
                push_range(positions, &(at..at + pattern.len()));
            }
            return Ok(());
        }
        let pattern = Pattern::new(pattern, Caret::Anchors);
        let mut matcher = Matcher::new(&pattern, subject, self.budget());
        let captures = matcher.captures_count();
        match matcher.find(from)? {
            Some(whole) => push_match(positions, &matcher, &whole, captures),
            None => Ok(()),
        }
    }

    /// Returns a batch of at most `room` matches, starting at or after `position`, counted from 0. The format is
    /// described above `COLLECT_ALL` in `shim.lua`.
    fn collect(&self, lua: &Lua, position: usize, room: usize, collected: u8) -> Result<Answer> {
        let collected = match collected {
            0 => MatchUse::All,
            1 => MatchUse::Replaced,
            _ => MatchUse::LookedUp,
        };
        let subject = &*self.subject.as_bytes();
        let caret = match collected {
            MatchUse::All => Caret::IsPlain,
            _ => Caret::Anchors,
        };
        let pattern = Pattern::new(&self.pattern.as_bytes(), caret);
        let mut matcher = Matcher::new(&pattern, subject, self.budget());
        let captures = match collected {
            MatchUse::LookedUp => matcher.captures_count().min(1),
            _ => matcher.captures_count(),
        };

        let width = 2 + 2 * captures;
        let room = room.min((BATCH_VALUES_MAX / width).max(1));
        let mut positions = Variadic::with_capacity(2 + room * width);
        positions.extend([NO_POSITION, width as Integer]);
        let mut next = Some(position);
        let mut failure = NO_FAILURE;
        for _ in 0..room {
            match matcher.find_next(&mut next) {
                Ok(Some(whole)) => {
                    if let Err(error) = push_match(&mut positions, &matcher, &whole, captures) {
                        failure = self.failure(lua, error)?;
                        break;
                    }
                }
                Ok(None) => {
                    next = None;
                    break;
                }
                Err(error) => {
                    failure = self.failure(lua, error)?;
                    break;
                }
            }
        }
        if let Some(next) = next {
            positions[0] = next as Integer;
        }
        Ok((failure, positions))
    }

    /// Implements `gsub` with a replacement string. Returns an error text, or false followed by the result and the
    /// number of replacements.
    fn substitute(
        &self,
        lua: &Lua,
        template: &LuaString,
        count_max: usize,
        bytes_max: usize,
    ) -> Result<(Value, Option<LuaString>, usize)> {
        let mut out = Vec::new();
        let failure = match self.replaced(&template.as_bytes(), count_max, bytes_max, &mut out) {
            Ok(0) => return Ok((NO_FAILURE, Some(self.subject.clone()), 0)),
            Ok(count) => match lua.create_string(&out) {
                Ok(result) => return Ok((NO_FAILURE, Some(result), count)),
                Err(_) => text_value(lua, "not enough memory")?,
            },
            Err(Error::TooLarge) => {
                let text = format!("{}: more than {bytes_max} bytes", Error::TooLarge);
                text_value(lua, &text)?
            }
            Err(error) => self.failure(lua, error)?,
        };
        Ok((failure, None, 0))
    }

    /// Writes the subject with its first `count_max` matches replaced, and returns the number of
    /// replacements; if there are none, writes nothing.
    fn replaced(
        &self,
        template: &[u8],
        count_max: usize,
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> std::result::Result<usize, Error> {
        let subject = &*self.subject.as_bytes();
        let pattern = Pattern::new(&self.pattern.as_bytes(), Caret::Anchors);
        let mut matcher = Matcher::new(&pattern, subject, self.budget());
        let mut next = Some(0);
        let mut copied = 0;
        let mut count = 0;
        while count < count_max
            && let Some(whole) = matcher.find_next(&mut next)?
        {
            append(out, &subject[copied..whole.start], bytes_max)?;
            copied = whole.end;
            matcher.append_replacement(template, &whole, out, bytes_max)?;
            count += 1;
        }
        if count > 0 {
            append(out, &subject[copied..], bytes_max)?;
        }
        Ok(count)
    }

    fn failure(&self, lua: &Lua, error: Error) -> Result<Value> {
        let text = match error {
            Error::TooCostly => format!(
                "{error}: more than {} steps (the subject has {} bytes)",
                self.steps_max,
                self.subject.as_bytes().len()
            ),
            Error::Stopped => kill_reason().to_string_lossy().into_owned(),
            _ => error.to_string(),
        };
        text_value(lua, &text)
    }
}

fn text_value(lua: &Lua, text: &str) -> Result<Value> {
    lua.create_string(text).map(Value::String)
}

/// Pushes the positions of a match and of its first `captures` captures.
fn push_match(
    positions: &mut Vec<Integer>,
    matcher: &Matcher<'_>,
    whole: &Range<usize>,
    captures: usize,
) -> std::result::Result<(), Error> {
    // If a capture is invalid, no position of the match is pushed: `shim.lua` expects complete
    // matches.
    let before = positions.len();
    push_range(positions, whole);
    for index in 0..captures {
        match matcher.capture(index, whole) {
            Ok(Capture::Text(range)) => push_range(positions, &range),
            Ok(Capture::Position(at)) => {
                positions.push(at as Integer + 1);
                positions.push(NO_POSITION);
            }
            Err(error) => {
                positions.truncate(before);
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Pushes the first and the last position of a range, counted from 1.
fn push_range(positions: &mut Vec<Integer>, range: &Range<usize>) {
    positions.push(range.start as Integer + 1);
    positions.push(range.end as Integer);
}

/// Converts the maximum number of replacements as C does on this platform; values that don't fit
/// into 64 bits become 0.
fn whole(number: f64) -> usize {
    if number.abs() < i64::MAX as f64 {
        usize::try_from(number as i64 as i32).unwrap_or(0)
    } else {
        0
    }
}
