//! Stalls for many rounds: a worker without turns, late messages, a log that writes nothing,
//! clients that do not read. Everything independent of the stall must make progress, and waiters
//! are served in order.
//!
//! Each stall begins when the simulated world has no work left, so that the affected parts are known,
//! and lasts until the world has no work left again.

mod late;
mod others;
mod progress;

use std::collections::BTreeSet;

use fastrand::Rng;

use crate::action::Action;
use crate::api_client::BackEndCall;
use crate::channels::{CHANNELS, Kind};
use crate::coverage::CoverageEvent;
use crate::failure::PromiseResult;
use crate::fairness::FairnessCheck;
use crate::network::LinkId;
use crate::phase::Phase;
use crate::setup::pick;
use crate::world::{World, channel_name};

/// The component that stalls for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stall {
    /// A worker has no turns.
    Worker,
    /// A worker has turns, but receives no messages of other workers.
    Messages,
    /// No log writes anything.
    Log,
    /// Clients that may lose publications do not read.
    Readers,
    /// Nothing stalls. A channel has more subscribers than are served immediately, and one more
    /// subscribes.
    Crowd,
}

/// The stalls to choose from. `Messages` is listed twice, because it leads to the rarest situations.
pub(crate) const STALLS: [Stall; 6] = [
    Stall::Worker,
    Stall::Messages,
    Stall::Messages,
    Stall::Log,
    Stall::Readers,
    Stall::Crowd,
];

/// The parts that stay stalled while the rest of a simulated world completes its work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StalledParts {
    pub(crate) worker: Option<usize>,
    pub(crate) is_log: bool,
}

/// Number of subscribers of a channel on one worker that are served immediately.
const IMMEDIATE_MAX: usize = 16;

/// Maximum number of publications of one channel that are made to wait.
const WAITING_MAX: usize = 20;

/// Maximum number of turns in which the stalled worker takes one message each before it runs at full speed.
const SLOW_ROUNDS: usize = 40;

/// Minimum number of bytes that a queued publication takes in addition to its payload, for a client
/// that may lose publications.
const KEPT_BYTES: usize = 80;

/// The homes, receivers and senders affected by a worker that gets no turns.
struct Affected {
    /// The home of each channel.
    homes: Vec<usize>,
    /// The workers with subscribers of each channel.
    receivers: Vec<BTreeSet<usize>>,
    /// For each home: the workers for which publications wait there.
    lanes: Vec<BTreeSet<usize>>,
    /// Pairs of a publishing worker and a home between which publications may wait.
    sources: BTreeSet<(usize, usize)>,
}

impl Affected {
    fn is_free(&self, channel: usize, still: &StalledParts) -> bool {
        let home = self.homes[channel];
        let kind = CHANNELS[channel].kind;
        Some(home) != still.worker
            && self.receivers[channel].is_disjoint(&self.lanes[home])
            && (!still.is_log || !kind.has_history())
    }

    fn has_room(&self, from: usize, channel: usize) -> bool {
        let home = self.homes[channel];
        from == home || !self.sources.contains(&(from, home))
    }
}

impl World {
    pub(crate) fn stall(&mut self, what: Stall, worker: usize, salt: u32) -> PromiseResult {
        self.wait_for_drain()?;
        // The process may have been replaced by one with fewer workers.
        let worker = worker % self.process.workers.len();
        self.rest()?;
        // The server has not noticed that these clients are gone, so their subscriptions are unknown. Their connections
        // are reset first.
        let links = self.network.links.iter();
        let gone: Vec<_> = links
            .filter(|(_, link)| !link.has_client)
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            self.drop_server(id);
        }
        self.rest()?;
        let random = &mut Rng::with_seed(salt.into());
        match what {
            Stall::Worker => self.stall_worker(worker, random)?,
            Stall::Messages => self.stall_messages(worker, random)?,
            Stall::Log => self.stall_log(random)?,
            Stall::Readers => self.stall_readers(worker)?,
            Stall::Crowd => self.crowd(worker, random)?,
        }
        self.rest()
    }

    /// Returns the worker of a link.
    pub(crate) fn worker_of(&self, link: Option<LinkId>) -> Option<usize> {
        let (worker, _) = self.network.links.get(&link?)?.server?;
        Some(worker)
    }

    fn home(&self, channel: usize) -> usize {
        let hub = &self.process.workers[0].shared().hub;
        hub.home_of(channel_name(channel)).0.into()
    }

    /// Returns the workers with receivers of this channel's publications.
    fn receivers(&self, channel: usize) -> BTreeSet<usize> {
        let is_news = CHANNELS[channel].kind == Kind::News;
        let includes = |one: usize| one == channel || is_news && CHANNELS[one].kind == Kind::Wild;
        let clients = self.peers.clients.iter().filter(|client| {
            let mut subscribed = client.subscriptions.keys().chain(&client.wants);
            subscribed.any(|one| includes(*one)) || client.server_channels().any(includes)
        });
        let listeners = self.peers.listeners.iter();
        let listeners = listeners.filter(|listener| listener.channels().any(includes));
        let one_ways = self.peers.one_ways.iter();
        let one_ways = one_ways.filter(|one| one.channels().any(includes));
        let links = clients
            .map(|one| one.link)
            .chain(listeners.map(|one| one.link))
            .chain(one_ways.map(|one| one.link));
        links.filter_map(|link| self.worker_of(link)).collect()
    }

    fn concerned(&self) -> Affected {
        let workers = self.process.workers.len();
        Affected {
            homes: (0..CHANNELS.len()).map(|one| self.home(one)).collect(),
            receivers: (0..CHANNELS.len()).map(|one| self.receivers(one)).collect(),
            lanes: vec![BTreeSet::new(); workers],
            sources: BTreeSet::new(),
        }
    }

    fn has_stalled(&self, home: usize) -> bool {
        self.process.workers[home].shared().hub.gauges().stalled > 0
    }

    /// Stalls a worker, then lets it take one message per turn.
    fn stall_worker(&mut self, asleep: usize, random: &mut Rng) -> PromiseResult {
        let awake: Vec<_> = (0..self.process.workers.len())
            .filter(|worker| *worker != asleep)
            .collect();
        if awake.is_empty() {
            return Ok(());
        }
        let still = StalledParts {
            worker: Some(asleep),
            is_log: false,
        };
        let mut concerned = self.concerned();
        for lanes in &mut concerned.lanes {
            lanes.insert(asleep);
        }
        let mut waiting: Vec<_> = (0..CHANNELS.len())
            .filter(|one| {
                CHANNELS[*one].kind.takes_any()
                    && concerned.homes[*one] != asleep
                    && concerned.receivers[*one].contains(&asleep)
            })
            .collect();
        random.shuffle(&mut waiting);
        waiting.truncate(3);
        self.watch(asleep, &concerned);
        for &channel in &waiting {
            let (from, home) = (*pick(random, &awake), concerned.homes[channel]);
            concerned.sources.insert((from, home));
            let receivers = concerned.receivers[channel].clone();
            concerned.lanes[home].extend(receivers);
            let times = 2 + WAITING_MAX.min(2 * self.setup.credits as usize);
            for _ in 0..random.usize(2..=times) {
                self.push(from, channel, random.u16(0..=self.setup.pad_max), 1)?;
                if random.bool() {
                    self.rest_without(&still)?;
                }
            }
        }
        self.rest_without(&still)?;
        let stalled: Vec<_> = awake
            .iter()
            .copied()
            .filter(|home| self.has_stalled(*home))
            .collect();
        let went_on = self.check_progress(&concerned, &awake, &still, random)?;
        if went_on.iter().any(|home| stalled.contains(home)) {
            self.ledger.seen.note(CoverageEvent::WentOn);
        }
        self.wake_slowly(asleep, &awake, &waiting, &concerned, random)
    }

    /// Starts checking the order in which a worker gets publications.
    fn watch(&mut self, to: usize, concerned: &Affected) {
        // With many subscribers, publications also wait in queues other than the lanes between workers.
        let is_small = self.peers.clients.len() + self.peers.listening() <= IMMEDIATE_MAX;
        let watched = (0..CHANNELS.len()).filter(|one| {
            let kind = CHANNELS[*one].kind;
            let is_logged = self.setup.is_logged && kind.has_history();
            // A publication that waits for a hook does not wait for the lane.
            is_small
                && !is_logged
                && !kind.is_hooked()
                && kind != Kind::State
                && concerned.receivers[*one].contains(&to)
        });
        // It is unknown which publications the clients that do not read will receive.
        let is_known = self
            .peers_of(to)
            .all(|(phase, reads)| phase == Phase::Online && reads);
        let watched = watched.filter(|_| is_known);
        self.process.lanes.watch = Some(FairnessCheck::new(to, watched.collect()));
    }

    /// Returns, for each peer of a worker, its phase and whether it reads.
    fn peers_of(&self, worker: usize) -> impl Iterator<Item = (Phase, bool)> {
        let clients = self.peers.clients.iter();
        let clients = clients.map(|one| (one.link, one.phase, one.reads));
        let listeners = self.peers.listeners.iter();
        let listeners = listeners.map(|one| (one.link, one.phase, one.reads));
        let one_ways = self.peers.one_ways.iter();
        let one_ways = one_ways.map(|one| (one.link, one.phase, one.reads));
        clients
            .chain(listeners)
            .chain(one_ways)
            .filter(move |(link, ..)| self.worker_of(*link) == Some(worker))
            .map(|(_, phase, reads)| (phase, reads))
    }

    fn check_watch(&self) -> PromiseResult {
        let watch = self.process.lanes.watch.as_ref();
        watch.map_or(Ok(()), FairnessCheck::check)
    }

    /// Ends the stall of worker `slow` gradually: it takes one message per turn while others publish to it.
    fn wake_slowly(
        &mut self,
        slow: usize,
        awake: &[usize],
        waiting: &[usize],
        concerned: &Affected,
        random: &mut Rng,
    ) -> PromiseResult {
        let is_waited_for = |world: &Self| {
            let watch = world.process.lanes.watch.as_ref();
            watch.is_some_and(FairnessCheck::is_waited_for)
        };
        if is_waited_for(self) {
            self.ledger.seen.note(CoverageEvent::WaitedInLine);
        }
        let receivers: Vec<_> = (0..CHANNELS.len())
            .filter(|one| {
                CHANNELS[*one].kind.takes_any()
                    && concerned.homes[*one] != slow
                    && concerned.receivers[*one].contains(&slow)
            })
            .collect();
        for _ in 0..SLOW_ROUNDS {
            if !is_waited_for(self) || waiting.is_empty() {
                break;
            }
            self.process.lanes.set_due(slow, 1);
            self.turn(slow, None)?;
            for caller in 0..self.peers.callers.len() {
                let channel = *pick(random, &receivers);
                let home = concerned.homes[channel];
                self.call(caller, home as u8, BackEndCall::Publish(0), channel);
            }
            for client in 0..self.peers.clients.len() {
                let channel = *pick(random, &receivers) as u8;
                if self.worker_of(self.peers.clients[client].link) != Some(slow) {
                    let client = client as u8;
                    self.ask(
                        client.into(),
                        Action::Publish {
                            client,
                            channel,
                            pad: 0,
                        },
                    );
                }
            }
            let channel = *pick(random, &receivers);
            self.push(*pick(random, awake), channel, 0, 1)?;
            for link in self.network.links.keys().copied().collect::<Vec<_>>() {
                if self.worker_of(Some(link)) != Some(slow) {
                    self.up(link, usize::MAX)?;
                    self.down(link, usize::MAX)?;
                }
            }
            for &worker in awake {
                self.turn(worker, None)?;
                if let Some(disk) = &mut self.disk {
                    while disk.commit(worker)? {}
                }
            }
            self.check_watch()?;
        }
        self.process.lanes.set_due(slow, usize::MAX);
        self.rest()?;
        self.check_watch()?;
        self.process.lanes.watch = None;
        Ok(())
    }
}
