//! Stalls parts of the world: logs that write nothing, clients that do not read, and channels
//! with many subscribers.

use fastrand::Rng;

use super::{IMMEDIATE_MAX, KEPT_BYTES, StalledParts, WAITING_MAX};
use crate::action::Action;
use crate::channels::{CHANNELS, COMMON, Kind};
use crate::coverage::CoverageEvent;
use crate::failure::PromiseResult;
use crate::setup::pick;
use crate::world::World;

impl World {
    /// Stops all writing to logs. Publications that are not stored make progress, even those behind stored ones.
    pub(super) fn stall_log(&mut self, random: &mut Rng) -> PromiseResult {
        if self.disk.is_none() {
            return Ok(());
        }
        let still = StalledParts {
            worker: None,
            is_log: true,
        };
        let workers: Vec<_> = (0..self.process.workers.len()).collect();
        let concerned = self.concerned();
        let kept: Vec<_> = (0..CHANNELS.len())
            .filter(|one| CHANNELS[*one].kind.has_history())
            .collect();
        let mut waits = false;
        for _ in 0..3 {
            let (from, channel) = (*pick(random, &workers), *pick(random, &kept));
            let times = 2 + WAITING_MAX.min(2 * self.setup.credits as usize);
            for _ in 0..random.usize(2..=times) {
                self.push(from, channel, 0, 1)?;
                if random.bool() {
                    self.rest_without(&still)?;
                }
            }
        }
        self.rest_without(&still)?;
        for worker in &self.process.workers {
            waits |= worker.shared().hub.gauges().pending > 0;
        }
        for (channel, one) in CHANNELS.iter().enumerate() {
            let kind = one.kind;
            if !kind.has_history() && kind.takes_any() {
                self.check_publication_progress(channel, *pick(random, &workers), &still)?;
                if waits {
                    self.ledger.seen.note(CoverageEvent::WentOnWithoutLog);
                }
            }
        }
        self.check_command_progress(&concerned, &still, random)
    }

    /// Makes clients that may lose publications stop reading until they have lost some, and then
    /// read again.
    pub(super) fn stall_readers(&mut self, worker: usize) -> PromiseResult {
        let log = CHANNELS.iter().position(|one| one.kind == Kind::Log);
        let channel = log.unwrap_or_default();
        let mut lossy = Vec::new();
        for number in 0..self.peers.listeners.len() {
            if self.peers.listeners[number].is_lossy() {
                self.listen(number, worker as u8);
                lossy.push((number, self.peers.listeners[number].reads));
            }
        }
        if lossy.is_empty() {
            return Ok(());
        }
        self.rest()?;
        for (number, _) in &lossy {
            self.peers.listeners[*number].reads = false;
        }
        let before = self.dropped_oldest();
        let pad = self.setup.pad_max;
        let most = self.setup.outbox_bytes + self.setup.pipe_bytes;
        for _ in 0..most / (KEPT_BYTES + usize::from(pad)) + 4 {
            self.push(self.home(channel), channel, pad, 1)?;
            self.rest()?;
        }
        if self.dropped_oldest() > before {
            self.ledger.seen.note(CoverageEvent::DroppedOldest);
        }
        for (number, _) in &lossy {
            self.peers.listeners[*number].reads = true;
        }
        self.rest()?;
        let checked = self.check_tops().and_then(|()| self.check_peers());
        for (number, reads) in lossy {
            self.peers.listeners[number].reads = reads;
        }
        checked
    }

    fn dropped_oldest(&self) -> u64 {
        let workers = self.process.workers.iter();
        workers.map(|one| one.dropped()[0]).sum()
    }

    /// More clients subscribe than a worker serves immediately. One more client subscribes between
    /// two publications.
    pub(super) fn crowd(&mut self, worker: usize, random: &mut Rng) -> PromiseResult {
        if self.peers.clients.len() <= IMMEDIATE_MAX + 1 {
            return Ok(());
        }
        let channels: Vec<_> = (0..COMMON)
            .filter(|one| matches!(CHANNELS[*one].kind, Kind::Chat | Kind::Log | Kind::News))
            .collect();
        let channel = *pick(random, &channels);
        let late = random.usize(0..self.peers.clients.len());
        for number in 0..self.peers.clients.len() {
            self.connect(number, worker as u8);
            let (client, channel) = (number as u8, channel as u8);
            let action = match number == late {
                true => Action::Unsubscribe { client, channel },
                false => Action::Subscribe { client, channel },
            };
            self.ask(number, action);
        }
        self.rest()?;
        let subscribers = self.subscribers(channel);
        let here = subscribers.filter(|one| self.worker_of(one.link) == Some(worker));
        let is_crowded = here.count() > IMMEDIATE_MAX;
        let home = self.home(channel);
        self.push(home, channel, 0, 1)?;
        let action = Action::Subscribe {
            client: late as u8,
            channel: channel as u8,
        };
        self.ask(late, action);
        let link = self.peers.clients[late].link;
        if let Some(link) = link {
            self.up(link, usize::MAX)?;
        }
        if home != worker {
            self.turn(worker, None)?;
            self.turn(home, None)?;
        }
        self.push(home, channel, 0, 1)?;
        if home != worker {
            self.turn(home, None)?;
        }
        if is_crowded && self.worker_of(link) == Some(worker) {
            self.ledger.seen.note(CoverageEvent::CameBetween);
        }
        Ok(())
    }
}
