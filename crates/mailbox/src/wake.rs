//! How a thread ends the wait of another one.
//!
//! This crate determines *when* a wake is needed; the receiver provides its implementation (an eventfd, or a condition
//! variable in a test).

/// Ends the receiver's current wait, or its next one if it is not waiting.
///
/// Called from any thread, possibly several times for one wait; it must neither block nor fail: the receiver relies on
/// every wake.
pub trait Wake: Send + Sync {
    /// Makes the receiver's current or next wait return.
    fn wake(&self);
}
