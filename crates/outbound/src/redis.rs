//! The client of Redis, on top of the `redis` crate, with RESP3.
//!
//! Ordinary commands of all workers share one pipelined connection. Blocking commands have connections from a pool, and
//! each subscription has its own.

pub(crate) mod shared_connection;
mod subscription;
pub(crate) mod values;

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value};
use tokio::time::timeout;
use veche_calls::redis::{RedisAction, RedisCommand, RedisDatabase, RedisReply, RedisValue};
use veche_calls::{CallError, CallErrorKind, CallId, CallOutcome, CallReply, Lease, RedisCall};

use crate::metrics::ClientMetrics;
use crate::pool::active_uses::shortened;
use crate::pool::{ConnectionPool, Connector, PoolLimits};
use shared_connection::{RedisDialer, SharedConnection};
use subscription::RedisSubscription;
use values::{call_error, from_server};

/// The first and the longest pause between two attempts to connect.
pub(crate) const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];

/// The connections to one server.
#[derive(Debug)]
pub(crate) struct RedisClient {
    keyspace: Arc<RedisDatabase>,
    link: SharedConnection,
    blocking: Arc<ConnectionPool<RedisDialer>>,
    dialer: RedisDialer,
    figures: Arc<ClientMetrics>,
}

impl RedisClient {
    /// Creates the client. Has to be called within the tokio runtime.
    pub(crate) fn new(keyspace: &Arc<RedisDatabase>, figures: Arc<ClientMetrics>) -> Self {
        let dialer = RedisDialer::new(keyspace);
        let limits = PoolLimits {
            size: keyspace.pool,
            connect_timeout: keyspace.connect_timeout,
            wait_timeout: keyspace.wait_timeout,
            idle_timeout: keyspace.idle_timeout,
        };
        let name = match &keyspace.pool_name {
            Some(name) => name.clone(),
            None => keyspace.server.pool_name(&keyspace.database.to_string()),
        };
        Self {
            keyspace: Arc::clone(keyspace),
            link: SharedConnection::new(
                dialer.clone(),
                keyspace.connect_timeout,
                Arc::clone(&figures),
            ),
            blocking: ConnectionPool::new(
                "redis",
                name,
                dialer.clone(),
                limits,
                Arc::clone(&figures),
            ),
            dialer,
            figures,
        }
    }

    pub(crate) async fn perform(&self, call: RedisCall) -> CallOutcome {
        let reply = match call.action {
            RedisAction::Run(command) => {
                let mut replies = self.run(&[&command], false).await?;
                let value = replies.pop().map(from_server);
                one(value.unwrap_or(Ok(RedisValue::Nil))?)?
            }
            RedisAction::Block(command) => self.block(&command).await?,
            RedisAction::Pipeline {
                commands,
                is_atomic,
            } => self.pipeline(&commands, is_atomic).await?,
            RedisAction::Subscribe {
                names,
                are_patterns,
            } => {
                let subscription = self.subscribe(names, are_patterns).await?;
                RedisReply::Subscribed(Lease::new(subscription))
            }
            RedisAction::Receive { lease, within } => {
                let subscription: Option<&RedisSubscription> = lease.of();
                let over =
                    || CallError::new(CallErrorKind::Invalid, "redis: the subscription has ended");
                RedisReply::Message(subscription.ok_or_else(over)?.receive(within).await?)
            }
        };
        Ok(CallReply::Redis(reply))
    }

    /// Performs commands of several coroutines, each with its own reply.
    pub(crate) async fn perform_all(
        &self,
        commands: Vec<(CallId, RedisCommand)>,
    ) -> Vec<(CallId, CallOutcome)> {
        let list: Vec<&RedisCommand> = commands.iter().map(|(_, command)| command).collect();
        let outcomes: Vec<(CallId, CallOutcome)> = match self.run(&list, false).await {
            Ok(replies) => {
                let replies = replies.into_iter();
                let values =
                    replies.map(|reply| from_server(reply).and_then(one).map(CallReply::Redis));
                let ids = commands.iter().map(|(id, _)| *id);
                ids.zip(values).collect()
            }
            Err(fault) => {
                let ids = commands.iter().map(|(id, _)| *id);
                ids.map(|id| (id, Err(fault.clone()))).collect()
            }
        };
        for (_, outcome) in &outcomes {
            self.figures.ended(outcome);
        }
        outcomes
    }

    /// Sends commands together and returns their replies; for a transaction, the reply to EXEC.
    async fn run(
        &self,
        commands: &[&RedisCommand],
        is_atomic: bool,
    ) -> Result<Vec<Value>, CallError> {
        let mut connection = self.link.connection().await?;
        let sent = send(&mut connection.connection, commands, is_atomic);
        match timeout(self.keyspace.timeout, sent).await {
            Ok(Ok(replies)) => {
                connection.count_answer();
                Ok(replies)
            }
            Ok(Err(error)) => {
                if error.is_unrecoverable_error() || error.is_io_error() {
                    self.link.lost(&connection);
                }
                Err(call_error(&error))
            }
            Err(_) => {
                // If no reply has arrived at all, the connection is probably dead, and is replaced for all commands.
                if connection.is_silent() {
                    self.link.lost(&connection);
                }
                let words = format!("redis: no reply within {:?}", self.keyspace.timeout);
                Err(CallError::new(CallErrorKind::Timeout, words))
            }
        }
    }

    async fn pipeline(
        &self,
        commands: &[RedisCommand],
        is_atomic: bool,
    ) -> Result<RedisReply, CallError> {
        let list: Vec<&RedisCommand> = commands.iter().collect();
        let mut replies = self.run(&list, is_atomic).await?;
        if is_atomic {
            match replies.pop() {
                Some(Value::Array(of_all)) => replies = of_all,
                Some(Value::Nil) => return Ok(RedisReply::Values(None)),
                Some(other) => {
                    one(from_server(other)?)?;
                    let words = "redis: the reply to a transaction is not a list";
                    return Err(CallError::new(CallErrorKind::Broken, words));
                }
                None => {}
            }
        }
        let values = replies.into_iter().map(from_server);
        Ok(RedisReply::Values(Some(values.collect::<Result<_, _>>()?)))
    }

    async fn block(&self, command: &RedisCommand) -> Result<RedisReply, CallError> {
        let mut taken = self.blocking.take(shown(command)).await?;
        // There is no timeout here, because a blocking command contains its own timeout, which the server applies.
        let reply = send(taken.begin(), &[command], false).await;
        taken.finish_use();
        let mut replies = reply.map_err(|error| call_error(&error))?;
        taken.give_back();
        one(from_server(replies.pop().unwrap_or(Value::Nil))?)
    }

    async fn subscribe(
        &self,
        names: Vec<Vec<u8>>,
        are_patterns: bool,
    ) -> Result<RedisSubscription, CallError> {
        let (dialer, figures) = (self.dialer.clone(), Arc::clone(&self.figures));
        RedisSubscription::connect(dialer, &self.keyspace, figures, names, are_patterns).await
    }
}

/// Converts a reply; an error becomes the call's error.
fn one(value: RedisValue) -> Result<RedisReply, CallError> {
    match value {
        RedisValue::Error(words) => Err(CallError::new(
            CallErrorKind::Refused,
            format!("redis: {words}"),
        )),
        value => Ok(RedisReply::Value(value)),
    }
}

/// Describes a command by its name and first argument, usually a key.
fn shown(command: &RedisCommand) -> String {
    let parts: Vec<_> = command
        .parts()
        .take(2)
        .map(String::from_utf8_lossy)
        .collect();
    shortened(&parts.join(" "))
}

fn packed(command: &RedisCommand) -> Cmd {
    let mut packed = Cmd::with_capacity(command.len(), command.bytes());
    for part in command.parts() {
        packed.arg(part);
    }
    packed
}

async fn send(
    connection: &mut MultiplexedConnection,
    commands: &[&RedisCommand],
    is_atomic: bool,
) -> redis::RedisResult<Vec<Value>> {
    if let ([command], false) = (commands, is_atomic) {
        let reply = connection.send_packed_command(&packed(command)).await;
        return reply.map(|reply| vec![reply]);
    }
    let mut pipeline = Pipeline::with_capacity(commands.len());
    for command in commands {
        pipeline.add_command(packed(command));
    }
    // A transaction has a reply to MULTI and one to each queued command, followed by the reply to EXEC.
    let (skipped, expected) = if is_atomic {
        pipeline.atomic();
        (commands.len() + 1, 1)
    } else {
        (0, commands.len())
    };
    connection
        .send_packed_commands(&pipeline, skipped, expected)
        .await
}

/// The commands of one turn, in a batch for each server.
#[derive(Debug, Default)]
pub(crate) struct RedisBatches(Vec<Batch>);

type Batch = (Arc<RedisDatabase>, Vec<(CallId, RedisCommand)>);

impl RedisBatches {
    /// Takes a call that can be batched; returns any other call as the error.
    pub(crate) fn take(&mut self, id: CallId, call: RedisCall) -> Result<(), RedisCall> {
        let RedisCall { keyspace, action } = call;
        match action {
            RedisAction::Run(command) => {
                // The search is fast: there are few batches, and the calls of an application share one settings object, so the
                // comparison of pointers usually succeeds.
                let is_it =
                    |(known, _): &mut Batch| Arc::ptr_eq(known, &keyspace) || *known == keyspace;
                match self
                    .0
                    .iter_mut()
                    .find_map(|batch| is_it(batch).then_some(&mut batch.1))
                {
                    Some(commands) => commands.push((id, command)),
                    None => self.0.push((keyspace, vec![(id, command)])),
                }
                Ok(())
            }
            action => Err(RedisCall { keyspace, action }),
        }
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Batch> + '_ {
        self.0.drain(..)
    }
}

impl Connector for RedisDialer {
    type Connection = MultiplexedConnection;

    async fn dial(&self) -> Result<MultiplexedConnection, CallError> {
        self.connect(|_| {}).await
    }

    async fn is_alive(&self, connection: &mut MultiplexedConnection) -> bool {
        connection
            .send_packed_command(&redis::cmd("PING"))
            .await
            .is_ok()
    }

    async fn abort(&self, connection: MultiplexedConnection) {
        // The connection is closed when its last clone is dropped; the server then ends the blocking command.
        drop(connection);
    }
}
