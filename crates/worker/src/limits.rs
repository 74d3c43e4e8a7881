//! Limits on the work of one turn, and the time at which the next turn begins.

/// Default maximum number of deliveries of queued fan-outs per turn: about two milliseconds of work.
const DELIVERIES_MAX: usize = 512;

/// Default maximum number of messages from other workers per turn.
const MESSAGES_MAX: usize = 4096;

/// Default maximum work of one connection per turn, in units of about a nanosecond: about a millisecond.
const CONNECTION_WORK: u64 = 1_000_000;

/// Default maximum work of all connections per turn for new events, in units of about a nanosecond.
const EVENT_WORK: u64 = 6_000_000;

/// Default maximum work of all connections per turn for input left over from earlier turns, in units of about a
/// nanosecond.
const BACKLOG_WORK: u64 = 4_000_000;

/// The default of [`TurnLimits::app_credits`]. A lane has 1,024 credits; the rest are reserved for
/// the hub.
pub const APP_CREDITS: u32 = 256;

/// Delay in milliseconds before a retry of work that waits for a credit, for a queue to drain or
/// for a disk.
pub(crate) const RETRY_MS: u64 = 1;

/// Delay in milliseconds before a retry of less urgent work: while the disk fails, or during a
/// drain.
pub(crate) const RETRY_LATER_MS: u64 = 20;

/// Interval in milliseconds at which spare memory is freed and history expires, while there is
/// spare memory or history.
pub(crate) const MAINTENANCE_MS: u64 = 1000;

/// Limits on the work of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnLimits {
    /// Maximum number of deliveries of queued fan-outs, at least 1.
    pub deliveries: usize,
    /// Maximum number of messages from other workers, at least 1.
    pub messages: usize,
    /// Maximum work of one connection per turn, at least 1, in [units](veche_frontends::work_budget) of about a
    /// nanosecond.
    pub connection_work: u64,
    /// Maximum work of all connections for new events, in the units of `connection_work`. Input beyond it waits for a
    /// later turn, in which the connection served longest ago continues first.
    pub event_work: u64,
    /// Maximum work of all connections for input left over from earlier turns, at least 1, in the units of
    /// `connection_work`.
    pub backlog_work: u64,
    /// Applications and emulation requests send no further message on a lane that has this many unprocessed data
    /// messages. At least 1.
    pub app_credits: u32,
    /// Whether spare memory is freed and history expires once a second.
    pub maintains: bool,
}

impl Default for TurnLimits {
    fn default() -> Self {
        Self {
            deliveries: DELIVERIES_MAX,
            messages: MESSAGES_MAX,
            connection_work: CONNECTION_WORK,
            event_work: EVENT_WORK,
            backlog_work: BACKLOG_WORK,
            app_credits: APP_CREDITS,
            maintains: true,
        }
    }
}

/// The time at which the next turn has to begin if no event arrives earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnState {
    /// The next turn begins immediately, because work is left.
    Busy,
    /// The next turn begins with the next event, or after this many milliseconds if they are given.
    Idle(Option<u64>),
}
