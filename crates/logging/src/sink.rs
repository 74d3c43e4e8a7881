//! The bounded buffer between logging threads and the writing thread, so that neither waits for the other.
//!
//! The buffer receives whole lines, escapes their control characters, and passes them on in batches. This module does
//! not depend on the content or the destination of lines.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use serde_json::json;
use tracing::{error, warn};
use tracing_subscriber::fmt::MakeWriter;

/// The number of recent lines kept for display.
const RECENT_LINES_MAX: usize = 500;
/// The maximum number of bytes kept of each recent line.
const RECENT_LINE_BYTES_MAX: usize = 2048;
/// The maximum size of the buffer in bytes; lines that don't fit are dropped. The batch that is being written may use
/// the same amount again.
const BUFFER_BYTES_MAX: usize = 1 << 20;
/// The maximum wait for pending lines to be written, such as the last lines of a process.
const FLUSH_WAIT: Duration = Duration::from_secs(1);
/// The target of the lines in which the log reports its own errors and dropped lines.
const TARGET: &str = "veche::logging";
/// The name of the writing thread.
const THREAD: &str = "log";

/// A destination of lines. Only the writing thread uses it, so it may block.
pub(super) trait LineOutput: Write + Send {
    /// Called before a batch of `length` bytes is written.
    fn prepare(&mut self, length: usize) -> io::Result<()> {
        let _ = length;
        Ok(())
    }

    /// Reopens the destination by its name.
    fn reopen(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LineOutput for io::Stderr {}

impl LineOutput for io::Sink {}

/// The buffer and its state.
pub(super) struct LogSink {
    json: AtomicBool,
    /// Whether errors of this log are written to this log. Otherwise they are written to the
    /// server's log.
    speaks: bool,
    /// Number of lines lost since the start, because the buffer was full or a write failed.
    lost: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    recent: RecentLines,
    /// The next destination, and the number of pending bytes that still belong to the previous one.
    next_output: Option<(usize, Box<dyn LineOutput>)>,
    /// Whether to reopen the destination before the next write.
    reopen: bool,
    dropped: u64,
    /// Number of lines lost by failed writes, which the next batch reports.
    unwritten: u64,
    is_writing: bool,
}

/// The last lines as they were written.
#[derive(Default)]
struct RecentLines {
    lines: VecDeque<Box<str>>,
    /// The number of all lines so far.
    count: u64,
}

impl RecentLines {
    fn push(&mut self, line: &[u8]) {
        if self.lines.len() == RECENT_LINES_MAX {
            self.lines.pop_front();
        }
        let shown = &line[..line.len().min(RECENT_LINE_BYTES_MAX)];
        let shown = String::from_utf8_lossy(shown);
        self.lines.push_back(shown.trim_end().into());
        self.count += 1;
    }
}

impl State {
    fn has_nothing_to_do(&self) -> bool {
        self.waiting.is_empty() && self.dropped == 0 && self.next_output.is_none() && !self.reopen
    }
}

impl LogSink {
    /// Creates the sink of the server's own log.
    pub(super) fn new(json: bool) -> Self {
        Self {
            json: AtomicBool::new(json),
            speaks: true,
            lost: AtomicU64::new(0),
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        }
    }

    /// Creates the sink of another log, whose lines the caller formats.
    pub(super) fn silent() -> Self {
        Self {
            speaks: false,
            ..Self::new(false)
        }
    }

    /// Starts the writing thread, which lives as long as the process.
    pub(super) fn start(self: &Arc<Self>, output: Box<dyn LineOutput>) -> io::Result<()> {
        let sink = Arc::clone(self);
        let name = if self.speaks { THREAD } else { "access log" };
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || sink.write_out(output))
            .map(drop)
    }

    /// Returns whether the calling thread is the writing thread, which can't wait for itself.
    pub(super) fn is_writer() -> bool {
        thread::current().name() == Some(THREAD)
    }

    /// Returns whether lines are JSON.
    pub(super) fn is_json(&self) -> bool {
        self.json.load(Ordering::Relaxed)
    }

    /// Switches to another format and destination. Pending lines are still written to the old
    /// destination.
    pub(super) fn switch(&self, json: bool, output: Box<dyn LineOutput>) {
        self.json.store(json, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.next_output = Some((state.waiting.len(), output));
        drop(state);
        self.changed.notify_all();
    }

    /// Reopens the destination before the next write, because the file was renamed.
    pub(super) fn reopen(&self) {
        self.state.lock().reopen = true;
        self.changed.notify_all();
    }

    /// Returns the number of lines lost since the start.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Returns the last lines, without those among the first `after` lines of the process. Also
    /// returns the number of all lines so far.
    pub(super) fn recent(&self, after: u64) -> (Vec<Box<str>>, u64) {
        let state = self.state.lock();
        let RecentLines { lines, count } = &state.recent;
        let gone = count - lines.len() as u64;
        // An `after` above the count comes from a previous process, so all recent lines are returned.
        let after = if after > *count { 0 } else { after };
        let known = after.saturating_sub(gone) as usize;
        (lines.iter().skip(known).cloned().collect(), *count)
    }

    /// Queues `count` lines that need no escaping.
    pub(super) fn push_lines(&self, lines: &[u8], count: u64) {
        let mut state = self.state.lock();
        if state.waiting.len() + lines.len() > BUFFER_BYTES_MAX {
            state.dropped += count;
            self.lost.fetch_add(count, Ordering::Relaxed);
            return;
        }
        let was_empty = state.waiting.is_empty();
        state.waiting.extend_from_slice(lines);
        drop(state);
        if was_empty {
            self.changed.notify_all();
        }
    }

    fn push(&self, line: &[u8]) {
        let mut state = self.state.lock();
        if state.waiting.len() + line.len() > BUFFER_BYTES_MAX {
            state.dropped += 1;
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let before = state.waiting.len();
        let State {
            waiting, recent, ..
        } = &mut *state;
        escape(line, waiting);
        recent.push(&waiting[before..]);
        drop(state);
        if before == 0 {
            self.changed.notify_all();
        }
    }

    /// The main function of the writing thread. If a write fails, its lines are lost. The log
    /// reports the loss when writing succeeds again.
    fn write_out(&self, mut output: Box<dyn LineOutput>) {
        let mut batch = Vec::new();
        let mut rotates = true;
        loop {
            let mut state = self.state.lock();
            state.is_writing = false;
            while state.has_nothing_to_do() {
                // Wakes the callers of `flush`.
                self.changed.notify_all();
                self.changed.wait(&mut state);
            }
            std::mem::swap(&mut batch, &mut state.waiting);
            let dropped = std::mem::take(&mut state.dropped) + std::mem::take(&mut state.unwritten);
            let next_output = state.next_output.take().map(|(until, next)| {
                // Lines after this position belong to the next destination, so they stay in the buffer.
                state.waiting = batch.split_off(until);
                next
            });
            let reopen = std::mem::take(&mut state.reopen);
            state.is_writing = true;
            drop(state);
            // If the new file can't be opened, the old one stays in use.
            if reopen && let Err(error) = output.reopen() {
                self.tell("can't reopen the log file", &error, &mut batch);
            }
            if let Err(error) = output.prepare(batch.len()) {
                // The failure is reported once; the rotation is retried with each batch.
                if std::mem::take(&mut rotates) {
                    self.tell("can't rotate the log file", &error, &mut batch);
                }
            } else {
                rotates = true;
            }
            if dropped > 0 && self.speaks {
                self.report_dropped(dropped, &mut batch);
            }
            let written = output.write_all(&batch).and_then(|()| output.flush());
            if written.is_err() {
                let lines = batch.iter().filter(|&&byte| byte == b'\n').count() as u64;
                self.lost.fetch_add(lines, Ordering::Relaxed);
                // The loss is reported with the next batch, because a report now would fail, too.
                self.state.lock().unwritten += lines + dropped;
            } else if dropped > 0 && !self.speaks {
                warn!(target: TARGET, dropped, "lines of the access log were dropped");
            }
            batch.clear();
            if let Some(next) = next_output {
                output = next;
            }
        }
    }

    fn report_dropped(&self, dropped: u64, batch: &mut Vec<u8>) {
        let line = if self.is_json() {
            json!({"level": "WARN", "target": TARGET, "message": "log lines dropped", "dropped": dropped})
                .to_string()
        } else {
            format!("WARN {TARGET}: {dropped} log lines dropped")
        };
        batch.extend_from_slice(line.as_bytes());
        batch.push(b'\n');
    }

    /// Reports an error of this log, either in the log's own next batch or in the server's log.
    fn tell(&self, what: &str, error: &io::Error, batch: &mut Vec<u8>) {
        if !self.speaks {
            error!(target: TARGET, %error, "access log: {what}");
            return;
        }
        let error = error.to_string();
        let line = if self.is_json() {
            json!({"level": "ERROR", "target": TARGET, "message": what, "error": error}).to_string()
        } else {
            format!("ERROR {TARGET}: {what} error={error}")
        };
        batch.extend_from_slice(line.as_bytes());
        batch.push(b'\n');
    }

    /// Waits at most [`FLUSH_WAIT`] until all lines so far are written.
    pub(super) fn flush(&self) {
        let mut state = self.state.lock();
        let is_busy = |state: &mut State| state.is_writing || !state.has_nothing_to_do();
        self.changed.wait_while_for(&mut state, is_busy, FLUSH_WAIT);
    }
}

/// Copies a line and escapes its control characters, for example as `\n`, `\t` or `\u001b`: C0
/// except the final newline, DEL, and C1.
///
/// JSON lines remain valid: their C0 characters are already escaped, and DEL and C1 occur only
/// inside strings.
fn escape(line: &[u8], out: &mut Vec<u8>) {
    let (body, end) = match line.split_last() {
        Some((b'\n', body)) => (body, &line[body.len()..]),
        _ => (line, &line[..0]),
    };
    let mut from = 0;
    let mut at = 0;
    while at < body.len() {
        let (code, length) = match body[at] {
            byte @ (0..=0x1f | 0x7f) => (byte, 1),
            // The UTF-8 encoding of U+0080 to U+009F.
            0xc2 if matches!(body.get(at + 1), Some(0x80..=0x9f)) => (body[at + 1], 2),
            _ => {
                at += 1;
                continue;
            }
        };
        out.extend_from_slice(&body[from..at]);
        match code {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => write!(out, "\\u{code:04x}").expect("writes to a Vec never fail"),
        }
        at += length;
        from = at;
    }
    out.extend_from_slice(&body[from..]);
    out.extend_from_slice(end);
}

/// Passes the line of each event to the sink. The layer that formats events writes each line in one piece.
pub(super) struct LineWriter(pub(super) Arc<LogSink>);

impl<'a> MakeWriter<'a> for LineWriter {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(&self.0)
    }
}

pub(super) struct Line<'a>(&'a LogSink);

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(line: &str) -> String {
        let mut out = Vec::new();
        escape(line.as_bytes(), &mut out);
        String::from_utf8(out).expect("still UTF-8")
    }

    #[test]
    fn control_characters_are_escaped_and_nothing_else() {
        for (line, expected) in [
            ("plain\n", "plain\n"),
            ("вече ©\n", "вече ©\n"),
            ("a\x1b[31mb\n", "a\\u001b[31mb\n"),
            ("forged\nline\r\n", "forged\\nline\\u000d\n"),
            (
                "del\x7f c1\u{9b}31m\u{80}\n",
                "del\\u007f c1\\u009b31m\\u0080\n",
            ),
            ("no end", "no end"),
            ("\n", "\n"),
            ("", ""),
        ] {
            assert_eq!(escaped(line), expected);
        }
        let json = escaped("{\"message\":\"c1\u{9b} del\x7f\"}\n");
        let value: serde_json::Value = serde_json::from_str(&json).expect("still JSON");
        assert_eq!(value["message"], "c1\u{9b} del\x7f");
        assert!(json.is_ascii());
    }

    #[test]
    fn the_last_lines_are_reported_once() {
        let sink = LogSink::new(false);
        assert_eq!(sink.recent(0), (Vec::new(), 0));
        for line in ["one\n", "two\x1b\n"] {
            sink.push(line.as_bytes());
        }
        let texts = |after| -> Vec<String> {
            let (lines, _) = sink.recent(after);
            lines.into_iter().map(String::from).collect()
        };
        assert_eq!(texts(0), ["one", "two\\u001b"]);
        assert_eq!(texts(1), ["two\\u001b"]);
        assert_eq!(texts(2), [""; 0]);
        // 99 exceeds the number of logged lines, so it is from another process and all lines are returned.
        assert_eq!(texts(99), ["one", "two\\u001b"]);
        for number in 0..RECENT_LINES_MAX {
            sink.push(format!("{number}\n").as_bytes());
        }
        let (lines, count) = sink.recent(1);
        assert_eq!(count, RECENT_LINES_MAX as u64 + 2);
        assert_eq!((lines.len(), &*lines[0]), (RECENT_LINES_MAX, "0"));
        sink.push(&[b'x'; 2 * RECENT_LINE_BYTES_MAX]);
        assert_eq!(texts(count)[0].len(), RECENT_LINE_BYTES_MAX);
    }

    /// A destination whose first write blocks until it is released.
    struct Stuck {
        started: Arc<Mutex<bool>>,
        let_go: Arc<Mutex<()>>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            *self.started.lock() = true;
            let _held = self.let_go.lock();
            self.written.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl LineOutput for Stuck {}

    /// A destination whose first writes fail because no space is left.
    struct Full {
        refusals: usize,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.refusals > 0 {
                self.refusals -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.written.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl LineOutput for Full {}

    #[test]
    fn unwritten_lines_are_counted_and_reported_with_the_next() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::new(LogSink::new(false));
        sink.push(b"one\n");
        sink.push(b"two\n");
        let output = Full {
            refusals: 1,
            written: Arc::clone(&written),
        };
        sink.start(Box::new(output)).expect("a thread");
        sink.flush();
        assert_eq!((sink.lost(), written.lock().len()), (2, 0));
        sink.push(b"three\n");
        sink.flush();
        let text = String::from_utf8(written.lock().clone()).expect("text");
        assert_eq!(text, "three\nWARN veche::logging: 2 log lines dropped\n");
    }

    #[test]
    fn a_stuck_output_blocks_no_writer_and_the_loss_is_reported() {
        let (started, let_go) = (Arc::new(Mutex::new(false)), Arc::new(Mutex::new(())));
        let written = Arc::new(Mutex::new(Vec::new()));
        let output = Stuck {
            started: Arc::clone(&started),
            let_go: Arc::clone(&let_go),
            written: Arc::clone(&written),
        };
        let sink = Arc::new(LogSink::new(false));
        let held = let_go.lock();
        sink.start(Box::new(output)).expect("a thread");
        sink.push(b"first\n");
        while !*started.lock() {
            thread::yield_now();
        }
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        let pushed = 2 * BUFFER_BYTES_MAX / line.len();
        for _ in 0..pushed {
            sink.push(&line);
        }
        drop(held);
        sink.flush();
        let text = String::from_utf8(written.lock().clone()).expect("text");
        let kept = text.lines().filter(|line| line.starts_with('x')).count();
        assert_eq!(kept, BUFFER_BYTES_MAX / line.len());
        assert_eq!(sink.lost(), (pushed - kept) as u64);
        assert!(text.starts_with("first\n"));
        assert!(text.ends_with(&format!("{} log lines dropped\n", pushed - kept)));
    }
}
