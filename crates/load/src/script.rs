//! Users simulated by a script. This module counts and times their actions; the caller provides the script runtime,
//! which calls [`ScriptRun`] from its threads.
//!
//! A user runs one session after the other until the time is over, and performs timed actions in
//! each session. An action that began in the measured time counts in the latencies. An action that
//! ended in the measured time counts in the throughput. After the time is over, no action or
//! session begins, and running actions have [`ScriptPlan::grace_ns`] to end.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;

use crate::clock::{SECOND, now_ns};
use crate::control::TotalProgress;
use crate::latency::Times;
use crate::plan::part;
use crate::report::model::{ActionFigures, ScriptTally};
use crate::tally::{ErrorCase, ErrorCause, Tally};

/// Maximum number of action names per run.
const NAMES_MAX: usize = 1000;

/// The users of a script, and the parameters of the measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptPlan {
    /// The server's address, for the script and the report.
    pub url: String,
    /// Number of users over all threads.
    pub users: u32,
    /// Users started per second; `None`: all at once.
    pub users_per_second: Option<f64>,
    /// Number of threads that simulate the users.
    pub threads: u32,
    /// Measured time in nanoseconds.
    pub duration_ns: u64,
    /// Duration of the warm-up before the measured time, in nanoseconds.
    pub warmup_ns: u64,
    /// Time limit in nanoseconds for actions that are still running at the end of the measured
    /// time.
    pub grace_ns: u64,
}

/// The state of a run of scripted users, shared by all threads. Threads are numbered from 0.
/// Times are nanoseconds of the monotonic clock.
#[derive(Debug)]
pub struct ScriptRun {
    plan: ScriptPlan,
    /// Time of the start; `u64::MAX` while unknown.
    start_ns: AtomicU64,
    /// Time of an early stop; `u64::MAX` if the run was not stopped.
    stopped_ns: AtomicU64,
    /// Whether a second stop has also ended the wait for running actions.
    is_aborted: AtomicBool,
    begun_users: AtomicU64,
    under_way: AtomicU64,
    parts: Vec<Mutex<ThreadScriptTally>>,
}

/// The counts of one thread.
#[derive(Debug, Default)]
struct ThreadScriptTally {
    tally: Tally,
    sessions: u64,
    sessions_failed: u64,
    actions: BTreeMap<String, Timed>,
}

/// The counts and durations of the actions with one name.
#[derive(Clone, Debug, Default)]
struct Timed {
    times: Times,
    count: u64,
    failed: u64,
    example: Option<String>,
}

impl ScriptRun {
    /// Creates a run that has not started.
    #[must_use]
    pub fn new(plan: ScriptPlan) -> Self {
        let parts = (0..plan.threads).map(|_| Mutex::default()).collect();
        Self {
            plan,
            start_ns: AtomicU64::new(u64::MAX),
            stopped_ns: AtomicU64::new(u64::MAX),
            is_aborted: AtomicBool::new(false),
            begun_users: AtomicU64::new(0),
            under_way: AtomicU64::new(0),
            parts,
        }
    }

    /// Returns the plan of the run.
    #[must_use]
    pub fn plan(&self) -> &ScriptPlan {
        &self.plan
    }

    /// Returns the range of a thread's users. Users are numbered from 0 over all threads.
    #[must_use]
    pub fn users(&self, thread: u32) -> Range<u32> {
        part(self.plan.users, thread, self.plan.threads.max(1))
    }

    /// Returns the seconds until a user starts; `None` until the start time of the run is set.
    #[must_use]
    pub fn begins_in(&self, user: u32) -> Option<f64> {
        let start_ns = self.start_ns.load(SeqCst);
        let place = self
            .plan
            .users_per_second
            .map(|rate| f64::from(user) / rate);
        let after_ns = (place.unwrap_or(0.0) * SECOND as f64) as u64;
        let wait_ns = start_ns.saturating_add(after_ns).saturating_sub(now_ns());
        (start_ns != u64::MAX).then(|| wait_ns as f64 / SECOND as f64)
    }

    /// Counts a started user.
    pub fn user_begins(&self) {
        self.begun_users.fetch_add(1, Relaxed);
    }

    /// Returns the current time of the monotonic clock in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        now_ns()
    }

    /// Returns whether the time of the run is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        now_ns() >= self.until_ns()
    }

    /// Counts a started action and returns the current time. Returns `None` if the time of the run is
    /// over; the action must then not begin. Each started action must be followed by
    /// [`action_ended`](Self::action_ended).
    #[must_use]
    pub fn action_begins(&self, thread: u32) -> Option<u64> {
        let now_ns = now_ns();
        if now_ns >= self.until_ns() {
            return None;
        }
        self.under_way.fetch_add(1, SeqCst);
        let mut part = self.parts[thread as usize].lock();
        part.tally.sent += u64::from(now_ns >= self.measured_from_ns());
        Some(now_ns)
    }

    /// Counts an ended action, successful or not.
    pub fn action_ended(&self, thread: u32, name: &str, began_ns: u64, error: Option<&str>) {
        self.count(thread, name, began_ns, error);
        self.under_way.fetch_sub(1, SeqCst);
    }

    /// Counts a successful action with its duration.
    pub fn record(&self, thread: u32, name: &str, latency_ns: u64) {
        let began_ns = now_ns().saturating_sub(latency_ns);
        let mut part = self.parts[thread as usize].lock();
        part.tally.sent += u64::from(began_ns >= self.measured_from_ns());
        drop(part);
        self.count(thread, name, began_ns, None);
    }

    fn count(&self, thread: u32, name: &str, began_ns: u64, error: Option<&str>) {
        let now_ns = now_ns();
        let latency_ns = now_ns.saturating_sub(began_ns);
        let (from_ns, until_ns) = (self.measured_from_ns(), self.until_ns());
        let is_within = (from_ns..until_ns).contains(&now_ns);
        let at_ns = now_ns.saturating_sub(from_ns);
        let mut part = self.parts[thread as usize].lock();
        let ThreadScriptTally { tally, actions, .. } = &mut *part;
        let is_full = actions.len() >= NAMES_MAX && !actions.contains_key(name);
        let name = if is_full { "(others)" } else { name };
        let timed = match actions.get_mut(name) {
            Some(timed) => timed,
            None => actions.entry(name.to_owned()).or_default(),
        };
        if let Some(error) = error {
            timed.failed += 1;
            timed.example.get_or_insert_with(|| error.to_owned());
            tally.fault(&ErrorCase::new(
                ErrorCause::Script,
                format!("{name}: {error}"),
            ));
            if is_within {
                tally.latency.error(at_ns);
            }
        } else {
            if began_ns >= from_ns {
                timed.times.record(latency_ns);
                tally.latency.times.record(latency_ns);
                tally.received += 1;
            }
            if is_within {
                timed.count += 1;
                tally.came += 1;
                tally.latency.came(at_ns, latency_ns);
            }
        }
    }

    /// Counts a session that ended before the end of the run. `is_well` states whether the session
    /// succeeded. `error` is an error of the session itself, not of one of its actions: those are passed to
    /// [`action_ended`](Self::action_ended).
    pub fn session_ended(&self, thread: u32, is_well: bool, error: Option<&str>) {
        let is_measured = now_ns() >= self.measured_from_ns();
        let mut part = self.parts[thread as usize].lock();
        part.sessions += u64::from(is_well && is_measured);
        part.sessions_failed += u64::from(!is_well);
        if let Some(error) = error {
            part.tally.fault(&ErrorCase::new(ErrorCause::Script, error));
        }
    }

    fn measured_from_ns(&self) -> u64 {
        let start_ns = self.start_ns.load(SeqCst);
        start_ns.saturating_add(self.plan.warmup_ns)
    }

    fn until_ns(&self) -> u64 {
        let planned_ns = self
            .measured_from_ns()
            .saturating_add(self.plan.duration_ns);
        planned_ns.min(self.stopped_ns.load(SeqCst))
    }

    pub(crate) fn start_at(&self, at_ns: u64) {
        self.start_ns.store(at_ns, SeqCst);
    }

    /// Ends the measured time. A second call also ends the wait for running actions.
    pub(crate) fn stop(&self) {
        let earlier = self.stopped_ns.fetch_min(now_ns(), SeqCst);
        if earlier != u64::MAX {
            self.is_aborted.store(true, SeqCst);
        }
    }

    pub(crate) fn sums(&self, now_ns: u64) -> TotalProgress {
        let until_ns = self.until_ns();
        let is_done = now_ns >= until_ns;
        let is_late = now_ns >= until_ns.saturating_add(self.plan.grace_ns);
        let is_quiet = self.under_way.load(SeqCst) == 0;
        let is_aborted = self.is_aborted.load(SeqCst);
        let begun_users = self.begun_users.load(Relaxed);
        let mut sums = TotalProgress {
            ready: true,
            done: is_done,
            finished: is_done && (is_quiet || is_late || is_aborted),
            asked: u64::from(self.plan.users),
            opened: begun_users,
            ..TotalProgress::default()
        };
        let at_ns = now_ns.saturating_sub(self.measured_from_ns());
        for part in &self.parts {
            let tally = &part.lock().tally;
            sums.received += tally.came;
            sums.errors += tally.fault_count();
            sums.p99_ns = sums.p99_ns.max(tally.latency.recent_p99_ns(at_ns));
        }
        sums
    }

    /// Returns the total tally of all threads. Actions that are still running count as unanswered.
    pub(crate) fn tally(&self) -> Tally {
        let mut all = Tally::default();
        for part in &self.parts {
            all.add(part.lock().tally.clone());
        }
        all.asked = u64::from(self.plan.users);
        all.opened = self.begun_users.load(Relaxed);
        all.unanswered = self.under_way.load(SeqCst);
        let words = "an action did not end in time";
        all.faults(&ErrorCase::new(ErrorCause::TimedOut, words), all.unanswered);
        all
    }

    /// Returns the tally of the sessions, and of the actions by name.
    pub(crate) fn actions(&self, seconds: f64) -> ScriptTally {
        let mut tally = ScriptTally::default();
        let mut all: BTreeMap<String, Timed> = BTreeMap::new();
        for part in &self.parts {
            let part = part.lock();
            tally.sessions += part.sessions;
            tally.sessions_failed += part.sessions_failed;
            for (name, timed) in &part.actions {
                let sum = all.entry(name.clone()).or_default();
                sum.times.add(&timed.times);
                sum.count += timed.count;
                sum.failed += timed.failed;
                sum.example = sum.example.take().or_else(|| timed.example.clone());
            }
        }
        let actions = all.into_iter().map(|(name, timed)| ActionFigures {
            name,
            count: timed.count,
            per_second: timed.count as f64 / seconds,
            failed: timed.failed,
            latency_us: timed.times.summary(),
            example: timed.example,
        });
        tally.actions = actions.collect();
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(threads: u32, warmup_ns: u64) -> ScriptRun {
        ScriptRun::new(ScriptPlan {
            url: "http://127.0.0.1:1".to_owned(),
            users: 10,
            users_per_second: Some(2.0),
            threads,
            duration_ns: 3600 * SECOND,
            warmup_ns,
            grace_ns: SECOND,
        })
    }

    #[test]
    fn each_user_is_played_by_one_thread() {
        for threads in [1, 3, 10, 16] {
            let run = run(threads, 0);
            let users: Vec<u32> = (0..threads).flat_map(|thread| run.users(thread)).collect();
            assert_eq!(users, (0..10).collect::<Vec<u32>>(), "{threads}");
        }
    }

    #[test]
    fn users_begin_at_their_rate_once_the_start_is_known() {
        let run = run(1, 0);
        assert_eq!(run.begins_in(0), None);
        run.start_at(now_ns());
        assert_eq!(run.begins_in(0), Some(0.0));
        let last = run.begins_in(9).unwrap();
        assert!(last <= 4.5, "{last}");
    }

    #[test]
    fn an_action_counts_where_it_began_and_where_it_ended() {
        let run = run(2, 0);
        run.start_at(now_ns());
        let began_ns = run.action_begins(0).unwrap();
        run.action_ended(0, "join", began_ns, None);
        let began_ns = run.action_begins(1).unwrap();
        run.action_ended(1, "join", began_ns, Some("users.lua:3: status 503"));
        let late_ns = run.action_begins(1).unwrap();
        let hung_ns = run.action_begins(0);
        assert!(hung_ns.is_some());
        run.stop();
        assert_eq!(run.action_begins(0), None, "the time is over");
        assert!(run.is_over());
        let sums = run.sums(now_ns());
        assert!(sums.done && !sums.finished);
        assert_eq!((sums.received, sums.errors), (1, 1));
        // An action that was still running when the time was over counts in the latencies, but not
        // in the throughput.
        run.action_ended(1, "join", late_ns, None);
        run.stop();
        assert!(run.sums(now_ns()).finished, "nothing is waited for");
        let tally = run.tally();
        assert_eq!((tally.sent, tally.received, tally.came), (4, 2, 1));
        assert_eq!(tally.unanswered, 1);
        let errors = tally.errors();
        assert_eq!((errors.script, errors.timed_out), (1, 1));
        assert_eq!(errors.examples["script"], "join: users.lua:3: status 503");
        let script = run.actions(1.0);
        let [join] = &*script.actions else {
            panic!("{script:?}")
        };
        assert_eq!(
            (join.name.as_str(), join.count, join.failed),
            ("join", 1, 1)
        );
        assert_eq!(join.latency_us.as_ref().map(|all| all.count), Some(2));
        assert_eq!(join.example.as_deref(), Some("users.lua:3: status 503"));
    }

    #[test]
    fn a_warm_up_counts_for_errors_alone() {
        let run = run(1, 3600 * SECOND);
        run.start_at(now_ns());
        for error in [None, Some("no")] {
            let began_ns = run.action_begins(0).unwrap();
            run.action_ended(0, "join", began_ns, error);
        }
        run.session_ended(0, true, None);
        run.session_ended(0, false, Some("users.lua:9: odd"));
        let tally = run.tally();
        assert_eq!((tally.sent, tally.received, tally.came), (0, 0, 0));
        assert_eq!(tally.errors().script, 2);
        let script = run.actions(1.0);
        assert_eq!((script.sessions, script.sessions_failed), (0, 1));
        assert_eq!(script.actions[0].latency_us, None);
    }

    #[test]
    fn names_are_bounded() {
        let run = run(1, 0);
        run.start_at(now_ns());
        for number in 0..=NAMES_MAX + 1 {
            let began_ns = run.action_begins(0).unwrap();
            run.action_ended(0, &format!("action {number}"), began_ns, None);
        }
        let script = run.actions(1.0);
        assert_eq!(script.actions.len(), NAMES_MAX + 1);
        let others = script
            .actions
            .iter()
            .find(|action| action.name == "(others)");
        assert_eq!(others.map(|action| action.count), Some(2));
    }
}
