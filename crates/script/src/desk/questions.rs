//! Hook requests that a script decides; each gets one response.

use super::Desk;
use veche_runtime::Effect;
use veche_runtime::hooks::{Data, Hook, HookRequest, HookResponse};

/// An undecided request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) hook: Hook,
    /// The request's data is binary.
    pub(crate) is_binary: bool,
}

impl Desk {
    /// Registers a request that needs a response.
    pub(crate) fn open_question(&self, number: u64, asked: &HookRequest<'_>) {
        let (hook, is_binary) = (asked.hook, is_binary(asked));
        let open = Open { hook, is_binary };
        self.questions.borrow_mut().insert(number, open);
    }

    /// Returns a request that is undecided.
    pub(crate) fn question(&self, number: u64) -> Option<Open> {
        self.questions.borrow().get(&number).copied()
    }

    /// Sets the response, unless the request is already decided.
    pub(crate) fn rule(&self, question: u64, ruling: HookResponse) {
        if self.questions.borrow_mut().remove(&question).is_some() {
            self.effect(Effect::Hook {
                number: question,
                response: ruling,
            });
        }
    }

    /// Removes a request that is decided elsewhere.
    pub(crate) fn forget_question(&self, question: u64) {
        self.questions.borrow_mut().remove(&question);
    }

    /// Fails all open requests.
    pub(crate) fn give_up_questions(&self) {
        for (question, _) in self.questions.take() {
            let ruling = HookResponse::Failed;
            self.effect(Effect::Hook {
                number: question,
                response: ruling,
            });
        }
    }
}

/// Returns whether the client's data is binary.
pub(crate) fn is_binary(asked: &HookRequest<'_>) -> bool {
    matches!(asked.data, Some(Data::Binary(_)))
}
