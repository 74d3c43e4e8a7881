//! Brings a cluster to rest, and checks the promises that have to hold then.

use fastrand::Rng;

use super::channels::{CHANNELS, has_much_history};
use super::client::{PublicationProgress, State};
use super::coverage::ClusterEvent;
use super::world::World;
use crate::failure::{PromiseResult, promise};

/// The number of seconds within which nodes compare each idle channel with the store and close any gap. This is
/// enough because there are few channels.
const LOOK_S: u64 = 20;

/// The number of tries, one per simulated second, within which every pending request has to succeed.
const TRIES: u64 = 12;

impl World {
    /// Repairs all faults, and checks that after some time nothing is in flight and all nodes and subscribers agree
    /// with the store.
    pub(super) fn settle(&mut self) -> PromiseResult {
        let random = &mut Rng::with_seed(self.now_ms);
        self.repair();
        self.drain(random)?;
        for _ in 0..LOOK_S {
            self.pass_second(random)?;
        }
        let mut tries = 0;
        while !self.is_done() {
            promise!(
                tries < TRIES,
                "what fails succeeds once everything is repaired",
                "{:?}",
                self.asked
            );
            tries += 1;
            self.retry(tries as usize % self.nodes.len());
            for client in 0..self.clients.len() {
                self.subscribe_again(client);
            }
            self.react()?;
            self.pass_second(random)?;
        }
        for _ in 0..LOOK_S {
            self.pass_second(random)?;
        }
        self.check_rest()?;
        // Publishes to each channel, to check that the feeds deliver after the repair.
        for channel in 0..CHANNELS.len() {
            let node = random.usize(..self.nodes.len());
            self.publish(node, channel, true);
        }
        self.react()?;
        self.drain(random)?;
        for _ in 0..2 * LOOK_S {
            self.pass_second(random)?;
        }
        promise!(
            self.is_done(),
            "publications at rest are acknowledged",
            "{:?}",
            self.asked
        );
        self.check_rest()?;
        self.is_sound = true;
        self.seen.note(ClusterEvent::Settled);
        Ok(())
    }

    /// Ends the simulation: all clients leave, and none of their state may remain.
    pub(super) fn end(&mut self) -> PromiseResult {
        self.settle()?;
        for client in 0..self.clients.len() {
            self.disconnect(client);
        }
        self.react()?;
        let random = &mut Rng::with_seed(self.now_ms);
        self.drain(random)?;
        for (number, node) in self.nodes.iter().enumerate() {
            let left = node.session_resources();
            promise!(
                left.is_empty(),
                "nothing is left of sessions that have ended",
                "node {number}: {left:?}"
            );
        }
        Ok(())
    }

    fn repair(&mut self) {
        self.end_old_servers();
        self.server().is_refusing = false;
        for node in &mut self.nodes {
            node.is_cut = false;
            node.is_stalled = false;
            // A silent feed is ended, as if a probe had detected the silence.
            for port in node.ports() {
                if port.feed.is_silent {
                    port.feed.lose();
                }
            }
        }
    }

    fn pass_second(&mut self, random: &mut Rng) -> PromiseResult {
        self.advance(1_000)?;
        self.drain(random)
    }

    /// Returns whether no request waits for an answer, and no publication or subscription has to be repeated.
    fn is_done(&self) -> bool {
        let is_open = |progress| {
            matches!(
                progress,
                PublicationProgress::Asked | PublicationProgress::Unknown
            )
        };
        let mut publications = self.publications.iter();
        let all = self.clients.iter();
        let mut subscriptions = all.filter(|one| one.location.is_some()).flat_map(|one| {
            let all = one.subscriptions.iter();
            all.filter(|one| one.chain.is_some())
        });
        self.asked.is_empty()
            && !publications.any(|one| one.is_keyed && is_open(one.progress))
            && !subscriptions.any(|one| one.state != State::Live)
    }

    /// Subscribes a connected client to every channel in which it has a position.
    fn subscribe_again(&mut self, client: usize) {
        let Some(location) = self.clients[client].location else {
            return;
        };
        for channel in 0..CHANNELS.len() {
            if self.clients[client].subscriptions[channel].chain.is_some() {
                self.subscribe(client, channel, location.node);
            }
        }
    }

    fn check_rest(&mut self) -> PromiseResult {
        for (number, node) in self.nodes.iter().enumerate() {
            let pending = node.pending_work();
            promise!(
                pending.is_empty(),
                "nothing is pending at rest",
                "node {number}: {pending:?}"
            );
            promise!(
                node.control.is_current(),
                "every node is current at rest",
                "node {number} is not"
            );
        }
        self.check_subscribers()?;
        self.check_publications()?;
        self.check_bans()
    }

    /// Checks that the positions of all subscribers and homes equal those of the store.
    fn check_subscribers(&mut self) -> PromiseResult {
        for (channel, name) in CHANNELS.iter().enumerate() {
            let top = self.server().top(name);
            for (client, one) in self.clients.iter().enumerate() {
                let subscription = &one.subscriptions[channel];
                let (State::Live, Some(chain)) = (subscription.state, &subscription.chain) else {
                    continue;
                };
                let is_there = top.is_some_and(|(position, serial)| chain.is_at(position, serial));
                promise!(
                    is_there,
                    "at rest subscribers have everything that is stored",
                    "client {client} of {:?} has {chain:?} of channel {channel}, and the store {top:?}",
                    one.location
                );
            }
        }
        Ok(())
    }

    fn check_publications(&mut self) -> PromiseResult {
        for publication in 0..self.publications.len() {
            let one = self.publications[publication];
            let is_kept = one.progress != PublicationProgress::Acknowledged
                || !has_much_history(one.channel)
                || self.server().has(CHANNELS[one.channel], publication as u64);
            promise!(
                is_kept,
                "acknowledged publications that the store has not lost are part of the channel",
                "publication {publication} of channel {}",
                one.channel
            );
        }
        Ok(())
    }

    fn check_bans(&mut self) -> PromiseResult {
        for number in 0..self.bans {
            if self.doubtful_bans.contains(&number) {
                continue;
            }
            let without: Vec<_> = (0..self.nodes.len())
                .filter(|node| !self.nodes[*node].control.bans.contains(&number))
                .collect();
            promise!(
                without.is_empty(),
                "at rest every node has every ban",
                "ban {number} is missing on {without:?}"
            );
        }
        Ok(())
    }
}
