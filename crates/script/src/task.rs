//! Coroutines in progress: their owners and waits.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::ConnectionId;
use crate::raw::Coroutine;
use crate::vm::HandlerName;
use veche_runtime::Token;
use veche_runtime::hooks::Hook;

/// The owner of a coroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskOwner {
    /// A run of `app.start`.
    Start,
    /// A run of `app.stop`.
    Stop,
    /// A run of a service's `run` function.
    Run,
    /// A handler of a connection.
    Connection(ConnectionId, HandlerName),
    /// An HTTP request, by its number.
    Request(u64),
    /// A handshake, by the number of its request.
    Handshake(u64),
    /// A hook request of a client of Centrifugo's protocol, by its number.
    Hook(u64, Hook),
    /// A batch of channel and user events.
    Events,
    /// A coroutine spawned by a script, by its number.
    Spawned(u64),
}

impl TaskOwner {
    /// Returns the name for logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Run => "run",
            Self::Connection(..) => "handler of a connection, after a wait",
            Self::Request(_) => "request",
            Self::Handshake(_) => "handshake",
            Self::Hook(_, hook) => hook_path(hook),
            Self::Events => "events",
            Self::Spawned(_) => "spawned",
        }
    }
}

/// A coroutine that is suspended, or prepared but not started.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) coroutine: Coroutine,
    pub(crate) owner: TaskOwner,
    /// The token for which the task waits; `None` before the task has started.
    pub(crate) token: Option<Token>,
}

/// All tasks of a VM.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    slots: Vec<Option<Task>>,
    free: Vec<u32>,
    waits: HashMap<Token, u32, RandomState>,
    spawned: HashMap<u64, u32, RandomState>,
}

impl Tasks {
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Stores a task and returns its index.
    pub(crate) fn keep(&mut self, task: Task) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        if let Some(token) = task.token {
            self.waits.insert(token, place);
        }
        if let TaskOwner::Spawned(number) = task.owner {
            self.spawned.insert(number, place);
        }
        self.slots[place as usize] = Some(task);
        place
    }

    /// Stores a coroutine that has not started and returns its index.
    pub(crate) fn keep_prepared(&mut self, coroutine: Coroutine, owner: TaskOwner) -> u32 {
        self.keep(Task {
            coroutine,
            owner,
            token: None,
        })
    }

    /// Returns the owner of the task at an index.
    pub(crate) fn owner_at(&self, place: u32) -> Option<TaskOwner> {
        let task = self.slots.get(place as usize)?.as_ref()?;
        Some(task.owner)
    }

    /// Removes and returns the task at an index, so that it can be started or resumed.
    pub(crate) fn take(&mut self, place: u32) -> Option<Task> {
        let task = self.vacate(place)?;
        if let Some(token) = task.token {
            self.waits.remove(&token);
        }
        Some(task)
    }

    fn vacate(&mut self, place: u32) -> Option<Task> {
        let task = self.slots.get_mut(place as usize)?.take()?;
        self.free.push(place);
        if let TaskOwner::Spawned(number) = task.owner {
            self.spawned.remove(&number);
        }
        Some(task)
    }

    /// Returns whether a task waits for a token.
    pub(crate) fn is_waiting(&self, token: Token) -> bool {
        self.waits.contains_key(&token)
    }

    /// Removes and returns the task that waits for a token, if there is one.
    pub(crate) fn take_waiting(&mut self, token: Token) -> Option<Task> {
        let place = self.waits.remove(&token)?;
        self.vacate(place)
    }

    /// Takes the task whose owner matches, with its index, unless the task is running. Searches
    /// linearly.
    pub(crate) fn take_of(&mut self, is_it: impl Fn(TaskOwner) -> bool) -> Option<(u32, Task)> {
        let mut slots = self.slots.iter();
        let place = slots.position(|task| task.as_ref().is_some_and(|task| is_it(task.owner)))?;
        let place = place as u32;
        Some((place, self.take(place)?))
    }

    /// Returns the requests and handshakes that have not been answered.
    pub(crate) fn requests(&self) -> Vec<(u64, TaskOwner)> {
        let owners = self.slots.iter().flatten().map(|task| task.owner);
        owners
            .filter_map(|owner| match owner {
                TaskOwner::Request(number) | TaskOwner::Handshake(number) => Some((number, owner)),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn take_all(&mut self) -> Vec<Task> {
        let places = 0..self.slots.len() as u32;
        places.filter_map(|place| self.take(place)).collect()
    }

    /// Takes a spawned task by its number, unless the task is running.
    pub(crate) fn take_spawned(&mut self, number: u64) -> Option<Task> {
        let place = self.spawned.get(&number).copied()?;
        self.take(place)
    }
}

/// Returns the name of a hook's function, qualified by its table.
pub(crate) const fn hook_path(hook: Hook) -> &'static str {
    match hook {
        Hook::Connect => "centrifuge.connect",
        Hook::Refresh => "centrifuge.refresh",
        Hook::Subscribe => "centrifuge.subscribe",
        Hook::SubRefresh => "centrifuge.sub_refresh",
        Hook::Publish => "centrifuge.publish",
        Hook::Rpc => "centrifuge.rpc",
        Hook::Message => "centrifuge.message",
        Hook::Disconnect => "centrifuge.disconnect",
    }
}
