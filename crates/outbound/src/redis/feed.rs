//! Subscriptions: a connection of their own, and a queue of what has come and nobody has received.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use veche_calls::redis::{Keyspace, Message};
use veche_calls::{Fault, FaultKind};

use super::PAUSES;
use super::link::Dialer;
use super::values::fault;
use crate::metrics::{Connected, Figures};

/// Bytes of messages that nobody has received yet.
const QUEUE_BYTES_MAX: usize = 32 << 20;

/// What the lease of a subscription is on.
pub(super) struct Subscription {
    dialer: Dialer,
    connect_timeout: Duration,
    queue_max: usize,
    figures: Arc<Figures>,
    names: Vec<Vec<u8>>,
    are_patterns: bool,
    /// Whoever receives holds it.
    state: tokio::sync::Mutex<State>,
}

#[derive(Default)]
struct State {
    feed: Option<Feed>,
    /// Before the next attempt.
    pause: Duration,
}

struct Feed {
    queue: Arc<Queue>,
    /// Closed with it.
    _connection: MultiplexedConnection,
    _connected: Connected,
}

/// What has come.
struct Queue {
    most: usize,
    come: Mutex<Come>,
    news: Notify,
}

#[derive(Default)]
struct Come {
    messages: VecDeque<Message>,
    bytes: usize,
    /// Messages for which there was no room.
    dropped: u64,
    is_over: bool,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscription")
    }
}

impl Subscription {
    pub(super) fn new(
        dialer: Dialer,
        keyspace: &Keyspace,
        figures: Arc<Figures>,
        names: Vec<Vec<u8>>,
        are_patterns: bool,
    ) -> Self {
        Self {
            dialer,
            connect_timeout: keyspace.connect_timeout,
            queue_max: keyspace.queue,
            figures,
            names,
            are_patterns,
            state: tokio::sync::Mutex::default(),
        }
    }

    /// Connects and subscribes.
    pub(super) async fn connect(&self) -> Result<(), Fault> {
        let mut state = self.state.lock().await;
        state.feed = Some(self.feed().await?);
        Ok(())
    }

    async fn feed(&self) -> Result<Feed, Fault> {
        let feed = timeout(self.connect_timeout, self.subscribe()).await;
        feed.unwrap_or_else(|_| {
            let words = format!("redis: not subscribed within {:?}", self.connect_timeout);
            Err(Fault::new(FaultKind::Timeout, words))
        })
    }

    async fn subscribe(&self) -> Result<Feed, Fault> {
        let queue = Arc::new(Queue {
            most: self.queue_max,
            come: Mutex::default(),
            news: Notify::new(),
        });
        let into = Arc::clone(&queue);
        let mut connection = self.dialer.connect(move |push| into.take(push)).await?;
        let connected = self.figures.connected();
        let done = if self.are_patterns {
            connection.psubscribe(&self.names).await
        } else {
            connection.subscribe(&self.names).await
        };
        done.map_err(|error| fault(&error))?;
        Ok(Feed {
            queue,
            _connection: connection,
            _connected: connected,
        })
    }

    /// The next message; `None` if none has come in that time. A loss is told once, and after that it is tried again.
    pub(super) async fn receive(&self, within: Option<Duration>) -> Result<Option<Message>, Fault> {
        let next = async {
            let mut state = self.state.lock().await;
            if state.feed.is_none() {
                sleep(state.pause).await;
                let [first, longest] = PAUSES;
                state.pause = (state.pause * 2).clamp(first, longest);
                state.feed = Some(self.feed().await?);
                state.pause = Duration::ZERO;
            }
            let Some(feed) = &state.feed else {
                return Ok(None);
            };
            let next = feed.queue.next().await;
            if next
                .as_ref()
                .is_err_and(|fault| fault.kind == FaultKind::Unreachable)
            {
                state.feed = None;
            }
            next.map(Some)
        };
        match within {
            None => next.await,
            Some(within) => timeout(within, next).await.unwrap_or(Ok(None)),
        }
    }
}

impl Queue {
    fn take(&self, push: PushInfo) {
        let come = &mut *self.come.lock();
        match push.kind {
            PushKind::Disconnection => come.is_over = true,
            PushKind::Message | PushKind::PMessage => {
                let Some(message) = message(push) else { return };
                let bytes = message.channel.len() + message.data.len();
                if come.messages.len() >= self.most || come.bytes + bytes > QUEUE_BYTES_MAX {
                    come.dropped += 1;
                } else {
                    come.bytes += bytes;
                    come.messages.push_back(message);
                }
            }
            _ => return,
        }
        self.news.notify_one();
    }

    /// What has come comes first, what is wrong behind it.
    async fn next(&self) -> Result<Message, Fault> {
        loop {
            {
                let come = &mut *self.come.lock();
                if let Some(message) = come.messages.pop_front() {
                    come.bytes -= message.channel.len() + message.data.len();
                    return Ok(message);
                }
                if come.dropped > 0 {
                    let dropped = std::mem::take(&mut come.dropped);
                    let words = format!(
                        "redis: {dropped} messages were dropped: they came faster than they were received"
                    );
                    return Err(Fault::new(FaultKind::Broken, words));
                }
                if come.is_over {
                    let words = "redis: the subscription's connection was lost; what is published meanwhile is missed";
                    return Err(Fault::new(FaultKind::Unreachable, words));
                }
            }
            self.news.notified().await;
        }
    }
}

/// Of the pattern if it came by one, the channel and the data.
fn message(push: PushInfo) -> Option<Message> {
    let mut parts = push.data.into_iter().map(|part| match part {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    });
    let pattern = match push.kind {
        PushKind::PMessage => Some(parts.next()??),
        _ => None,
    };
    Some(Message {
        channel: parts.next()??,
        pattern,
        data: parts.next()??,
    })
}
