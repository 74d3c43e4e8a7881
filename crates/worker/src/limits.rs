//! Limits on the work of one turn, and the time of the next.

/// Deliveries of queued fan-outs per turn: about two milliseconds of sends.
const DELIVERIES_MAX: usize = 512;

/// Messages of other workers per turn.
const MESSAGES_MAX: usize = 4096;

/// Work of one connection per turn: about a millisecond.
const CONNECTION_WORK: u64 = 1_000_000;

/// Work of all connections per turn for new events.
const EVENT_WORK: u64 = 6_000_000;

/// Work of all connections per turn for input left by earlier turns.
const BACKLOG_WORK: u64 = 4_000_000;

/// The default of [`TurnLimits::app_credits`]. A lane has 1,024 credits; the remainder is reserved for the hub.
pub const APP_CREDITS: u32 = 256;

/// Retry interval of work that waits for credit, for room below a limit or for a disk.
pub(crate) const RETRY_MS: u64 = 1;

/// Retry interval of less urgent work: a failing disk, the next connections of a drain.
pub(crate) const RETRY_LATER_MS: u64 = 20;

/// Interval of freeing spare memory and expired history, while there is any.
pub(crate) const MAINTENANCE_MS: u64 = 1000;

/// Limits on the work of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnLimits {
    /// Deliveries of queued fan-outs, at least 1.
    pub deliveries: usize,
    /// Messages of other workers, at least 1.
    pub messages: usize,
    /// Work of one connection, at least 1, in [units](veche_frontends::work_budget) of about a nanosecond.
    pub connection_work: u64,
    /// Work of all connections for new events, in the same units. When it is used up, further input waits for a later
    /// turn, in which the connection served longest ago continues first.
    pub event_work: u64,
    /// Work of all connections for input left by earlier turns, at least 1, in the same units.
    pub backlog_work: u64,
    /// Number of unacknowledged data messages in a lane from which on applications and emulation requests stop sending,
    /// at least 1.
    pub app_credits: u32,
    /// Whether spare memory is freed and history expired once a second.
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

/// When the next turn has to begin without further events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnState {
    /// Immediately: work is left.
    Busy,
    /// After this many milliseconds or with the next event; `None`: only with an event.
    Idle(Option<u64>),
}
