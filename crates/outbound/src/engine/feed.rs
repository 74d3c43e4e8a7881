//! A port's connection for its feed: subscribes to the followed topics, resubscribes after each
//! loss of the connection, and probes whether the subscription still works.
//!
//! A subscription may be dead while its connection is open. After [`PROBE`] without a message, the port therefore
//! publishes a message to a channel to which only this feed subscribes, over the connection for commands, like a
//! publication. If the message does not arrive, the feed reconnects.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use redis::{PushInfo, PushKind};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, sleep_until, timeout};
use veche_calls::{CallError, CallErrorKind};
use veche_nodes::engine::{StoreState, channel, peer};

use super::port::Events;
use super::replies::{bytes, message};
use super::session::EngineSession;
use super::shared::{EngineFigures, SharedPorts};
use crate::redis::values::call_error;

/// The maximum number of topics in one subscription command.
const BATCH_MAX: usize = 512;

/// The time without a message after which a feed is probed; also the time to wait for the probe
/// before the feed reconnects.
const PROBE: Duration = Duration::from_secs(5);

/// The longest message in bytes; longer ones are ignored.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// A change of the followed topics.
#[derive(Debug)]
pub(super) enum Change {
    Follow(Arc<str>),
    Unfollow(Arc<str>),
}

/// The destination of a feed's messages.
#[derive(Clone)]
pub(super) enum Into {
    Channels(Arc<Events<channel::Event>>),
    Peers(Arc<Events<peer::Event>>),
}

/// The state of a connection's reader.
struct Reader {
    shared: Arc<SharedPorts>,
    into: Into,
    topics: Vec<u8>,
    probe: Vec<u8>,
    /// Whether a message has arrived since the last check.
    is_alive: AtomicBool,
}

/// A connection that has subscribed to the feed.
struct Feed {
    session: EngineSession,
    reader: Arc<Reader>,
}

/// Runs a port's feed until the port is dropped.
pub(super) async fn serve(
    shared: Arc<SharedPorts>,
    mut changes: UnboundedReceiver<Change>,
    into: Into,
    probes: UnboundedSender<Vec<u8>>,
) {
    let mut followed: HashSet<Arc<str>> = HashSet::new();
    let [first, longest] = shared.pauses();
    let mut pause = first;
    loop {
        let mut feed = match Feed::connect(&shared, &into).await {
            Ok(feed) => feed,
            // The error is not logged here, because the port's connection for commands uses the same server and logs it.
            Err(_) => {
                let until = Instant::now() + pause;
                pause = (pause * 2).min(longest);
                loop {
                    tokio::select! {
                        () = sleep_until(until) => break,
                        change = changes.recv() => match change {
                            Some(change) => drop(note(&mut followed, change)),
                            None => return,
                        }
                    }
                }
                continue;
            }
        };
        pause = first;
        let all: Vec<_> = followed.iter().cloned().collect();
        let mut end = feed.follow(&all).await;
        while end.is_ok() {
            end = feed.turn(&mut followed, &mut changes, &probes).await;
        }
        if matches!(end, Err(None)) {
            return;
        }
        if let Into::Channels(events) = &into {
            events.push(channel::Event::Interrupted);
        }
    }
}

/// Records a change. Returns the topic and whether it is followed from now on.
fn note(followed: &mut HashSet<Arc<str>>, change: Change) -> (Arc<str>, bool) {
    match change {
        Change::Follow(topic) => {
            followed.insert(Arc::clone(&topic));
            (topic, true)
        }
        Change::Unfollow(topic) => {
            followed.remove(&topic);
            (topic, false)
        }
    }
}

impl Feed {
    async fn connect(shared: &Arc<SharedPorts>, into: &Into) -> Result<Self, CallError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}.{count}", shared.settings.node);
        let reader = Arc::new(Reader {
            shared: Arc::clone(shared),
            into: into.clone(),
            topics: shared.keys.topic(""),
            probe: shared.keys.named("probe", &name),
            is_alive: AtomicBool::new(true),
        });
        let own = Arc::clone(&reader);
        let session = EngineSession::connect(shared, move |push| own.read(push)).await?;
        let mut feed = Self { session, reader };
        let mut channels = vec![feed.reader.probe.clone()];
        if let Into::Peers(_) = into {
            let node = shared.settings.node;
            channels.push(shared.keys.of_node("n", node));
            channels.push(shared.keys.single("nodes"));
            channels.push(shared.keys.single("control"));
        }
        feed.subscribe(&channels).await?;
        if let Into::Peers(events) = into {
            events.push(peer::Event::Up(StoreState::Same));
        }
        Ok(feed)
    }

    async fn subscribe(&mut self, channels: &[Vec<u8>]) -> Result<(), CallError> {
        let within = self.reader.shared.settings.keyspace.timeout;
        let done = timeout(within, self.session.connection.subscribe(channels)).await;
        let late = || {
            let words = format!("redis: no reply to SUBSCRIBE within {within:?}");
            CallError::new(CallErrorKind::Timeout, words)
        };
        done.map_err(|_| late())?
            .map_err(|error| call_error(&error))
    }

    /// Subscribes to topics in batches, and reports each batch as followed. The error is always `Some`.
    async fn follow(&mut self, topics: &[Arc<str>]) -> Result<(), Option<CallError>> {
        for batch in topics.chunks(BATCH_MAX) {
            let channels: Vec<_> = batch.iter().map(|topic| self.channel(topic)).collect();
            self.subscribe(&channels).await.map_err(Some)?;
            if let Into::Channels(events) = &self.reader.into {
                let followed = batch.iter().cloned().map(channel::Event::Followed);
                events.post(&mut followed.collect());
            }
        }
        Ok(())
    }

    fn channel(&self, topic: &str) -> Vec<u8> {
        self.reader.shared.keys.topic(topic)
    }

    /// Waits for changes of the followed topics and applies them. Sends a probe if no messages arrive. The error `None`
    /// means that the port was dropped.
    async fn turn(
        &mut self,
        followed: &mut HashSet<Arc<str>>,
        changes: &mut UnboundedReceiver<Change>,
        probes: &UnboundedSender<Vec<u8>>,
    ) -> Result<(), Option<CallError>> {
        let mut list = Vec::new();
        let mut look = Instant::now() + PROBE;
        let mut is_probed = false;
        loop {
            tokio::select! {
                count = changes.recv_many(&mut list, BATCH_MAX) => match count {
                    0 => return Err(None),
                    _ => break,
                },
                () = self.session.over.notified() => {
                    self.reader.shared.count_loss();
                    let words = "redis: the connection for subscriptions is closed";
                    return Err(Some(CallError::new(CallErrorKind::ConnectionLost, words)));
                }
                () = sleep_until(look) => {
                    look = Instant::now() + PROBE;
                    let is_alive = self.reader.is_alive.swap(false, Ordering::Relaxed);
                    if is_alive {
                        is_probed = false;
                    } else if is_probed {
                        EngineFigures::add(&self.reader.shared.figures.silent, 1);
                        let words = "redis: the connection for subscriptions does not respond";
                        return Err(Some(CallError::new(CallErrorKind::Timeout, words)));
                    } else {
                        // The probe is published over the connection for commands. If that connection is dead too, its
                        // command times out and the connection is closed.
                        is_probed = probes.send(self.reader.probe.clone()).is_ok();
                    }
                }
            }
        }
        let mut last = HashMap::new();
        for change in list {
            let (topic, is_followed) = note(followed, change);
            last.insert(topic, is_followed);
        }
        let (begun, ended): (Vec<_>, Vec<_>) = last.into_iter().partition(|(_, is)| *is);
        let begun: Vec<_> = begun.into_iter().map(|(topic, _)| topic).collect();
        if !ended.is_empty() {
            let channels: Vec<_> = ended.iter().map(|(topic, _)| self.channel(topic)).collect();
            let within = self.reader.shared.settings.keyspace.timeout;
            let done = timeout(within, self.session.connection.unsubscribe(channels)).await;
            let late = || {
                let words = format!("redis: no reply to UNSUBSCRIBE within {within:?}");
                CallError::new(CallErrorKind::Timeout, words)
            };
            done.map_err(|_| Some(late()))?
                .map_err(|error| Some(call_error(&error)))?;
        }
        self.follow(&begun).await
    }
}

impl Reader {
    fn read(&self, push: PushInfo) {
        if push.kind != PushKind::Message {
            return;
        }
        self.is_alive.store(true, Ordering::Relaxed);
        let mut parts = push.data.into_iter().map(bytes);
        let (Some(Some(channel)), Some(Some(data))) = (parts.next(), parts.next()) else {
            return;
        };
        if channel == self.probe {
            return;
        }
        let figures = &self.shared.figures;
        EngineFigures::add(&figures.messages, 1);
        let length = data.len();
        let is_known = length <= MESSAGE_BYTES_MAX
            && match &self.into {
                Into::Channels(events) => self.item(events, &channel, data.into()),
                Into::Peers(events) => self.received(events, &channel, data.into()),
            };
        if !is_known {
            EngineFigures::add(&figures.ignored, 1);
        }
    }

    /// Passes a message from Redis on to the home worker if it is a feed item of a channel. Returns whether it is.
    fn item(&self, events: &Events<channel::Event>, channel: &[u8], data: Bytes) -> bool {
        let topic = channel.strip_prefix(&self.topics[..]);
        let topic = topic.and_then(|topic| str::from_utf8(topic).ok());
        let (Some(topic), Some(message)) = (topic, message(&data)) else {
            return false;
        };
        let name = message.channel.unwrap_or_else(|| topic.into());
        let event = channel::Event::Item {
            channel: name,
            place: message.place,
            data: message.data,
        };
        let missed = || {
            let event = channel::Event::Followed(topic.into());
            (topic.as_bytes().to_vec(), event)
        };
        if !events.push_item(event, data.len(), missed) {
            EngineFigures::add(&self.shared.figures.dropped, 1);
        }
        true
    }

    /// Passes `data` on to the node if it is a message from another node. Returns whether it is.
    fn received(&self, events: &Events<peer::Event>, channel: &[u8], data: Bytes) -> bool {
        let event = if *channel == self.shared.keys.single("control") {
            let Some((message, place)) = message(&data).and_then(|one| {
                let place = one.place?;
                Some((one.data, place))
            }) else {
                return false;
            };
            peer::Event::Control {
                position: place.0,
                before: place.1,
                bytes: message,
            }
        } else {
            peer::Event::Received(data.clone())
        };
        // If messages are dropped, the node is told with this event that earlier messages may be lost. It detects lost
        // messages of the control stream by the gap in the offsets.
        let missed = || (Vec::new(), peer::Event::Up(StoreState::Same));
        if !events.push_item(event, data.len(), missed) {
            EngineFigures::add(&self.shared.figures.dropped, 1);
        }
        true
    }
}
