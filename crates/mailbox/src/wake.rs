//! How one thread gets another out of its wait.
//!
//! This crate knows *when* a wake is needed; what it is made of (an eventfd,
//! a condition variable in a test) is the receiver's business.

/// Ends the receiver's current wait, or its next one if it is not waiting.
///
/// Called from any thread, possibly several times for one wait; it must not
/// block and has no way to fail: a wake that could be lost is no wake.
pub trait Wake: Send + Sync {
    /// Makes the receiver's current or next wait return.
    fn wake(&self);
}
