//! Log contexts of coroutines that have no connection or request of their own: coroutines of hook requests, and tasks,
//! which keep the context of their creator.

use std::collections::HashMap;
use std::rc::Rc;

use foldhash::fast::RandomState;
use veche_runtime::LogContext;
use veche_runtime::hooks::AppHookCaller;

use super::HostContext;
use crate::task::TaskOwner;

/// The maximum number of bytes of a path that are stored: tasks may outlive their requests, and
/// there may be many tasks.
const PATH_BYTES_MAX: usize = 256;

/// The log contexts of hook requests and of tasks, each by number.
#[derive(Default)]
pub(crate) struct LogContexts {
    hooks: HashMap<u64, Rc<LogContext>, RandomState>,
    tasks: HashMap<u64, Rc<LogContext>, RandomState>,
    /// The coroutine that most recently created a task, and the context that its tasks share.
    creator: Option<(TaskOwner, Rc<LogContext>)>,
}

impl LogContexts {
    /// Returns the context of a hook request or a task.
    fn find(&self, owner: TaskOwner) -> Option<&Rc<LogContext>> {
        match owner {
            TaskOwner::Hook(number, _) => self.hooks.get(&number),
            TaskOwner::Spawned(number) => self.tasks.get(&number),
            _ => None,
        }
    }
}

impl HostContext {
    /// Stores the client of a hook request.
    pub(crate) fn keep_hook_context(&self, number: u64, caller: &AppHookCaller<'_>) {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let context = LogContext {
            connection: text(caller.id),
            user: text(caller.user),
            ..LogContext::default()
        };
        let hooks = &mut self.log_contexts.borrow_mut().hooks;
        hooks.insert(number, Rc::new(context));
    }

    /// Gives a new task the context of the coroutine that creates it.
    pub(super) fn inherit_context(&self, number: u64) {
        let Some(owner) = self.running.get() else {
            return;
        };
        if let Some(context) = self.creator_context(owner) {
            let tasks = &mut self.log_contexts.borrow_mut().tasks;
            tasks.insert(number, context);
        }
    }

    fn creator_context(&self, owner: TaskOwner) -> Option<Rc<LogContext>> {
        let contexts = self.log_contexts.borrow();
        if let Some(context) = contexts.find(owner) {
            return Some(Rc::clone(context));
        }
        if let Some((creator, context)) = &contexts.creator
            && *creator == owner
        {
            return Some(Rc::clone(context));
        }
        drop(contexts);
        let mut context = self.about()?;
        if let Some(path) = &mut context.path
            && path.len() > PATH_BYTES_MAX
        {
            path.truncate(path.floor_char_boundary(PATH_BYTES_MAX));
            path.push('…');
            path.shrink_to_fit();
        }
        let context = Rc::new(context);
        let creator = Some((owner, Rc::clone(&context)));
        self.log_contexts.borrow_mut().creator = creator;
        Some(context)
    }

    /// Returns the context of a hook request or a task.
    pub(super) fn kept_context(&self, owner: TaskOwner) -> Option<LogContext> {
        let contexts = self.log_contexts.borrow();
        contexts.find(owner).map(|context| (**context).clone())
    }

    /// Removes the context of a coroutine that has ended.
    pub(crate) fn forget_context(&self, owner: TaskOwner) {
        let mut contexts = self.log_contexts.borrow_mut();
        match owner {
            TaskOwner::Hook(number, _) => _ = contexts.hooks.remove(&number),
            TaskOwner::Spawned(number) => _ = contexts.tasks.remove(&number),
            _ => {}
        }
    }

    /// Returns the number of stored contexts.
    pub(crate) fn log_contexts(&self) -> usize {
        let contexts = self.log_contexts.borrow();
        contexts.hooks.len() + contexts.tasks.len()
    }
}
