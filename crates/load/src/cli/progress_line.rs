//! The terminal output of a run: the progress line, colours, and the width of the terminal.

use std::io::{self, IsTerminal, Write};

use crate::report::{Style, progress};
use crate::{RunProgress, RunStage};

/// Returns the style for standard output.
pub(super) fn style() -> Style {
    let is_terminal = io::stdout().is_terminal();
    let no_color = std::env::var_os("NO_COLOR");
    let columns = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let columns = columns.map(|size| usize::from(size.ws_col));
    Style::new(is_terminal, no_color.as_deref(), columns)
}

/// The progress line, on standard error if that is a terminal.
pub(super) struct ProgressLine {
    is_shown: bool,
    planned_s: Option<f64>,
    /// The phase of a scenario, shown instead of the stage.
    phase: Option<String>,
    /// The stage and the second that are shown, and the number of messages received before that
    /// second.
    last: Option<(RunStage, u64, u64)>,
    per_second: f64,
}

impl ProgressLine {
    /// Creates a line without content. `planned_ns` is the planned duration including the warm-up, if known.
    pub(super) fn new(is_quiet: bool, planned_ns: Option<u64>) -> Self {
        Self {
            is_shown: !is_quiet && io::stderr().is_terminal(),
            planned_s: planned_ns.map(|ns| ns as f64 / 1e9),
            phase: None,
            last: None,
            per_second: 0.0,
        }
    }

    /// Sets the name of a scenario's phase, or of several that run together.
    pub(super) fn of_phase(self, name: String) -> Self {
        Self {
            phase: Some(name),
            ..self
        }
    }

    /// Updates the line. Called often, but writes only once a second and when the stage changes.
    pub(super) fn show(&mut self, now: &RunProgress) {
        if !self.is_shown {
            return;
        }
        let second = now.for_ns / 1_000_000_000;
        match self.last {
            Some((stage, shown, _)) if stage == now.stage && shown == second => return,
            Some((stage, shown, received)) if stage == now.stage => {
                let seconds = (second - shown) as f64;
                self.per_second = now.received.saturating_sub(received) as f64 / seconds;
            }
            _ => {}
        }
        self.last = Some((now.stage, second, now.received));
        let line = progress::line(
            &progress::Progress {
                elapsed_s: now.elapsed_ns as f64 / 1e9,
                planned_s: self.planned_s,
                phase: match now.stage {
                    _ if self.phase.is_some() => self.phase.as_deref().unwrap_or_default(),
                    RunStage::Connecting => "connecting",
                    RunStage::WarmingUp => "warm-up",
                    RunStage::Measuring => "measuring",
                    RunStage::Finishing => "finishing",
                },
                open: now.opened,
                asked: now.asked,
                per_second: self.per_second,
                p99_us: now.p99_ns.map(|ns| ns as f64 / 1e3),
                errors: now.errors,
            },
            columns(),
        );
        // An error of standard error can't be reported.
        let _ = write!(io::stderr(), "\r{line}\x1b[K");
    }

    /// Erases the progress line, so that other output can be written.
    pub(super) fn clear(&mut self) {
        if self.is_shown && self.last.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn columns() -> usize {
    rustix::termios::tcgetwinsize(io::stderr()).map_or(80, |size| usize::from(size.ws_col))
}
