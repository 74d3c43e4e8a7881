//! What came of a piece of input: how a stage of a connection tells it how to go on.
//!
//! It does not know the stages: HTTP, WebSocket and push lines speak to the connection in these words, and only the
//! connection knows all three.

/// Why a connection's input waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// Its own answers have to leave first.
    Output,
    /// The hub takes no publication at the moment.
    Credit,
    /// A home worker has yet to answer.
    Answer,
    /// It came faster than its route allows, and has its time still to come.
    RateLimit,
    /// A handler of an application waits, and there is no room behind it; or its verdict or response has yet to come.
    App,
    /// Whoever decides on a command has yet to say.
    HookDecision,
    /// It has done its share of this turn's [work](crate::context::work).
    Turn,
}

/// What a stage made of its input. `N` is what the stage may turn into; [`NoNextStage`] for one that stays.
pub(crate) struct StageStep<N> {
    /// Bytes that are done with.
    pub(crate) consumed: usize,
    pub(crate) then: NextStep<N>,
}

/// What is to become of the rest.
pub(crate) enum NextStep<N> {
    /// There may be more to do in what is left.
    Continue,
    /// What is left is incomplete.
    NeedInput,
    /// What is left waits.
    Wait(WaitReason),
    /// What is left is for another stage.
    Become(N),
    /// What is left, and all that comes, is of no interest.
    End,
}

/// The next stage of one that stays what it is.
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
