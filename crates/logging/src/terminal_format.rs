//! The log format of `veche dev`: `18:30:02 WARN  what happened`, in local time, without lines that concern only
//! operators.
//!
//! Colours are added only when a finished line is written to the terminal, because control characters within a
//! line are escaped when it is formatted.

use std::fmt;
use std::io::{self, Write};

use jiff::Zoned;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;
use veche_terminal::{Colour, Colours};

use super::sink::LineOutput;

/// Targets whose `INFO` lines, such as the start and end of processes, are not useful to
/// developers.
const OPERATIONS: &[&str] = &[
    "veche::history",
    "veche::process",
    "veche::server",
    "veche::supervisor",
    "veche::supervisor::clients",
    "veche::supervisor::life",
    "veche::supervisor::stopping",
];

/// Returns whether to show a log line. Lines about the operation of the server are hidden.
pub(super) fn is_shown(metadata: &Metadata<'_>) -> bool {
    *metadata.level() != Level::INFO || !OPERATIONS.contains(&metadata.target())
}

/// Writes an event as one line.
pub(super) fn format<S, N>(
    context: &FmtContext<'_, S, N>,
    mut writer: Writer<'_>,
    event: &Event<'_>,
) -> fmt::Result
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    let now = Zoned::now();
    let level = event.metadata().level().as_str();
    write!(
        writer,
        "{:02}:{:02}:{:02} {level:<5} ",
        now.hour(),
        now.minute(),
        now.second()
    )?;
    context.format_fields(writer.by_ref(), event)?;
    writeln!(writer)
}

/// Standard error, with coloured times and levels if it is a terminal.
pub(super) struct TerminalFormat {
    out: io::Stderr,
    colours: Colours,
}

impl TerminalFormat {
    pub(super) fn new() -> Self {
        let out = io::stderr();
        let colours = Colours::of(&out);
        Self { out, colours }
    }
}

impl LineOutput for TerminalFormat {}

impl Write for TerminalFormat {
    /// Receives whole lines from the writing thread.
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(lines);
        let painted: String = text
            .split_inclusive('\n')
            .map(|line| painted(line, self.colours))
            .collect();
        self.out.write_all(painted.as_bytes())?;
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Returns a line with its time dimmed and its level coloured.
fn painted(line: &str, colours: Colours) -> String {
    const TIME: usize = "18:30:02".len();
    const LEVEL: usize = TIME + " ERROR".len();
    let (Some(time), Some(level), Some(rest)) =
        (line.get(..TIME), line.get(TIME..LEVEL), line.get(LEVEL..))
    else {
        return line.to_owned();
    };
    let colour = match level.trim() {
        "ERROR" => Colour::Red,
        "WARN" => Colour::Yellow,
        "INFO" => Colour::Green,
        "DEBUG" | "TRACE" => Colour::Dim,
        // A line that the log itself has written, without a time.
        _ => return line.to_owned(),
    };
    format!(
        "{}{}{rest}",
        colours.paint(Colour::Dim, time),
        colours.paint(colour, level)
    )
}
