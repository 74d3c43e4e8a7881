//! When a process has to be replaced or killed.

use std::time::{Duration, Instant};

use veche_runtime::wire::EventName;

use crate::figures::RestartReason;
use crate::options::Options;
use crate::process::PoolProcess;

/// Returns the event that a process has been handling for longer than the time limit, if any.
pub(crate) fn overdue(process: &PoolProcess, timeout: Duration, now: Instant) -> Option<EventName> {
    let (since, name) = process.oldest()?;
    (now.saturating_duration_since(since) >= timeout).then_some(name)
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
