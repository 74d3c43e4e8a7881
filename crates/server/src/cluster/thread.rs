//! The thread of a node: it carries messages between the workers, the [`Node`] and the engine.
//!
//! Workers reach the thread through a lane of their mailbox, as if the thread were one more worker, with the number
//! after the last worker's. The thread never waits for a worker or for the engine.

mod answers;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tracing::{error, info, warn};
use veche_config::unix_now_ms;
use veche_frontends::{ProcessServices as _, bind_undecided};
use veche_hub::{CommandDispatch, Homes, HubMessage, HubReply, WorkerId};
use veche_mailbox::{Class, Mailbox};
use veche_nodes::engine::peer::{Event, Order};
use veche_nodes::node::{AnswerCoverage, Disagreement, Node, Output};
use veche_nodes::{Announcement, Caller, NodeAnswer, NodeId, NodeMessage};
use veche_outbound::engine::EnginePort;
use veche_worker::WorkerMessage;

use super::waker::MailboxWaker;
use super::{Cluster, Seen};
use crate::metrics::MetricsReport;
use crate::process_state::ProcessState;
use crate::worker::WorkerMail;
use answers::part_of;

/// The longest wait of the thread, after which it checks whether the process ends.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// The time that a starting process waits for the bans and commands of its cluster.
const START_WITHIN: Duration = Duration::from_secs(10);

/// The port through which this node uses the engine.
pub(crate) type NodePort = EnginePort<Order, Event>;

/// The id, the name and the settings of this node.
pub(crate) struct NodeIdentity {
    pub(crate) id: NodeId,
    pub(crate) name: String,
    /// A hash of the settings that all nodes share; see [`Announcement::settings`].
    pub(crate) settings: u64,
}

/// The state of the thread.
struct Thread {
    cluster: Arc<Cluster>,
    node: Node,
    identity: NodeIdentity,
    port: NodePort,
    mailbox: Mailbox<WorkerMail>,
    homes: Homes,
    workers: u16,
    common: Arc<ProcessState>,
    report: Arc<MetricsReport>,
}

/// Starts the node's thread, and waits until the node has received the bans and commands of its cluster.
///
/// # Errors
/// The thread can't be started, or the engine can't be reached within [`START_WITHIN`]. The text of the error is one
/// line.
#[expect(
    clippy::too_many_arguments,
    reason = "this function is called only once, and its arguments are the parts of the process"
)]
pub(crate) fn start(
    cluster: &Arc<Cluster>,
    identity: NodeIdentity,
    port: NodePort,
    mailbox: Mailbox<WorkerMail>,
    seed: u64,
    workers: u16,
    common: &Arc<ProcessState>,
    report: &Arc<MetricsReport>,
) -> Result<(), String> {
    mailbox.attach(MailboxWaker(Arc::clone(&cluster.waker)));
    let own = Announcement {
        name: identity.name.as_str().into(),
        settings: identity.settings,
        ..Announcement::default()
    };
    let now_ms = veche_clock::monotonic_ms();
    let thread = Thread {
        cluster: Arc::clone(cluster),
        node: Node::new(identity.id, own, workers, WorkerId(workers), now_ms),
        identity,
        port,
        mailbox,
        homes: Homes::new(seed, workers),
        workers,
        common: Arc::clone(common),
        report: Arc::clone(report),
    };
    std::thread::Builder::new()
        .name("node".to_owned())
        .spawn(move || thread.run())
        .map_err(|error| format!("can't start the node's thread: {error}"))?;
    let began = veche_clock::now();
    while !cluster.seen.read().is_current {
        if began.elapsed() > START_WITHIN {
            let within = START_WITHIN.as_secs();
            return Err(format!(
                "[engine] url: the engine could not be reached within {within} s"
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

impl Thread {
    fn run(mut self) {
        let (mut events, mut has_announced) = (Vec::new(), false);
        loop {
            self.node.set_now(veche_clock::monotonic_ms());
            while let Some((from, message)) = self.mailbox.pop() {
                self.handle_message(from, message);
            }
            self.port.take(&mut events);
            for event in events.drain(..) {
                self.node.handle_event(event);
            }
            self.node.handle_timeout();
            if self.cluster.is_leaving.load(Relaxed) && !has_announced {
                self.node.leave();
                has_announced = true;
            }
            while let Some(output) = self.node.poll() {
                self.carry_out(output);
            }
            self.port.flush();
            self.mailbox.flush();
            *self.cluster.seen.write() = Seen::of(&self.node);
            self.cluster.has_left.store(self.node.has_left(), Relaxed);
            if self.mailbox.sleep() && !self.port.has_events() {
                self.cluster.waker.wait(self.patience());
            }
            self.mailbox.awake();
        }
    }

    fn patience(&self) -> Duration {
        let now_ms = veche_clock::monotonic_ms();
        let wait_ms = self.node.next_timeout_ms().saturating_sub(now_ms);
        Duration::from_millis(wait_ms).min(WAIT_MAX)
    }

    /// Handles a worker's message: an answer to the node, or a message for other nodes.
    fn handle_message(&mut self, from: usize, message: WorkerMail) {
        let WorkerMail::Worker(message) = message else {
            return;
        };
        if message.is_data() {
            self.mailbox.done(from);
        }
        match message {
            WorkerMessage::Hub(HubMessage::Answer {
                session,
                ticket,
                answer,
            }) => {
                let caller = Caller {
                    worker: self.node_worker(),
                    session,
                    ticket,
                };
                if let Some(part) = part_of(answer) {
                    self.node.handle_part(caller, part);
                }
            }
            WorkerMessage::RelayTo(node, relay) => {
                self.node.ask(NodeMessage::Relay(relay), Some(node));
            }
            message => {
                if let Ok(message) =
                    message.into_node_message(WorkerId(from as u16), self.node_worker())
                {
                    self.node.ask(message, None);
                }
            }
        }
    }

    fn node_worker(&self) -> WorkerId {
        WorkerId(self.workers)
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Order(order) => self.port.push(order),
            Output::Perform(message) => self.perform(message),
            Output::Answer(caller, answer, coverage) => self.answer(caller, answer, coverage),
            Output::Announce => {
                let announcement = self.announcement();
                self.node.announce(announcement);
            }
            Output::StoreBlocks => {
                warn!(
                    "the engine has lost the commands between nodes; storing this node's bans and revoked tokens again"
                );
                self.node.restore_blocks(self.common.blocks.all());
            }
            Output::Lost => {
                error!(
                    "this node was cut off for too long and has missed commands of other nodes; its clients have to connect again"
                );
                self.send_to_all_workers(|| WorkerMail::Reconnect);
            }
            Output::Disagree(node, disagreement) => self.disagree(node, disagreement),
        }
    }

    fn disagree(&self, node: NodeId, disagreement: Disagreement) {
        let peer = self.node.peers().find(|(id, _)| *id == node);
        let name = peer.map_or("", |(_, peer)| &*peer.announcement.name);
        match disagreement {
            Disagreement::Name => {
                warn!(%node, name, "another node has the name of this one: set [node] name");
            }
            Disagreement::Settings => {
                let settings = veche_config::AGREED;
                warn!(%node, name, settings, "another node has different values of settings that must be the same on all nodes");
            }
        }
    }

    fn announcement(&self) -> Announcement {
        let sum = |cell: fn(&veche_frontends::Stats) -> &veche_frontends::stats::SharedCounter| {
            let stats = self.common.stats.iter();
            stats.map(|stats| cell(stats).read()).sum()
        };
        Announcement {
            name: self.identity.name.as_str().into(),
            version: env!("CARGO_PKG_VERSION").into(),
            settings: self.identity.settings,
            uptime_s: self.common.started.elapsed().as_secs(),
            clients: sum(|stats| &stats.sessions),
            users: sum(|stats| &stats.users),
            channels: sum(|stats| &stats.channels),
            subscriptions: sum(|stats| &stats.subscriptions),
            is_draining: !self.common.is_ready(),
        }
    }

    /// Passes a message of another node to the workers, or to the part of the process that executes it.
    fn perform(&mut self, message: NodeMessage) {
        match message {
            NodeMessage::Block(command) => {
                let outcome = self.common.blocks.add(&command.block, unix_now_ms() / 1000);
                if let Err(error) = &outcome {
                    self.report.log_error(&format!(
                        "the ban sent by another node was not stored: {error}"
                    ));
                }
                if let Some(caller) = command.caller {
                    let part = veche_nodes::node::Part::Answer(NodeAnswer::Blocked(outcome));
                    self.node.handle_part(caller, part);
                }
            }
            NodeMessage::Instruct(command) => {
                bind_undecided(&*self.report, &command.user, &command.instruction);
                let home = self.homes.of_user(&command.user);
                self.send_to_home(home.ok(), NodeMessage::Instruct(command));
            }
            NodeMessage::UserStatus(query) => {
                let home = self.homes.of_user(&query.user);
                self.send_to_home(home.ok(), NodeMessage::UserStatus(query));
            }
            NodeMessage::Channels(query) => {
                for worker in 0..self.workers {
                    self.send_to_home(Some(WorkerId(worker)), NodeMessage::Channels(query.clone()));
                }
            }
            NodeMessage::Connections(list_request) => {
                for worker in 0..self.workers {
                    let message = NodeMessage::Connections(Arc::clone(&list_request));
                    self.send_to_home(Some(WorkerId(worker)), message);
                }
            }
            NodeMessage::Relay(relay) => {
                // The worker number comes from a client's request, so it may be forged.
                let home = Some(relay.to.worker).filter(|worker| worker.0 < self.workers);
                self.send_to_home(home, NodeMessage::Relay(relay));
            }
            // Messages of applications stay on their node, and the `Node` itself handles the messages that concern the
            // cluster.
            NodeMessage::App(_)
            | NodeMessage::Announce(_)
            | NodeMessage::Leave
            | NodeMessage::Answer(_) => {}
        }
    }

    fn send_to_home(&mut self, worker: Option<WorkerId>, message: NodeMessage) {
        if let Some(worker) = worker
            && let Ok(message) = WorkerMessage::from_node_message(message)
        {
            self.post(worker, message);
        }
    }

    /// Sends a message to a worker. If the worker lags so far behind that it has no room for the message, the message
    /// is dropped. If it was a client's command, its sender times out.
    fn post(&mut self, to: WorkerId, message: WorkerMessage<veche_apps::AppWorkerMessage>) {
        let class = match message.is_data() {
            true => Class::Data,
            false => Class::Control,
        };
        let _ = self
            .mailbox
            .post(to.0.into(), class, WorkerMail::Worker(message));
    }

    fn send_to_all_workers(&mut self, message: impl Fn() -> WorkerMail) {
        for worker in 0..usize::from(self.workers) {
            let _ = self.mailbox.post(worker, Class::Control, message());
        }
    }

    fn answer(&mut self, caller: Caller, answer: NodeAnswer, coverage: AnswerCoverage) {
        let Caller {
            worker,
            session,
            ticket,
        } = caller;
        let mail = |answer| {
            WorkerMessage::Hub(HubMessage::Answer {
                session,
                ticket,
                answer,
            })
        };
        if !coverage.is_complete() {
            let AnswerCoverage { answered, known } = coverage;
            info!(
                answered,
                known, "a query or command was not answered by all nodes"
            );
            self.post(worker, mail(HubReply::Partial { answered, known }));
        }
        let answer = match answer {
            NodeAnswer::Instructed { connections } => {
                HubReply::CommandDispatched(CommandDispatch {
                    connections,
                    pending_acknowledgements: 0,
                })
            }
            NodeAnswer::Blocked(outcome) => {
                if let Err(error) = outcome {
                    warn!(%error, "another node has not applied a ban");
                }
                HubReply::CommandDispatched(CommandDispatch::default())
            }
            NodeAnswer::Connections(all) => HubReply::Connections(all),
            NodeAnswer::Channels(all) => HubReply::Channels(all),
            NodeAnswer::UserStatus(status) => HubReply::UserStatus(status),
        };
        self.post(worker, mail(answer));
    }
}
