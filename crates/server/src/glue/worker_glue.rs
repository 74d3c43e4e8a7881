//! Workers of the real server, driven by a simulated world.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use veche_apps::{AppSet, DialAction, OutgoingConnection};
use veche_clock::now;
use veche_frontends::hooks::{HookDecision, HookRequest, HookRequestId};
use veche_frontends::{Context, Now};
use veche_net::ConnectionId;
use veche_sim::worker_driver::{Conditions, TransportInput, TurnInput, WorkerDriver, WorkerOutput};
use veche_sim::{BackEndApp, DialRequest};
use veche_webhooks::hooks::OnDecision;
use veche_worker::TurnState;

use super::OutputRecord;
use super::log::{DurableMark, RecordedLog};
use super::mailboxes::Mailboxes;
use super::observed::RecordingDriver;
use crate::process_state::ProcessState;
use crate::worker::{HookExecutor, WorkerApps, WorkerLoop};

/// Starts the workers of a process.
pub(super) fn begin(all: Vec<Context>, conditions: &Conditions) -> Vec<Box<dyn WorkerDriver>> {
    let common = Arc::new(ProcessState::new(all.len(), now()));
    common.set_ready(true);
    let workers = all.len();
    let drivers = all.into_iter().enumerate().map(|(me, shared)| {
        let driver = WorkerGlue::new((me, workers), shared, Arc::clone(&common), conditions);
        Box::new(driver) as Box<dyn WorkerDriver>
    });
    drivers.collect()
}

/// Hook requests without a decision.
type OpenHookRequests = Arc<Mutex<BTreeMap<(ConnectionId, u32), OnDecision>>>;

struct WorkerGlue {
    worker: WorkerLoop<RecordingDriver, BackEndApp>,
    post: Mailboxes,
    record: OutputRecord,
    durable: DurableMark,
    open_hooks: OpenHookRequests,
    common: Arc<ProcessState>,
}

/// Passes hook requests to the simulated world, which decides on them.
struct WorldHooks(OutputRecord, OpenHookRequests);

impl HookExecutor for WorldHooks {
    fn ask(&self, request: HookRequest, done: OnDecision) -> Option<HookDecision> {
        self.1.lock().insert((request.session, request.id.0), done);
        self.0.lock().push(WorkerOutput::Asked(request));
        None
    }
}

impl WorkerApps for BackEndApp {
    fn take_asked(&mut self) -> Vec<DialAction> {
        let wanted = self.take_dial_requests().into_iter();
        let outgoing = wanted.map(|DialRequest { dial, to }| OutgoingConnection {
            address: to,
            host: dial.authority.clone(),
            tls: None,
            dial,
        });
        outgoing
            .map(|one| DialAction::Dial(Box::new(one)))
            .collect()
    }

    fn reload(&mut self, _: &AppSet, _: &mut Context) {}

    fn start_services(&mut self) {}
}

impl WorkerGlue {
    fn new(
        (me, workers): (usize, usize),
        mut shared: Context,
        common: Arc<ProcessState>,
        conditions: &Conditions,
    ) -> Self {
        let record = OutputRecord::default();
        let (durable, open_hooks) = (DurableMark::default(), OpenHookRequests::default());
        let listeners = shared.config.listeners.len();
        let mut driver = RecordingDriver::new(conditions, listeners, record.clone());
        driver.set_now_ms(conditions.now.mono_ms);
        let (mailbox, post) = Mailboxes::new(me, workers, conditions.credits, &record);
        shared.apps = Some(Box::<BackEndApp>::default());
        let mut worker = WorkerLoop::new(driver, shared, mailbox, Arc::clone(&common));
        worker.enter(conditions.now, conditions.limits);
        worker.set_hook_executor(WorldHooks(record.clone(), Arc::clone(&open_hooks)));
        if conditions.is_logged {
            worker.set_history_writer(RecordedLog {
                record: record.clone(),
                reported: Arc::clone(&durable),
                batch: 0,
                known: 0,
            });
        }
        Self {
            worker,
            post,
            record,
            durable,
            open_hooks,
            common,
        }
    }

    fn hear(&mut self, now: Now, out: &mut Vec<WorkerOutput>) {
        self.worker.network().set_now_ms(now.mono_ms);
        self.worker.deliver_at_once();
        out.append(&mut self.record.lock());
    }
}

impl WorkerDriver for WorkerGlue {
    fn shared(&self) -> &Context {
        self.worker.shared()
    }

    fn shared_mut(&mut self) -> &mut Context {
        self.worker.shared_mut()
    }

    fn connections(&self) -> usize {
        self.worker.connections()
    }

    fn pending_work(&self) -> Vec<(&'static str, u64)> {
        self.worker.pending_work()
    }

    fn with_back_end(&mut self, call: &mut dyn FnMut(&mut BackEndApp, &mut Context)) {
        self.worker.with_apps(call);
    }

    fn accept(
        &mut self,
        listener: u16,
        room: usize,
        now: Now,
        out: &mut Vec<WorkerOutput>,
    ) -> ConnectionId {
        let id = self.worker.network().dial(listener, room);
        self.hear(now, out);
        id
    }

    fn arrive(
        &mut self,
        id: ConnectionId,
        arrival: TransportInput,
        now: Now,
        out: &mut Vec<WorkerOutput>,
    ) {
        if self.worker.network().put(id, arrival) {
            self.hear(now, out);
        }
    }

    fn receives(&self, id: ConnectionId) -> bool {
        self.worker.network_ref().receives(id)
    }

    fn turn(&mut self, turn: TurnInput, out: &mut Vec<WorkerOutput>) -> TurnState {
        self.post.deliver(turn.mail, &turn.unfinished);
        if let Some(batch) = turn.durable {
            self.durable.store(batch, Relaxed);
        }
        debug_assert!(
            turn.engine.is_empty(),
            "a simulated server of one process must not send messages to the engine"
        );
        for (id, HookRequestId(number), decision) in turn.decisions {
            if let Some(done) = self.open_hooks.lock().remove(&(id, number)) {
                done(decision);
            }
        }
        let before = self.post.unfinished();
        let unstopped = self.common.running_workers();
        let network = self.worker.network();
        network.set_now_ms(turn.now.mono_ms);
        network.is_turn = true;
        self.worker
            .turn()
            .expect("the simulated network must not fail");
        for mut output in std::mem::take(&mut *self.record.lock()) {
            if let WorkerOutput::Posted(to, messages) = &mut output {
                *messages = self.post.take(*to);
            }
            out.push(output);
        }
        let after = self.post.unfinished();
        let finished = before.into_iter().zip(after).enumerate();
        let finished = finished.map(|(of, (before, after))| (of, before.wrapping_sub(after)));
        let finished = finished.filter(|(_, count)| *count > 0);
        out.extend(finished.map(|(of, count)| WorkerOutput::Finished(of, count)));
        let stopped = unstopped - self.common.running_workers();
        out.extend((0..stopped).map(|_| WorkerOutput::Stopped));
        self.worker.state()
    }
}
