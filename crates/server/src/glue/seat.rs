//! A worker on the server's glue, driven by a simulated world.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use veche_apps::{Asked, Outgoing, Shelf};
use veche_clock::now;
use veche_frontends::hooks::{Question, QuestionId, Verdict};
use veche_frontends::{Now, Shared};
use veche_net::ConnectionId;
use veche_sim::glue::{Arrival, Conditions, Glue, Output, Turn};
use veche_sim::{BackEndApp, Wanted};
use veche_webhooks::hooks::Done;
use veche_worker::TurnState;

use super::Record;
use super::log::{Recorded, Told};
use super::observed::Observed;
use super::post::Post;
use crate::common::Common;
use crate::worker::{Decide, Host, Worker};

/// Starts the workers of a process.
pub(super) fn begin(all: Vec<Shared>, conditions: &Conditions) -> Vec<Box<dyn Glue>> {
    let common = Arc::new(Common::new(all.len(), now()));
    common.set_ready(true);
    let workers = all.len();
    let seats = all.into_iter().enumerate().map(|(me, shared)| {
        let seat = Seat::new((me, workers), shared, Arc::clone(&common), conditions);
        Box::new(seat) as Box<dyn Glue>
    });
    seats.collect()
}

/// Hook requests without a decision.
type Questions = Arc<Mutex<BTreeMap<(ConnectionId, u32), Done>>>;

struct Seat {
    worker: Worker<Observed, BackEndApp>,
    post: Post,
    record: Record,
    durable: Told,
    questions: Questions,
    common: Arc<Common>,
}

/// Lets the world decide hook requests.
struct Decider(Record, Questions);

impl Decide for Decider {
    fn ask(&self, question: Question, done: Done) -> Option<Verdict> {
        self.1
            .lock()
            .insert((question.session, question.id.0), done);
        self.0.lock().push(Output::Asked(question));
        None
    }
}

impl Host for BackEndApp {
    fn take_asked(&mut self) -> Vec<Asked> {
        let wanted = self.take_wanted().into_iter();
        let outgoing = wanted.map(|Wanted { dial, to }| Outgoing {
            address: to,
            host: dial.authority.clone(),
            tls: None,
            dial,
        });
        outgoing.map(|one| Asked::Dial(Box::new(one))).collect()
    }

    fn reload(&mut self, _: &Shelf, _: &mut Shared) {}

    fn start_services(&mut self) {}
}

impl Seat {
    fn new(
        (me, workers): (usize, usize),
        mut shared: Shared,
        common: Arc<Common>,
        conditions: &Conditions,
    ) -> Self {
        let record = Record::default();
        let (durable, questions) = (Told::default(), Questions::default());
        let listeners = shared.site.listeners.len();
        let mut driver = Observed::new(conditions, listeners, record.clone());
        driver.set_now_ms(conditions.now.mono_ms);
        let (mailbox, post) = Post::new(me, workers, conditions.credits, &record);
        shared.apps = Some(Box::<BackEndApp>::default());
        let mut worker = Worker::new(driver, shared, mailbox, Arc::clone(&common));
        worker.enter(conditions.now, conditions.limits);
        worker.decide_by(Decider(record.clone(), Arc::clone(&questions)));
        if conditions.is_logged {
            worker.keep_history(Recorded {
                record: record.clone(),
                told: Arc::clone(&durable),
                batch: 0,
                known: 0,
            });
        }
        Self {
            worker,
            post,
            record,
            durable,
            questions,
            common,
        }
    }

    fn hear(&mut self, now: Now, out: &mut Vec<Output>) {
        self.worker.network().set_now_ms(now.mono_ms);
        self.worker.hear_at_once();
        out.append(&mut self.record.lock());
    }
}

impl Glue for Seat {
    fn shared(&self) -> &Shared {
        self.worker.shared()
    }

    fn shared_mut(&mut self) -> &mut Shared {
        self.worker.shared_mut()
    }

    fn connections(&self) -> usize {
        self.worker.connections()
    }

    fn with_back_end(&mut self, call: &mut dyn FnMut(&mut BackEndApp, &mut Shared)) {
        self.worker.with_apps(call);
    }

    fn accept(
        &mut self,
        listener: u16,
        room: usize,
        now: Now,
        out: &mut Vec<Output>,
    ) -> ConnectionId {
        let id = self.worker.network().dial(listener, room);
        self.hear(now, out);
        id
    }

    fn arrive(&mut self, id: ConnectionId, arrival: Arrival, now: Now, out: &mut Vec<Output>) {
        if self.worker.network().put(id, arrival) {
            self.hear(now, out);
        }
    }

    fn receives(&self, id: ConnectionId) -> bool {
        self.worker.network_ref().receives(id)
    }

    fn turn(&mut self, turn: Turn, out: &mut Vec<Output>) -> TurnState {
        self.post.deliver(turn.letters, &turn.unfinished);
        if let Some(batch) = turn.durable {
            self.durable.store(batch, Relaxed);
        }
        for (id, QuestionId(question), verdict) in turn.verdicts {
            if let Some(done) = self.questions.lock().remove(&(id, question)) {
                done(verdict);
            }
        }
        let before = self.post.unfinished();
        let unstopped = self.common.unstopped();
        let network = self.worker.network();
        network.set_now_ms(turn.now.mono_ms);
        network.is_turn = true;
        self.worker.turn().expect("a network that does not fail");
        for mut output in std::mem::take(&mut *self.record.lock()) {
            if let Output::Posted(to, messages) = &mut output {
                *messages = self.post.take(*to);
            }
            out.push(output);
        }
        let after = self.post.unfinished();
        let finished = before.into_iter().zip(after).enumerate();
        let finished = finished.map(|(of, (before, after))| (of, before.wrapping_sub(after)));
        let finished = finished.filter(|(_, count)| *count > 0);
        out.extend(finished.map(|(of, count)| Output::Finished(of, count)));
        let stopped = unstopped - self.common.unstopped();
        out.extend((0..stopped).map(|_| Output::Stopped));
        self.worker.state()
    }
}
