//! Events that wait for a process.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use veche_runtime::wire::EventName;

use crate::shared::{EventJob, ThreadOutlet};
use std::sync::Arc;

/// The events that wait for a process. They are handled in the order of their arrival. No connection has more than one
/// waiting event, so no other order has to be kept.
#[derive(Debug, Default)]
pub(crate) struct WaitingEvents {
    jobs: VecDeque<(Instant, EventJob)>,
    /// The events that report the end of a connection or client. They wait without a time limit.
    ends: VecDeque<(Instant, EventJob)>,
}

impl WaitingEvents {
    /// Adds an event and returns `None`. If the queue is full and the event can be refused, returns the event instead,
    /// and the caller has to refuse it.
    pub(crate) fn push(&mut self, job: EventJob, max: usize, now: Instant) -> Option<EventJob> {
        let is_end = matches!(job.name, EventName::Close | EventName::Disconnect);
        if is_end {
            self.ends.push_back((now, job));
            return None;
        }
        // A message has already been read, so it waits even if the queue is full. Its connection is
        // paused while it waits.
        let must_wait = matches!(job.name, EventName::Message | EventName::ClientMessage);
        if !must_wait && self.jobs.len() >= max {
            return Some(job);
        }
        self.jobs.push_back((now, job));
        None
    }

    /// Removes and returns the event that has waited the longest, with the time of its arrival.
    pub(crate) fn pop(&mut self) -> Option<(Instant, EventJob)> {
        let (first, end) = (self.jobs.front(), self.ends.front());
        let takes_end = match (first, end) {
            (Some((at, _)), Some((end_at, _))) => end_at <= at,
            (None, Some(_)) => true,
            _ => false,
        };
        let queue = if takes_end {
            &mut self.ends
        } else {
            &mut self.jobs
        };
        queue.pop_front()
    }

    /// Removes and returns an event that has waited for too long.
    pub(crate) fn pop_late(&mut self, patience: Duration, now: Instant) -> Option<EventJob> {
        let (at, _) = self.jobs.front()?;
        if now.saturating_duration_since(*at) < patience {
            return None;
        }
        self.jobs.pop_front().map(|(_, job)| job)
    }

    /// Removes an event whose answer is no longer needed; returns whether it was waiting.
    pub(crate) fn cancel(&mut self, number: u64, outlet: &Arc<ThreadOutlet>) -> bool {
        let before = self.jobs.len();
        let is_it = |job: &EventJob| job.number == number && Arc::ptr_eq(&job.outlet, outlet);
        self.jobs.retain(|(_, job)| !is_it(job));
        self.jobs.len() < before
    }

    /// Returns the time at which the oldest event with a time limit will have waited for `patience`.
    pub(crate) fn due(&self, patience: Duration) -> Option<Instant> {
        self.jobs.front().map(|(at, _)| *at + patience)
    }

    /// Returns the number of waiting events.
    pub(crate) fn len(&self) -> usize {
        self.jobs.len() + self.ends.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.ends.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: EventName, number: u64) -> EventJob {
        EventJob {
            outlet: Arc::new(ThreadOutlet::new(None)),
            number,
            name,
            frame: Vec::new(),
        }
    }

    #[test]
    fn a_full_queue_refuses_handshakes_and_keeps_messages_and_ends() {
        let mut queue = WaitingEvents::default();
        let now = veche_clock::now();
        let patience = Duration::from_secs(1);
        assert!(queue.push(job(EventName::Open, 1), 1, now).is_none());
        let refused = queue.push(job(EventName::Open, 2), 1, now);
        assert_eq!(refused.map(|job| job.number), Some(2));
        assert!(queue.push(job(EventName::Message, 3), 1, now).is_none());
        assert!(queue.push(job(EventName::Close, 4), 1, now).is_none());
        assert!(queue.pop_late(patience, now).is_none());
        let later = now + patience;
        let mut late = || queue.pop_late(patience, later).map(|job| job.number);
        assert_eq!((late(), late(), late()), (Some(1), Some(3), None));
        assert_eq!(queue.pop().map(|(_, job)| job.number), Some(4));
        assert!(queue.is_empty());
    }

    #[test]
    fn events_leave_in_the_order_of_their_arrival() {
        let mut queue = WaitingEvents::default();
        let now = veche_clock::now();
        let names = [EventName::Close, EventName::Message, EventName::Close];
        for (number, name) in names.into_iter().enumerate() {
            let at = now + Duration::from_millis(number as u64);
            assert!(queue.push(job(name, number as u64), 9, at).is_none());
        }
        for number in 0..3 {
            assert_eq!(queue.pop().map(|(_, job)| job.number), Some(number));
        }
    }
}
