//! The result of a stage for a piece of input, which determines how the connection continues.
//!
//! It is independent of the stages: HTTP, WebSocket and push lines all return it, and only the connection knows the
//! three.

/// Why a connection's input waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// The connection's own output has to be sent first.
    Output,
    /// The hub currently accepts no publications.
    Credit,
    /// A home worker has not answered yet.
    Answer,
    /// The input exceeds the route's rate.
    RateLimit,
    /// A handler of an application is suspended and its queue is full, or its handshake decision or response is
    /// pending.
    App,
    /// A hook decision on a command is pending.
    HookDecision,
    /// The connection has used its share of this turn's [work budget](crate::context::work_budget).
    Turn,
}

/// The result of a stage for its input. `N` is the next stage, or [`NoNextStage`].
pub(crate) struct StageStep<N> {
    /// Number of processed bytes.
    pub(crate) consumed: usize,
    pub(crate) then: NextStep<N>,
}

/// The handling of the remaining input.
pub(crate) enum NextStep<N> {
    Continue,
    NeedInput,
    Wait(WaitReason),
    /// The remaining input belongs to the next stage.
    Become(N),
    /// The remaining input is ignored, as is all further input.
    End,
}

/// The type of the next stage for stages that have none.
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
