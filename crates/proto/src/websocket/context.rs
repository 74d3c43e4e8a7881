//! Kept compression contexts (RFC 7692 section 7.2): the plain bytes that a back reference may still reach, and their
//! shared budget.
//!
//! A DEFLATE stream contains more state, but a decoder can't notice the loss of that state. So
//! [`Codecs`](super::Codecs) uses one stream for all connections, and primes it with these bytes before each message.
//! A context therefore takes only as much memory as its messages, at most the size of its window. A stream for each
//! connection would take 300 KiB for both directions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Minimum memory of a nonempty context, in bytes.
const WINDOW_BYTES_MIN: usize = 64;

/// The memory limit of all connections' contexts, shared by all workers of a process.
///
/// A sender whose context exceeds the limit compresses without context, which is always permitted. A peer's window
/// can't be dropped, so it is reserved in full before it is agreed on: see [`Decoder::accept`](super::Decoder::accept).
#[derive(Debug)]
pub struct DeflateBudget {
    bytes: AtomicUsize,
    bytes_max: AtomicUsize,
}

impl DeflateBudget {
    /// Creates a budget with nothing reserved.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            bytes_max: AtomicUsize::new(bytes_max),
        }
    }

    /// Changes the limit in bytes. If existing contexts exceed it, they stay until their connections end.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Relaxed);
    }

    /// Returns the reserved bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    fn reserve(&self, bytes: usize) -> bool {
        let bytes_max = self.bytes_max.load(Relaxed);
        self.bytes
            .fetch_update(Relaxed, Relaxed, |reserved| {
                reserved.checked_add(bytes).filter(|&sum| sum <= bytes_max)
            })
            .is_ok()
    }
}

impl Default for DeflateBudget {
    /// Creates an unlimited budget.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

/// Bytes reserved in a budget, which are released when this value is dropped. Without a budget, any number of bytes can
/// be reserved.
#[derive(Debug)]
struct BudgetReservation {
    budget: Option<Arc<DeflateBudget>>,
    bytes: usize,
}

impl BudgetReservation {
    fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let granted = self
            .budget
            .as_ref()
            .is_none_or(|budget| budget.reserve(more));
        if granted {
            self.bytes += more;
        }
        granted
    }
}

impl Drop for BudgetReservation {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.bytes.fetch_sub(self.bytes, Relaxed);
        }
    }
}

/// The last plain bytes of one direction's compressed messages.
#[derive(Debug)]
pub(super) struct DeflateContext {
    window: Vec<u8>,
    reservation: BudgetReservation,
    /// Whether a message was sent since the last idle check.
    used: bool,
}

impl DeflateContext {
    /// Creates an empty context without a reservation.
    pub(super) fn new(budget: Option<&Arc<DeflateBudget>>) -> Self {
        Self {
            window: Vec::new(),
            reservation: BudgetReservation {
                budget: budget.map(Arc::clone),
                bytes: 0,
            },
            used: true,
        }
    }

    /// Creates an empty context with `bytes` reserved; `None` if the budget has no room.
    pub(super) fn reserved(budget: &Arc<DeflateBudget>, bytes: usize) -> Option<Self> {
        let mut context = Self::new(Some(budget));
        context.reservation.grow_to(bytes).then_some(context)
    }

    pub(super) fn window(&self) -> &[u8] {
        &self.window
    }

    /// Appends a message, of which the last `window_bytes` are kept. Returns `false` if the budget has no room: the
    /// context is then invalid and has to be dropped.
    pub(super) fn push(&mut self, message: &[u8], window_bytes: usize) -> bool {
        self.used = true;
        let wanted = (self.window.len() + message.len()).min(window_bytes);
        if wanted > self.window.capacity() {
            let capacity = wanted
                .next_power_of_two()
                .max(WINDOW_BYTES_MIN)
                .min(window_bytes);
            if !self.reservation.grow_to(capacity) {
                return false;
            }
            self.window.reserve_exact(capacity - self.window.len());
        }
        slide(&mut self.window, message, window_bytes);
        true
    }

    /// Returns whether no message was sent since the last call. If so, the caller drops the context. Has to be called
    /// at intervals.
    pub(super) fn release_if_idle(&mut self) -> bool {
        !std::mem::take(&mut self.used)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.window.capacity()
    }
}

/// Appends `message` to a window of at most `window_bytes`, dropping its oldest bytes.
pub(super) fn slide(window: &mut Vec<u8>, message: &[u8], window_bytes: usize) {
    let message = &message[message.len().saturating_sub(window_bytes)..];
    let excess = (window.len() + message.len()).saturating_sub(window_bytes);
    window.drain(..excess);
    window.extend_from_slice(message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_holds_the_last_bytes_and_no_more_memory_than_it_may() {
        let budget = Arc::new(DeflateBudget::default());
        for window_bytes in [256, 512, 4096, 32768] {
            let mut context = DeflateContext::new(Some(&budget));
            let mut all = Vec::new();
            let mut random = fastrand::Rng::with_seed(window_bytes as u64);
            for _ in 0..200 {
                let longest = [10, 200, 2 * window_bytes][random.usize(..3)];
                let message: Vec<u8> = (0..random.usize(..longest))
                    .map(|_| random.u8(..))
                    .collect();
                assert!(context.push(&message, window_bytes));
                all.extend_from_slice(&message);
                let kept = all.len().min(window_bytes);
                assert_eq!(context.window(), &all[all.len() - kept..]);
                assert!(context.window.capacity() <= window_bytes);
                assert!(context.window.capacity() <= (2 * kept).max(WINDOW_BYTES_MIN));
                assert_eq!(budget.bytes(), context.window.capacity());
            }
            drop(context);
            assert_eq!(budget.bytes(), 0);
        }
    }

    #[test]
    fn nothing_grows_beyond_the_budget() {
        let budget = Arc::new(DeflateBudget::new(300));
        let mut one = DeflateContext::reserved(&budget, 200).expect("there is room");
        assert!(DeflateContext::reserved(&budget, 101).is_none());
        assert_eq!(budget.bytes(), 200);
        assert!(one.push(&[1; 200], 200), "it has its room");
        let mut other = DeflateContext::new(Some(&budget));
        assert!(other.push(&[2; 64], 4096));
        assert_eq!(budget.bytes(), 264);
        assert!(!other.push(&[2; 1], 4096), "128 would be too many");
        drop((one, other));
        assert_eq!(budget.bytes(), 0);
        budget.set_bytes_max(0);
        assert!(DeflateContext::reserved(&budget, 1).is_none());
    }
}
