//! Execution of back end commands: publications are passed to the hub, and answers are assembled in order.
//!
//! Shared by push lines, the HTTP API and its WebSocket, which differ only in framing and are not distinguished here.

mod exchange;
mod list;
mod names;
mod nodes;
mod reported;

use std::collections::VecDeque;
use std::sync::Arc;

use veche_hub::{
    Answer, Caller, ChannelName, ConnectionId, Connections, Deed, Glob, Instructed, Instruction,
    Outcome, Payload, PayloadRef, PublishOptions, Published, Question, Ticket,
};
use veche_proto::websocket::MessageKind;
use veche_types::codes::{CloseCode, ErrorCode};

use crate::backend::command::{
    BadCommand, Command, Inquiry, Instructing, Listing, Of, Target, Text,
};
use crate::context::blocks::{Block, NotBlocked};
use crate::context::census::Census;
use crate::context::note::NoteLevel;
use crate::context::publishing::{Busy, Publisher};
use crate::context::shared::Shared;
pub(crate) use exchange::Exchange;
pub use exchange::Shape;
use exchange::{Content, UNCOUNTED};
use names::{known, named, personal};
pub use nodes::bind_undecided;
use reported::report_publish;

/// Maximum number of unanswered commands of one back end; its input then waits.
pub const EXCHANGES_MAX: usize = 1024;

/// Why a command is not executed.
#[derive(Debug, PartialEq, Eq)]
pub enum Unwilling {
    /// The command is invalid.
    Bad(BadCommand),
    /// It is rejected for now.
    Busy(Busy),
}

impl From<BadCommand> for Unwilling {
    fn from(bad: BadCommand) -> Self {
        Self::Bad(bad)
    }
}

/// The progress of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Done; its answer, if any, will follow.
    Done,
    /// Valid and stored, but part of it waits for credit: [`Backend::resume`] continues.
    Unfinished,
}

/// The exchanges of one back end connection in order.
#[derive(Debug, Default)]
pub struct Backend {
    publisher: Publisher,
    exchanges: VecDeque<Exchange>,
    /// Number of exchanges from the front that are known to be complete.
    complete: usize,
    /// Number of the first exchange.
    first: u32,
    unfinished: Option<Job>,
    /// A stored frame that can't be parsed before an answer is sent.
    kept: Option<(MessageKind, Vec<u8>)>,
}

/// A publication with targets that wait for credit: parsed and owned, so that retries cost nothing more.
#[derive(Debug)]
struct Job {
    targets: Vec<Box<str>>,
    next: usize,
    payload: Payload,
    terms: Option<Arc<PublishOptions>>,
    exchange: Option<u32>,
}

/// A ticket contains the exchange (22 bits, wrapping) and the target in it (10 bits).
const TARGET_BITS: u32 = 10;
const EXCHANGE_MASK: u32 = u32::MAX >> TARGET_BITS;

fn ticket(exchange: u32, target: usize) -> Ticket {
    Ticket((exchange & EXCHANGE_MASK) << TARGET_BITS | target as u32)
}

/// Checks that memory permits a publication or a possibly large answer.
fn has_memory(shared: &Shared) -> Result<(), Unwilling> {
    match shared.is_short_of_memory {
        true => Err(Unwilling::Busy(Busy::NoMemory)),
        false => Ok(()),
    }
}

impl Backend {
    /// Creates the exchanges of an API caller.
    pub fn of(publisher: Publisher) -> Self {
        Self {
            publisher,
            ..Self::default()
        }
    }

    /// Checks the publish rate, and counts the publications.
    fn admit(&self, target: &Target<'_>, shared: &Shared) -> Result<(), Unwilling> {
        has_memory(shared)?;
        let publishing = &shared.site.publishing;
        publishing
            .take(self.publisher, target.count(), shared.now.mono_ms)
            .map_err(Unwilling::Busy)
    }

    /// Executes a publish command.
    ///
    /// `answered`: whether an answer is to be written. To be called only while nothing is unfinished and this is not
    /// [full](Backend::is_full).
    pub fn publish(
        &mut self,
        command: &Command<'_>,
        shape: Shape,
        answered: bool,
        session: ConnectionId,
        shared: &mut Shared,
    ) -> Result<Progress, Unwilling> {
        debug_assert!(self.unfinished.is_none() && !self.is_full());
        let data = command.data.ok_or_else(|| {
            BadCommand::new("\"data\" (or \"message\", or \"binary\") is missing")
        })?;
        self.admit(&command.target, shared)?;
        report_publish(&command.target, shared);
        let mut payload_scratch = std::mem::take(&mut shared.scratch.payload);
        let mut name = std::mem::take(&mut shared.scratch.name);
        let result = data
            .payload(&mut payload_scratch)
            .and_then(|payload| match &command.target {
                Target::User(user) => {
                    let channel = personal(&user.0, &mut name)?;
                    Ok(self
                        .publish_one(channel, payload, command, shape, answered, session, shared))
                }
                Target::Channel(channel) => {
                    let channel = known(&channel.0, shared)?;
                    Ok(self
                        .publish_one(channel, payload, command, shape, answered, session, shared))
                }
                Target::Users(users) => {
                    let targets = users
                        .iter()
                        .map(|user| Ok(personal(&user.0, &mut name)?.as_str().into()));
                    let targets = targets.collect::<Result<Vec<Box<str>>, BadCommand>>()?;
                    Ok(self
                        .publish_many(targets, payload, command, shape, answered, session, shared))
                }
                Target::Channels(channels) => {
                    let targets = channels
                        .iter()
                        .map(|channel| Ok(known(&channel.0, shared)?.as_str().into()));
                    let targets = targets.collect::<Result<Vec<Box<str>>, BadCommand>>()?;
                    Ok(self
                        .publish_many(targets, payload, command, shape, answered, session, shared))
                }
            });
        payload_scratch.clear();
        shared.scratch.payload = payload_scratch;
        shared.scratch.name = name;
        Ok(result?)
    }

    /// Sends a command to a user's connections. Its answer is complete once all workers concerned have executed it.
    pub fn instruct(
        &mut self,
        command: Instructing<'_>,
        session: ConnectionId,
        shared: &mut Shared,
    ) -> Result<Progress, Unwilling> {
        let Instructing { user, instruction } = command;
        let is_counted =
            instruction.means_all() && matches!(instruction.deed, Deed::Disconnect { .. });
        let from = (session, ticket(self.next_number(), 0));
        let outcome = match shared.ports.nodes {
            Some(nodes) => nodes::instruct(from, &user.0, instruction, nodes, shared),
            None => {
                bind_undecided(&*shared.process, &user.0, &instruction);
                let (hub, ports) = (&mut shared.hub, &mut shared.ports);
                hub.instruct(Some(from), &user.0, instruction, ports)
            }
        };
        let outcome =
            outcome.map_err(|error| BadCommand::new(format!("bad user {:?}: {error}", user.0)))?;
        let (connections, open) = match outcome {
            Outcome::Done(instructed) => (instructed.connections, instructed.open),
            Outcome::Pending => (0, UNCOUNTED),
        };
        let content = match is_counted {
            true => Content::Disconnected(connections),
            false => Content::Instructed,
        };
        self.owe(None, open, content);
        shared.stats.pushes.add(1);
        Ok(Progress::Done)
    }

    /// Bans a user and disconnects the user's connections, lifts a ban, or revokes tokens.
    pub fn block(
        &mut self,
        block: &Block,
        session: ConnectionId,
        shared: &mut Shared,
    ) -> Result<Progress, Unwilling> {
        let unwritten = match shared.process.block(block, shared.now.wall_ms / 1000) {
            Ok(()) => None,
            Err(full @ NotBlocked::TooMany) => {
                self.refuse_with(ErrorCode::LimitExceeded, &full.to_string());
                return Ok(Progress::Done);
            }
            Err(not_written @ NotBlocked::NotWritten(_)) => {
                shared.process.trouble(&format!("block: {not_written}"));
                Some(Content::Refused(
                    ErrorCode::Internal,
                    not_written.to_string(),
                ))
            }
        };
        let Block::User { user, .. } = block else {
            let open = match shared.ports.nodes {
                Some(_) => {
                    let caller = Caller {
                        worker: shared.hub.worker(),
                        session,
                        ticket: ticket(self.next_number(), 0),
                    };
                    nodes::block(block, Some(caller), &mut shared.ports);
                    UNCOUNTED
                }
                None => 0,
            };
            self.owe(None, open, unwritten.unwrap_or(Content::Instructed));
            return Ok(Progress::Done);
        };
        if shared.ports.nodes.is_some() {
            // The others have it in force before they close his connections.
            nodes::block(block, None, &mut shared.ports);
        }
        // In force by now: who comes after that is not let in.
        let (code, reason) = CloseCode::Blocked.parts();
        let reason = Arc::from(reason);
        let closing = Instructing {
            user: Text(user.as_str().into()),
            instruction: Instruction::to_all(Deed::Disconnect { code, reason }),
        };
        let progress = self.instruct(closing, session, shared)?;
        if let Some((content, last)) = unwritten.zip(self.exchanges.back_mut()) {
            // The command is executed anyway, and answered when it is done.
            last.content = content;
        }
        Ok(progress)
    }

    /// Queries whether a user is connected.
    pub fn user_status(
        &mut self,
        user: &Text<'_>,
        session: ConnectionId,
        shared: &mut Shared,
    ) -> Result<Progress, Unwilling> {
        let mut name = String::new();
        let channel = personal(&user.0, &mut name)?;
        let from = (session, ticket(self.next_number(), 0));
        let (hub, ports) = (&mut shared.hub, &mut shared.ports);
        let outcome = match ports.nodes {
            Some(nodes) => nodes::ask_status(from, channel, nodes, ports),
            None => hub.ask(from, channel, Question::UserStatus, ports),
        };
        let (status, open) = match outcome {
            Outcome::Done(Answer::UserStatus(status)) => (Some(status), 0),
            Outcome::Done(_) => (None, 0),
            Outcome::Pending => (None, 1),
        };
        let is_blocked = shared.is_blocked(&user.0);
        self.owe(None, open, Content::UserStatus(status, is_blocked));
        Ok(Progress::Done)
    }

    /// Lists channels with subscribers whose names match the pattern; all without one.
    pub fn channels(
        &mut self,
        pattern: Option<&Text<'_>>,
        session: ConnectionId,
        shared: &mut Shared,
    ) -> Result<Progress, Unwilling> {
        has_memory(shared)?;
        let from = (session, ticket(self.next_number(), 0));
        let pattern = Glob::new(pattern.map_or("*", |pattern| &pattern.0))
            .map_err(|error| BadCommand::new(format!("bad pattern: {error}")))?;
        let ports = &mut shared.ports;
        let (here, open) = match ports.nodes {
            Some(nodes) => nodes::list(from, pattern, nodes, ports),
            None => shared.hub.list(from, pattern, ports),
        };
        self.owe(None, open, Content::Channels(here));
        Ok(Progress::Done)
    }

    /// Lists the connections that are subscribed to a channel, or those of a user.
    pub fn connections(
        &mut self,
        who: &Listing<'_>,
        session: ConnectionId,
        shared: &mut Shared,
    ) -> Result<Progress, Unwilling> {
        has_memory(shared)?;
        let mut name = std::mem::take(&mut shared.scratch.name);
        let channel = match &who.of {
            Of::User(user) => personal(&user.0, &mut name),
            Of::Channel(channel) => named(&channel.0),
        };
        let channel = channel.map(|channel| Arc::from(channel.as_str()));
        shared.scratch.name = name;
        let ticket = ticket(self.next_number(), 0);
        shared.ports.censuses.push(Census {
            channel: channel?,
            name: who.name.as_ref().map(|name| name.0.as_ref().into()),
            caller: Caller {
                worker: shared.hub.worker(),
                session,
                ticket,
            },
        });
        let answers = match shared.ports.nodes {
            Some(_) => 1,
            None => shared.hub.workers().into(),
        };
        let content = Content::Connections(Connections::default());
        self.owe(None, answers, content);
        Ok(Progress::Done)
    }

    /// Answers with this result, a JSON object.
    pub fn tell(&mut self, result: String) -> Progress {
        self.owe(None, 0, Content::Written(result));
        Progress::Done
    }

    /// Answers with an error.
    pub fn refuse_with(&mut self, code: ErrorCode, why: &str) {
        self.owe(None, 0, Content::Refused(code, why.to_owned()));
    }

    /// Sends a query to the channel's home worker.
    pub fn ask(
        &mut self,
        inquiry: Inquiry<'_>,
        session: ConnectionId,
        shared: &mut Shared,
    ) -> Result<Progress, Unwilling> {
        let channel = known(&inquiry.channel.0, shared)?;
        if let Question::History(_) | Question::Presence = inquiry.question {
            has_memory(shared)?;
        }
        let from = (session, ticket(self.next_number(), 0));
        let (hub, ports) = (&mut shared.hub, &mut shared.ports);
        let (answer, open) = match hub.ask(from, channel, inquiry.question, ports) {
            Outcome::Done(answer) => (Some(answer), 0),
            Outcome::Pending => (None, 1),
        };
        self.owe(None, open, Content::Asked(answer));
        Ok(Progress::Done)
    }

    /// Adds an error as an answer, in order. `place`: the position of the command, if it has to be named.
    pub fn refuse(
        &mut self,
        id: Option<&str>,
        why: Unwilling,
        place: &str,
        session: ConnectionId,
        shared: &mut Shared,
    ) {
        let (code, error) = match why {
            Unwilling::Bad(BadCommand { why, code, .. }) => {
                shared.stats.pushes_refused.add(1);
                (code, format!("{place}{why}"))
            }
            Unwilling::Busy(busy) => {
                shared.stats.push_turned_away(busy);
                (busy.code(), format!("{place}{busy}"))
            }
        };
        shared.note(
            session,
            NoteLevel::Info,
            format!("command refused: {error}"),
        );
        self.owe(id, 0, Content::Refused(code, error));
    }

    /// Sets the id of the last exchange.
    pub(crate) fn name_last(&mut self, id: &str) {
        if let Some(last) = self.exchanges.back_mut() {
            last.id = Some(id.into());
        }
    }

    /// Continues what waited for credit; returns `true` when nothing is left.
    pub fn resume(&mut self, session: ConnectionId, shared: &mut Shared) -> bool {
        let Some(mut job) = self.unfinished.take() else {
            return true;
        };
        if self.advance(&mut job, session, shared) {
            if let Some(exchange) = job.exchange.and_then(|number| self.exchange(number)) {
                exchange.open -= 1;
            }
            return true;
        }
        self.unfinished = Some(job);
        false
    }

    /// Returns whether every answer has been written and nothing waits for credit.
    pub fn is_settled(&self) -> bool {
        self.exchanges.is_empty() && self.unfinished.is_none()
    }

    /// Returns whether the limit of unanswered commands is reached.
    pub fn is_full(&self) -> bool {
        self.exchanges.len() >= EXCHANGES_MAX
    }

    /// Stores a frame that can't be parsed yet; its source is paused meanwhile, so there is at most one.
    pub fn keep(&mut self, kind: MessageKind, frame: Vec<u8>) {
        self.kept = Some((kind, frame));
    }

    /// Takes the stored frame.
    pub fn take_kept(&mut self) -> Option<(MessageKind, Vec<u8>)> {
        self.kept.take()
    }

    /// Handles the answer of a home worker.
    pub fn answered(&mut self, Ticket(ticket): Ticket, answer: Answer) {
        let (number, target) = (
            ticket >> TARGET_BITS,
            (ticket & ((1 << TARGET_BITS) - 1)) as usize,
        );
        let Some(exchange) = self.exchange(number) else {
            return;
        };
        match (&mut exchange.content, answer) {
            (_, Answer::Partial { answered, known }) => {
                exchange.partial = Some((answered, known));
                return;
            }
            (Content::Published(_, _, targets), Answer::Published(published)) => {
                if let Some(place) = targets.get_mut(target) {
                    *place = Some(published);
                }
            }
            (Content::Published(_, _, targets), Answer::Failed) => {
                if let Some(place) = targets.get_mut(target) {
                    *place = None;
                }
            }
            (
                Content::Disconnected(_) | Content::Instructed | Content::Refused(..),
                Answer::Instructed(Instructed { connections, open }),
            ) => {
                if let Content::Disconnected(all) = &mut exchange.content {
                    *all = connections;
                }
                // Some answers may have been settled before.
                exchange.open = exchange.open.wrapping_sub(UNCOUNTED).wrapping_add(open);
                return;
            }
            (
                Content::Disconnected(_) | Content::Instructed | Content::Refused(..),
                Answer::Settled,
            ) => {}
            (Content::Channels(all), Answer::Channels(more)) => all.add(more),
            (Content::Connections(all), Answer::Connections(more)) => all.add(more),
            (Content::UserStatus(status, _), Answer::UserStatus(found)) => *status = Some(found),
            (Content::Asked(asked), answer) => *asked = Some(answer),
            _ => return,
        }
        exchange.open = exchange.open.saturating_sub(1);
    }

    /// Writes the next complete answer as one JSON object with its result under this key; returns `false` if there is
    /// none.
    pub fn write_answer(&mut self, out: &mut Vec<u8>, key: &str) -> bool {
        let Some(exchange) = self.exchanges.front().filter(|exchange| exchange.open == 0) else {
            return false;
        };
        exchange.write(out, key);
        self.exchanges.pop_front();
        self.complete = self.complete.saturating_sub(1);
        self.first = self.first.wrapping_add(1) & EXCHANGE_MASK;
        true
    }

    /// Returns whether everything is answered; answers may be left to take. Visits each exchange once over all calls.
    pub(crate) fn is_answered(&mut self) -> bool {
        let rest = self.exchanges.range(self.complete..);
        self.complete += rest.take_while(|exchange| exchange.open == 0).count();
        self.complete == self.exchanges.len()
    }

    /// Takes all answers once they are complete.
    pub(crate) fn take_answers(&mut self) -> Option<VecDeque<Exchange>> {
        if !self.is_answered() {
            return None;
        }
        self.first = self.next_number();
        self.complete = 0;
        Some(std::mem::take(&mut self.exchanges))
    }

    /// Adds an exchange whose answer is written in order, once `open` homes have answered.
    fn owe(&mut self, id: Option<&str>, open: u32, content: Content) {
        self.exchanges.push_back(Exchange {
            id: id.map(Into::into),
            open,
            content,
            partial: None,
        });
    }

    fn exchange(&mut self, number: u32) -> Option<&mut Exchange> {
        self.exchanges
            .get_mut((number.wrapping_sub(self.first) & EXCHANGE_MASK) as usize)
    }

    fn next_number(&self) -> u32 {
        self.first.wrapping_add(self.exchanges.len() as u32) & EXCHANGE_MASK
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the hot path: nothing is gathered into a struct first"
    )]
    fn publish_one(
        &mut self,
        channel: ChannelName<'_>,
        payload: PayloadRef<'_>,
        command: &Command<'_>,
        shape: Shape,
        answered: bool,
        session: ConnectionId,
        shared: &mut Shared,
    ) -> Progress {
        let terms = command.terms.as_ref();
        let from = answered.then(|| (session, ticket(self.next_number(), 0)));
        let Ok(outcome) = shared
            .hub
            .publish(from, channel, payload, terms, &mut shared.ports)
        else {
            shared.stats.credits_refused.add(1);
            let target = vec![channel.as_str().into()];
            return self.begin(target, payload, command, shape, answered, shared);
        };
        shared.stats.pushes.add(1);
        let (published, open) = match outcome {
            Outcome::Done(published) => (published, 0),
            Outcome::Pending => (Published::default(), 1),
        };
        if answered {
            let content =
                Content::Published(shape, command.target.absence(), vec![Some(published)]);
            self.owe(command.id, open, content);
        }
        Progress::Done
    }

    #[expect(clippy::too_many_arguments, reason = "as publish_one")]
    fn publish_many(
        &mut self,
        targets: Vec<Box<str>>,
        payload: PayloadRef<'_>,
        command: &Command<'_>,
        shape: Shape,
        answered: bool,
        session: ConnectionId,
        shared: &mut Shared,
    ) -> Progress {
        self.begin(targets, payload, command, shape, answered, shared);
        if self.resume(session, shared) {
            Progress::Done
        } else {
            Progress::Unfinished
        }
    }

    fn begin(
        &mut self,
        targets: Vec<Box<str>>,
        payload: PayloadRef<'_>,
        command: &Command<'_>,
        shape: Shape,
        answered: bool,
        shared: &mut Shared,
    ) -> Progress {
        let exchange = answered.then(|| self.next_number());
        if answered {
            let published = vec![Some(Published::default()); targets.len()];
            let content = Content::Published(shape, command.target.absence(), published);
            self.owe(command.id, 1, content);
        }
        shared.stats.pushes.add(1);
        self.unfinished = Some(Job {
            targets,
            next: 0,
            payload: payload.to_payload(),
            terms: command.terms.clone(),
            exchange,
        });
        Progress::Unfinished
    }

    /// Publishes to further targets; returns `true` when all are done.
    fn advance(&mut self, job: &mut Job, session: ConnectionId, shared: &mut Shared) -> bool {
        while let Some(target) = job.targets.get(job.next) {
            let from = job
                .exchange
                .map(|number| (session, ticket(number, job.next)));
            let Ok(channel) = ChannelName::new(target) else {
                unreachable!("checked when the job was made")
            };
            let (hub, ports) = (&mut shared.hub, &mut shared.ports);
            match hub.publish(
                from,
                channel,
                job.payload.borrow(),
                job.terms.as_ref(),
                ports,
            ) {
                Err(_) => {
                    shared.stats.credits_refused.add(1);
                    return false;
                }
                Ok(outcome) => {
                    if let Some(exchange) = job.exchange.and_then(|number| self.exchange(number)) {
                        match (outcome, &mut exchange.content) {
                            (Outcome::Done(published), Content::Published(_, _, targets)) => {
                                targets[job.next] = Some(published);
                            }
                            _ => exchange.open += 1,
                        }
                    }
                }
            }
            job.next += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_are_complete_in_any_order_and_stay_so() {
        let mut backend = Backend::default();
        let asked = |open| (open, Content::Asked(None));
        for (open, content) in [asked(0), asked(1), asked(0), asked(1)] {
            backend.owe(None, open, content);
        }
        assert!(!backend.is_answered());
        backend.answered(ticket(3, 0), Answer::Settled);
        assert!(!backend.is_answered());
        assert!(backend.write_answer(&mut Vec::new(), "result"));
        assert!(!backend.write_answer(&mut Vec::new(), "result"), "it waits");
        assert!(!backend.is_answered());
        backend.answered(ticket(1, 0), Answer::Settled);
        assert!(backend.is_answered());
        backend.owe(None, 1, Content::Instructed);
        assert!(!backend.is_answered() && backend.take_answers().is_none());
        backend.answered(ticket(4, 0), Answer::Settled);
        assert_eq!(backend.take_answers().map(|taken| taken.len()), Some(4));
        assert!(backend.is_answered(), "nothing is asked");
        backend.owe(None, 1, Content::Instructed);
        assert!(!backend.is_answered());
        backend.answered(ticket(5, 0), Answer::Settled);
        assert!(backend.is_answered());
    }
}
