//! Hook requests of clients of Centrifugo's protocol: one coroutine and one response for each.
//!
//! This module does not know where a response goes: [`Effect::Hook`](crate::Effect::Hook) contains the request's
//! number, by which the caller finds the client's command.

use mlua::Value;
use veche_types::codes::ErrorCode;

use super::{OVER_MEMORY, Vm};
use crate::Now;
use crate::modules;
use crate::raw::{Argument, Coroutine, Reference};
use crate::task::TaskOwner;
use veche_runtime::Level;
use veche_runtime::hooks::{AppHookRequest, Hook, HookResponse};

impl Vm {
    /// Returns the hooks that the script handles.
    pub fn hooks(&self) -> impl Iterator<Item = Hook> {
        let has = |hook: &Hook| self.hooks[*hook as usize].is_some();
        Hook::ALL.into_iter().filter(has)
    }

    /// Starts a hook request. `number` is unique across applications; exactly one
    /// [`Effect::Hook`](crate::Effect::Hook) with this number follows, no later than when this VM
    /// [ends](Self::finish).
    pub fn decide(&mut self, number: u64, asked: &AppHookRequest<'_>, now: Now) {
        self.set_now(now);
        self.context.open_hook(number, asked);
        if !self.has_room() {
            self.context.log(Level::Error, OVER_MEMORY);
            return self.context.set_hook_response(number, HookResponse::Failed);
        }
        let Some(handler) = self.hooks[asked.hook as usize] else {
            return self.context.set_hook_response(number, HookResponse::Failed);
        };
        let data = match modules::hooks::data(&self.lua, asked.data) {
            Ok(data) => data,
            // Invalid data is the client's fault, so it is not logged as an error of the script.
            Err(why) => {
                let response = HookResponse::Error {
                    code: ErrorCode::BadRequest.code(),
                    message: why.to_owned(),
                    is_temporary: false,
                };
                return self.context.set_hook_response(number, response);
            }
        };
        let coroutine = match self.prepare_hook(handler, number, asked, data) {
            Ok(coroutine) => coroutine,
            Err(error) => {
                self.context.log(Level::Error, modules::words(&error));
                return self.context.set_hook_response(number, HookResponse::Failed);
            }
        };
        self.context.keep_hook_context(number, &asked.caller);
        self.begin_or_keep(coroutine, TaskOwner::Hook(number, asked.hook));
    }

    /// Fails the wait of a handler that exceeded the time limit for its response.
    pub fn fail_undecided(&mut self, number: u64, now: Now) {
        self.set_now(now);
        if self.context.hook_request(number).is_none() {
            return;
        }
        self.context.set_hook_response(number, HookResponse::Failed);
        self.end_task(
            |owner| matches!(owner, TaskOwner::Hook(of, _) if of == number),
            veche_runtime::TOO_LATE,
        );
        self.settle();
    }

    /// Prepares the call of the handler for a hook request.
    fn prepare_hook(
        &mut self,
        handler: Reference,
        number: u64,
        asked: &AppHookRequest<'_>,
        data: Value,
    ) -> mlua::Result<Coroutine> {
        let client = modules::hooks::client(&self.lua, asked)?;
        let client = self.machine.keep(client)?;
        let data = self.machine.keep(data)?;
        let subject = Argument::Bytes(asked.subject.as_bytes());
        let mut arguments = vec![
            Argument::Registered(handler),
            Argument::Number(number as f64),
            Argument::Registered(client),
        ];
        match asked.hook {
            Hook::Refresh => {}
            Hook::SubRefresh => arguments.push(subject),
            Hook::Disconnect => {
                arguments.extend([Argument::Number(asked.code.into()), subject]);
            }
            Hook::Connect | Hook::Message => arguments.push(Argument::Registered(data)),
            Hook::Subscribe | Hook::Publish | Hook::Rpc => {
                arguments.extend([subject, Argument::Registered(data)]);
            }
        }
        let coroutine = self.machine.prepare(self.rule, &arguments);
        self.machine.release(client);
        self.machine.release(data);
        Ok(coroutine)
    }

    /// Handles an error raised by a handler; returns whether the error was a response for the
    /// client.
    pub(super) fn respond_with_error(&mut self, number: u64, coroutine: &Coroutine) -> bool {
        let Some(open) = self.context.hook_request(number) else {
            return false;
        };
        let Some(table) = self.machine.raised(coroutine) else {
            return false;
        };
        let response = self
            .machine
            .guarded(false, || modules::hooks::raised(&self.lua, open, &table));
        match response {
            None => return false,
            Some(Ok(response)) => self.context.set_hook_response(number, response),
            Some(Err(error)) => {
                self.context.log(Level::Error, modules::words(&error));
                self.context.set_hook_response(number, HookResponse::Failed);
            }
        }
        true
    }
}
