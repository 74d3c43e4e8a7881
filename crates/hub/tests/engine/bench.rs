//! A hub on some engine, with an outlet that records.

use std::collections::BTreeMap;
use std::sync::Arc;

use veche_hub::{
    Answer, Budget, Caller, Class, ConnectionId, Delivery, Engine, History, Hub, Instruction,
    Joined, Mail, MemoryEngine, Namespace, Namespaces, Options, Outcome, Outlet, Page, PayloadKind,
    PayloadRef, PublishOptions, Published, Query, Question, Recovery, Since, SubscribeOptions,
    Ticket, WorkerId,
};

use crate::common::{name, session};
use crate::unruly::Unruly;

pub(crate) const CHANNEL: &str = "kept:1";

#[derive(Default)]
pub(crate) struct Desk {
    given: BTreeMap<u32, Vec<(String, u64)>>,
    answers: Vec<Answer>,
    pub(crate) lost: Vec<u32>,
}

impl Desk {
    pub(crate) fn texts(&self, index: u32) -> Vec<&str> {
        let given = self.given.get(&index).into_iter().flatten();
        given.map(|(text, _)| text.as_str()).collect()
    }

    pub(crate) fn offsets(&self, index: u32) -> Vec<u64> {
        let given = self.given.get(&index).into_iter().flatten();
        given.map(|(_, offset)| *offset).collect()
    }
}

impl Outlet for Desk {
    fn mail(&mut self, _: WorkerId, mail: Mail) {
        panic!("there is one worker: {mail:?}");
    }
    fn has_credit(&self, _: WorkerId, _: Class) -> bool {
        true
    }
    fn mail_done(&mut self, _: WorkerId, _: Class) {}
    fn deliver(&mut self, session: ConnectionId, delivery: &mut Delivery<'_>) {
        let text = String::from_utf8_lossy(delivery.payload.bytes).into_owned();
        let offset = delivery.position.map_or(0, |position| position.offset);
        self.given
            .entry(session.index)
            .or_default()
            .push((text, offset));
    }
    fn answer(&mut self, _: ConnectionId, _: Ticket, answer: Answer) {
        self.answers.push(answer);
    }
    fn instruct(&mut self, _: ConnectionId, _: &Arc<Instruction>) {}
    fn instructed(&mut self, _: Caller, _: &Arc<Instruction>) {}
    fn lost(&mut self, session: ConnectionId, _: &str) {
        self.lost.push(session.index);
    }
}

/// An engine whose world the test drives.
pub(crate) trait Driven: Engine + Sized {
    /// Has something arrive. False if nothing is on its way.
    fn drive(hub: &mut Hub<Self>, desk: &mut Desk) -> bool;
}

impl Driven for MemoryEngine {
    fn drive(hub: &mut Hub<Self>, desk: &mut Desk) -> bool {
        let batch = hub.take_batch(true);
        if let Some(batch) = &batch {
            hub.durable(batch.number, desk);
        }
        batch.is_some()
    }
}

impl Driven for Unruly {
    fn drive(hub: &mut Hub<Self>, desk: &mut Desk) -> bool {
        let has_arrived = hub.engine().arrive();
        hub.take_reports(desk);
        has_arrived
    }
}

pub(crate) struct Bench<E> {
    pub(crate) hub: Hub<E>,
    pub(crate) desk: Desk,
    /// Answers to publications so far.
    pub(crate) published: Vec<Published>,
    pub(crate) failed: usize,
    page: Option<Page>,
    joined: Option<Joined>,
}

impl Bench<MemoryEngine> {
    pub(crate) fn memory(has_log: bool) -> Self {
        let mut hub = Hub::new(WorkerId(0), 1, 7, Options::default());
        if has_log {
            hub.keep_log();
        }
        Self::with(hub)
    }
}

impl Bench<Unruly> {
    pub(crate) fn on(engine: Unruly) -> Self {
        let options = Options::default();
        Self::with(Hub::with_engine(WorkerId(0), 1, 7, options, engine))
    }
}

impl<E: Driven> Bench<E> {
    fn with(mut hub: Hub<E>) -> Self {
        let history = History {
            size: 100,
            ttl_ms: 60_000,
            position_ttl_ms: 60_000,
            recovery: Recovery::Missed,
            budget: Budget::COMMON,
        };
        let mut namespaces = Namespaces::new();
        let kept = Namespace {
            history: Some(history),
            ..Namespace::default()
        };
        namespaces.insert("kept", kept);
        hub.set_history(Arc::new(namespaces), usize::MAX);
        Self {
            hub,
            desk: Desk::default(),
            published: Vec::new(),
            failed: 0,
            page: None,
            joined: None,
        }
    }

    pub(crate) fn publish(&mut self, text: &str) {
        self.publish_with(text, None);
    }

    pub(crate) fn publish_with(&mut self, text: &str, options: Option<PublishOptions>) {
        let payload = PayloadRef {
            kind: PayloadKind::Text,
            bytes: text.as_bytes(),
        };
        let from = Some((session(100), Ticket(1)));
        let options = options.map(Arc::new);
        let hub = &mut self.hub;
        let outcome = hub.publish(
            from,
            name(CHANNEL),
            payload,
            options.as_ref(),
            &mut self.desk,
        );
        if let Outcome::Done(published) = outcome.expect("there is room") {
            self.published.push(published);
        }
    }

    pub(crate) fn publish_and_settle(&mut self, text: &str) -> Published {
        self.publish(text);
        self.settle();
        *self.published.last().expect("it is answered")
    }

    pub(crate) fn subscribe(&mut self, index: u32, since: Option<u64>) -> Joined {
        let since = since.map(|offset| Since {
            epoch: None,
            offset,
        });
        let joining = SubscribeOptions {
            since: since.map(|since| [since].into()),
            ..SubscribeOptions::default()
        };
        let (hub, desk) = (&mut self.hub, &mut self.desk);
        hub.subscribe(session(index), name(CHANNEL), Ticket(2), &joining, desk)
            .expect("there is room");
        self.take_answers();
        self.joined.take().expect("it is answered")
    }

    pub(crate) fn ask(&mut self, question: Question) {
        let asker = (session(100), Ticket(3));
        let outcome = self.hub.ask(asker, name(CHANNEL), question, &mut self.desk);
        if let Outcome::Done(answer) = outcome {
            self.desk.answers.push(answer);
        }
        self.take_answers();
    }

    pub(crate) fn read(&mut self, query: Query) -> Page {
        self.ask(Question::History(query));
        self.settle();
        self.page.take().expect("it is answered")
    }

    /// Delivers all messages that are in flight.
    pub(crate) fn settle(&mut self) {
        while E::drive(&mut self.hub, &mut self.desk) {}
        self.take_answers();
        let under_way: Vec<_> = self.hub.under_way().collect();
        assert!(under_way.is_empty(), "stuck: {under_way:?}");
    }

    fn take_answers(&mut self) {
        for answer in std::mem::take(&mut self.desk.answers) {
            match answer {
                Answer::Published(published) => self.published.push(published),
                Answer::Failed => self.failed += 1,
                Answer::History(page) => self.page = Some(*page.expect("it is kept")),
                Answer::Subscribed(joined) => self.joined = Some(*joined.expect("it is kept")),
                Answer::HistoryRemoved(removed) => assert_eq!(removed, Ok(())),
                other => unreachable!("it was not asked for: {other:?}"),
            }
        }
    }
}
