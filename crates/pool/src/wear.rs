//! When a process has to be replaced or killed.

use std::time::{Duration, Instant};

use veche_runtime::wire::EventName;

use crate::figures::RestartReason;
use crate::options::Options;
use crate::process::{PoolProcess, PoolProcessState};

/// Returns the event that a process has been handling for the longest time, and when the time limit of this event ends.
/// Returns `None` if the process handles no event or has another time limit: `start_timeout` while it starts, and
/// `stop_timeout` after a request to stop.
pub(crate) fn event_limit(
    process: &PoolProcess,
    timeout: Duration,
) -> Option<(Instant, EventName)> {
    let is_limited = process.state == PoolProcessState::Ready || process.is_leaving();
    let (since, name) = process.oldest().filter(|_| is_limited)?;
    Some((since + timeout, name))
}

/// Returns `MaxJobs` if the process has to be replaced because of its number of events.
pub(crate) fn spent(process: &PoolProcess, options: &Options) -> Option<RestartReason> {
    let is_spent = options.jobs_max > 0 && process.jobs > options.jobs_max;
    is_spent.then_some(RestartReason::MaxJobs)
}

/// Returns the reason if the process has to be replaced because of its age, idle time or memory.
pub(crate) fn worn(
    process: &PoolProcess,
    options: &Options,
    now: Instant,
) -> Option<RestartReason> {
    let since = |at: Instant| now.saturating_duration_since(at);
    if options.ttl.is_some_and(|ttl| since(process.started) >= ttl) {
        return Some(RestartReason::Ttl);
    }
    let idle = process.idle_since().map(since);
    if options
        .idle_ttl
        .is_some_and(|ttl| idle.is_some_and(|idle| idle >= ttl))
    {
        return Some(RestartReason::IdleTtl);
    }
    let max = options.rss_bytes_max?;
    (process.rss_bytes > max).then_some(RestartReason::RssMax)
}
