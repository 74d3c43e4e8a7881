//! Logs: `tracing` events as lines of text or JSON, to standard error or to the end of a file.
//!
//! A thread that logs never waits for a disk or a terminal: a line is copied into one bounded buffer, and a
//! thread of its own writes the buffer out. Lines that find the buffer full are dropped, and a line says how
//! many. What peers send can't forge a line or steer a terminal: control characters are escaped here, for all
//! events alike. Who logs what at which level is not decided here.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use serde_json::json;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{self, FormatEvent, FormatFields};
use tracing_subscriber::fmt::{FmtContext, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

use crate::config::{Log, LogFormat, LogLevel};

/// What may wait to be written; twice that while a write is under way.
const BUFFER_BYTES_MAX: usize = 1 << 20;
/// How long the last lines may take at the end of the process.
const FLUSH_WAIT: Duration = Duration::from_secs(1);

/// Why there are no logs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    /// The file can't be opened for appending.
    #[error("can't open the log file {path}: {source}")]
    File { path: PathBuf, source: io::Error },
    /// The system has no thread to write them.
    #[error("can't start the log thread: {0}")]
    Thread(io::Error),
    /// Logs were started before in this process.
    #[error("logs were started twice")]
    Twice,
}

/// The running logs; dropping it writes out what waits.
pub(crate) struct Logs {
    sink: Arc<Sink>,
    level: reload::Handle<LevelFilter, Registry>,
}

/// Where lines go: made by [`open`].
pub(crate) struct Output(Box<dyn Write + Send>);

/// Opens what `log` names, without using it yet.
pub(crate) fn open(log: &Log) -> Result<Output, LogError> {
    let Some(path) = &log.file else {
        return Ok(Output(Box::new(io::stderr())));
    };
    match OpenOptions::new().append(true).create(true).open(path) {
        Ok(file) => Ok(Output(Box::new(file))),
        Err(source) => Err(LogError::File {
            path: path.clone(),
            source,
        }),
    }
}

/// Sends this process's events where `log` says, from now on.
pub(crate) fn start(log: &Log) -> Result<Logs, LogError> {
    let output = open(log)?;
    let sink = Arc::new(Sink::new(log.format));
    let (level_layer, level) = reload::Layer::new(filter(log.level));
    let lines = fmt::layer()
        .with_ansi(false)
        .event_format(EitherFormat::new(&sink))
        .with_writer(Lines(Arc::clone(&sink)));
    tracing_subscriber::registry()
        .with(level_layer)
        .with(lines)
        .try_init()
        .map_err(|_| LogError::Twice)?;
    let writer = Arc::clone(&sink);
    thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || writer.write_out(output.0))
        .map_err(LogError::Thread)?;
    Ok(Logs { sink, level })
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

impl Logs {
    /// Goes on with the level and format of `log`, in `output`, which [`open`] made of it.
    pub(crate) fn switch(&self, log: &Log, output: Output) {
        // Fails only when the subscriber is gone, which lives as long as the process.
        let _ = self.level.reload(filter(log.level));
        self.sink
            .json
            .store(log.format == LogFormat::Json, Ordering::Relaxed);
        self.sink.state.lock().next_output = Some(output.0);
        self.sink.changed.notify_all();
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        self.sink.finish();
    }
}

/// Text or JSON, as the sink says at the moment.
struct EitherFormat {
    sink: Arc<Sink>,
    text: format::Format,
    json: format::Format<format::Json>,
}

impl EitherFormat {
    fn new(sink: &Arc<Sink>) -> Self {
        let json = format::json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false);
        Self {
            sink: Arc::clone(sink),
            text: format::format().with_ansi(false),
            json,
        }
    }
}

impl<S, N> FormatEvent<S, N> for EitherFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: format::Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        if self.sink.json.load(Ordering::Relaxed) {
            self.json.format_event(context, writer, event)
        } else {
            self.text.format_event(context, writer, event)
        }
    }
}

/// The buffer between those who log and the log thread.
struct Sink {
    json: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    next_output: Option<Box<dyn Write + Send>>,
    dropped: u64,
    closing: bool,
    closed: bool,
}

impl State {
    fn has_nothing_to_do(&self) -> bool {
        self.waiting.is_empty() && self.dropped == 0 && self.next_output.is_none() && !self.closing
    }
}

impl Sink {
    fn new(format: LogFormat) -> Self {
        Self {
            json: AtomicBool::new(format == LogFormat::Json),
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        }
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
    fn write_out(&self, mut output: Box<dyn Write + Send>) {
        let mut batch = Vec::new();
        loop {
            let mut state = self.state.lock();
            while state.has_nothing_to_do() {
                self.changed.wait(&mut state);
            }
            std::mem::swap(&mut batch, &mut state.waiting);
            let dropped = std::mem::take(&mut state.dropped);
            let next_output = state.next_output.take();
            let ends = state.closing && batch.is_empty() && dropped == 0;
            state.closed = ends;
            drop(state);
            if ends {
                self.changed.notify_all();
                return;
            }
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
        let line = if self.json.load(Ordering::Relaxed) {
            json!({"level": "WARN", "target": module_path!(), "message": "log lines dropped", "dropped": dropped})
                .to_string()
        } else {
            format!("WARN {}: {dropped} log lines dropped", module_path!())
        };
        batch.extend_from_slice(line.as_bytes());
        batch.push(b'\n');
    }

    fn finish(&self) {
        let mut state = self.state.lock();
        state.closing = true;
        self.changed.notify_all();
        while !state.closed {
            if self.changed.wait_for(&mut state, FLUSH_WAIT).timed_out() {
                return;
            }
        }
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
struct Lines(Arc<Sink>);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(&self.0)
    }
}

struct Line<'a>(&'a Sink);

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
        let sink = Arc::new(Sink::new(LogFormat::Text));
        let writer = Arc::clone(&sink);
        let held = let_go.lock();
        let thread = thread::spawn(move || writer.write_out(Box::new(output)));
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
        sink.finish();
        thread.join().expect("no panic");
        let text = String::from_utf8(written.lock().clone()).expect("text");
        let kept = text.lines().filter(|line| line.starts_with('x')).count();
        assert_eq!(kept, BUFFER_BYTES_MAX / line.len());
        assert!(text.starts_with("first\n"));
        assert!(text.ends_with(&format!("{} log lines dropped\n", pushed - kept)));
    }
}
