//! The result of a stage for a piece of input, which tells the connection how to continue.
//!
//! It is independent of the stages: HTTP, WebSocket and push lines all return it, and only the connection knows the
//! three.

/// Why a connection's input waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// The connection's own output has to be sent first.
    Output,
    /// The hub currently accepts no publications.
    Credit,
    /// A home worker has not answered yet.
    Answer,
    /// The input exceeds the route's rate.
    Pace,
    /// A handler of an application is suspended and its queue is full, or its handshake decision or response is
    /// pending.
    App,
    /// A hook decision on a command is pending.
    Verdict,
    /// The connection has used its share of this turn's [work budget](crate::context::work).
    Turn,
}

/// What a stage did with its input. `N` is the next stage, or [`Never`].
pub(crate) struct Step<N> {
    /// Number of processed bytes.
    pub(crate) taken: usize,
    pub(crate) then: Then<N>,
}

/// What happens with the remaining input.
pub(crate) enum Then<N> {
    GoOn,
    NeedInput,
    Wait(Block),
    /// It belongs to the next stage.
    Become(N),
    /// It is ignored, as is all further input.
    End,
}

/// The next stage of a stage without one.
pub(crate) enum Never {}

impl<N> Step<N> {
    pub(crate) fn map<M>(self, next: impl FnOnce(N) -> M) -> Step<M> {
        Step {
            taken: self.taken,
            then: self.then.map(next),
        }
    }
}

impl<N> Then<N> {
    pub(crate) fn map<M>(self, next: impl FnOnce(N) -> M) -> Then<M> {
        match self {
            Self::GoOn => Then::GoOn,
            Self::NeedInput => Then::NeedInput,
            Self::Wait(block) => Then::Wait(block),
            Self::Become(stage) => Then::Become(next(stage)),
            Self::End => Then::End,
        }
    }
}
