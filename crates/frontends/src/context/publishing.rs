//! How much back ends may publish: a rate for each key, and nothing new while memory is short.
//!
//! What is refused here is refused before anything of it is done: the same command may be sent again later.

use veche_types::codes::ErrorCode;

use crate::context::rate::{Rate, SharedMeter};

/// Which key a caller of the API has shown. Whoever has shown none is like all others who have not: push lines do not,
/// and neither do callers on loopback where no key is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Publisher(Key);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Key {
    #[default]
    None,
    Numbered(u16),
    /// An application on this worker: its publications have no rate.
    Application,
}

impl Publisher {
    /// An application of this process.
    pub(crate) const APPLICATION: Self = Self(Key::Application);

    /// Who has shown the key of that number.
    pub fn with_key(number: u16) -> Self {
        Self(Key::Numbered(number))
    }
}

/// Why a good command is not carried out now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    /// Its caller has published as much as he may.
    #[error("publish rate limit of this key exceeded: retry in {} s", wait_ms.div_ceil(1000).max(1))]
    TooFast {
        /// After so many milliseconds he may again.
        wait_ms: u64,
    },
    /// The server has as much memory in use as it may.
    #[error("the server is short of memory: try again later")]
    NoMemory,
}

impl Busy {
    /// In the answers of the API.
    pub fn code(self) -> ErrorCode {
        match self {
            Self::TooFast { .. } => ErrorCode::TooManyRequests,
            Self::NoMemory => ErrorCode::LimitExceeded,
        }
    }
}

/// What each publisher has used of the rate.
#[derive(Debug, Default)]
pub struct Publishing {
    rate: Option<Rate>,
    keyless: SharedMeter,
    by_key: Vec<SharedMeter>,
}

impl Publishing {
    /// The rate of each of so many keys; `None`: as fast as it is worked on.
    pub fn new(rate: Option<Rate>, keys: usize) -> Self {
        Self {
            rate,
            keyless: SharedMeter::default(),
            by_key: std::iter::repeat_with(SharedMeter::default)
                .take(keys)
                .collect(),
        }
    }

    /// Takes so many publications from the publisher's share.
    pub(crate) fn take(&self, publisher: Publisher, count: u64, now_ms: u64) -> Result<(), Busy> {
        let Some(rate) = &self.rate else {
            return Ok(());
        };
        let meter = match publisher.0 {
            Key::Application => return Ok(()),
            // A reload may have taken the key away from a connection that stays.
            Key::Numbered(key) => self.by_key.get(usize::from(key)),
            Key::None => None,
        };
        meter
            .unwrap_or(&self.keyless)
            .take(rate, count, now_ms)
            .map_err(|wait_ms| Busy::TooFast { wait_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_share() {
        let publishing = Publishing::new(Some(Rate::new(2, 1_000)), 2);
        let (a, b) = (Publisher::with_key(0), Publisher::with_key(1));
        assert_eq!(publishing.take(a, 2, 5_000), Ok(()));
        assert_eq!(
            publishing.take(a, 1, 5_000),
            Err(Busy::TooFast { wait_ms: 500 })
        );
        assert_eq!(publishing.take(b, 1, 5_000), Ok(()));
        assert_eq!(publishing.take(Publisher::default(), 2, 5_000), Ok(()));
        // A key that is no more shares with those who have none.
        assert!(publishing.take(Publisher::with_key(7), 1, 5_000).is_err());
        assert_eq!(publishing.take(a, 1, 5_500), Ok(()));
        assert_eq!(publishing.take(Publisher::APPLICATION, 9, 5_500), Ok(()));
        let unlimited = Publishing::default();
        assert!((0..1_000).all(|_| unlimited.take(a, 1_024, 0).is_ok()));
    }
}
