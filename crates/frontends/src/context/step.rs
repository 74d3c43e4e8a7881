//! The result that a stage returns for a piece of input. It determines how the connection
//! continues.
//!
//! All stages (HTTP, outbound handshakes, WebSocket, push lines) return the same type, so that only the connection
//! depends on all of them.

/// Why a connection's input waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// Output that the connection has queued has to be sent first.
    Output,
    /// The hub currently accepts no publications.
    Credit,
    /// A home worker has not answered yet.
    Answer,
    /// The input exceeds the route's rate limit.
    RateLimit,
    /// The application's handler is suspended and the queue of messages for it is full, or the application's
    /// handshake decision or response is pending.
    App,
    /// A hook decision on a command is pending.
    HookDecision,
    /// The connection has used its share of this turn's [work budget](crate::context::work_budget).
    Turn,
}

/// The result of a stage for a piece of input. `N` is the next stage, or [`NoNextStage`].
pub(crate) struct StageStep<N> {
    /// Number of bytes of the input that were processed.
    pub(crate) consumed: usize,
    pub(crate) then: NextStep<N>,
}

/// What happens with the remaining input.
pub(crate) enum NextStep<N> {
    Continue,
    NeedInput,
    Wait(WaitReason),
    /// The remaining input belongs to the next stage.
    Become(N),
    /// The remaining input is ignored, as is all further input.
    End,
}

/// The type of the next stage for stages that have none; it has no values.
pub(crate) enum NoNextStage {}

impl<N> StageStep<N> {
    pub(crate) fn map<M>(self, next: impl FnOnce(N) -> M) -> StageStep<M> {
        StageStep {
            consumed: self.consumed,
            then: self.then.map(next),
        }
    }
}

impl<N> NextStep<N> {
    pub(crate) fn map<M>(self, next: impl FnOnce(N) -> M) -> NextStep<M> {
        match self {
            Self::Continue => NextStep::Continue,
            Self::NeedInput => NextStep::NeedInput,
            Self::Wait(block) => NextStep::Wait(block),
            Self::Become(stage) => NextStep::Become(next(stage)),
            Self::End => NextStep::End,
        }
    }
}
