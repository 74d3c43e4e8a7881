//! Calls of the API that applications make: the front ends carry them out as those of back ends, and whoever waits gets
//! the answer.
//!
//! A call begins when all that its worker's applications have published before is with the hub, so that it finds it done.
//! It does not know the methods.

use std::collections::{HashMap, VecDeque};

use veche_calls::{Fault, FaultKind, Outcome, Reply};
use veche_frontends::command::{self, Target};
use veche_frontends::{AppId, Direct, DirectCall, Shared};
use veche_hub::{Answer, ConnectionId, PayloadKind, Ticket};
use veche_proto::websocket::MessageKind;
use veche_runtime::{Runtime, Token};

use super::here::Here;
use super::journal::{Entry, Journal};

/// In place of a session where a call asks: less the application's number. No connection has so high an index, and no
/// [inquiry](super::inquire) has these.
const CALLERS: u32 = u32::MAX - 1;

/// Calls under way on one worker, and bytes of those that have not begun.
const UNDER_WAY_MAX: usize = 16_384;
const BYTES_MAX: usize = 64 << 20;

/// So many of those that wait are looked at in one turn.
const TRIED_MAX: usize = 256;

/// Whose call it was, if none of a connection's.
pub(super) fn caller(session: ConnectionId) -> Option<AppId> {
    let app = CALLERS.checked_sub(session.index)?;
    u16::try_from(app).ok().map(AppId)
}

/// The number of the call.
pub(super) fn number(session: ConnectionId) -> Option<u32> {
    caller(session).map(|_| session.generation)
}

/// Those of one worker.
#[derive(Default)]
pub(super) struct Commands {
    last: u32,
    under_way: HashMap<u32, Command>,
    /// Those that have not begun, by who waits for them.
    tokens: HashMap<(AppId, Token), u32>,
    /// Those that have not begun, or wait for credit, in the order of their turns; those that were cancelled are passed over.
    waiting: VecDeque<u32>,
    /// Of bodies of those that have not begun.
    bytes: usize,
}

struct Command {
    app: AppId,
    token: Token,
    call: DirectCall,
    /// Until it begins.
    body: Option<Vec<u8>>,
    /// It begins when the publications up to this number have gone to the hub.
    behind: u64,
    /// It is among those that wait.
    is_waiting: bool,
}

impl Commands {
    /// Whether some should be looked at again soon.
    pub(super) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Nobody waits for it any more. What has begun is carried out all the same.
    pub(super) fn cancel(&mut self, app: AppId, token: Token) {
        let number = self.tokens.remove(&(app, token));
        let command = number.and_then(|number| self.under_way.remove(&number));
        let body = command.and_then(|command| command.body);
        self.bytes -= body.map_or(0, |body| body.len());
    }

    fn next_number(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.under_way.contains_key(&self.last) {
                return self.last;
            }
        }
    }
}

impl Here {
    /// Begins a call.
    pub(super) fn command(
        &mut self,
        app: AppId,
        token: Token,
        method: String,
        body: &[u8],
        shared: &mut Shared,
    ) {
        let commands = &mut self.commands;
        if commands.under_way.len() >= UNDER_WAY_MAX || commands.bytes + body.len() > BYTES_MAX {
            let words = format!("api.{method}: too many calls are under way: try again later");
            let fault = Fault::new(FaultKind::Refused, words);
            return self.finds.end(app, token, Err(fault));
        }
        if let Some(journal) = &self.journal {
            note_published(journal, &method, body);
        }
        let number = commands.next_number();
        commands.bytes += body.len();
        let command = Command {
            app,
            token,
            call: DirectCall::new(&method),
            body: Some(body.to_vec()),
            behind: self.held.last(),
            is_waiting: false,
        };
        commands.under_way.insert(number, command);
        commands.tokens.insert((app, token), number);
        if let Some(outcome) = self.go_on_with(number, shared) {
            self.finds.end(app, token, outcome);
        }
    }

    /// Goes on with those that wait, as far as they can by now.
    pub(super) fn go_on_with_commands(&mut self, shared: &mut Shared) {
        for _ in 0..self.commands.waiting.len().min(TRIED_MAX) {
            let Some(number) = self.commands.waiting.pop_front() else {
                break;
            };
            self.hand_in_command(number, shared);
        }
    }

    /// A home or a worker has answered.
    pub(super) fn command_answered(
        &mut self,
        number: u32,
        ticket: Ticket,
        answer: Answer,
        shared: &mut Shared,
    ) {
        let Some(command) = self.commands.under_way.get_mut(&number) else {
            return;
        };
        command.call.answered(ticket, answer);
        // One that waits for credit has its turn.
        if !command.is_waiting {
            self.hand_in_command(number, shared);
        }
    }

    fn hand_in_command(&mut self, number: u32, shared: &mut Shared) {
        let command = self.commands.under_way.get(&number);
        let Some((app, token)) = command.map(|one| (one.app, one.token)) else {
            return;
        };
        if let Some(outcome) = self.go_on_with(number, shared) {
            self.run(app, None, shared, |app, now| {
                app.runtime.replied(token, outcome, now);
            });
        }
    }

    /// Returns what has come of it, if it is over.
    fn go_on_with(&mut self, number: u32, shared: &mut Shared) -> Option<Outcome> {
        let Commands {
            under_way,
            tokens,
            waiting,
            bytes,
            ..
        } = &mut self.commands;
        let command = under_way.get_mut(&number)?;
        command.is_waiting = true;
        if command.body.is_some() && !self.held.have_gone(0, command.behind) {
            waiting.push_back(number);
            return None;
        }
        let id = ConnectionId {
            index: CALLERS - u32::from(command.app.0),
            generation: number,
        };
        let direct = match command.body.take() {
            Some(body) => {
                *bytes -= body.len();
                tokens.remove(&(command.app, command.token));
                command.call.begin(&body, id, shared)
            }
            None => command.call.resume(id, shared),
        };
        match direct {
            Direct::Answered(body) => {
                under_way.remove(&number);
                Some(Ok(Reply::Api(body)))
            }
            Direct::NeedsCredit => {
                waiting.push_back(number);
                None
            }
            Direct::NeedsAnswers => {
                command.is_waiting = false;
                None
            }
        }
    }
}

/// A call that publishes is a publication of a test's application like any other.
fn note_published(journal: &Journal, method: &str, body: &[u8]) {
    if !matches!(method, "push" | "publish" | "broadcast") {
        return;
    }
    let mut scratch = Vec::new();
    let Ok(command) = command::parse(body, &mut scratch) else {
        return;
    };
    let Some(Ok(payload)) = command.data.map(|data| data.payload(&mut scratch)) else {
        return;
    };
    let kind = match payload.kind {
        PayloadKind::Text | PayloadKind::Json => MessageKind::Text,
        PayloadKind::Binary => MessageKind::Binary,
    };
    let (names, before) = match &command.target {
        Target::User(name) => (std::slice::from_ref(name), "#"),
        Target::Users(names) => (names.as_slice(), "#"),
        Target::Channel(name) => (std::slice::from_ref(name), ""),
        Target::Channels(names) => (names.as_slice(), ""),
    };
    for name in names {
        journal.write(Entry::Published {
            channel: [before, &*name.0].concat(),
            kind,
            data: payload.bytes.to_vec(),
        });
    }
}
