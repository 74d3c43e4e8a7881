//! A pool of threads that check passwords, each with its own helper process. The threads start on demand and end when idle.
//! The callers limit the length of the queue.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use veche_clock::{Clock, now};
use veche_config as config;
use veche_pam::client::{Helper, HelperError};
use veche_pam::{PamReply, PamRequest};
use veche_webhooks::{BackendResult, CircuitBreaker};

use crate::cache::AnswerDigest;
use crate::metrics::IdentityMetrics;

/// Stack size of a thread in bytes; small, since the thread only communicates with its helper.
const STACK_BYTES: usize = 256 << 10;
/// The number of consecutive failed starts after which no helper is started for [`PAUSE_MS`].
const FAILURES_MAX: u32 = 3;
const PAUSE_MS: u64 = 1_000;
/// The time limit for a new helper to load the PAM library.
const START_WAIT: Duration = Duration::from_secs(10);

/// A request to check a password.
pub(super) struct PasswordCheck {
    pub(super) request: PamRequest,
    /// The deadline of the check. Time in the queue counts too.
    pub(super) until: Instant,
    pub(super) ticket: CheckTicket,
    pub(super) observer: Arc<dyn CheckObserver>,
}

/// Identifies the client's request that caused a password check.
pub(super) struct CheckTicket {
    pub(super) digest: AnswerDigest,
    pub(super) client: IpAddr,
}

/// Receives the results of checks.
pub(super) trait CheckObserver: Send + Sync {
    /// Returns how long the client has to wait, in seconds, if it has sent too many wrong passwords
    /// since the check was queued.
    fn retry_after_s(&self, client: IpAddr) -> Option<u32>;
    /// Called once for each check, on a thread of the pool.
    fn checked(&self, ticket: CheckTicket, outcome: Result<PamReply, CheckError>);
}

/// The reason why a check has no result.
#[derive(Debug)]
pub(super) enum CheckError {
    /// The password was not checked, because the client's address has to wait.
    Barred { wait_s: u32 },
    /// The password was not checked, because the deadline passed before a helper was free.
    Late,
    /// The password was not checked, because no helper could be started.
    Helper(String),
    /// A helper did not answer before the deadline.
    Unanswered,
    /// The helper ended during the check.
    Gone,
}

impl From<HelperError> for CheckError {
    fn from(error: HelperError) -> Self {
        match error {
            HelperError::Unsent => {
                Self::Helper("the helper ended before the check was sent".to_owned())
            }
            HelperError::Unanswered => Self::Unanswered,
            HelperError::Gone => Self::Gone,
        }
    }
}

/// The pool. When it is dropped, its threads end after their current checks.
#[derive(Debug)]
pub(super) struct HelperPool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    threads_max: u32,
    idle: Duration,
    figures: Arc<IdentityMetrics>,
    clock: Clock,
    breaker: Mutex<CircuitBreaker>,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<PasswordCheck>,
    threads: u32,
    /// The number of idle threads.
    resting: u32,
    is_closed: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = out.debug_struct("State");
        shown.field("queue", &self.queue.len());
        shown
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

impl HelperPool {
    pub(super) fn new(options: &config::PamConfig, figures: &Arc<IdentityMetrics>) -> Self {
        Self(Arc::new(Inner {
            threads_max: options.helpers,
            idle: options.helper_idle,
            figures: Arc::clone(figures),
            clock: Clock::new(),
            breaker: Mutex::new(CircuitBreaker::new(FAILURES_MAX, PAUSE_MS)),
            state: Mutex::default(),
            wake: Condvar::new(),
        }))
    }

    /// Queues a password for the next free helper.
    pub(super) fn submit(&self, job: PasswordCheck) {
        let inner = &self.0;
        let mut state = inner.state.lock();
        state.queue.push_back(job);
        let needs_thread = state.queue.len() > state.resting as usize;
        if !needs_thread || state.threads >= inner.threads_max {
            inner.wake.notify_one();
            return;
        }
        state.threads += 1;
        let work = Arc::clone(inner);
        let begun = thread::Builder::new()
            .name("pam".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || work.work());
        let Err(why) = begun else { return };
        state.threads -= 1;
        if state.threads > 0 {
            return;
        }
        // No thread would process these jobs, so they fail.
        let jobs = std::mem::take(&mut state.queue);
        drop(state);
        for PasswordCheck {
            ticket, observer, ..
        } in jobs
        {
            let why = format!("can't start a thread for a helper: {why}");
            observer.checked(ticket, Err(CheckError::Helper(why)));
        }
    }
}

impl Drop for HelperPool {
    fn drop(&mut self) {
        self.0.state.lock().is_closed = true;
        self.0.wake.notify_all();
    }
}

impl Inner {
    /// The main function of a thread.
    fn work(&self) {
        // Drops the capability to bind low ports, which a systemd unit gives to all its processes,
        // so that helpers don't inherit it. This affects only the current thread. The call fails if
        // the thread does not have the capability.
        let _ = rustix::thread::clear_ambient_capability_set();
        let mut helper = None;
        while let Some(job) = self.next() {
            let outcome = self.check_password(&mut helper, &job);
            let PasswordCheck {
                request,
                ticket,
                observer,
                ..
            } = job;
            // Wipes the request, which contains the password, from memory.
            drop(request);
            observer.checked(ticket, outcome);
        }
        self.end(&mut helper);
    }

    /// Waits for the next check and removes it from the queue. `None` ends the thread.
    fn next(&self) -> Option<PasswordCheck> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                return Some(job);
            }
            if !state.is_closed {
                state.resting += 1;
                let waited = self.wake.wait_for(&mut state, self.idle);
                state.resting -= 1;
                if !waited.timed_out() || !state.queue.is_empty() {
                    continue;
                }
            }
            state.threads -= 1;
            return None;
        }
    }

    fn check_password(
        &self,
        helper: &mut Option<Helper>,
        job: &PasswordCheck,
    ) -> Result<PamReply, CheckError> {
        if let Some(wait_s) = job.observer.retry_after_s(job.ticket.client) {
            return Err(CheckError::Barred { wait_s });
        }
        if now() >= job.until {
            return Err(CheckError::Late);
        }
        if helper.as_ref().is_some_and(|helper| !helper.is_alive()) {
            self.end(helper);
        }
        let ready = match helper {
            Some(ready) => ready,
            None => helper.insert(self.start()?),
        };
        // The deadline may have passed while the helper started. The helper is kept for the next
        // check.
        if now() >= job.until {
            return Err(CheckError::Late);
        }
        let answer = ready.ask(&job.request, job.until);
        if answer.is_err() {
            // The helper is stuck in a PAM module, or has ended.
            self.end(helper);
        }
        Ok(answer?)
    }

    fn start(&self) -> Result<Helper, CheckError> {
        let now_ms = || self.clock.now_ms();
        if !self.breaker.lock().may_ask(now_ms()) {
            let why =
                "a helper process failed to start a moment ago: waiting before the next attempt"
                    .to_owned();
            return Err(CheckError::Helper(why));
        }
        let started = Helper::start(START_WAIT);
        let ending = match started {
            Ok(_) => BackendResult::Answered,
            Err(_) => BackendResult::Unavailable,
        };
        self.breaker.lock().ended(ending, "", now_ms());
        let helper = started.map_err(CheckError::Helper)?;
        self.figures.passwords.started.add(1);
        self.figures.passwords.helpers.add(1);
        Ok(helper)
    }

    fn end(&self, helper: &mut Option<Helper>) {
        if helper.take().is_some() {
            self.figures.passwords.helpers.sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::{
        CapabilitySet, capabilities, capability_is_in_ambient_set,
        configure_capability_in_ambient_set, set_capabilities,
    };

    use super::*;
    use crate::pam::tests::options;

    #[test]
    fn what_a_unit_hands_down_is_not_for_helpers() {
        let low_ports = CapabilitySet::NET_BIND_SERVICE;
        let mut own = capabilities(None).expect("the system tells");
        own.inheritable |= low_ports;
        // Capabilities apply to this thread only.
        let raised = set_capabilities(None, own)
            .and_then(|()| configure_capability_in_ambient_set(low_ports, true));
        if raised.is_err() {
            return eprintln!("this user can hand down no capability: nothing tested");
        }
        assert_eq!(capability_is_in_ambient_set(low_ports), Ok(true));
        let pool = HelperPool::new(&options(), &Arc::default());
        let mut state = pool.0.state.lock();
        (state.threads, state.is_closed) = (1, true);
        drop(state);
        pool.0.work();
        assert_eq!(capability_is_in_ambient_set(low_ports), Ok(false));
    }
}
