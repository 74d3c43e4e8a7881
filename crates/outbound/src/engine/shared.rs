//! The state shared by all ports of an engine: settings, names, counters, and the reported state of its connections.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use veche_calls::Secret;
use veche_calls::redis::RedisDatabase;
use veche_nodes::NodeId;
use veche_nodes::engine::channel;

use super::port::Events;
use super::scripts::RedisKeys;

/// The first and the longest pause between two attempts to connect to the server itself: short, because until an attempt
/// succeeds the node can't publish. Sentinels are asked less often, because all ports of all nodes ask the same few ones.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(500)];

/// A refused command is reported only if no command was refused in this time before it. Each node renews its lease at
/// shorter intervals, so a lasting refusal is reported once.
const REFUSED_APART: Duration = Duration::from_secs(10);

/// The settings of an engine: its location, and its use by this node.
#[derive(Clone)]
pub struct EngineSettings {
    /// The address of the server, or of a Sentinel that returns the server's address, and the time limit of commands.
    pub keyspace: Arc<RedisDatabase>,
    /// How the address of the primary is requested from Sentinels. If `None`, `keyspace` contains that address rather
    /// than the address of a Sentinel.
    pub sentinel: Option<Sentinel>,
    /// The prefix of all keys and channels.
    pub prefix: String,
    /// Whether positions stay valid after a failover, although publications may have been lost.
    pub trusts_failover: bool,
    /// Id of this node.
    pub node: NodeId,
    /// Called with changes of the connections, on threads of the runtime.
    pub notice: Arc<dyn Fn(&Notice) + Send + Sync>,
}

/// How the address of the primary is requested from Sentinels; see [`EngineSettings::sentinel`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentinel {
    /// The name of the primary in the configuration of the Sentinels.
    pub primary: String,
    /// Hosts and ports of further Sentinels.
    pub others: Vec<(String, u16)>,
    /// The user of the Sentinels, if they require one.
    pub user: Option<String>,
    /// The password of the Sentinels, if they require one.
    pub password: Option<Secret>,
}

/// A change of the connection to an engine, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// All connections are open again.
    Connected,
    /// A connection was lost or could not be opened. Reported once until all connections are open again.
    Lost(String),
    /// The engine's server was restarted, so positions are compared with the store.
    Restarted,
    /// A replica was promoted, so channels begin new epochs.
    Promoted,
    /// A replica was promoted, and positions stay valid because failovers are trusted.
    Trusted,
    /// The engine's server refuses commands. Reported once, and again only after ten seconds without a refusal.
    Refused(String),
}

/// The counters of an engine's client.
#[derive(Debug, Default)]
pub struct EngineFigures {
    /// Connections that were lost.
    pub losses: AtomicU64,
    /// Commands that were sent, including those that run scripts.
    pub commands: AtomicU64,
    /// Batches of commands that were sent.
    pub batches: AtomicU64,
    /// Messages received from the feed.
    pub messages: AtomicU64,
    /// Messages of the feed that were ignored, because another program published them, or because they are too long or
    /// of another version.
    pub ignored: AtomicU64,
    /// Messages of the feed that were dropped because the queue was full; their channels are compared with the store.
    pub dropped: AtomicU64,
    /// Connections of the feed that were closed because a probe did not arrive.
    pub silent: AtomicU64,
}

impl EngineFigures {
    pub(super) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// The state shared by all ports.
pub(super) struct SharedPorts {
    pub(super) settings: EngineSettings,
    pub(super) keys: RedisKeys,
    pub(super) figures: EngineFigures,
    pub(super) reported: ReportedState,
    /// The event queues of this node's workers, each of which is the home of some channels.
    pub(super) homes: Mutex<Vec<Arc<Events<channel::Event>>>>,
}

/// The last reported state, so that each change is reported once for all ports.
#[derive(Default)]
pub(super) struct ReportedState {
    /// The number of ports without a connection.
    lost: AtomicUsize,
    /// The time of the last refused command.
    refused_at: Mutex<Option<Instant>>,
    /// The replication id of the server whose restart or promotion was reported last.
    replaced_by: Mutex<String>,
}

impl fmt::Debug for SharedPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPorts").finish_non_exhaustive()
    }
}

impl SharedPorts {
    /// Returns the first and the longest pause between two attempts to connect.
    pub(super) fn pauses(&self) -> [Duration; 2] {
        match self.settings.sentinel {
            None => PAUSES,
            Some(_) => crate::redis::PAUSES,
        }
    }

    pub(super) fn notice(&self, notice: &Notice) {
        (self.settings.notice)(notice);
    }

    /// Handles an engine port that has lost its connection or could not open one.
    pub(super) fn lost(&self, why: String) {
        if self.reported.lost.fetch_add(1, Ordering::Relaxed) == 0 {
            self.notice(&Notice::Lost(why));
        }
    }

    /// Handles an engine port that has reconnected.
    pub(super) fn found(&self) {
        if self.reported.lost.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.notice(&Notice::Connected);
        }
    }

    /// Records that the server has refused a command. Successful commands between two refusals don't cause another report,
    /// since a server without free memory refuses only writes.
    pub(super) fn refused(&self, why: String) {
        let before = self.reported.refused_at.lock().replace(Instant::now());
        if before.is_none_or(|before| before.elapsed() > REFUSED_APART) {
            self.notice(&Notice::Refused(why));
        }
    }

    /// Reports that the server with this replication id has replaced the previous server. Reports it once for all
    /// ports.
    pub(super) fn replaced(&self, replication: &str, notice: &Notice) {
        let known = &mut *self.reported.replaced_by.lock();
        if known != replication {
            replication.clone_into(known);
            self.notice(notice);
        }
    }

    /// Passes an event to all workers of this node that are homes of channels.
    pub(super) fn tell_homes(&self, event: &channel::Event) {
        for home in self.homes.lock().iter() {
            home.push(event.clone());
        }
    }
}
