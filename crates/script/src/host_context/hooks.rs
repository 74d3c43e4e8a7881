//! Hook requests that a script decides; each gets one response.

use super::HostContext;
use veche_runtime::Effect;
use veche_runtime::hooks::{AppHookRequest, Data, Hook, HookResponse};

/// A request without a response yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenHook {
    pub(crate) hook: Hook,
    /// The request's data is binary.
    pub(crate) is_binary: bool,
}

impl HostContext {
    /// Registers a request that needs a response.
    pub(crate) fn open_hook(&self, number: u64, asked: &AppHookRequest<'_>) {
        let (hook, is_binary) = (asked.hook, is_binary(asked));
        let open = OpenHook { hook, is_binary };
        self.questions.borrow_mut().insert(number, open);
    }

    /// Returns a request that is undecided.
    pub(crate) fn hook_request(&self, number: u64) -> Option<OpenHook> {
        self.questions.borrow().get(&number).copied()
    }

    /// Sets the response, unless the request is already decided.
    pub(crate) fn set_hook_response(&self, question: u64, response: HookResponse) {
        if self.questions.borrow_mut().remove(&question).is_some() {
            self.effect(Effect::Hook {
                number: question,
                response,
            });
        }
    }

    /// Removes a request that is decided elsewhere.
    pub(crate) fn close_hook(&self, question: u64) {
        self.questions.borrow_mut().remove(&question);
    }

    /// Fails all open requests.
    pub(crate) fn fail_open_hooks(&self) {
        for (question, _) in self.questions.take() {
            let response = HookResponse::Failed;
            self.effect(Effect::Hook {
                number: question,
                response,
            });
        }
    }
}

/// Returns whether the client's data is binary.
pub(crate) fn is_binary(asked: &AppHookRequest<'_>) -> bool {
    matches!(asked.data, Some(Data::Binary(_)))
}
