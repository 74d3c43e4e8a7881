//! What threads share a lane by: the real thing, or, with the feature `model`, types at which a model checker chooses the
//! thread that runs next. With that feature only the tests of `model_tests.rs` work.

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

    /// The interface of `parking_lot`.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0
                .lock()
                .expect("no thread of a model panics and goes on")
        }
    }
}
