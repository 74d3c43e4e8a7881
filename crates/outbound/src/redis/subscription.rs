//! Subscriptions: each has a connection of its own and a queue of received messages.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use veche_calls::redis::{RedisDatabase, RedisMessage};
use veche_calls::{CallError, CallErrorKind};

use super::PAUSES;
use super::shared_connection::RedisDialer;
use super::values::call_error;
use crate::metrics::{ClientMetrics, ConnectionGuard};

/// The maximum total size of queued messages, in bytes.
const QUEUE_BYTES_MAX: usize = 32 << 20;

/// A subscription, held by a lease.
pub(super) struct RedisSubscription {
    queue: Arc<MessageQueue>,
    /// Held by a waiting `receive`, so that concurrent calls get messages in the order of the calls.
    turn: tokio::sync::Mutex<()>,
    /// The task that keeps the subscription connected, even while the script does not call `receive`.
    keeper: JoinHandle<()>,
}

/// Establishes a subscription's connections.
struct SubscriptionSource {
    dialer: RedisDialer,
    connect_timeout: Duration,
    figures: Arc<ClientMetrics>,
    names: Vec<Vec<u8>>,
    are_patterns: bool,
}

/// One connection of a subscription.
struct SubscriptionConnection {
    /// Signalled when the connection is lost.
    lost: Arc<Notify>,
    /// Held to keep the connection open.
    _connection: MultiplexedConnection,
    _connected: ConnectionGuard,
}

/// Received messages that no call of `receive` has returned yet.
struct MessageQueue {
    most: usize,
    come: Mutex<MessageBacklog>,
    news: Notify,
}

#[derive(Default)]
struct MessageBacklog {
    items: VecDeque<Item>,
    messages: usize,
    bytes: usize,
    /// The number of messages that were dropped because the queue was full.
    dropped: u64,
}

enum Item {
    Message(RedisMessage),
    /// Messages may have been missed, for this reason.
    Gap(CallError),
}

impl fmt::Debug for RedisSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisSubscription")
    }
}

impl Drop for RedisSubscription {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl RedisSubscription {
    /// Connects to Redis and subscribes to the names or patterns.
    pub(super) async fn connect(
        dialer: RedisDialer,
        keyspace: &RedisDatabase,
        figures: Arc<ClientMetrics>,
        names: Vec<Vec<u8>>,
        are_patterns: bool,
    ) -> Result<Self, CallError> {
        let queue = Arc::new(MessageQueue {
            most: keyspace.queue,
            come: Mutex::default(),
            news: Notify::new(),
        });
        let source = SubscriptionSource {
            dialer,
            connect_timeout: keyspace.connect_timeout,
            figures,
            names,
            are_patterns,
        };
        let feed = source.feed(&queue).await?;
        let keeper = tokio::spawn(source.keep(feed, Arc::clone(&queue)));
        Ok(Self {
            queue,
            turn: tokio::sync::Mutex::default(),
            keeper,
        })
    }

    /// Returns the next message; `None` if none arrives in time. A lost connection is reported as an error once, and so is each
    /// failed attempt to reconnect while this method waits. The subscription reconnects whether or not this method is called.
    pub(super) async fn receive(
        &self,
        within: Option<Duration>,
    ) -> Result<Option<RedisMessage>, CallError> {
        let next = async {
            let _turn = self.turn.lock().await;
            self.queue.next().await.map(Some)
        };
        match within {
            None => next.await,
            Some(within) => timeout(within, next).await.unwrap_or(Ok(None)),
        }
    }
}

impl SubscriptionSource {
    /// Reconnects whenever the connection is lost.
    async fn keep(self, mut feed: SubscriptionConnection, queue: Arc<MessageQueue>) {
        let [first, longest] = PAUSES;
        loop {
            feed.lost.notified().await;
            let words = "redis: the subscription's connection was lost; messages published meanwhile are lost";
            queue.tell(CallError::new(CallErrorKind::ConnectionLost, words));
            let mut pause = Duration::ZERO;
            feed = loop {
                sleep(pause).await;
                pause = (pause * 2).clamp(first, longest);
                match self.feed(&queue).await {
                    Ok(feed) => break feed,
                    Err(fault) => queue.tell(fault),
                }
            };
        }
    }

    async fn feed(&self, queue: &Arc<MessageQueue>) -> Result<SubscriptionConnection, CallError> {
        let feed = timeout(self.connect_timeout, self.subscribe(queue)).await;
        feed.unwrap_or_else(|_| {
            let words = format!(
                "redis: the subscription was not confirmed within {:?}",
                self.connect_timeout
            );
            Err(CallError::new(CallErrorKind::Unreachable, words))
        })
    }

    async fn subscribe(
        &self,
        queue: &Arc<MessageQueue>,
    ) -> Result<SubscriptionConnection, CallError> {
        let lost = Arc::new(Notify::new());
        let (notify, into) = (Arc::clone(&lost), Arc::clone(queue));
        let pushed = move |push: PushInfo| match push.kind {
            PushKind::Disconnection => notify.notify_one(),
            _ => into.take(push),
        };
        let mut connection = self.dialer.connect(pushed).await?;
        let connected = self.figures.connected();
        let done = if self.are_patterns {
            connection.psubscribe(&self.names).await
        } else {
            connection.subscribe(&self.names).await
        };
        done.map_err(|error| call_error(&error))?;
        Ok(SubscriptionConnection {
            lost,
            _connection: connection,
            _connected: connected,
        })
    }
}

impl MessageQueue {
    fn take(&self, push: PushInfo) {
        if !matches!(push.kind, PushKind::Message | PushKind::PMessage) {
            return;
        }
        let Some(message) = message(push) else { return };
        let come = &mut *self.come.lock();
        let bytes = message.channel.len() + message.data.len();
        if come.messages >= self.most || come.bytes + bytes > QUEUE_BYTES_MAX {
            come.dropped += 1;
        } else {
            come.messages += 1;
            come.bytes += bytes;
            come.items.push_back(Item::Message(message));
        }
        self.news.notify_one();
    }

    /// Records that messages may be missing after those received so far. If this method is called again before another
    /// message arrives, only the later error is reported.
    fn tell(&self, fault: CallError) {
        let items = &mut self.come.lock().items;
        match items.back_mut() {
            Some(Item::Gap(before)) => *before = fault,
            _ => items.push_back(Item::Gap(fault)),
        }
        self.news.notify_one();
    }

    /// Returns received messages first, then reports dropped ones.
    async fn next(&self) -> Result<RedisMessage, CallError> {
        loop {
            {
                let come = &mut *self.come.lock();
                match come.items.pop_front() {
                    Some(Item::Message(message)) => {
                        come.messages -= 1;
                        come.bytes -= message.channel.len() + message.data.len();
                        return Ok(message);
                    }
                    Some(Item::Gap(fault)) => return Err(fault),
                    None => {}
                }
                if come.dropped > 0 {
                    let dropped = std::mem::take(&mut come.dropped);
                    let words = format!(
                        "redis: {dropped} messages were dropped: they arrived faster than the script received them"
                    );
                    return Err(CallError::new(CallErrorKind::Broken, words));
                }
            }
            self.news.notified().await;
        }
    }
}

/// Converts a push to a message with its pattern, channel and data; `None` if the push is malformed.
fn message(push: PushInfo) -> Option<RedisMessage> {
    let mut parts = push.data.into_iter().map(|part| match part {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    });
    let pattern = match push.kind {
        PushKind::PMessage => Some(parts.next()??),
        _ => None,
    };
    Some(RedisMessage {
        channel: parts.next()??,
        pattern,
        data: parts.next()??,
    })
}
