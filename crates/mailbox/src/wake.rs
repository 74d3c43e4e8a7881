//! The interface by which a thread ends the wait of another thread.
//!
//! This crate determines *when* a wake is needed; the receiver provides the implementation (an eventfd, or a condition
//! variable in a test).

/// Ends the receiver's current wait or, if the receiver is not waiting, its next one.
///
/// Any thread may call [`wake`](Self::wake), possibly several times for one wait. The call must
/// neither block nor fail, because the receiver relies on every wake.
pub trait Wake: Send + Sync {
    /// Makes the receiver's current or next wait return.
    fn wake(&self);
}
