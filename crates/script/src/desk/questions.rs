//! Questions that a script decides on: each is ruled once.

use super::Desk;
use veche_runtime::Effect;
use veche_runtime::hooks::{Data, Hook, HookRequest, HookResponse};

/// One that is not decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) hook: Hook,
    /// What came with it is bytes.
    pub(crate) is_binary: bool,
}

impl Desk {
    /// From now on a ruling is owed.
    pub(crate) fn open_question(&self, number: u64, asked: &HookRequest<'_>) {
        let (hook, is_binary) = (asked.hook, is_binary(asked));
        let open = Open { hook, is_binary };
        self.questions.borrow_mut().insert(number, open);
    }

    /// One that is not decided; `None` if it is.
    pub(crate) fn question(&self, number: u64) -> Option<Open> {
        self.questions.borrow().get(&number).copied()
    }

    /// Decides, unless it was done before.
    pub(crate) fn rule(&self, question: u64, ruling: HookResponse) {
        if self.questions.borrow_mut().remove(&question).is_some() {
            self.effect(Effect::Hook {
                number: question,
                response: ruling,
            });
        }
    }

    /// Somebody else decides.
    pub(crate) fn forget_question(&self, question: u64) {
        self.questions.borrow_mut().remove(&question);
    }

    /// Nobody will decide on what is open.
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

/// Whether what the client sends is bytes.
pub(crate) fn is_binary(asked: &HookRequest<'_>) -> bool {
    matches!(asked.data, Some(Data::Binary(_)))
}
