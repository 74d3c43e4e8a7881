//! Limits the requests to one back end: each is sent at once, queued, or refused.

use std::collections::VecDeque;
use std::mem;

use super::{BackendResult, CircuitBreaker};

/// Limits the number of concurrent requests; further ones queue in order of arrival. A
/// [`CircuitBreaker`] refuses requests while the back end fails.
#[derive(Debug)]
pub struct ConcurrencyLimit<T> {
    breaker: CircuitBreaker,
    concurrency: usize,
    under_way: usize,
    queue: VecDeque<T>,
}

impl<T> ConcurrencyLimit<T> {
    /// Creates a limit of concurrent requests.
    pub fn new(concurrency: u32, breaker: CircuitBreaker) -> Self {
        Self {
            breaker,
            concurrency: concurrency as usize,
            under_way: 0,
            queue: VecDeque::new(),
        }
    }

    /// See [`CircuitBreaker::may_ask`]. A request for which it returns `true` has to be passed to
    /// [`admit`](Self::admit).
    pub fn may_ask(&mut self, now_ms: u64) -> bool {
        self.breaker.may_ask(now_ms)
    }

    /// Returns whether requests are suspended; see [`CircuitBreaker::is_open`].
    pub fn is_open(&self) -> bool {
        self.breaker.is_open()
    }

    /// Returns the request if it can be made now; otherwise queues it.
    pub fn admit(&mut self, request: T) -> Option<T> {
        if self.under_way == self.concurrency {
            self.queue.push_back(request);
            return None;
        }
        self.under_way += 1;
        Some(request)
    }

    /// Reports the end of a request; `ending` is `None` if the outcome does not depend on the back end. If the outcome
    /// opens the breaker, returns the queued requests, which the caller has to fail.
    pub fn ended(
        &mut self,
        ending: Option<BackendResult>,
        client: &str,
        now_ms: u64,
    ) -> Option<VecDeque<T>> {
        self.under_way -= 1;
        let Some(ending) = ending else {
            self.breaker.not_asked();
            return None;
        };
        let has_opened = self.breaker.ended(ending, client, now_ms);
        has_opened.then(|| self.take_queue())
    }

    /// Takes all queued requests. The caller has to fail them.
    pub fn take_queue(&mut self) -> VecDeque<T> {
        mem::take(&mut self.queue)
    }

    /// Takes the next request that can be made now.
    pub fn start_next(&mut self) -> Option<T> {
        if self.under_way == self.concurrency {
            return None;
        }
        let next = self.queue.pop_front()?;
        self.under_way += 1;
        Some(next)
    }

    /// Takes the expired requests at the front of the queue. The caller has to fail them.
    pub fn expire(&mut self, has_expired: impl Fn(&T) -> bool) -> Vec<T> {
        let queue = &mut self.queue;
        std::iter::from_fn(|| queue.pop_front_if(|request| has_expired(request))).collect()
    }

    /// Returns the number of requests in progress or queued.
    pub fn pending(&self) -> usize {
        self.under_way + self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(concurrency: u32) -> ConcurrencyLimit<u32> {
        ConcurrencyLimit::new(concurrency, CircuitBreaker::new(2, 1000))
    }

    #[test]
    fn requests_beyond_the_limit_queue_in_order() {
        let mut gate = gate(2);
        let admitted = [1, 2, 3, 4, 5].map(|n| gate.admit(n));
        assert_eq!(admitted, [Some(1), Some(2), None, None, None]);
        assert_eq!(gate.start_next(), None);
        let mut next = || {
            assert_eq!(gate.ended(Some(BackendResult::Answered), "", 0), None);
            gate.start_next()
        };
        assert_eq!(
            [next(), next(), next(), next()],
            [Some(3), Some(4), Some(5), None]
        );
        assert_eq!(gate.pending(), 1);
        assert_eq!([6, 7, 8].map(|n| gate.admit(n)), [Some(6), None, None]);
        assert_eq!(gate.ended(None, "", 0), None);
        let has_expired = |n: &u32| *n != 8;
        assert_eq!(gate.expire(has_expired), [7]);
        assert_eq!(gate.start_next(), Some(8));
    }

    #[test]
    fn the_queue_is_refused_when_the_breaker_opens() {
        let mut gate = gate(1);
        for n in 1..=4 {
            let _ = gate.admit(n);
        }
        assert_eq!(gate.ended(Some(BackendResult::Unavailable), "", 0), None);
        assert_eq!(gate.start_next(), Some(2));
        let refused = gate.ended(Some(BackendResult::Unavailable), "", 0);
        assert_eq!(refused.expect("it has opened"), [3, 4]);
        assert!(gate.is_open() && gate.start_next().is_none());
        assert!(!gate.may_ask(999) && gate.may_ask(1000));
        assert_eq!(gate.admit(5), Some(5), "none is under way");
    }
}
