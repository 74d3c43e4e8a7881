//! Counts of events in clusters. They show that the checked situations really occur.

use std::fmt;

macro_rules! events {
    ($($event:ident),* $(,)?) => {
        /// An event that clusters are meant to produce.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum ClusterEvent {
            $($event,)*
        }

        const EVENTS: &[ClusterEvent] = &[$(ClusterEvent::$event,)*];
    };
}

events! {
    Joined, Delivered, Recovered, Current, NotRecovered, Lost, NotFollowed, Acknowledged, Skipped, Failed, Retried,
    Repeated, CutOff, Stalled, ConnectionLost, Crashed, Restarted, RolledBack, Emptied, Promoted, Flushed, Evicted,
    Refused, NodeCurrent, Settled,
}

/// The number of occurrences of each event.
#[derive(Clone, Debug)]
pub struct Coverage([u64; EVENTS.len()]);

impl Default for Coverage {
    fn default() -> Self {
        Self([0; EVENTS.len()])
    }
}

impl Coverage {
    pub(super) fn note(&mut self, event: ClusterEvent) {
        self.0[event as usize] += 1;
    }

    /// Adds the counts of another world.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }

    /// Returns the event with the fewest occurrences, and their number.
    #[must_use]
    pub fn rarest(&self) -> (String, u64) {
        let all = EVENTS.iter().zip(self.0);
        let rarest = all.min_by_key(|(_, count)| *count);
        rarest.map_or_else(Default::default, |(event, count)| {
            (format!("{event:?}"), count)
        })
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (event, count) in EVENTS.iter().zip(self.0) {
            write!(f, "{event:?} {count}, ")?;
        }
        Ok(())
    }
}
