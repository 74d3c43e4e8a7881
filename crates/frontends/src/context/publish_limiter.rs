//! Limits on publications of back ends: a rate per key, and a refusal while memory is short.
//!
//! A command that is refused here had no effect and may be repeated later.

use veche_types::codes::ErrorCode;

use crate::context::rate::{Rate, SharedRateMeter};

/// Identifies an API caller by its key. All callers without a key count as one caller: back ends that send push lines
/// and, if no key is configured, callers over loopback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublisherKey(Key);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Key {
    #[default]
    None,
    Numbered(u16),
    /// An application on this worker. Its publications have no rate limit.
    Application,
}

impl PublisherKey {
    /// Identifies the applications on this worker, which publish without a rate limit.
    pub(crate) const APPLICATION: Self = Self(Key::Application);

    /// Returns the caller with the configured key of this index.
    pub fn with_key(number: u16) -> Self {
        Self(Key::Numbered(number))
    }
}

/// Why a valid command is refused, for a temporary reason.
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
    /// Returns the error code of the API for this refusal.
    pub fn code(self) -> ErrorCode {
        match self {
            Self::RateLimited { .. } => ErrorCode::TooManyRequests,
            Self::OutOfMemory => ErrorCode::LimitExceeded,
        }
    }
}

/// How much of the publish rate each caller has used.
#[derive(Debug, Default)]
pub struct PublishLimiter {
    rate: Option<Rate>,
    keyless: SharedRateMeter,
    by_key: Vec<SharedRateMeter>,
}

impl PublishLimiter {
    /// Creates the meters of `keys` configured keys, all with the same rate; `None`: unlimited.
    pub fn new(rate: Option<Rate>, keys: usize) -> Self {
        Self {
            rate,
            keyless: SharedRateMeter::default(),
            by_key: std::iter::repeat_with(SharedRateMeter::default)
                .take(keys)
                .collect(),
        }
    }

    /// Counts publications against the caller's rate, or refuses them if they exceed it.
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
            // The key may be missing, since a reload can remove the key of an open connection.
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
        // A caller whose key was removed shares the meter of callers without a key.
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
