//! Limits on publications of back ends: a rate per key, and none while memory is short.
//!
//! A command rejected here had no effect and may be sent again later.

use veche_types::codes::ErrorCode;

use crate::context::rate::{Rate, SharedRateMeter};

/// The key of an API caller. Callers without a key share one: push lines, and callers on loopback if no key is
/// configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublisherKey(Key);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Key {
    #[default]
    None,
    Numbered(u16),
    /// An application on this worker: its publications have no rate limit.
    Application,
}

impl PublisherKey {
    /// An application of this process.
    pub(crate) const APPLICATION: Self = Self(Key::Application);

    /// Returns the caller with the key of this number.
    pub fn with_key(number: u16) -> Self {
        Self(Key::Numbered(number))
    }
}

/// Why a valid command is rejected for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The caller exceeded the publish rate.
    #[error("publish rate limit of this key exceeded: retry in {} s", wait_ms.div_ceil(1000).max(1))]
    RateLimited {
        /// Milliseconds until the caller may publish again.
        wait_ms: u64,
    },
    /// The server has reached its memory limit.
    #[error("the server is short of memory: try again later")]
    OutOfMemory,
}

impl PublishError {
    /// Returns the API error code.
    pub fn code(self) -> ErrorCode {
        match self {
            Self::RateLimited { .. } => ErrorCode::TooManyRequests,
            Self::OutOfMemory => ErrorCode::LimitExceeded,
        }
    }
}

/// The use of the publish rate by each caller.
#[derive(Debug, Default)]
pub struct PublishLimiter {
    rate: Option<Rate>,
    keyless: SharedRateMeter,
    by_key: Vec<SharedRateMeter>,
}

impl PublishLimiter {
    /// Creates meters for this number of keys, with the same rate each; `None`: unlimited.
    pub fn new(rate: Option<Rate>, keys: usize) -> Self {
        Self {
            rate,
            keyless: SharedRateMeter::default(),
            by_key: std::iter::repeat_with(SharedRateMeter::default)
                .take(keys)
                .collect(),
        }
    }

    /// Takes a number of publications from the caller's rate.
    pub(crate) fn take(
        &self,
        publisher: PublisherKey,
        count: u64,
        now_ms: u64,
    ) -> Result<(), PublishError> {
        let Some(rate) = &self.rate else {
            return Ok(());
        };
        let meter = match publisher.0 {
            Key::Application => return Ok(()),
            // A reload may have removed the key of an open connection.
            Key::Numbered(key) => self.by_key.get(usize::from(key)),
            Key::None => None,
        };
        meter
            .unwrap_or(&self.keyless)
            .take(rate, count, now_ms)
            .map_err(|wait_ms| PublishError::RateLimited { wait_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_share() {
        let publishing = PublishLimiter::new(Some(Rate::new(2, 1_000)), 2);
        let (a, b) = (PublisherKey::with_key(0), PublisherKey::with_key(1));
        assert_eq!(publishing.take(a, 2, 5_000), Ok(()));
        assert_eq!(
            publishing.take(a, 1, 5_000),
            Err(PublishError::RateLimited { wait_ms: 500 })
        );
        assert_eq!(publishing.take(b, 1, 5_000), Ok(()));
        assert_eq!(publishing.take(PublisherKey::default(), 2, 5_000), Ok(()));
        // A removed key shares the meter of callers without one.
        assert!(
            publishing
                .take(PublisherKey::with_key(7), 1, 5_000)
                .is_err()
        );
        assert_eq!(publishing.take(a, 1, 5_500), Ok(()));
        assert_eq!(publishing.take(PublisherKey::APPLICATION, 9, 5_500), Ok(()));
        let unlimited = PublishLimiter::default();
        assert!((0..1_000).all(|_| unlimited.take(a, 1_024, 0).is_ok()));
    }
}
