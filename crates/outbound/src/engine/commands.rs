//! Maintains a port's connection for commands to Redis, and executes commands in batches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use redis::{Cmd, Pipeline, Value};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use veche_calls::{CallError, CallErrorKind};
use veche_nodes::engine::StoreState;

use super::port::Events;
use super::scripts::Fence;
use super::session::{EngineSession, KnownServer};
use super::shared::{EngineFigures, SharedPorts};
use crate::redis::values::call_error;

/// The maximum number of commands of a batch.
const BATCH_MAX: usize = 512;
/// A batch gets no further command once the data of its commands has this size in bytes.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The maximum number of batches of independent jobs that are executed at the same time. The server then executes one batch
/// while this node handles the replies to another.
const BATCHES_MAX: usize = 2;

/// Error codes of servers that can't execute commands, such as replicas; after such an error the connection is closed.
const USELESS: [&str; 5] = [
    "READONLY",
    "LOADING",
    "MASTERDOWN",
    "UNBLOCKED",
    "CLUSTERDOWN",
];

/// The part of a port that is specific to its kind of orders: converts orders to commands, and replies to events.
pub(super) trait PortClient: Send + 'static {
    type Order: Send;
    type Event: Send;
    /// A command together with the information needed to handle its reply.
    type Job: Send;

    /// The interval between two calls of [`timed`](Self::timed).
    const EVERY: Duration;

    /// Returns the event that reports a new connection with this number.
    fn connected(&mut self, number: u64, store: StoreState) -> Self::Event;

    /// Returns the event that reports the loss of the connection.
    fn lost(&mut self) -> Self::Event;

    /// Returns the number of publications in the store according to its latest answer to this port; 0 before the first
    /// answer.
    fn stored(&self) -> u64;

    /// Converts an order to a job; `None` if the order needs no command. `is_up` says whether the port is connected.
    fn take(&mut self, order: Self::Order, is_up: bool) -> Option<Self::Job>;

    /// Adds the job `next` to the previous one if one command can perform both; otherwise returns
    /// `next`.
    fn join(_last: &mut Self::Job, next: Self::Job) -> Option<Self::Job> {
        Some(next)
    }

    /// Returns whether a job is independent. Independent jobs may be executed at the same time, because none of them
    /// depends on the result of another.
    fn is_independent(_job: &Self::Job) -> bool {
        false
    }

    /// Returns the periodic commands that are due. Only called while connected.
    fn timed(&mut self) -> Vec<Self::Job>;

    /// Returns the job that publishes an empty message to `channel`, to test that the feed works.
    fn probe(channel: Vec<u8>) -> Self::Job;

    /// Returns the size of a job's data in bytes.
    fn bytes(job: &Self::Job) -> usize;

    fn command(&self, shared: &SharedPorts, session: &EngineSession, job: &Self::Job) -> Cmd;

    /// Handles the reply to a job. `reply` is `None` if the server has rejected the job.
    fn answer(
        &mut self,
        shared: &SharedPorts,
        job: Self::Job,
        reply: Option<Value>,
        events: &mut Vec<Self::Event>,
    );
}

/// The state of a task that runs commands.
struct Commands<C: PortClient> {
    shared: Arc<SharedPorts>,
    client: C,
    orders: UnboundedReceiver<Vec<C::Order>>,
    probes: UnboundedReceiver<Vec<u8>>,
    events: Arc<Events<C::Event>>,
    pending: VecDeque<C::Job>,
}

/// Why a connection is not used any more.
enum End {
    /// The port was dropped.
    Closed,
    Lost(CallError),
}

/// Executes the orders of a port until the port is dropped. Reconnects whenever the connection is lost.
pub(super) async fn run<C: PortClient>(
    shared: Arc<SharedPorts>,
    client: C,
    orders: UnboundedReceiver<Vec<C::Order>>,
    probes: UnboundedReceiver<Vec<u8>>,
    events: Arc<Events<C::Event>>,
) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let port = COUNT.fetch_add(1, Ordering::Relaxed);
    let fence = shared.keys.fence(shared.settings.node, port);
    let mut commands = Commands {
        shared,
        client,
        orders,
        probes,
        events,
        pending: VecDeque::new(),
    };
    let mut known = None;
    let mut number = 0;
    let mut is_lost = false;
    let [first, longest] = commands.shared.pauses();
    let mut pause = first;
    loop {
        let fence = Fence {
            key: fence.clone(),
            number: number + 1,
        };
        let fault = match commands.connect(&mut known, fence).await {
            Ok((mut session, store)) => {
                pause = first;
                number += 1;
                if std::mem::take(&mut is_lost) {
                    commands.shared.found();
                }
                let event = commands.client.connected(number, store);
                commands.events.push(event);
                let end = commands.serve(&mut session).await;
                commands.pending.clear();
                let event = commands.client.lost();
                commands.events.push(event);
                commands.shared.count_loss();
                match end {
                    End::Closed => return,
                    End::Lost(fault) => fault,
                }
            }
            Err(End::Closed) => return,
            Err(End::Lost(fault)) => fault,
        };
        if !std::mem::replace(&mut is_lost, true) {
            commands.shared.lost(fault.words);
        }
        if commands.pass(pause).await {
            return;
        }
        pause = (pause * 2).min(longest);
    }
}

impl<C: PortClient> Commands<C> {
    /// Connects to the server and verifies it. Accepts orders meanwhile.
    async fn connect(
        &mut self,
        known: &mut Option<KnownServer>,
        fence: Fence,
    ) -> Result<(EngineSession, StoreState), End> {
        let shared = Arc::clone(&self.shared);
        let stored = self.client.stored();
        let connecting = async {
            let mut session = EngineSession::connect(&shared, |_| {}).await?;
            let within = shared.settings.keyspace.timeout;
            let verified = timeout(within, session.verify(&shared, known, stored, fence)).await;
            let late = || {
                let words = format!(
                    "redis: no reply to the first commands of a new connection within {within:?}"
                );
                CallError::new(CallErrorKind::Timeout, words)
            };
            let store = verified.map_err(|_| late())??;
            Ok((session, store))
        };
        let mut connecting = std::pin::pin!(connecting);
        loop {
            tokio::select! {
                connected = &mut connecting => return connected.map_err(End::Lost),
                orders = self.orders.recv() => match orders {
                    Some(orders) => self.take(orders, false),
                    None => return Err(End::Closed),
                },
                Some(_) = self.probes.recv() => {}
            }
        }
    }

    /// Waits for `pause` while accepting orders. Returns early with `true` if the port was dropped.
    async fn pass(&mut self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        loop {
            tokio::select! {
                () = sleep_until(until) => return false,
                orders = self.orders.recv() => match orders {
                    Some(orders) => self.take(orders, false),
                    None => return true,
                },
                Some(_) = self.probes.recv() => {}
            }
        }
    }

    fn take(&mut self, orders: Vec<C::Order>, is_up: bool) {
        for order in orders {
            let job = self.client.take(order, is_up);
            let left = match (self.pending.back_mut(), job) {
                (Some(last), Some(job)) => C::join(last, job),
                (_, job) => job,
            };
            self.pending.extend(left);
        }
    }

    async fn serve(&mut self, session: &mut EngineSession) -> End {
        let mut timer = interval(C::EVERY);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.pending.is_empty() {
                tokio::select! {
                    orders = self.orders.recv() => match orders {
                        Some(orders) => self.take(orders, true),
                        None => return End::Closed,
                    },
                    Some(channel) = self.probes.recv() => self.pending.push_back(C::probe(channel)),
                    _ = timer.tick() => {
                        let jobs = self.client.timed();
                        self.pending.extend(jobs);
                    }
                    () = session.over.notified() => {
                        let words = "redis: the connection is closed";
                        return End::Lost(CallError::new(CallErrorKind::ConnectionLost, words));
                    }
                }
                continue;
            }
            tokio::select! {
                biased;
                _ = timer.tick() => {
                    let jobs = self.client.timed();
                    self.pending.extend(jobs);
                }
                () = std::future::ready(()) => {}
            }
            if let Err(end) = self.carry_out(session).await {
                return end;
            }
        }
    }

    /// Executes batches until none is in flight. Orders that arrive meanwhile are part of later batches. A batch is
    /// sent before the previous one is answered only if the jobs of both are independent.
    async fn carry_out(&mut self, session: &mut EngineSession) -> Result<(), End> {
        self.take_probe();
        let first = self.next_batch(|_| true);
        let are_independent = first.iter().all(C::is_independent);
        let mut sent = FuturesOrdered::new();
        sent.push_back(self.send(session, first));
        loop {
            // A probe is not independent, so the loop ends before it is sent.
            self.take_probe();
            while are_independent && sent.len() < BATCHES_MAX {
                let next = self.next_batch(C::is_independent);
                if next.is_empty() {
                    break;
                }
                sent.push_back(self.send(session, next));
            }
            tokio::select! {
                answered = sent.next() => match answered {
                    Some((jobs, replies)) => {
                        let replies = replies.map_err(End::Lost)?;
                        self.take_replies(session, jobs, replies).await?;
                    }
                    None => return Ok(()),
                },
                orders = self.orders.recv() => match orders {
                    Some(orders) => self.take(orders, true),
                    None => return Err(End::Closed),
                },
            }
        }
    }

    /// Puts a waiting probe before all pending jobs. The `select` that receives orders has no arm for probes, because
    /// under load it would always choose the arm for orders.
    fn take_probe(&mut self) {
        if let Ok(channel) = self.probes.try_recv() {
            self.pending.push_front(C::probe(channel));
        }
    }

    /// Removes the jobs of the next batch from the pending ones, up to the first job that `may_join` rejects. Batches
    /// of independent jobs are smaller, so that those in flight together are at most as large as one batch of other
    /// jobs.
    fn next_batch(&mut self, may_join: impl Fn(&C::Job) -> bool) -> Vec<C::Job> {
        let share = match self.pending.front().is_some_and(C::is_independent) {
            true => BATCHES_MAX,
            false => 1,
        };
        let (mut jobs, mut bytes) = (Vec::new(), 0);
        while jobs.len() < BATCH_MAX / share
            && bytes < BATCH_BYTES_MAX / share
            && let Some(job) = self.pending.pop_front_if(|job| may_join(job))
        {
            bytes += C::bytes(&job);
            jobs.push(job);
        }
        jobs
    }

    /// Sends a batch once the returned future is polled. The future returns the jobs with their replies.
    fn send(
        &self,
        session: &EngineSession,
        jobs: Vec<C::Job>,
    ) -> impl Future<Output = (Vec<C::Job>, Result<Vec<Value>, CallError>)> + use<C> {
        let mut pipeline = Pipeline::with_capacity(jobs.len());
        for job in &jobs {
            pipeline.add_command(self.client.command(&self.shared, session, job));
        }
        EngineFigures::add(&self.shared.figures.commands, jobs.len());
        EngineFigures::add(&self.shared.figures.batches, 1);
        let within = self.shared.settings.keyspace.timeout;
        let mut connection = session.connection.clone();
        async move {
            let sent = connection.send_packed_commands(&pipeline, 0, jobs.len());
            let replies = match timeout(within, sent).await {
                Ok(replies) => replies.map_err(|error| call_error(&error)),
                Err(_) => {
                    let words = format!("redis: no reply within {within:?}");
                    Err(CallError::new(CallErrorKind::Timeout, words))
                }
            };
            (jobs, replies)
        }
    }

    async fn take_replies(
        &mut self,
        session: &mut EngineSession,
        jobs: Vec<C::Job>,
        replies: Vec<Value>,
    ) -> Result<(), End> {
        let mut events = Vec::with_capacity(jobs.len());
        let mut again = Vec::new();
        let mut useless = None;
        for (job, reply) in jobs.into_iter().zip(replies) {
            let Value::ServerError(error) = reply else {
                self.client
                    .answer(&self.shared, job, Some(reply), &mut events);
                continue;
            };
            let words = format!("{} {}", error.code(), error.details().unwrap_or_default());
            let is_useless = |code: &&str| words.contains(*code);
            if error.code() == "NOSCRIPT" {
                again.push(job);
            } else if USELESS.iter().any(is_useless) {
                useless = Some(words);
            } else {
                self.shared.refused(words);
                self.client.answer(&self.shared, job, None, &mut events);
            }
        }
        self.events.post(&mut events);
        if let Some(words) = useless {
            let words = format!("redis: {words}");
            return Err(End::Lost(CallError::new(CallErrorKind::Refused, words)));
        }
        if !again.is_empty() {
            // The server's script cache was emptied, so these commands were not executed. They are repeated after the scripts
            // are loaded again.
            session.load().await.map_err(End::Lost)?;
            for job in again.into_iter().rev() {
                self.pending.push_front(job);
            }
        }
        Ok(())
    }
}
