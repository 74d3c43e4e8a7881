//! Subscriptions: a separate connection, and a queue of received messages.

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
use veche_calls::redis::{Keyspace, Message};
use veche_calls::{Fault, FaultKind};

use super::PAUSES;
use super::link::Dialer;
use super::values::fault;
use crate::metrics::{Connected, Figures};

/// The most queued bytes of messages.
const QUEUE_BYTES_MAX: usize = 32 << 20;

/// A subscription, held by a lease.
pub(super) struct Subscription {
    queue: Arc<Queue>,
    /// Held while receiving, so that messages are delivered in order of requests.
    turn: tokio::sync::Mutex<()>,
    /// Keeps it connected even while nothing is received.
    keeper: JoinHandle<()>,
}

/// Establishes a subscription's connections.
struct Source {
    dialer: Dialer,
    connect_timeout: Duration,
    figures: Arc<Figures>,
    names: Vec<Vec<u8>>,
    are_patterns: bool,
}

/// One connection of a subscription.
struct Feed {
    /// Signals its loss.
    lost: Arc<Notify>,
    /// Dropped with it.
    _connection: MultiplexedConnection,
    _connected: Connected,
}

/// Received messages.
struct Queue {
    most: usize,
    come: Mutex<Come>,
    news: Notify,
}

#[derive(Default)]
struct Come {
    items: VecDeque<Item>,
    messages: usize,
    bytes: usize,
    /// The number of messages dropped for lack of room.
    dropped: u64,
}

enum Item {
    Message(Message),
    /// Messages may have been missed, for this reason.
    Gap(Fault),
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscription")
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Subscription {
    /// Connects and subscribes.
    pub(super) async fn connect(
        dialer: Dialer,
        keyspace: &Keyspace,
        figures: Arc<Figures>,
        names: Vec<Vec<u8>>,
        are_patterns: bool,
    ) -> Result<Self, Fault> {
        let queue = Arc::new(Queue {
            most: keyspace.queue,
            come: Mutex::default(),
            news: Notify::new(),
        });
        let source = Source {
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

    /// Returns the next message; `None` if none arrives in time. A lost connection is reported once, and so is each
    /// failed attempt during a wait. The subscription itself does not depend on waits.
    pub(super) async fn receive(&self, within: Option<Duration>) -> Result<Option<Message>, Fault> {
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

impl Source {
    /// Reconnects whenever the connection is lost.
    async fn keep(self, mut feed: Feed, queue: Arc<Queue>) {
        let [first, longest] = PAUSES;
        loop {
            feed.lost.notified().await;
            let words = "redis: the subscription's connection was lost; what is published meanwhile is missed";
            queue.tell(Fault::new(FaultKind::ConnectionLost, words));
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

    async fn feed(&self, queue: &Arc<Queue>) -> Result<Feed, Fault> {
        let feed = timeout(self.connect_timeout, self.subscribe(queue)).await;
        feed.unwrap_or_else(|_| {
            let words = format!("redis: not subscribed within {:?}", self.connect_timeout);
            Err(Fault::new(FaultKind::Unreachable, words))
        })
    }

    async fn subscribe(&self, queue: &Arc<Queue>) -> Result<Feed, Fault> {
        let lost = Arc::new(Notify::new());
        let (told, into) = (Arc::clone(&lost), Arc::clone(queue));
        let pushed = move |push: PushInfo| match push.kind {
            PushKind::Disconnection => told.notify_one(),
            _ => into.take(push),
        };
        let mut connection = self.dialer.connect(pushed).await?;
        let connected = self.figures.connected();
        let done = if self.are_patterns {
            connection.psubscribe(&self.names).await
        } else {
            connection.subscribe(&self.names).await
        };
        done.map_err(|error| fault(&error))?;
        Ok(Feed {
            lost,
            _connection: connection,
            _connected: connected,
        })
    }
}

impl Queue {
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

    /// Records a gap after the received messages. Of several without a message in between the latest is reported.
    fn tell(&self, fault: Fault) {
        let items = &mut self.come.lock().items;
        match items.back_mut() {
            Some(Item::Gap(before)) => *before = fault,
            _ => items.push_back(Item::Gap(fault)),
        }
        self.news.notify_one();
    }

    /// Returns received messages first, then reports dropped ones.
    async fn next(&self) -> Result<Message, Fault> {
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
                        "redis: {dropped} messages were dropped: they came faster than they were received"
                    );
                    return Err(Fault::new(FaultKind::Broken, words));
                }
            }
            self.news.notified().await;
        }
    }
}

/// Converts a push to a message with its pattern, channel and data.
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
