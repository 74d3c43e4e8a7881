//! The buffer between those who log and the log thread: bounded, so that neither waits for the other.
//!
//! Lines come in whole and leave in batches, with their control characters escaped on the way. What a line says
//! and where it is written is not known here.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use serde_json::json;
use tracing_subscriber::fmt::MakeWriter;

/// What may wait to be written; twice that while a write is under way.
const BUFFER_BYTES_MAX: usize = 1 << 20;
/// How long the last lines of a process may take.
const FLUSH_WAIT: Duration = Duration::from_secs(1);
/// The name of the log thread.
const THREAD: &str = "log";

/// Where lines are written.
pub(super) type Output = Box<dyn Write + Send>;

/// See the module.
pub(super) struct Sink {
    json: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    next_output: Option<Output>,
    dropped: u64,
    is_writing: bool,
}

impl State {
    fn has_nothing_to_do(&self) -> bool {
        self.waiting.is_empty() && self.dropped == 0 && self.next_output.is_none()
    }
}

impl Sink {
    pub(super) fn new(json: bool) -> Self {
        Self {
            json: AtomicBool::new(json),
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        }
    }

    /// Starts the log thread, which lives as long as the process.
    pub(super) fn start(self: &Arc<Self>, output: Output) -> io::Result<()> {
        let sink = Arc::clone(self);
        thread::Builder::new()
            .name(THREAD.to_owned())
            .spawn(move || sink.write_out(output))
            .map(drop)
    }

    /// Whether the calling thread is the log thread, which can't wait for itself.
    pub(super) fn is_writer() -> bool {
        thread::current().name() == Some(THREAD)
    }

    /// Whether lines are JSON.
    pub(super) fn is_json(&self) -> bool {
        self.json.load(Ordering::Relaxed)
    }

    /// Goes on in another format and output; what waits goes to the old one.
    pub(super) fn switch(&self, json: bool, output: Output) {
        self.json.store(json, Ordering::Relaxed);
        self.state.lock().next_output = Some(output);
        self.changed.notify_all();
    }

    fn push(&self, line: &[u8]) {
        let mut state = self.state.lock();
        if state.waiting.len() + line.len() > BUFFER_BYTES_MAX {
            state.dropped += 1;
            return;
        }
        let was_empty = state.waiting.is_empty();
        escape(line, &mut state.waiting);
        drop(state);
        if was_empty {
            self.changed.notify_all();
        }
    }

    /// The log thread. A write that fails loses its lines: there is nowhere to say so but the log itself.
    fn write_out(&self, mut output: Output) {
        let mut batch = Vec::new();
        loop {
            let mut state = self.state.lock();
            state.is_writing = false;
            while state.has_nothing_to_do() {
                // For who waits in `flush`.
                self.changed.notify_all();
                self.changed.wait(&mut state);
            }
            std::mem::swap(&mut batch, &mut state.waiting);
            let dropped = std::mem::take(&mut state.dropped);
            let next_output = state.next_output.take();
            state.is_writing = true;
            drop(state);
            if dropped > 0 {
                self.tell_dropped(dropped, &mut batch);
            }
            let _ = output.write_all(&batch).and_then(|()| output.flush());
            batch.clear();
            if let Some(next) = next_output {
                output = next;
            }
        }
    }

    fn tell_dropped(&self, dropped: u64, batch: &mut Vec<u8>) {
        const TARGET: &str = "veche::logging";
        let line = if self.is_json() {
            json!({"level": "WARN", "target": TARGET, "message": "log lines dropped", "dropped": dropped})
                .to_string()
        } else {
            format!("WARN {TARGET}: {dropped} log lines dropped")
        };
        batch.extend_from_slice(line.as_bytes());
        batch.push(b'\n');
    }

    /// Waits until all lines so far are written, but not for long.
    pub(super) fn flush(&self) {
        let mut state = self.state.lock();
        let is_busy = |state: &mut State| state.is_writing || !state.has_nothing_to_do();
        self.changed.wait_while_for(&mut state, is_busy, FLUSH_WAIT);
    }
}

/// Copies a line with its control characters escaped as `\u001b`: C0 but for the closing newline, DEL, C1.
///
/// JSON comes with C0 escaped, and the others can only stand within a string there: it stays JSON.
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
            // U+0080 to U+009F in UTF-8.
            0xc2 if matches!(body.get(at + 1), Some(0x80..=0x9f)) => (body[at + 1], 2),
            _ => {
                at += 1;
                continue;
            }
        };
        out.extend_from_slice(&body[from..at]);
        write!(out, "\\u{code:04x}").expect("a Vec takes every write");
        at += length;
        from = at;
    }
    out.extend_from_slice(&body[from..]);
    out.extend_from_slice(end);
}

/// Hands each event's line, which the layer writes in one piece, to the sink.
pub(super) struct Lines(pub(super) Arc<Sink>);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(&self.0)
    }
}

pub(super) struct Line<'a>(&'a Sink);

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
            ("forged\nline\r\n", "forged\\u000aline\\u000d\n"),
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

    /// An output whose first write lasts until it is let go.
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

    #[test]
    fn a_stuck_output_holds_nobody_up_and_the_loss_is_told() {
        let (started, let_go) = (Arc::new(Mutex::new(false)), Arc::new(Mutex::new(())));
        let written = Arc::new(Mutex::new(Vec::new()));
        let output = Stuck {
            started: Arc::clone(&started),
            let_go: Arc::clone(&let_go),
            written: Arc::clone(&written),
        };
        let sink = Arc::new(Sink::new(false));
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
        assert!(text.starts_with("first\n"));
        assert!(text.ends_with(&format!("{} log lines dropped\n", pushed - kept)));
    }
}
