//! What has come of questions, by kind; read by `/metrics`.

use veche_frontends::hooks::Kind;

use crate::asking::Count;

/// Bounds of the times that answers took, in milliseconds; above the last one there is one more.
pub(crate) const BUCKETS_MS: [u64; 9] = [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500];

/// How a question has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// So be it.
    Granted,
    /// With an error for the client.
    Error,
    /// With the end of the connection.
    Disconnect,
    /// With no answer of use.
    Failed,
    /// With no answer in time.
    TimedOut,
    /// It was not asked: the back end is left alone for now.
    Paused,
    /// It was not asked: too many wait already.
    Crowded,
}

impl Asked {
    /// All of them, with the labels in the metrics.
    pub(crate) const ALL: [(Self, &'static str); 7] = [
        (Self::Granted, "granted"),
        (Self::Error, "error"),
        (Self::Disconnect, "disconnect"),
        (Self::Failed, "failed"),
        (Self::TimedOut, "timeout"),
        (Self::Paused, "paused"),
        (Self::Crowded, "crowded"),
    ];
}

/// Of one kind.
#[derive(Debug, Default)]
pub(crate) struct OfKind {
    pub(crate) asked: [Count; Asked::ALL.len()],
    /// Questions that are out.
    pub(crate) waiting: Count,
    /// How long answers took, whatever they were.
    pub(crate) took: [Count; BUCKETS_MS.len() + 1],
    /// All of them together.
    pub(crate) took_us: Count,
}

impl OfKind {
    pub(super) fn asked(&self, how: Asked) {
        self.asked[how as usize].add(1);
    }

    pub(super) fn took(&self, us: u64) {
        let bucket = BUCKETS_MS.partition_point(|&ms| ms * 1000 < us);
        self.took[bucket].add(1);
        self.took_us.add(us);
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Figures([OfKind; Kind::ALL.len()]);

impl Figures {
    pub(crate) fn of(&self, kind: Kind) -> &OfKind {
        &self.0[kind as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_the_bucket_that_has_room_for_them() {
        let figures = OfKind::default();
        for us in [0, 5_000, 5_001, 2_500_000, 2_500_001] {
            figures.took(us);
        }
        let took: Vec<u64> = figures.took.iter().map(Count::read).collect();
        assert_eq!(took, [2, 1, 0, 0, 0, 0, 0, 0, 1, 1]);
    }
}
