//! The carrier of an engine outside this process: it holds the connections and carries out the orders of
//! [`veche_nodes::engine`].
//!
//! Each port has a task, a connection for its commands and one for its feed. Orders that arrive while commands are under way
//! go out together once those are answered, so a busy port pipelines without a timer.

mod channels;
mod commands;
mod feed;
mod peers;
mod port;
mod replies;
mod scripts;
mod session;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc::unbounded_channel;
use veche_calls::Fault;
use veche_calls::redis::Keyspace;
use veche_nodes::NodeId;
use veche_nodes::engine::{channel, peer};

use crate::Outbound;
pub use port::EnginePort;
use scripts::Keys;
use session::Session;

/// Where an engine is, and how this node uses it.
#[derive(Clone)]
pub struct EngineSettings {
    /// The server, or a Sentinel that names it; with the time limit of commands.
    pub keyspace: Arc<Keyspace>,
    /// How the primary is found by Sentinels; `None`: the server is the one of the keyspace.
    pub sentinel: Option<Sentinel>,
    /// What all keys and channels begin with.
    pub prefix: String,
    /// Whether positions outlive a failover although writes may be lost.
    pub trusts_failover: bool,
    /// This node.
    pub node: NodeId,
    /// Is told of changes, from threads of the runtime.
    pub notice: Arc<dyn Fn(&Notice) + Send + Sync>,
}

/// See [`EngineSettings::sentinel`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentinel {
    /// The name of the primary.
    pub primary: String,
    /// Hosts and ports of further Sentinels.
    pub others: Vec<(String, u16)>,
}

/// A change of the connection to an engine, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// All connections are there again.
    Connected,
    /// A connection is lost or was not made; said once until there is one.
    Lost(String),
    /// The server has been started again: positions are compared.
    Restarted,
    /// A replica was promoted: channels begin new epochs.
    Promoted,
    /// A replica was promoted, and positions are trusted.
    Trusted,
    /// The server refuses commands; said once until it takes one.
    Refused(String),
}

/// Counts of an engine's carrier.
#[derive(Debug, Default)]
pub struct EngineFigures {
    /// Connections that were lost.
    pub losses: AtomicU64,
    /// Commands, scripts included.
    pub commands: AtomicU64,
    /// Batches in which they went out.
    pub batches: AtomicU64,
    /// Messages of the feed.
    pub messages: AtomicU64,
    /// Messages of the feed that were ignored: foreign, too long or of another version.
    pub ignored: AtomicU64,
    /// Messages of the feed that were dropped for lack of room; their channels are compared.
    pub dropped: AtomicU64,
    /// Connections of the feed that brought no probe.
    pub silent: AtomicU64,
}

impl EngineFigures {
    fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// An engine outside this process; clones are the same one.
#[derive(Clone, Debug)]
pub struct RemoteStore {
    outbound: Outbound,
    shared: Arc<Shared>,
}

/// What all ports have in common.
struct Shared {
    settings: EngineSettings,
    keys: Keys,
    figures: EngineFigures,
    said: Said,
    /// The events of all homes of channels on this node.
    homes: Mutex<Vec<Arc<port::Events<channel::Event>>>>,
}

/// What was said for the log: each change is said once, whatever the number of ports.
#[derive(Default)]
struct Said {
    /// Ports without a connection.
    lost: AtomicUsize,
    /// The server refuses commands.
    is_refused: AtomicBool,
    /// The replication id of the server that was started again.
    restarted: Mutex<String>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    fn notice(&self, notice: &Notice) {
        (self.settings.notice)(notice);
    }

    /// A port has lost its connection, or could make none.
    fn lost(&self, why: String) {
        if self.said.lost.fetch_add(1, Ordering::Relaxed) == 0 {
            self.notice(&Notice::Lost(why));
        }
    }

    /// Such a port has a connection again.
    fn found(&self) {
        if self.said.lost.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.notice(&Notice::Connected);
        }
    }

    /// The server has refused a command, or taken one.
    fn refused(&self, why: Option<String>) {
        let was_refused = self.said.is_refused.load(Ordering::Relaxed);
        if was_refused == why.is_some() {
            return;
        }
        self.said.is_refused.store(why.is_some(), Ordering::Relaxed);
        if let Some(why) = why {
            self.notice(&Notice::Refused(why));
        }
    }

    /// The server with this replication id was started again.
    fn restarted(&self, replication: &str) {
        let known = &mut *self.said.restarted.lock();
        if known != replication {
            replication.clone_into(known);
            self.notice(&Notice::Restarted);
        }
    }

    /// Tells all homes of channels on this node.
    fn tell_homes(&self, event: &channel::Event) {
        for home in self.homes.lock().iter() {
            home.push(event.clone());
        }
    }
}

impl Outbound {
    /// Connects to an engine and examines it: its version, its role, and the rights of the account.
    ///
    /// # Errors
    /// One line that says what to do.
    pub fn engine(&self, settings: EngineSettings) -> Result<RemoteStore, Fault> {
        let runtime = self.runtime().map_err(|error| {
            let words = format!("no threads for an engine: {error}");
            Fault::new(veche_calls::FaultKind::Unreachable, words)
        })?;
        let keys = Keys::new(&settings.prefix);
        let shared = Arc::new(Shared {
            settings,
            keys,
            figures: EngineFigures::default(),
            said: Said::default(),
            homes: Mutex::default(),
        });
        let own = Arc::clone(&shared);
        let (done, answer) = std::sync::mpsc::sync_channel(1);
        runtime.spawn(async move {
            let examined = match Session::connect(&own, |_| {}).await {
                Ok(mut session) => session.examine(&own).await,
                Err(fault) => Err(fault),
            };
            let _ = done.send(examined);
        });
        let ended = || Fault::new(veche_calls::FaultKind::Broken, "the runtime has ended");
        answer.recv().map_err(|_| ended())??;
        Ok(RemoteStore {
            outbound: self.clone(),
            shared,
        })
    }
}

impl RemoteStore {
    /// Returns a port for the home of channels. `wake` is called from another thread when there are events.
    ///
    /// # Errors
    /// There are no threads.
    pub fn channels(
        &self,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> std::io::Result<EnginePort<channel::Order, channel::Event>> {
        let runtime = self.outbound.runtime()?;
        let (port, orders, events) = EnginePort::new(wake);
        let (changes, changed) = unbounded_channel();
        let (probes, probed) = unbounded_channel();
        self.shared.homes.lock().push(Arc::clone(&events));
        let commands = channels::serve(
            Arc::clone(&self.shared),
            orders,
            Arc::clone(&events),
            changes,
            probed,
        );
        let feed = feed::serve(
            Arc::clone(&self.shared),
            changed,
            feed::Into::Channels(events),
            probes,
        );
        runtime.spawn(commands);
        runtime.spawn(feed);
        Ok(port)
    }

    /// Returns a port for the messages of this node, which has its lease from then on. `wake` is called from another thread
    /// when there are events.
    ///
    /// # Errors
    /// There are no threads.
    pub fn peers(
        &self,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> std::io::Result<EnginePort<peer::Order, peer::Event>> {
        let runtime = self.outbound.runtime()?;
        let (port, orders, events) = EnginePort::new(wake);
        let (changes, changed) = unbounded_channel();
        let (probes, probed) = unbounded_channel();
        let commands = peers::serve(
            Arc::clone(&self.shared),
            orders,
            Arc::clone(&events),
            changes,
            probed,
        );
        let feed = feed::serve(
            Arc::clone(&self.shared),
            changed,
            feed::Into::Peers(events),
            probes,
        );
        runtime.spawn(commands);
        runtime.spawn(feed);
        Ok(port)
    }

    /// Returns the counts.
    #[must_use]
    pub fn figures(&self) -> &EngineFigures {
        &self.shared.figures
    }

    /// Returns the time limit of commands.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.shared.settings.keyspace.timeout
    }
}
