//! Questions that a script decides on: each is ruled once.

use super::HostContext;
use veche_runtime::Effect;
use veche_runtime::hooks::{AppHookRequest, Data, Hook, HookResponse};

/// One that is not decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenHook {
    pub(crate) hook: Hook,
    /// What came with it is bytes.
    pub(crate) is_binary: bool,
}

impl HostContext {
    /// From now on a ruling is owed.
    pub(crate) fn open_hook(&self, number: u64, asked: &AppHookRequest<'_>) {
        let (hook, is_binary) = (asked.hook, is_binary(asked));
        let open = OpenHook { hook, is_binary };
        self.questions.borrow_mut().insert(number, open);
    }

    /// One that is not decided; `None` if it is.
    pub(crate) fn hook_request(&self, number: u64) -> Option<OpenHook> {
        self.questions.borrow().get(&number).copied()
    }

    /// Decides, unless it was done before.
    pub(crate) fn set_hook_response(&self, question: u64, ruling: HookResponse) {
        if self.questions.borrow_mut().remove(&question).is_some() {
            self.effect(Effect::Hook {
                number: question,
                response: ruling,
            });
        }
    }

    /// Somebody else decides.
    pub(crate) fn close_hook(&self, question: u64) {
        self.questions.borrow_mut().remove(&question);
    }

    /// Nobody will decide on what is open.
    pub(crate) fn fail_open_hooks(&self) {
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
pub(crate) fn is_binary(asked: &AppHookRequest<'_>) -> bool {
    matches!(asked.data, Some(Data::Binary(_)))
}
