//! Moves messages in flight, ends and restores connections, and advances time.

use fastrand::Rng;
use veche_nodes::engine::channel::{Event, Order};
use veche_nodes::engine::peer;

use super::coverage;
use super::trace::say;
use super::world::World;
use crate::Failure;
use crate::failure::{PromiseResult, promise};

/// The number of kinds of moves on a port, such as the arrival of an answer. It is the same for a worker's port and for
/// a node's own port.
const MOVES: u8 = 6;

/// The maximum number of moves after which a cluster that does not come to rest counts as failed.
const MOVES_MAX: usize = 1 << 20;

/// The time in milliseconds within which lost connections are restored in worlds where no order may be abandoned.
const RETURN_MS: u64 = 1_000;

impl World {
    /// Lets some messages in flight arrive.
    pub(super) fn round(&mut self, random: &mut Rng) -> PromiseResult {
        let ports = self.nodes.len() * usize::from(self.setup.workers);
        for _ in 0..random.usize(1..=8 * ports) {
            let node = random.usize(..self.nodes.len());
            if self.nodes[node].is_stalled {
                continue;
            }
            match random.u8(..8) {
                0 => drop(self.move_control(node, random.u8(..MOVES))?),
                1 => {
                    let lane = random.usize(..self.nodes[node].lanes());
                    self.nodes[node].carry(lane);
                }
                _ => {
                    let worker = random.usize(..self.nodes[node].workers());
                    self.move_port(node, worker, random.u8(..MOVES), random)?;
                }
            }
            self.react_to(node)?;
        }
        if self.servers.len() > 1 && random.u8(..8) == 0 {
            self.end_old_servers();
        }
        Ok(())
    }

    /// Ends all servers except the primary. New connections lead to the primary in any case.
    pub(super) fn end_old_servers(&mut self) {
        let old: Vec<u32> = self.servers.keys().copied().collect();
        for number in old {
            if number != self.primary {
                self.end_server(number);
            }
        }
    }

    /// Lets all messages in flight arrive.
    pub(super) fn drain(&mut self, random: &mut Rng) -> PromiseResult {
        for _ in 0..MOVES_MAX {
            let mut is_idle = true;
            for node in 0..self.nodes.len() {
                for lane in 0..self.nodes[node].lanes() {
                    while self.nodes[node].carry(lane) {
                        is_idle = false;
                    }
                }
                for kind in 0..MOVES {
                    for worker in 0..self.nodes[node].workers() {
                        is_idle &= !self.move_port(node, worker, kind, random)?;
                    }
                    is_idle &= !self.move_control(node, kind)?;
                }
                self.react_to(node)?;
            }
            if is_idle {
                return Ok(());
            }
        }
        Err(Failure {
            name: "a cluster comes to rest".to_owned(),
            detail: "there is always something on its way".to_owned(),
        })
    }

    /// Makes a move of this kind on a worker's port: connects it, or lets an order, an answer or an item of the feed
    /// arrive. Returns whether there was anything to move.
    fn move_port(
        &mut self,
        node: usize,
        worker: usize,
        kind: u8,
        random: &mut Rng,
    ) -> Result<bool, Failure> {
        let primary = self.primary;
        let is_cut = self.nodes[node].is_cut;
        let port = self.nodes[node].port(worker);
        Ok(match kind {
            0 if port.link.server.is_none() && !is_cut => {
                self.connect_link(node, worker);
                true
            }
            1 if port.feed.server.is_none() && !is_cut => {
                port.feed.connected(primary);
                true
            }
            2 => self.serve(node, worker, random)?,
            3 => match port.link.answers.pop_front() {
                Some(answer) => {
                    say!("  node {node}.{worker} hears {answer:?}");
                    self.nodes[node].handle(worker, answer);
                    true
                }
                None => false,
            },
            4 => port.feed.change(),
            5 => match port.feed.next(self.setup.feed, random) {
                Some(event) => {
                    say!("  node {node}.{worker} is fed {event:?}");
                    self.nodes[node].handle(worker, event);
                    true
                }
                None => false,
            },
            _ => false,
        })
    }

    fn connect_link(&mut self, node: usize, worker: usize) {
        let number = self.primary;
        let Some(server) = self.servers.get_mut(&number) else {
            return;
        };
        let port = self.nodes[node].port(worker);
        let found = server.verify(&mut port.link.known);
        let connection = port.connected(number);
        say!("  node {node}.{worker} reaches server {number}: {found:?}");
        self.nodes[node].handle(worker, Event::Up(connection, found));
    }

    /// Has the server execute the next order of a port. Returns whether there was one.
    fn serve(&mut self, node: usize, worker: usize, random: &mut Rng) -> Result<bool, Failure> {
        let link = &mut self.nodes[node].port(worker).link;
        let Some(number) = link.server else {
            return Ok(false);
        };
        let (Some(order), Some(server)) = (link.orders.pop_front(), self.servers.get_mut(&number))
        else {
            return Ok(false);
        };
        let is_repetition =
            matches!(&order, Order::Publish(publish) if publish.repeats_since.is_some());
        if is_repetition {
            self.seen.note(coverage::ClusterEvent::Repeated);
        }
        say!("  server {number} carries out for node {node}.{worker} {order:?}");
        let (answer, message) = server.carry_out(order, &mut self.ledger, random)?;
        link.answers.push_back(answer);
        if let Some((topic, item)) = message {
            for node in &mut self.nodes {
                for port in node.ports() {
                    port.feed.publish(number, &topic, &item);
                }
            }
        }
        Ok(true)
    }

    /// Makes a move of this kind on the port of a node itself. Returns whether there was anything to move.
    fn move_control(&mut self, node: usize, kind: u8) -> Result<bool, Failure> {
        let (now_ms, primary) = (self.now_ms, self.primary);
        let is_cut = self.nodes[node].is_cut;
        let control = &mut self.nodes[node].control;
        let was_current = control.is_current();
        let has_moved = match kind {
            0 if control.link.server.is_none() && !is_cut => {
                let Some(server) = self.servers.get_mut(&primary) else {
                    return Ok(false);
                };
                say!("  node {node} reaches server {primary}");
                control.connected(primary, server);
                true
            }
            1 if control.server.is_none() && !is_cut => {
                control.server = Some(primary);
                control.handle(peer::Event::Up(veche_nodes::engine::StoreState::Same));
                true
            }
            2 => {
                let number = control.link.server;
                let Some(server) = number.and_then(|number| self.servers.get_mut(&number)) else {
                    return Ok(false);
                };
                let before = control.link.orders.len();
                if let Some(order) = control.link.orders.front() {
                    say!("  server {number:?} carries out for node {node} {order:?}");
                }
                if let Some(message) = control.serve(server, now_ms) {
                    for other in &mut self.nodes {
                        let control = &mut other.control;
                        let is_for = message.to.is_none_or(|to| to == control.id());
                        if control.server == number && is_for {
                            control.items.push_back(message.event.clone());
                        }
                    }
                }
                before > 0
            }
            3 => match control.link.answers.pop_front() {
                Some(answer) => {
                    say!("  node {node} hears {answer:?}");
                    control.handle(answer);
                    true
                }
                None => false,
            },
            4 => match control.items.pop_front() {
                Some(item) => {
                    say!("  node {node} is fed {item:?}");
                    control.handle(item);
                    true
                }
                None => false,
            },
            _ => false,
        };
        let control = &mut self.nodes[node].control;
        if !was_current && control.is_current() {
            let missing: Vec<_> = control.due.difference(&control.bans).collect();
            promise!(
                missing.is_empty(),
                "a node applies bans before it serves",
                "node {node} is current without the bans {missing:?}"
            );
            self.seen.note(coverage::ClusterEvent::NodeCurrent);
        }
        Ok(has_moved)
    }

    /// Breaks one of a node's connections, chosen at random.
    pub(super) fn lose(&mut self, node: usize, random: &mut Rng) {
        self.seen.note(coverage::ClusterEvent::ConnectionLost);
        let worker = random.usize(..self.nodes[node].workers());
        match random.u8(..6) {
            0..=1 => {
                // The server executes some of the orders before the link is lost with their answers.
                let count = self.nodes[node].port(worker).link.orders.len();
                for _ in 0..random.usize(..=count) {
                    if self.serve(node, worker, random).is_err() {
                        break;
                    }
                }
                self.lose_link(node, worker);
            }
            2 => self.nodes[node].port(worker).feed.lose(),
            3 => self.nodes[node].port(worker).feed.is_silent = true,
            4 => self.nodes[node].control.lose_link(),
            _ => self.nodes[node].control.lose_feed(),
        }
    }

    pub(super) fn lose_all(&mut self, node: usize) {
        for worker in 0..self.nodes[node].workers() {
            self.lose_link(node, worker);
            self.nodes[node].port(worker).feed.lose();
        }
        self.nodes[node].control.lose_link();
        self.nodes[node].control.lose_feed();
    }

    pub(super) fn lose_link(&mut self, node: usize, worker: usize) {
        let link = &mut self.nodes[node].port(worker).link;
        if link.server.is_some() {
            say!("  node {node}.{worker} loses its connection");
            link.lose();
            self.nodes[node].handle(worker, Event::Down);
        }
    }

    /// Advances the clock, in steps so short that no timer is due twice within a step.
    pub(super) fn advance(&mut self, ms: u64) -> PromiseResult {
        let mut left = ms;
        while left > 0 {
            let step = left.min(RETURN_MS / 2);
            left -= step;
            self.now_ms += step;
            for node in 0..self.nodes.len() {
                self.tick(node)?;
            }
        }
        Ok(())
    }

    fn tick(&mut self, at: usize) -> PromiseResult {
        let now_ms = self.now_ms;
        if !self.setup.can_lose {
            // In worlds without losses, connections are restored before an order that waits for them is abandoned.
            for worker in 0..self.nodes[at].workers() {
                if self.nodes[at].port(worker).link.server.is_none() {
                    self.connect_link(at, worker);
                }
            }
        }
        let node = &mut self.nodes[at];
        node.control.set_now(now_ms);
        let number = node.control.link.server;
        let server = number.and_then(|number| self.servers.get_mut(&number));
        if let Some(server) = server.filter(|_| !node.is_stalled) {
            node.control.renew(server, now_ms);
        }
        node.set_now(now_ms);
        self.react_to(at)
    }
}
