//! Progress of handlers and results of waits.

/// Whether a handler finished or suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerProgress {
    /// The handler has returned or failed.
    Done,
    /// The handler is suspended; [`Effect::Ready`](crate::Effect::Ready) follows when its connection can continue.
    Waits,
}

/// The result of a wait, as returned to the script.
#[derive(Clone, Debug, PartialEq)]
pub enum WaitResult {
    /// Success without a value; `true` in Lua.
    Done,
    /// A numeric result, such as a count.
    Number(f64),
    /// A refusal with its reason; `nil` and the reason in Lua.
    No(String),
    /// An error, raised where the script waits.
    Failed(String),
}

/// A handler that ran for a long time without yielding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowHandler {
    /// The name of the handler, or of the object that it belongs to.
    pub handler: &'static str,
    /// The approximate duration in milliseconds.
    pub ms: u64,
}
