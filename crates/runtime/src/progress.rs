//! How far handlers get, and what waits return to them.

/// How far a handler got at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerProgress {
    /// The handler has returned or failed.
    Done,
    /// It waits; [`Effect::Ready`](crate::Effect::Ready) says when its connection may go on.
    Waits,
}

/// What a wait returns to the script.
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

/// A handler that ran for long without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowHandler {
    /// Its name, or what it belongs to.
    pub handler: &'static str,
    /// How long about, in milliseconds.
    pub ms: u64,
}
