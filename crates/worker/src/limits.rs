//! How much work one turn may do, and when the next one has to begin.

/// Deliveries of queued fan-outs in a turn: about two milliseconds of sends.
const DELIVERIES_MAX: usize = 512;

/// Messages of other workers in a turn.
const MESSAGES_MAX: usize = 4096;

/// Work of one connection in a turn: about a millisecond.
const CONNECTION_WORK: u64 = 1_000_000;

/// Work of all connections on what a turn's events bring.
const EVENT_WORK: u64 = 6_000_000;

/// Work of all connections on what earlier turns have left.
const BACKLOG_WORK: u64 = 4_000_000;

/// The default of [`TurnLimits::app_credits`]. A lane has 1,024 credits; the rest belongs to the hub.
pub const APP_CREDITS: u32 = 256;

/// Work that waits for credit, for room below a cap or for a disk is looked at again after this long.
pub(crate) const RETRY_MS: u64 = 1;

/// The same for less urgent work: a failing disk, the next connections of a drain.
pub(crate) const RETRY_LATER_MS: u64 = 20;

/// Spare memory and expired history are looked at this often, until nothing is left to free.
pub(crate) const MAINTENANCE_MS: u64 = 1000;

/// Counted work of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnLimits {
    /// Deliveries of queued fan-outs, at least 1.
    pub deliveries: usize,
    /// Messages of other workers, at least 1.
    pub messages: usize,
    /// Work of one connection, at least 1, in [units](veche_frontends::work) of about a nanosecond.
    pub connection_work: u64,
    /// Work of all connections on what the turn's events bring. Input beyond it waits for a later turn; the connection that
    /// was served longest ago continues first.
    pub event_work: u64,
    /// Work of all connections on input that earlier turns have left, at least 1.
    pub backlog_work: u64,
    /// Unfinished data messages in a lane from which on applications and emulation requests send no more, at least 1.
    pub app_credits: u32,
    /// Whether spare memory is trimmed and history expired once a second.
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

/// When the next turn has to begin if nothing happens before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnState {
    /// At once: work is left.
    Busy,
    /// After this many milliseconds, or with the next event; `None`: only with an event.
    Idle(Option<u64>),
}
