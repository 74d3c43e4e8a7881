//! The synchronisation types of a lane. With the feature `model`, they are those of a model checker
//! that chooses which thread runs next, and only the tests in `model_tests.rs` work.

#[cfg(not(feature = "model"))]
pub(crate) use parking_lot::Mutex;
#[cfg(not(feature = "model"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32};

#[cfg(feature = "model")]
pub(crate) use model::Mutex;
#[cfg(feature = "model")]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32};

#[cfg(feature = "model")]
mod model {
    use shuttle::sync::MutexGuard;

    /// A mutex of the model checker with the interface of `parking_lot::Mutex`.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0
                .lock()
                .expect("no other thread of the test may have panicked")
        }
    }
}
