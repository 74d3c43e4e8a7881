//! The client of an engine that runs outside this process, on Redis. The client owns the connections to the engine and
//! executes the orders defined in [`veche_nodes::engine`].
//!
//! Each port has a task, a connection for its commands and another for its feed. Orders that arrive while a batch of commands
//! is in progress are sent together as the next batch, so a busy port pipelines without a timer.

mod channels;
mod commands;
mod feed;
mod occupancy;
mod peers;
mod port;
mod replies;
mod scripts;
mod session;
mod shared;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc::unbounded_channel;
use veche_calls::CallError;
use veche_nodes::engine::{channel, peer};

use crate::Outbound;
pub use port::EnginePort;
use scripts::RedisKeys;
use session::EngineSession;
pub use shared::{EngineFigures, EngineSettings, Notice, Sentinel};
use shared::{ReportedState, SharedPorts};

/// An engine outside this process. Clones share its state.
#[derive(Clone, Debug)]
pub struct RemoteStore {
    outbound: Outbound,
    shared: Arc<SharedPorts>,
}

impl Outbound {
    /// Connects to an engine and checks its version, its role, and the permissions of the account.
    ///
    /// # Errors
    /// One line that tells the operator what to do.
    pub fn engine(&self, settings: EngineSettings) -> Result<RemoteStore, CallError> {
        let runtime = self.runtime().map_err(|error| {
            let words = format!("can't start threads for the engine: {error}");
            CallError::new(veche_calls::CallErrorKind::Unreachable, words)
        })?;
        let keys = RedisKeys::new(&settings.prefix);
        let shared = Arc::new(SharedPorts {
            settings,
            keys,
            figures: EngineFigures::default(),
            reported: ReportedState::default(),
            homes: Mutex::default(),
        });
        let own = Arc::clone(&shared);
        let (done, answer) = std::sync::mpsc::sync_channel(1);
        runtime.spawn(async move {
            let examined = match EngineSession::connect(&own, |_| {}).await {
                Ok(mut session) => session.examine(&own).await,
                Err(fault) => Err(fault),
            };
            let _ = done.send(examined);
        });
        let ended = || {
            CallError::new(
                veche_calls::CallErrorKind::Broken,
                "the threads for outgoing calls have ended",
            )
        };
        answer.recv().map_err(|_| ended())??;
        Ok(RemoteStore {
            outbound: self.clone(),
            shared,
        })
    }
}

impl RemoteStore {
    /// Creates a port for the orders of a home worker about its channels. `wake` is called from another thread when there are
    /// events.
    ///
    /// # Errors
    /// The runtime has no threads.
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

    /// Creates a port for messages between nodes. From then on this node holds a lease in the engine. `wake` is called from
    /// another thread when there are events.
    ///
    /// # Errors
    /// The runtime has no threads.
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

    /// Returns the counters for metrics.
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
