//! Checks that everything independent of a stall makes progress.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::{Affected, StalledParts};
use crate::action::Action;
use crate::channels::{CHANNELS, COMMON, Kind};
use crate::client_transport::ClientTransport;
use crate::coverage::CoverageEvent;
use crate::failure::{PromiseResult, promise};
use crate::phase::Phase;
use crate::setup::pick;
use crate::world::World;

impl World {
    /// Checks publications, commands and joins that are independent of the stall. Returns the homes of the
    /// publications.
    pub(super) fn check_progress(
        &mut self,
        concerned: &Affected,
        awake: &[usize],
        still: &StalledParts,
        random: &mut Rng,
    ) -> Result<BTreeSet<usize>, crate::Failure> {
        let mut homes = BTreeSet::new();
        for (channel, one) in CHANNELS.iter().enumerate() {
            let kind = one.kind;
            // Channels of states are left out, since they accept only publications with a newer
            // version.
            if !kind.takes_any() || kind == Kind::State || !concerned.is_free(channel, still) {
                continue;
            }
            let from: Vec<_> = awake
                .iter()
                .copied()
                .filter(|from| concerned.has_room(*from, channel))
                .collect();
            let Some(&from) = from.get(random.usize(0..from.len().max(1))) else {
                continue;
            };
            self.check_publication_progress(channel, from, still)?;
            homes.insert(concerned.homes[channel]);
        }
        self.check_command_progress(concerned, still, random)?;
        self.check_join_progress(concerned, still, random)?;
        Ok(homes)
    }

    pub(super) fn check_publication_progress(
        &mut self,
        channel: usize,
        from: usize,
        still: &StalledParts,
    ) -> PromiseResult {
        let number = self.ledger.next_number(channel);
        self.push(from, channel, 0, 1)?;
        self.rest_without(still)?;
        let name = CHANNELS[channel].name;
        promise!(
            self.ledger.is_taken(channel, number),
            "unaffected work continues during a stall",
            "{number} of {name} from worker {from} is not taken: {still:?}"
        );
        if !CHANNELS[channel].kind.is_whole() {
            return Ok(());
        }
        for client in self.subscribers(channel) {
            let subscription = client.subscriptions.get(&channel);
            promise!(
                subscription.is_some_and(|one| one.numbers.contains(&number)),
                "unaffected work continues during a stall",
                "{number} of {name} from worker {from} has not reached client {}: {still:?}",
                client.number
            );
        }
        Ok(())
    }

    /// Returns clients that wait for nothing, on workers that are not stalled.
    fn unconcerned(&self, still: &StalledParts) -> Vec<usize> {
        let clients = self.peers.clients.iter().filter(|client| {
            let mut wants = client.wants.iter();
            let worker = self.worker_of(client.link);
            // Commands of other transports pass through any worker, which may be the stalled one.
            client.transport == ClientTransport::WebSocket
                && client.phase == Phase::Online
                && client.reads
                && client.pending.is_empty()
                && worker.is_some()
                && worker != still.worker
                && wants.all(|one| client.subscriptions.contains_key(one))
        });
        clients.map(|client| client.number).collect()
    }

    pub(super) fn check_command_progress(
        &mut self,
        concerned: &Affected,
        still: &StalledParts,
        random: &mut Rng,
    ) -> PromiseResult {
        let asking = self.unconcerned(still);
        for &number in &asking {
            let client = number as u8;
            let from = self.worker_of(self.peers.clients[number].link);
            let channel = random.usize(0..CHANNELS.len());
            let is_free = concerned.is_free(channel, still);
            if Some(concerned.homes[channel]) == still.worker {
                continue;
            }
            let has_room = from.is_some_and(|from| concerned.has_room(from, channel));
            let channel = channel as u8;
            let action = match random.u8(0..3) {
                0 => Action::Presence { client, channel },
                1 => Action::History { client, channel },
                _ if is_free && has_room => Action::Publish {
                    client,
                    channel,
                    pad: 0,
                },
                _ => continue,
            };
            self.ask(number, action);
            if !self.peers.clients[number].pending.is_empty() {
                self.ledger.seen.note(CoverageEvent::AnsweredMeanwhile);
            }
        }
        self.rest_without(still)?;
        for number in asking {
            let client = &self.peers.clients[number];
            promise!(
                client.pending.is_empty(),
                "unaffected work continues during a stall",
                "{number} is not answered {:?}: {still:?}",
                client.pending.front().map(|owed| &owed.command)
            );
        }
        Ok(())
    }

    fn check_join_progress(
        &mut self,
        concerned: &Affected,
        still: &StalledParts,
        random: &mut Rng,
    ) -> PromiseResult {
        for (channel, one) in CHANNELS.iter().enumerate().take(COMMON) {
            let home = concerned.homes[channel];
            if one.kind != Kind::Chat || Some(home) == still.worker {
                continue;
            }
            let joining: Vec<_> = self
                .unconcerned(still)
                .into_iter()
                .filter(|number| {
                    let client = &self.peers.clients[*number];
                    let worker = self.worker_of(client.link);
                    !client.wants.contains(&channel)
                        && !client.subscriptions.contains_key(&channel)
                        && worker.is_some_and(|one| !concerned.lanes[home].contains(&one))
                })
                .collect();
            let is_free = concerned.receivers[channel].is_disjoint(&concerned.lanes[home]);
            if joining.is_empty() || !is_free {
                continue;
            }
            let number = *pick(random, &joining);
            self.ask(
                number,
                Action::Subscribe {
                    client: number as u8,
                    channel: channel as u8,
                },
            );
            self.rest_without(still)?;
            let name = self.peers.clients[number].name.clone();
            let subscribers: Vec<_> = self.subscribers(channel).collect();
            promise!(
                subscribers.iter().any(|one| one.number == number) || name.is_empty(),
                "unaffected work continues during a stall",
                "{number} is not subscribed to {}: {still:?}",
                CHANNELS[channel].name
            );
            for client in subscribers.iter().filter(|one| one.number != number) {
                let subscription = client.subscriptions.get(&channel);
                let known = subscription.and_then(|one| one.members.get(&name).copied());
                promise!(
                    known == Some(true) || name.is_empty(),
                    "unaffected work continues during a stall",
                    "{} is not told that {number} is in {}: {still:?}",
                    client.number,
                    CHANNELS[channel].name
                );
            }
            if subscribers.len() > 1 {
                self.ledger.seen.note(CoverageEvent::JoinedMeanwhile);
            }
        }
        Ok(())
    }
}
