//! Execution of back end commands: publications are passed to the hub, and answers are assembled in order.
//!
//! Push lines, the HTTP API and its WebSocket share this code. They differ only in framing, which other modules handle.

mod decision_log;
mod exchange;
mod list;
mod nodes;
mod unfinished_publish;

use std::collections::VecDeque;
use std::sync::Arc;

use veche_hub::{
    Caller, ChannelName, ChannelQuery, CommandDispatch, ConnectionId, ConnectionList, Glob,
    HubReply, PayloadRef, PublishOutcome, RequestOutcome, Ticket, UserAction, UserCommand,
};
use veche_proto::websocket::MessageKind;
use veche_types::codes::{CloseCode, ErrorCode};

use crate::backend::command::{
    AddressedCommand, BadCommand, ChannelCommand, ConnectionsOf, ConnectionsQuery, JsonText,
    PublishCommand, PublishTarget,
};
use crate::context::issued_token::{Ban, BanError};
use crate::context::log_note::NoteLevel;
use crate::context::publish_limiter::{PublishError, PublisherKey};
use crate::context::session_info::ListConnections;
use crate::context::worker_context::Context;
use decision_log::report_publish;
pub use exchange::AnswerShape;
pub(crate) use exchange::Exchange;
use exchange::{ExchangeState, UNCOUNTED};
pub use nodes::bind_undecided;
use unfinished_publish::UnfinishedPublish;

/// Maximum number of unanswered commands of one back end connection; when it is reached, further input of that
/// connection waits.
pub const EXCHANGES_MAX: usize = 1024;

/// Why a command is not executed.
#[derive(Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The command is invalid.
    Bad(BadCommand),
    /// The command is valid, but rejected because of a temporary condition.
    Busy(PublishError),
}

impl From<BadCommand> for Rejection {
    fn from(bad: BadCommand) -> Self {
        Self::Bad(bad)
    }
}

/// The progress of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandProgress {
    /// The command was executed; its answer, if it has one, follows later.
    Done,
    /// Some publications of the valid command wait for credit. [`Backend::resume`] continues them.
    Unfinished,
}

/// The commands of one back end connection and their answers, in order.
#[derive(Debug, Default)]
pub struct Backend {
    publisher: PublisherKey,
    exchanges: VecDeque<Exchange>,
    /// Number of exchanges at the front of the queue that [`Backend::is_answered`] has found complete.
    complete: usize,
    /// The number of the first exchange in the queue.
    first: u32,
    unfinished: Option<UnfinishedPublish>,
    /// A received frame that is executed only after answers to earlier commands are written, because the limit of
    /// unanswered commands was reached.
    unwritten: Option<(MessageKind, Vec<u8>)>,
}

/// Number of bits of a [`Ticket`] for the index of the target within its exchange. The other 22 bits are the number of
/// the exchange, which wraps around.
const TARGET_BITS: u32 = 10;
const EXCHANGE_MASK: u32 = u32::MAX >> TARGET_BITS;

fn ticket(exchange: u32, target: usize) -> Ticket {
    Ticket((exchange & EXCHANGE_MASK) << TARGET_BITS | target as u32)
}

/// Refuses a publication or a command with a possibly large answer while the server is short of memory.
fn check_memory(shared: &Context) -> Result<(), Rejection> {
    match shared.is_short_of_memory {
        true => Err(Rejection::Busy(PublishError::OutOfMemory)),
        false => Ok(()),
    }
}

impl Backend {
    /// Creates the state for an API caller without pending commands.
    pub fn of(publisher: PublisherKey) -> Self {
        Self {
            publisher,
            ..Self::default()
        }
    }

    /// Refuses a publication while memory is short or if it exceeds the caller's publish rate; otherwise counts it
    /// against that rate.
    fn check_rate(&self, target: &PublishTarget<'_>, shared: &Context) -> Result<(), Rejection> {
        check_memory(shared)?;
        let publishing = &shared.config.publish_rate;
        publishing
            .take(self.publisher, target.count(), shared.now.mono_ms)
            .map_err(Rejection::Busy)
    }

    /// Executes a publish command.
    ///
    /// `answered`: whether a reply is written. Must be called only while no command is unfinished and the limit of
    /// unanswered commands is not reached ([`is_full`](Backend::is_full)).
    pub fn publish(
        &mut self,
        command: &PublishCommand<'_>,
        shape: AnswerShape,
        answered: bool,
        session: ConnectionId,
        shared: &mut Context,
    ) -> Result<CommandProgress, Rejection> {
        debug_assert!(self.unfinished.is_none() && !self.is_full());
        let data = command.data.ok_or_else(|| {
            BadCommand::new("\"data\" (or \"message\", or \"binary\") is missing")
        })?;
        self.check_rate(&command.target, shared)?;
        report_publish(&command.target, shared);
        let mut payload_scratch = std::mem::take(&mut shared.scratch.payload);
        let mut name = std::mem::take(&mut shared.scratch.name);
        let result = data
            .payload(&mut payload_scratch)
            .and_then(|payload| match &command.target {
                PublishTarget::User(user) => {
                    let channel = personal_channel(&user.0, &mut name)?;
                    Ok(self
                        .publish_one(channel, payload, command, shape, answered, session, shared))
                }
                PublishTarget::Channel(channel) => {
                    let channel = known_channel(&channel.0, shared)?;
                    Ok(self
                        .publish_one(channel, payload, command, shape, answered, session, shared))
                }
                PublishTarget::Users(users) => {
                    let targets = users
                        .iter()
                        .map(|user| Ok(personal_channel(&user.0, &mut name)?.as_str().into()));
                    let targets = targets.collect::<Result<Vec<Box<str>>, BadCommand>>()?;
                    Ok(self
                        .publish_many(targets, payload, command, shape, answered, session, shared))
                }
                PublishTarget::Channels(channels) => {
                    let targets = channels
                        .iter()
                        .map(|channel| Ok(known_channel(&channel.0, shared)?.as_str().into()));
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
    pub fn send_user_command(
        &mut self,
        command: AddressedCommand<'_>,
        session: ConnectionId,
        shared: &mut Context,
    ) -> Result<CommandProgress, Rejection> {
        let AddressedCommand {
            user,
            command: instruction,
        } = command;
        let is_counted = instruction.applies_to_all()
            && matches!(instruction.action, UserAction::Disconnect { .. });
        let from = (session, ticket(self.next_number(), 0));
        let outcome = match shared.requests.nodes {
            Some(nodes) => nodes::instruct(from, &user.0, instruction, nodes, shared),
            None => {
                bind_undecided(&*shared.process, &user.0, &instruction);
                let (hub, ports) = (&mut shared.hub, &mut shared.requests);
                hub.send_user_command(Some(from), &user.0, instruction, ports)
            }
        };
        let outcome =
            outcome.map_err(|error| BadCommand::new(format!("bad user {:?}: {error}", user.0)))?;
        let (connections, open) = match outcome {
            RequestOutcome::Done(instructed) => {
                (instructed.connections, instructed.pending_acknowledgements)
            }
            RequestOutcome::Pending => (0, UNCOUNTED),
        };
        let content = match is_counted {
            true => ExchangeState::Disconnected(connections),
            false => ExchangeState::Commanded,
        };
        self.begin_exchange(None, open, content);
        shared.stats.pushes.add(1);
        Ok(CommandProgress::Done)
    }

    /// Bans a user and disconnects the user's connections, lifts a ban, or revokes tokens.
    pub fn ban(
        &mut self,
        block: &Ban,
        session: ConnectionId,
        shared: &mut Context,
    ) -> Result<CommandProgress, Rejection> {
        let unwritten = match shared.process.ban(block, shared.now.wall_ms / 1000) {
            Ok(()) => None,
            Err(full @ BanError::TooMany) => {
                self.refuse_with(ErrorCode::LimitExceeded, &full.to_string());
                return Ok(CommandProgress::Done);
            }
            Err(not_written @ BanError::NotWritten(_)) => {
                shared
                    .process
                    .log_error(&format!("[api] blocks: {not_written}"));
                Some(ExchangeState::Refused(
                    ErrorCode::Internal,
                    not_written.to_string(),
                ))
            }
        };
        let Ban::User { user, .. } = block else {
            let open = match shared.requests.nodes {
                Some(_) => {
                    let caller = Caller {
                        worker: shared.hub.worker(),
                        session,
                        ticket: ticket(self.next_number(), 0),
                    };
                    nodes::block(block, Some(caller), &mut shared.requests);
                    UNCOUNTED
                }
                None => 0,
            };
            self.begin_exchange(None, open, unwritten.unwrap_or(ExchangeState::Commanded));
            return Ok(CommandProgress::Done);
        };
        if shared.requests.nodes.is_some() {
            // Other nodes apply the ban before they receive the command that closes the user's connections.
            nodes::block(block, None, &mut shared.requests);
        }
        // This node has already applied the ban and rejects new connections of the user; the open ones are closed
        // now.
        let (code, reason) = CloseCode::Blocked.parts();
        let reason = Arc::from(reason);
        let closing = AddressedCommand {
            user: JsonText(user.as_str().into()),
            command: UserCommand::to_all(UserAction::Disconnect { code, reason }),
        };
        let progress = self.send_user_command(closing, session, shared)?;
        if let Some((content, last)) = unwritten.zip(self.exchanges.back_mut()) {
            // The ban could not be stored on disk. The user is disconnected nevertheless, but the answer is the error.
            last.content = content;
        }
        Ok(progress)
    }

    /// Queries whether a user is connected.
    pub fn user_status(
        &mut self,
        user: &JsonText<'_>,
        session: ConnectionId,
        shared: &mut Context,
    ) -> Result<CommandProgress, Rejection> {
        let mut name = String::new();
        let channel = personal_channel(&user.0, &mut name)?;
        let from = (session, ticket(self.next_number(), 0));
        let (hub, ports) = (&mut shared.hub, &mut shared.requests);
        let outcome = match ports.nodes {
            Some(nodes) => nodes::ask_status(from, channel, nodes, ports),
            None => hub.query(from, channel, ChannelQuery::UserStatus, ports),
        };
        let (status, open) = match outcome {
            RequestOutcome::Done(HubReply::UserStatus(status)) => (Some(status), 0),
            RequestOutcome::Done(_) => (None, 0),
            RequestOutcome::Pending => (None, 1),
        };
        let is_blocked = shared.is_banned(&user.0);
        self.begin_exchange(None, open, ExchangeState::UserStatus(status, is_blocked));
        Ok(CommandProgress::Done)
    }

    /// Lists the channels that have subscribers and match the pattern; without a pattern, all that have subscribers.
    pub fn channels(
        &mut self,
        pattern: Option<&JsonText<'_>>,
        session: ConnectionId,
        shared: &mut Context,
    ) -> Result<CommandProgress, Rejection> {
        check_memory(shared)?;
        let from = (session, ticket(self.next_number(), 0));
        let pattern = Glob::new(pattern.map_or("*", |pattern| &pattern.0))
            .map_err(|error| BadCommand::new(format!("bad pattern: {error}")))?;
        let ports = &mut shared.requests;
        let (here, open) = match ports.nodes {
            Some(nodes) => nodes::list(from, pattern, nodes, ports),
            None => shared.hub.list(from, pattern, ports),
        };
        self.begin_exchange(None, open, ExchangeState::Channels(here));
        Ok(CommandProgress::Done)
    }

    /// Lists the connections that are subscribed to a channel, or the connections of a user.
    pub fn connections(
        &mut self,
        query: &ConnectionsQuery<'_>,
        session: ConnectionId,
        shared: &mut Context,
    ) -> Result<CommandProgress, Rejection> {
        check_memory(shared)?;
        let mut name = std::mem::take(&mut shared.scratch.name);
        let channel = match &query.of {
            ConnectionsOf::User(user) => personal_channel(&user.0, &mut name),
            ConnectionsOf::Channel(channel) => channel_name(&channel.0),
        };
        let channel = channel.map(|channel| Arc::from(channel.as_str()));
        shared.scratch.name = name;
        let ticket = ticket(self.next_number(), 0);
        shared.requests.list_requests.push(ListConnections {
            channel: channel?,
            name: query.name.as_ref().map(|name| name.0.as_ref().into()),
            caller: Caller {
                worker: shared.hub.worker(),
                session,
                ticket,
            },
        });
        let answers = match shared.requests.nodes {
            Some(_) => 1,
            None => shared.hub.workers().into(),
        };
        let content = ExchangeState::Connections(ConnectionList::default());
        self.begin_exchange(None, answers, content);
        Ok(CommandProgress::Done)
    }

    /// Answers with this result, the text of a JSON object.
    pub fn answer_with_text(&mut self, result: String) -> CommandProgress {
        self.begin_exchange(None, 0, ExchangeState::Written(result));
        CommandProgress::Done
    }

    /// Answers with an error.
    pub fn refuse_with(&mut self, code: ErrorCode, why: &str) {
        self.begin_exchange(None, 0, ExchangeState::Refused(code, why.to_owned()));
    }

    /// Sends a query to the channel's home worker.
    pub fn query_channel(
        &mut self,
        channel_command: ChannelCommand<'_>,
        session: ConnectionId,
        shared: &mut Context,
    ) -> Result<CommandProgress, Rejection> {
        let channel = known_channel(&channel_command.channel.0, shared)?;
        if let ChannelQuery::History(_) | ChannelQuery::Presence = channel_command.query {
            check_memory(shared)?;
        }
        let from = (session, ticket(self.next_number(), 0));
        let (hub, ports) = (&mut shared.hub, &mut shared.requests);
        let (answer, open) = match hub.query(from, channel, channel_command.query, ports) {
            RequestOutcome::Done(answer) => (Some(answer), 0),
            RequestOutcome::Pending => (None, 1),
        };
        self.begin_exchange(None, open, ExchangeState::Queried(answer));
        Ok(CommandProgress::Done)
    }

    /// Adds an error as the answer to a command, in order. The error message begins with `place`, the command's
    /// position as text, which may be empty.
    pub fn refuse(
        &mut self,
        id: Option<&str>,
        why: Rejection,
        place: &str,
        session: ConnectionId,
        shared: &mut Context,
    ) {
        let (code, error) = match why {
            Rejection::Bad(BadCommand {
                reason: why, code, ..
            }) => {
                shared.stats.pushes_refused.add(1);
                (code, format!("{place}{why}"))
            }
            Rejection::Busy(busy) => {
                shared.stats.reject_push_connection(busy);
                (busy.code(), format!("{place}{busy}"))
            }
        };
        shared.log(
            session,
            NoteLevel::Info,
            format!("command refused: {error}"),
        );
        self.begin_exchange(id, 0, ExchangeState::Refused(code, error));
    }

    /// Sets the id of the last exchange.
    pub(crate) fn set_last_id(&mut self, id: &str) {
        if let Some(last) = self.exchanges.back_mut() {
            last.id = Some(id.into());
        }
    }

    /// Returns whether every answer has been written and nothing waits for credit.
    pub fn is_settled(&self) -> bool {
        self.exchanges.is_empty() && self.unfinished.is_none()
    }

    /// Returns whether the limit of unanswered commands is reached.
    pub fn is_full(&self) -> bool {
        self.exchanges.len() >= EXCHANGES_MAX
    }

    /// Stores a frame that can't be executed yet, because the limit of unanswered commands is reached. The
    /// connection's input is paused until the frame is executed, so at most one frame is stored.
    pub fn store_unwritten(&mut self, kind: MessageKind, frame: Vec<u8>) {
        self.unwritten = Some((kind, frame));
    }

    /// Removes and returns the stored frame.
    pub fn take_unwritten(&mut self) -> Option<(MessageKind, Vec<u8>)> {
        self.unwritten.take()
    }

    /// Handles the answer of a home worker to an exchange, which `ticket` identifies.
    pub fn answered(&mut self, Ticket(ticket): Ticket, answer: HubReply) {
        let (number, target) = (
            ticket >> TARGET_BITS,
            (ticket & ((1 << TARGET_BITS) - 1)) as usize,
        );
        let Some(exchange) = self.exchange(number) else {
            return;
        };
        match (&mut exchange.content, answer) {
            (_, HubReply::Partial { answered, known }) => {
                exchange.partial = Some((answered, known));
                return;
            }
            (ExchangeState::Published(_, _, targets), HubReply::Published(published)) => {
                if let Some(place) = targets.get_mut(target) {
                    *place = Some(published);
                }
            }
            (ExchangeState::Published(_, _, targets), HubReply::Failed) => {
                if let Some(place) = targets.get_mut(target) {
                    *place = None;
                }
            }
            (
                ExchangeState::Disconnected(_)
                | ExchangeState::Commanded
                | ExchangeState::Refused(..),
                HubReply::CommandDispatched(CommandDispatch {
                    connections,
                    pending_acknowledgements: open,
                }),
            ) => {
                if let ExchangeState::Disconnected(all) = &mut exchange.content {
                    *all = connections;
                }
                // Acknowledgements that arrived before this reply are already subtracted.
                exchange.open = exchange.open.wrapping_sub(UNCOUNTED).wrapping_add(open);
                return;
            }
            (
                ExchangeState::Disconnected(_)
                | ExchangeState::Commanded
                | ExchangeState::Refused(..),
                HubReply::CommandAcknowledged,
            ) => {}
            (ExchangeState::Channels(all), HubReply::Channels(more)) => all.add(more),
            (ExchangeState::Connections(all), HubReply::Connections(more)) => all.add(more),
            (ExchangeState::UserStatus(status, _), HubReply::UserStatus(found)) => {
                *status = Some(found)
            }
            (ExchangeState::Queried(asked), answer) => *asked = Some(answer),
            _ => return,
        }
        exchange.open = exchange.open.saturating_sub(1);
    }

    /// Writes the next reply, in the order of the commands, as one JSON object with its result under the key `key`.
    /// Returns `false` if this reply is not complete yet, even if later replies are.
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

    /// Returns whether all exchanges are answered; their replies may not be written yet. Each call continues after the
    /// exchanges that earlier calls found complete, so repeated calls are cheap.
    pub(crate) fn is_answered(&mut self) -> bool {
        let rest = self.exchanges.range(self.complete..);
        self.complete += rest.take_while(|exchange| exchange.open == 0).count();
        self.complete == self.exchanges.len()
    }

    /// Removes and returns all exchanges; returns `None` if one of them is not answered yet.
    pub(crate) fn take_answers(&mut self) -> Option<VecDeque<Exchange>> {
        if !self.is_answered() {
            return None;
        }
        self.first = self.next_number();
        self.complete = 0;
        Some(std::mem::take(&mut self.exchanges))
    }

    /// Adds an exchange that waits for `open` answers of home workers. Its answer is written after the answers of all
    /// earlier exchanges.
    fn begin_exchange(&mut self, id: Option<&str>, open: u32, content: ExchangeState) {
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
        reason = "a struct for the arguments would cost time where it matters most"
    )]
    fn publish_one(
        &mut self,
        channel: ChannelName<'_>,
        payload: PayloadRef<'_>,
        command: &PublishCommand<'_>,
        shape: AnswerShape,
        answered: bool,
        session: ConnectionId,
        shared: &mut Context,
    ) -> CommandProgress {
        let terms = command.options.as_ref();
        let from = answered.then(|| (session, ticket(self.next_number(), 0)));
        let Ok(outcome) = shared
            .hub
            .publish(from, channel, payload, terms, &mut shared.requests)
        else {
            shared.stats.credits_refused.add(1);
            let target = vec![channel.as_str().into()];
            return self.begin(target, payload, command, shape, answered, shared);
        };
        shared.stats.pushes.add(1);
        let (published, open) = match outcome {
            RequestOutcome::Done(published) => (published, 0),
            RequestOutcome::Pending => (PublishOutcome::default(), 1),
        };
        if answered {
            let content =
                ExchangeState::Published(shape, command.target.absence(), vec![Some(published)]);
            self.begin_exchange(command.id, open, content);
        }
        CommandProgress::Done
    }
}

/// Returns the name of a user's personal channel, which is built in the buffer `name`.
fn personal_channel<'n>(user: &str, name: &'n mut String) -> Result<ChannelName<'n>, BadCommand> {
    ChannelName::of_user(user, name)
        .map_err(|error| BadCommand::new(format!("bad user {user:?}: {error}")))
}

/// Checks the form of a channel's name.
fn channel_name(channel: &str) -> Result<ChannelName<'_>, BadCommand> {
    ChannelName::new(channel)
        .map_err(|error| BadCommand::new(format!("bad channel {channel:?}: {error}")))
}

/// Checks the form of a channel's name, and that its namespace exists.
fn known_channel<'c>(channel: &'c str, shared: &Context) -> Result<ChannelName<'c>, BadCommand> {
    let name = channel_name(channel)?;
    match shared.config.namespaces.knows(channel) {
        true => Ok(name),
        false => Err(BadCommand::unknown_channel()),
    }
}

#[cfg(test)]
mod tests;
