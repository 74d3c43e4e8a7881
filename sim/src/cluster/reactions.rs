//! Passes the nodes' output to clients and back ends, and checks the promises about that output.

use veche_hub::{HubReply, Position, RECOVERED_MAX, Ticket};

use super::channels::{CHANNELS, has_much_history, place_of};
use super::client::{Asked, PublicationProgress, State};
use super::coverage::ClusterEvent;
use super::effect::{ClusterEffect, ConfirmedSubscription};
use super::ledger::Chain;
use super::trace::say;
use super::world::World;
use crate::Failure;
use crate::failure::{PromiseResult, promise};

impl World {
    /// Passes the effects of all nodes to clients and back ends.
    pub(super) fn react(&mut self) -> PromiseResult {
        for node in 0..self.nodes.len() {
            self.react_to(node)?;
        }
        Ok(())
    }

    pub(super) fn react_to(&mut self, node: usize) -> PromiseResult {
        let mut is_over = false;
        while !is_over {
            is_over = true;
            for worker in 0..self.nodes[node].workers() {
                for effect in self.nodes[node].take_effects(worker) {
                    is_over = false;
                    self.take(node, worker, effect)?;
                }
            }
            for client in 0..self.clients.len() {
                self.subscribe_lost(node, client);
            }
        }
        Ok(())
    }

    /// Makes a client subscribe again to the channels whose subscriptions have ended because it missed publications.
    fn subscribe_lost(&mut self, node: usize, client: usize) {
        if self.clients[client]
            .location
            .is_none_or(|location| location.node != node)
        {
            return;
        }
        for channel in 0..CHANNELS.len() {
            if self.clients[client].subscriptions[channel].is_lost {
                self.subscribe(client, channel, node);
            }
        }
    }

    fn take(&mut self, node: usize, worker: usize, effect: ClusterEffect) -> PromiseResult {
        say!("  node {node}.{worker} has {effect:?}");
        match effect {
            ClusterEffect::Delivered {
                client,
                channel,
                offset,
                number,
            } => self.delivered(client, place_of(&channel), offset, number),
            ClusterEffect::Lost { client, channel } => self.lost(client, place_of(&channel)),
            ClusterEffect::Subscribed(ticket, confirmed) => {
                let asked = self.take_request(ticket)?;
                self.note(&(ticket.0, false));
                match asked {
                    Asked::Subscribe { client, channel } => {
                        self.joined((client, channel), ticket, &confirmed)
                    }
                    asked => Err(unexpected(asked, &confirmed)),
                }
            }
            ClusterEffect::Unsubscribed(ticket) => {
                let asked = self.take_request(ticket)?;
                self.note(&(ticket.0, false));
                let Asked::Unsubscribe { client, channel } = asked else {
                    return Err(unexpected(asked, &"unsubscribed"));
                };
                self.end_subscription(client, channel);
                Ok(())
            }
            ClusterEffect::Refused(ticket) => {
                let asked = self.take_request(ticket)?;
                self.note(&(ticket.0, true));
                let Asked::Subscribe { client, channel } = asked else {
                    return Err(unexpected(asked, &"refused"));
                };
                self.clients[client].subscriptions[channel].state = State::Off;
                self.seen.note(ClusterEvent::NotFollowed);
                Ok(())
            }
            ClusterEffect::Replied(ticket, reply) => {
                let asked = self.take_request(ticket)?;
                self.note(&(ticket.0, matches!(reply, HubReply::Failed)));
                self.answered(asked, reply)
            }
            ClusterEffect::Broken(failure) => Err(failure.of(&format!("node {node}"))),
        }
    }

    /// Removes and returns the request with this ticket, whose answer has arrived.
    fn take_request(&mut self, ticket: Ticket) -> Result<Asked, Failure> {
        match self.asked.remove(&ticket.0) {
            Some((_, asked)) => Ok(asked),
            None => Err(Failure {
                name: "a request is answered once".to_owned(),
                detail: format!("{ticket:?} again"),
            }),
        }
    }

    /// Handles the end of a subscription that has missed publications.
    fn lost(&mut self, client: usize, channel: usize) -> PromiseResult {
        let subscription = &mut self.clients[client].subscriptions[channel];
        promise!(
            subscription.state == State::Live,
            "only subscribers are told that publications were lost",
            "client {client} of channel {channel} has {subscription:?}"
        );
        subscription.state = State::Off;
        subscription.is_lost = true;
        subscription.is_doubtful |= !self.is_sound;
        self.seen.note(ClusterEvent::Lost);
        self.check_gap(client, channel)
    }

    fn delivered(
        &mut self,
        client: usize,
        channel: usize,
        offset: u64,
        number: u64,
    ) -> PromiseResult {
        let one = &mut self.clients[client];
        let subscription = &mut one.subscriptions[channel];
        promise!(
            one.location.is_some() && subscription.state == State::Live,
            "only subscribers receive publications",
            "client {client} gets {number} of channel {channel} and has {subscription:?}"
        );
        let Some(chain) = subscription.chain.as_mut().filter(|_| offset > 0) else {
            return Err(Failure {
                name: "publications have positions".to_owned(),
                detail: format!("publication {number} of channel {channel} has none"),
            });
        };
        // A live publication has the epoch of its subscription. In another epoch, the ledger has
        // another publication at this offset, so `follow` would fail.
        let position = Position {
            epoch: chain.position.epoch,
            offset,
        };
        let followed = chain.follow(&self.ledger, channel, position, number);
        followed.map_err(|failure| failure.of(&format!("client {client}, live")))?;
        self.seen.note(ClusterEvent::Delivered);
        self.note(&(client, channel, number, offset));
        Ok(())
    }

    fn answered(&mut self, asked: Asked, reply: HubReply) -> PromiseResult {
        match (asked, reply) {
            (Asked::Publish { publication }, HubReply::Published(published)) => {
                let one = &mut self.publications[publication];
                let channel = one.channel;
                one.progress = match one.is_safe && self.is_sound {
                    true => PublicationProgress::Acknowledged,
                    false => PublicationProgress::Past,
                };
                let is_known = published
                    .position
                    .is_some_and(|position| self.ledger.has(channel, position, publication as u64));
                promise!(
                    is_known,
                    "an acknowledged publication has the position that the store gave it",
                    "publication {publication} of channel {channel}: {published:?}"
                );
                self.seen.note(match published.is_skipped {
                    true => ClusterEvent::Skipped,
                    false => ClusterEvent::Acknowledged,
                });
                Ok(())
            }
            (Asked::Publish { publication }, HubReply::Failed) => {
                self.publications[publication].progress = PublicationProgress::Unknown;
                self.seen.note(ClusterEvent::Failed);
                Ok(())
            }
            (Asked::Remove, HubReply::HistoryRemoved(_)) => Ok(()),
            (asked, reply) => Err(unexpected(asked, &reply)),
        }
    }

    /// Handles the confirmation of a subscription.
    fn joined(
        &mut self,
        (client, channel): (usize, usize),
        ticket: Ticket,
        joined: &ConfirmedSubscription,
    ) -> PromiseResult {
        let subscription = &mut self.clients[client].subscriptions[channel];
        let is_recovering = match subscription.state {
            State::Waiting(asked, is_recovering) if asked == ticket.0 => is_recovering,
            state => {
                return Err(Failure {
                    name: "a subscription is confirmed once".to_owned(),
                    detail: format!("client {client}, channel {channel}: {state:?}, {joined:?}"),
                });
            }
        };
        subscription.state = State::Live;
        let recovered = joined.recovery.as_ref();
        promise!(
            recovered.is_some() == is_recovering,
            "a returning subscriber learns whether something is missing",
            "client {client}, channel {channel}: {joined:?}"
        );
        let (Some(recovered), Some(chain)) = (recovered, &mut subscription.chain) else {
            subscription.chain = Some(Chain::join(&self.ledger, channel, joined.position)?);
            self.seen.note(ClusterEvent::Joined);
            return Ok(());
        };
        if std::mem::take(&mut subscription.is_doubtful) {
            *chain = Chain::join(&self.ledger, channel, joined.position)?;
            return Ok(());
        }
        if !recovered.is_complete {
            self.check_gap(client, channel)?;
            let chain = Chain::join(&self.ledger, channel, joined.position)?;
            self.clients[client].subscriptions[channel].chain = Some(chain);
            self.seen.note(ClusterEvent::NotRecovered);
            return Ok(());
        }
        let epoch = joined.position.epoch;
        for &(offset, number) in &recovered.publications {
            let position = Position { epoch, offset };
            let followed = chain.follow(&self.ledger, channel, position, number);
            followed.map_err(|failure| failure.of(&format!("client {client}, recovered")))?;
        }
        promise!(
            chain.position == joined.position,
            "a recovered subscriber has everything up to its position",
            "client {client}, channel {channel}: it has {}, and joined at {}",
            chain.position,
            joined.position
        );
        self.seen.note(match recovered.publications.is_empty() {
            true => ClusterEvent::Current,
            false => ClusterEvent::Recovered,
        });
        let count = recovered.publications.len();
        self.note(&(client, channel, count));
        Ok(())
    }

    /// Checks a loss that a subscriber was notified of. In a world without losses, such a notice is
    /// an error if the store still has all publications after the subscriber's position.
    fn check_gap(&mut self, client: usize, channel: usize) -> PromiseResult {
        let subscription = &self.clients[client].subscriptions[channel];
        let Some(position) = subscription.chain.as_ref().map(|chain| chain.position) else {
            return Ok(());
        };
        let behind = self.server().stored_behind(CHANNELS[channel], position);
        let is_too_far = behind.is_none_or(|behind| behind > RECOVERED_MAX);
        promise!(
            self.setup.can_lose || !has_much_history(channel) || is_too_far,
            "stored publications are recovered",
            "client {client} misses something of channel {channel} behind {position}"
        );
        Ok(())
    }
}

fn unexpected(asked: Asked, reply: &dyn std::fmt::Debug) -> Failure {
    Failure {
        name: "a request has its own answer".to_owned(),
        detail: format!("{asked:?}: {reply:?}"),
    }
}
