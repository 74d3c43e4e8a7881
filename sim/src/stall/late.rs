//! Late messages: while a worker receives no messages, publications for it wait at their home and keep their order.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::WAITING_MAX;
use crate::action::Action;
use crate::channels::{CHANNELS, COMMON, Kind};
use crate::coverage::CoverageEvent;
use crate::failure::{PromiseResult, promise};
use crate::phase::Phase;
use crate::world::World;

impl World {
    /// Simulates that one or two workers receive no messages of other workers for a while.
    pub(super) fn stall_messages(&mut self, stalled: usize, random: &mut Rng) -> PromiseResult {
        let workers = self.process.workers.len();
        let mut homes: Vec<_> = (0..workers).collect();
        random.shuffle(&mut homes);
        let is_two = random.u8(0..4) > 0;
        for &home in homes.iter().filter(|_| is_two) {
            let channels = self.movable(home, random);
            let clients = self.peers.clients.iter();
            let clients = clients.filter(|one| one.phase == Phase::Online && one.reads);
            let workers: BTreeSet<_> = clients.filter_map(|one| self.worker_of(one.link)).collect();
            let mut others: Vec<_> = workers.into_iter().filter(|one| *one != home).collect();
            random.shuffle(&mut others);
            if let (&[one, two, ..], &[stalled, other, ..]) = (&channels[..], &others[..]) {
                return self.go_on_behind([(stalled, one), (other, two)], home, random);
            }
        }
        homes.retain(|home| *home != stalled);
        for home in homes {
            if let Some(&channel) = self.movable(home, random).first() {
                return self.leave_behind(stalled, home, channel, random);
            }
        }
        Ok(())
    }

    /// Returns channels with this home, all of whose subscribers can be moved.
    fn movable(&self, home: usize, random: &mut Rng) -> Vec<usize> {
        let has_receivers = |channel: usize| {
            let mut listeners = self.peers.listeners.iter();
            let mut one_ways = self.peers.one_ways.iter();
            listeners.any(|one| one.link.is_some() && one.channels().any(|one| one == channel))
                || one_ways
                    .any(|one| one.link.is_some() && one.channels().any(|one| one == channel))
        };
        let mut channels: Vec<_> = (0..COMMON)
            .filter(|one| {
                let kind = CHANNELS[*one].kind;
                kind.takes_any()
                    && !kind.is_hooked()
                    && !matches!(kind, Kind::News | Kind::State)
                    && self.home(*one) == home
                    && !has_receivers(*one)
            })
            .collect();
        random.shuffle(&mut channels);
        channels
    }

    /// Subscribes exactly the clients of certain workers to a channel.
    fn move_subscribers(&mut self, channel: usize, workers: &[usize]) -> PromiseResult {
        for number in 0..self.peers.clients.len() {
            let Some(worker) = self.worker_of(self.peers.clients[number].link) else {
                continue;
            };
            let (client, channel) = (number as u8, channel as u8);
            let action = match workers.contains(&worker) {
                true => Action::Subscribe { client, channel },
                false => Action::Unsubscribe { client, channel },
            };
            self.ask(number, action);
        }
        self.rest()
    }

    /// Publishes through another worker until one more publication waits at a home. Returns the
    /// numbers of the publications.
    fn push_until_stalled(
        &mut self,
        channel: usize,
        from: usize,
        home: usize,
    ) -> Result<Vec<u64>, crate::Failure> {
        let mut numbers = Vec::new();
        let stalled = |world: &Self| world.process.workers[home].shared().hub.gauges().stalled;
        let before = stalled(self);
        for _ in 0..WAITING_MAX {
            numbers.push(self.ledger.next_number(channel));
            self.push(from, channel, 0, 1)?;
            self.rest()?;
            if stalled(self) > before {
                break;
            }
        }
        Ok(numbers)
    }

    fn another(&self, than: usize, random: &mut Rng) -> usize {
        let workers = self.process.workers.len();
        (than + random.usize(1..workers.max(2))) % workers
    }

    /// Makes a home have publications for two workers that receive nothing. When the second worker
    /// receives again, its publications must make progress, although they are queued behind those
    /// for the first worker.
    fn go_on_behind(
        &mut self,
        [(stalled, first), (other, second)]: [(usize, usize); 2],
        home: usize,
        random: &mut Rng,
    ) -> PromiseResult {
        self.move_subscribers(first, &[stalled])?;
        self.move_subscribers(second, &[other])?;
        let lanes_are_apart = self.receivers(first).is_disjoint(&self.receivers(second))
            && !self.receivers(second).is_empty();
        if !lanes_are_apart || self.receivers(second).contains(&stalled) {
            return Ok(());
        }
        self.process.lanes.set_due(stalled, 0);
        self.push_until_stalled(first, self.another(home, random), home)?;
        let is_waited_for = self.has_stalled(home);
        self.process.lanes.set_due(other, 0);
        // The publisher is on the receiving worker.
        let numbers = self.push_until_stalled(second, other, home)?;
        let waiting = numbers
            .iter()
            .any(|number| self.ledger.is_under_way(second, *number));
        self.process.lanes.set_due(other, usize::MAX);
        self.rest()?;
        if is_waited_for && waiting {
            self.ledger.seen.note(CoverageEvent::WentOnBehind);
        }
        let left = numbers
            .into_iter()
            .find(|number| self.ledger.is_under_way(second, *number));
        promise!(
            left.is_none(),
            "unaffected work continues during a stall",
            "{left:?} of {} is not taken, behind what waits for worker {stalled}",
            CHANNELS[second].name
        );
        self.process.lanes.set_due(stalled, usize::MAX);
        Ok(())
    }

    /// The subscribers of a worker that receives nothing leave: publications for them no longer have to wait, but keep
    /// their order.
    fn leave_behind(
        &mut self,
        stalled: usize,
        home: usize,
        channel: usize,
        random: &mut Rng,
    ) -> PromiseResult {
        self.move_subscribers(channel, &[stalled, home])?;
        if self.receivers(channel).len() < 2 {
            return Ok(());
        }
        let from = self.another(home, random);
        self.process.lanes.set_due(stalled, 0);
        self.push_until_stalled(channel, from, home)?;
        let is_waited_for = self.has_stalled(home);
        for number in 0..self.peers.clients.len() {
            if let Some(link) = self.peers.clients[number].link
                && self.worker_of(Some(link)) == Some(stalled)
            {
                let action = Action::Unsubscribe {
                    client: number as u8,
                    channel: channel as u8,
                };
                self.ask(number, action);
                self.up(link, usize::MAX)?;
            }
        }
        self.push(from, channel, 0, 1)?;
        self.turn(stalled, None)?;
        if from != stalled {
            self.turn(from, None)?;
        }
        self.turn(home, Some(random.u32(..)))?;
        if is_waited_for {
            self.ledger.seen.note(CoverageEvent::LeftBehind);
        }
        self.rest()?;
        self.process.lanes.set_due(stalled, usize::MAX);
        Ok(())
    }
}
