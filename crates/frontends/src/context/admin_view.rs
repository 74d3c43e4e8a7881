//! The views of the admin page.

/// A view of the admin page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminView {
    /// Every worker's counters, and the process's resource use.
    Figures,
    /// Slow turns, handlers, requests and consumers.
    Slow,
    /// The configuration that is in force.
    Config,
    /// The tables of scripts with their memory.
    Tables,
    /// The last lines of the server process's log.
    Log {
        /// Number of lines, from the start of the process, that the view leaves out.
        after: u64,
    },
}

impl AdminView {
    /// Returns the view with this name. The log view begins with the first line.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "figures" => Self::Figures,
            "slow" => Self::Slow,
            "config" => Self::Config,
            "tables" => Self::Tables,
            "log" => Self::Log { after: 0 },
            _ => return None,
        })
    }
}
