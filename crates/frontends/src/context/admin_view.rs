//! What the admin page shows of the process.

/// What the page shows of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminView {
    /// Every worker's counters, and what the process takes.
    Figures,
    /// What held workers up lately.
    Slow,
    /// The configuration in force.
    Config,
    /// The tables of scripts, and what they take.
    Tables,
    /// The last lines of the log.
    Log {
        /// Without so many first ones.
        after: u64,
    },
}

impl AdminView {
    /// What is called so; of the log all.
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
