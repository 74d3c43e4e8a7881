//! Brings a world to rest, and checks the invariants at rest: all publications have arrived, and presence is exact.

use std::collections::BTreeSet;

use fastrand::Rng;
use veche_frontends::Context;
use veche_hub::{ChannelQuery, HistoryQuery, HubReply, RESTORE_GRACE_MS, RequestOutcome};

use crate::Failure;
use crate::apps::BACK_END;
use crate::back_end::BackEndRequest;
use crate::channels::{CHANNELS, Kind};
use crate::client::SimulatedClient;
use crate::coverage::CoverageEvent;
use crate::driven::DrivenWorker;
use crate::failure::{PromiseResult, promise};
use crate::frontend_config::TIMEOUTS_MS;
use crate::phase::Phase;
use crate::setup::FOREVER_MS;
use crate::stall::StalledParts;
use crate::subscription::SubscriptionState;
use crate::world::{STREAM_BYTES, World, channel_name};

/// Number of rounds after which a world counts as never coming to rest.
const ROUNDS_MAX: usize = 20_000;

/// Step of the clock in milliseconds while the world comes to rest.
const STEP_MS: u64 = 500;

impl World {
    /// Waits until everything in flight has arrived, then checks the invariants at rest. If `is_long`,
    /// waits until all timeouts have passed too.
    pub(crate) fn settle(&mut self, is_long: bool, has_slow: bool) -> PromiseResult {
        self.wait_for_drain()?;
        if !has_slow {
            self.peers.all_read();
        }
        if is_long {
            self.rest()?;
            for client in 0..self.peers.clients.len() {
                self.connect(client, client as u8);
            }
            for listener in 0..self.peers.listening() {
                self.listen(listener, listener as u8);
            }
            self.wait()?;
        }
        self.rest()?;
        self.ledger.seen.note(CoverageEvent::Settled);
        if self.peers.has_slow() {
            self.ledger.seen.note(CoverageEvent::SettledWithSlow);
        }
        self.check_quiet()?;
        for channel in 0..CHANNELS.len() {
            self.check_channel(channel)?;
        }
        self.check_decisions(false)?;
        self.check_dials(false)?;
        self.check_peers()
    }

    /// Makes all clients leave, some without notice, and checks that the server keeps nothing of them.
    pub(crate) fn end(&mut self) -> PromiseResult {
        self.settle(true, false)?;
        let mut random = Rng::with_seed(self.setup.seed);
        for id in self.network.links.keys().copied().collect::<Vec<_>>() {
            match random.u8(0..3) {
                // The server pings neither back ends nor connections for posted commands, so it would not notice that
                // such a peer has left. The connection is therefore reset.
                _ if self.is_caller(id) || self.is_for_posts(id) => self.drop_server(id),
                // Unidirectional clients don't answer pings, so the server notices that one has left only by a reset or
                // a FIN.
                0 | 2 if self.is_one_way(id) => self.drop_server(id),
                _ if self.is_one_way(id) && self.is_silent(id) => self.drop_server(id),
                0 => self.drop_server(id),
                1 => self.drop_client(id, true),
                _ => {}
            }
            self.drop_client(id, false);
        }
        self.wait()?;
        self.advance_time(RESTORE_GRACE_MS);
        self.wait()?;
        for (channel, one) in CHANNELS.iter().enumerate() {
            if one.kind.has_presence() {
                let present = self.present(channel)?;
                let is_empty = present.is_empty();
                promise!(is_empty, "presence empties", "{present:?} in {}", one.name);
            }
        }
        for (number, worker) in self.process.workers.iter().enumerate() {
            check_empty(number, worker)?;
            let Context {
                hub,
                requests: ports,
                ..
            } = worker.shared();
            let left = hub
                .session_resources()
                .chain(ports.outboxes.session_state_counts())
                .next();
            promise!(
                left.is_none(),
                "nothing is retained without clients",
                "{left:?}"
            );
            let counts = hub.gauges();
            let most = u64::from(counts.streams) * STREAM_BYTES;
            promise!(
                self.setup.history_ttl_ms == FOREVER_MS || counts.history_bytes <= most,
                "expired publications are released",
                "{} bytes of {} streams",
                counts.history_bytes,
                counts.streams
            );
        }
        self.check_quiet()?;
        self.check_decisions(true)?;
        self.check_dials(true)?;
        promise!(
            self.process.lanes.is_quiet(),
            "credits return",
            "{} are out",
            self.process.lanes.unfinished_max()
        );
        Ok(())
    }

    /// Advances the clock until all timeouts have passed.
    fn wait(&mut self) -> PromiseResult {
        for _ in 0..TIMEOUTS_MS / STEP_MS {
            self.rest()?;
            self.advance_time(STEP_MS);
        }
        self.rest()
    }

    /// Runs turns of all workers and moves bytes until nothing changes.
    pub(crate) fn rest(&mut self) -> PromiseResult {
        self.rest_without(&StalledParts::default())
    }

    /// Does the same as [`rest`](Self::rest) while some parts are stalled: runs until everything
    /// else waits for these parts.
    pub(crate) fn rest_without(&mut self, still: &StalledParts) -> PromiseResult {
        for _ in 0..ROUNDS_MAX {
            let mut moved = false;
            for id in self.network.links.keys().copied().collect::<Vec<_>>() {
                if still.worker.is_none() || self.worker_of(Some(id)) != still.worker {
                    moved |= self.up(id, usize::MAX)?;
                    moved |= self.down(id, usize::MAX)?;
                }
            }
            for worker in 0..self.process.workers.len() {
                if still.worker == Some(worker) {
                    continue;
                }
                moved |= self.turn(worker, None)?;
                if let Some(disk) = self.disk.as_mut().filter(|_| !still.is_log) {
                    while disk.commit(worker)? {
                        moved = true;
                    }
                }
            }
            moved |= self.decide_all()?;
            if !moved {
                return Ok(());
            }
        }
        promise!(
            false,
            "worlds come to rest",
            "not after {ROUNDS_MAX} rounds"
        );
        Ok(())
    }

    /// Checks that all queues are empty, and no counter or reservation remains.
    fn check_quiet(&self) -> PromiseResult {
        // Bytes stay queued for a peer that does not read, or that has left unnoticed by the server.
        let is_read =
            !self.peers.has_slow() && self.network.links.values().all(|link| link.has_client);
        for (number, worker) in self.process.workers.iter().enumerate() {
            let outboxes = &worker.shared().requests.outboxes;
            let outboxes = outboxes.queue_lengths().filter(|_| is_read);
            let left = worker.pending_work().into_iter().chain(outboxes).next();
            promise!(
                left.is_none(),
                "nothing is pending at rest",
                "{left:?} on worker {number}"
            );
        }
        promise!(
            self.process.lanes.is_quiet(),
            "credits return",
            "{} are out",
            self.process.lanes.unfinished_max()
        );
        Ok(())
    }

    /// Queries a channel's home and waits for the reply.
    fn inquire(&mut self, channel: usize, query: ChannelQuery) -> Result<HubReply, Failure> {
        let ticket = self.ticket(BackEndRequest::Query);
        let worker = &mut self.process.workers[0];
        let shared = worker.shared_mut();
        let name = channel_name(channel);
        let to = (BACK_END, ticket);
        match shared
            .hub
            .query(to, name, query.clone(), &mut shared.requests)
        {
            RequestOutcome::Done(answer) => return Ok(answer),
            RequestOutcome::Pending => self.rest()?,
        }
        match self.back_end.query_replies.pop() {
            Some((number, answer)) if number == ticket.0 as usize => Ok(answer),
            other => {
                promise!(false, "every request is answered", "{query:?}: {other:?}");
                Ok(HubReply::Subscribed(None))
            }
        }
    }

    /// Returns the client ids of a channel's members according to its home.
    fn present(&mut self, channel: usize) -> Result<BTreeSet<String>, Failure> {
        let answer = self.inquire(channel, ChannelQuery::Presence)?;
        let HubReply::Presence(Ok(clients)) = &answer else {
            promise!(false, "every request is answered", "{answer:?}");
            return Ok(BTreeSet::new());
        };
        Ok(clients.iter().map(|one| one.client.to_string()).collect())
    }

    /// Iterates over the clients that consider themselves subscribed to a channel.
    pub(crate) fn subscribers(&self, channel: usize) -> impl Iterator<Item = &SimulatedClient> {
        self.peers.clients.iter().filter(move |client| {
            let subscription = client.subscriptions.get(&channel);
            client.phase == Phase::Online
                && client.reads
                && subscription.is_some_and(|one| one.state == SubscriptionState::Live)
        })
    }

    fn check_channel(&mut self, channel: usize) -> PromiseResult {
        let (kind, name) = (CHANNELS[channel].kind, CHANNELS[channel].name);
        for client in self.peers.clients.iter().filter(|client| client.reads) {
            let is_quiet = match client.phase {
                Phase::Offline | Phase::Closing => true,
                Phase::Online => client.pending.is_empty(),
                Phase::Handshaking | Phase::Connecting => false,
            };
            let owed = client.pending.front().map(|owed| &owed.command);
            promise!(
                is_quiet,
                "commands are answered",
                "{owed:?} of {}, {:?}",
                client.number,
                client.phase
            );
        }
        for client in self.subscribers(channel).filter(|_| kind.is_whole()) {
            let Some(subscription) = client.subscriptions.get(&channel) else {
                continue;
            };
            if kind == Kind::Wild {
                subscription
                    .wildcard_view
                    .check(client.number, &self.ledger)?;
                continue;
            }
            let mut taken = self.ledger.all_taken(channel, subscription.from_number);
            let missing = taken.find(|number| !subscription.numbers.contains(number));
            promise!(
                missing.is_none(),
                "subscribers receive everything",
                "{} did not get {missing:?} of {name}",
                client.number
            );
        }
        if kind.has_history() {
            self.check_top(channel)?;
        }
        if kind == Kind::State {
            self.check_state(channel)?;
        }
        if kind.has_presence() {
            self.check_presence(channel)?;
        }
        Ok(())
    }

    /// Checks that the channel's last publication has at least the newest version to which a publisher got a reply.
    fn check_state(&self, channel: usize) -> PromiseResult {
        let newest = self.ledger.newest_answered(channel);
        let known = self.ledger.known(channel);
        let top = known.and_then(|known| self.ledger.number_at(channel, (known.epoch, known.top)));
        let version = top.and_then(|number| self.ledger.version(channel, number));
        let (Some(newest), Some((incarnation, version))) = (newest, version) else {
            return Ok(());
        };
        promise!(
            incarnation != self.ledger.incarnation || version >= newest || self.setup.is_scarce(),
            "a client has the newest state",
            "version {version} instead of {newest}"
        );
        Ok(())
    }

    /// Checks that all clients have reached the last position of each of their channels.
    pub(crate) fn check_tops(&mut self) -> PromiseResult {
        for (channel, one) in CHANNELS.iter().enumerate() {
            if one.kind.has_history() {
                self.check_top(channel)?;
            }
        }
        Ok(())
    }

    /// Checks that all subscribed clients have reached the last position of the channel.
    fn check_top(&mut self, channel: usize) -> PromiseResult {
        let name = CHANNELS[channel].name;
        let known = self.ledger.known(channel);
        let answer = self.inquire(channel, ChannelQuery::History(HistoryQuery::default()))?;
        let HubReply::History(Ok(page)) = &answer else {
            promise!(false, "every request is answered", "{answer:?}");
            return Ok(());
        };
        let place = (page.position.epoch.bits(), page.position.offset);
        let incarnation = self.ledger.incarnation;
        self.ledger
            .check_position(channel, known, place, incarnation)?;
        self.ledger.note_position(channel, place, incarnation)?;
        self.ledger.settled(channel, place);
        for client in self.subscribers(channel) {
            let there = client.subscriptions.get(&channel).map(|one| one.place);
            promise!(
                there == Some(place),
                "subscribers receive everything",
                "{} is at {there:x?} of {name}, which is at {place:x?}",
                client.number
            );
        }
        Ok(())
    }

    fn check_presence(&mut self, channel: usize) -> PromiseResult {
        let (kind, name) = (CHANNELS[channel].kind, CHANNELS[channel].name);
        let present = self.present(channel)?;
        let subscribers = self.subscribers(channel).map(|one| one.name.clone());
        let one_ways = self.peers.one_ways.iter();
        let listening = one_ways.filter_map(|one| one.name_in(channel));
        let expected: BTreeSet<_> = subscribers.chain(listening).collect();
        // Presence may list further members: clients that have gone unnoticed by the server, and members of lounges
        // that may still return within the leave delay.
        let has_silent = self.network.links.values().any(|link| !link.has_client);
        let is_exact = !has_silent && !self.peers.has_slow() && kind.has_exact_presence();
        promise!(
            expected.is_subset(&present) && (!is_exact || expected == present),
            "presence equals the subscriptions",
            "{present:?} instead of {expected:?} in {name}"
        );
        for client in self
            .subscribers(channel)
            .filter(|_| kind.has_exact_presence())
        {
            let Some(subscription) = client.subscriptions.get(&channel) else {
                continue;
            };
            let mut expected_members = subscription.members.iter();
            let wrong = expected_members.find(|(name, is_in)| present.contains(*name) != **is_in);
            promise!(
                wrong.is_none(),
                "joins and leaves equal presence",
                "{wrong:?} for {} in {name}: {present:?}",
                client.number
            );
        }
        Ok(())
    }
}

/// Checks that nothing remains of ended connections.
fn check_empty(number: usize, worker: &DrivenWorker) -> PromiseResult {
    let (connections, stats) = (worker.connections(), &worker.shared().stats);
    let (sessions, counted) = (stats.sessions.read(), stats.connections.read());
    promise!(
        connections == 0 && sessions == 0 && counted == 0,
        "connections end",
        "{connections} connections, {counted} of them counted, and {sessions} sessions of worker {number}"
    );
    let counts = worker.shared().hub.gauges();
    let left = [
        counts.channels,
        counts.users,
        counts.subscriptions,
        counts.queued,
        counts.stalled,
        counts.pending,
    ];
    promise!(
        left == [0; 6] && counts.queued_bytes == 0,
        "hubs empty",
        "worker {number}: {counts:?}"
    );
    Ok(())
}
