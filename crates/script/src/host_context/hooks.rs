//! Hook requests that a script decides; each gets one response.

use super::HostContext;
use veche_runtime::Effect;
use veche_runtime::hooks::{AppHookRequest, Hook, HookResponse};
use veche_types::PayloadKind;

/// A request without a response yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenHook {
    pub(crate) hook: Hook,
    /// Whether the request's data is binary.
    pub(crate) is_binary: bool,
}

impl HostContext {
    /// Registers a request that needs a response.
    pub(crate) fn open_hook(&self, number: u64, asked: &AppHookRequest<'_>) {
        let (hook, is_binary) = (asked.hook, is_binary(asked));
        let open = OpenHook { hook, is_binary };
        self.open_hooks.borrow_mut().insert(number, open);
    }

    /// Returns the request with a number; `None` if it already has a response.
    pub(crate) fn hook_request(&self, number: u64) -> Option<OpenHook> {
        self.open_hooks.borrow().get(&number).copied()
    }

    /// Sets the response, unless the request is already decided.
    pub(crate) fn set_hook_response(&self, number: u64, response: HookResponse) {
        if self.open_hooks.borrow_mut().remove(&number).is_some() {
            self.effect(Effect::Hook { number, response });
        }
    }

    /// Removes a request that is decided elsewhere.
    pub(crate) fn close_hook(&self, number: u64) {
        self.open_hooks.borrow_mut().remove(&number);
    }

    /// Fails all open requests.
    pub(crate) fn fail_open_hooks(&self) {
        for (number, _) in self.open_hooks.take() {
            let response = HookResponse::Failed;
            self.effect(Effect::Hook { number, response });
        }
    }
}

/// Returns whether the client's data is binary.
pub(crate) fn is_binary(asked: &AppHookRequest<'_>) -> bool {
    asked
        .data
        .is_some_and(|data| data.kind == PayloadKind::Binary)
}
