//! The synchronisation types of tables. With the feature `model`, they are types of a model checker, which chooses the next
//! thread at each lock and atomic operation; only the tests in `model_tests.rs` work with them.

#[cfg(not(feature = "model"))]
pub(super) use parking_lot::{Mutex, RwLock};
#[cfg(not(feature = "model"))]
pub(super) use std::sync::atomic::{AtomicBool, AtomicU64};

#[cfg(feature = "model")]
pub(super) use model::{Mutex, RwLock};
#[cfg(feature = "model")]
pub(super) use shuttle::sync::atomic::{AtomicBool, AtomicU64};

#[cfg(feature = "model")]
mod model {
    use std::fmt;

    use shuttle::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    const POISONED: &str = "no other thread of the test may have panicked";

    /// A lock of the model checker with the interface of `parking_lot`.
    #[derive(Default)]
    pub(in super::super) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(in super::super) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect(POISONED)
        }
    }

    impl<T> fmt::Debug for Mutex<T> {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("Mutex")
        }
    }

    /// A lock of the model checker with the interface of `parking_lot`.
    pub(in super::super) struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(in super::super) fn new(value: T) -> Self {
            Self(shuttle::sync::RwLock::new(value))
        }

        pub(in super::super) fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().expect(POISONED)
        }

        pub(in super::super) fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().expect(POISONED)
        }
    }

    impl<T> fmt::Debug for RwLock<T> {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("RwLock")
        }
    }
}
