//! What channels remember within a budget of bytes, and what is left of it when the configuration changes.

mod common;

use std::sync::Arc;

use veche_hub::{
    Answer, Caller, Class, ConnectionId, Delivery, History, Hub, Instruction, Mail, Namespace,
    Namespaces, Now, Options, Outcome, Outlet, PayloadKind, PayloadRef, Query, Question, Recovery,
    Since, SubscribeOptions, Ticket, WorkerId,
};

use common::{name, session};

/// Keeps the last answer.
#[derive(Default)]
struct Last(Option<Answer>);

impl Outlet for Last {
    fn mail(&mut self, _: WorkerId, _: Mail) {}
    fn has_credit(&self, _: WorkerId, _: Class) -> bool {
        true
    }
    fn mail_done(&mut self, _: WorkerId, _: Class) {}
    fn deliver(&mut self, _: ConnectionId, _: &mut Delivery<'_>) {}
    fn answer(&mut self, _: ConnectionId, _: Ticket, answer: Answer) {
        self.0 = Some(answer);
    }
    fn instruct(&mut self, _: ConnectionId, _: &Arc<Instruction>) {}
    fn instructed(&mut self, _: Caller, _: &Arc<Instruction>) {}
}

fn remembering() -> Arc<Namespaces> {
    let mut namespaces = Namespaces::new();
    let history = Some(History {
        size: 10_000,
        ttl_ms: 1_000_000,
        position_ttl_ms: 2_000_000,
        recovery: Recovery::Missed,
    });
    namespaces.insert(
        "",
        Namespace {
            history,
            ..Namespace::default()
        },
    );
    Arc::new(namespaces)
}

fn hub(bytes_max: usize) -> Hub {
    let mut hub = Hub::new(WorkerId(0), 1, 7, Options::default());
    hub.set_history(remembering(), bytes_max);
    hub
}

fn publish(hub: &mut Hub, channel: &str, bytes: &[u8]) {
    let payload = PayloadRef {
        kind: PayloadKind::Binary,
        bytes,
    };
    let outcome = hub.publish(None, name(channel), payload, None, &mut Last::default());
    assert!(matches!(outcome, Ok(Outcome::Done(_))));
}

/// The position that is joined, and what was recovered, if anything had been known.
fn join(
    hub: &mut Hub,
    index: u32,
    channel: &str,
    since: Option<Since>,
) -> (Since, Option<(bool, usize)>) {
    let joining = SubscribeOptions {
        since: since.map(|since| Arc::from([since])),
        ..SubscribeOptions::default()
    };
    let mut last = Last::default();
    let result = hub.subscribe(
        session(index),
        name(channel),
        Ticket(0),
        &joining,
        &mut last,
    );
    result.expect("there is room");
    let Some(Answer::Subscribed(Some(joined))) = last.0 else {
        panic!("{:?}", last.0);
    };
    let recovered = joined.recovered;
    let recovered = recovered.map(|one| (one.is_whole, one.publications.len()));
    (joined.position.into(), recovered)
}

#[test]
fn no_budget_is_too_small_to_go_on() {
    for bytes_max in [0, 1, 1_000, 20_000, 200_000] {
        let mut hub = hub(bytes_max);
        let mut random = fastrand::Rng::with_seed(bytes_max as u64);
        let data = [7; 2_000];
        let mut base = 0;
        for step in 0..20_000u64 {
            let channel = format!("channel-{}", random.u32(..200));
            let index = random.u32(..100);
            hub.set_now(Now {
                mono_ms: step,
                wall_ms: step,
            });
            match random.u8(..10) {
                0..5 => publish(&mut hub, &channel, &data[..random.usize(..2_000)]),
                5..7 => {
                    let _ = hub.subscribe(
                        session(index),
                        name(&channel),
                        Ticket(0),
                        &SubscribeOptions::default(),
                        &mut Last::default(),
                    );
                }
                7 => drop(hub.unsubscribe(session(index), name(&channel), &mut Last::default())),
                8 => {
                    let asker = (session(index), Ticket(0));
                    let all = Query {
                        limit: usize::MAX,
                        ..Query::default()
                    };
                    let asked = Question::History(all);
                    hub.ask(asker, name(&channel), asked, &mut Last::default());
                }
                _ => hub.look_after(),
            }
            // What those who are subscribed cost by themselves has no limit but theirs.
            base = base.max(hub.counts().streams as usize * 300);
            let bytes = hub.counts().history_bytes as usize;
            assert!(bytes <= bytes_max + base, "{bytes} of {bytes_max}");
        }
    }
}

/// How many publications of a channel are kept.
fn kept(hub: &mut Hub, channel: &str) -> usize {
    let asker = (session(0), Ticket(0));
    let all = Query {
        limit: usize::MAX,
        ..Query::default()
    };
    let asked = Question::History(all);
    match hub.ask(asker, name(channel), asked, &mut Last::default()) {
        Outcome::Done(Answer::History(Ok(page))) => page.len(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn subscriptions_cost_no_publication() {
    let mut hub = hub(1 << 20);
    for number in 0..200 {
        publish(&mut hub, &format!("kept-{number}"), &[0; 1_000]);
    }
    for index in 0..10_240 {
        let channel = format!("silent-{index}");
        join(&mut hub, index, &channel, None);
        if index % 100 == 0 {
            hub.look_after();
        }
    }
    // Those that nobody is subscribed to any more count no less.
    for index in 0..5_000 {
        let channel = format!("silent-{index}");
        hub.unsubscribe(session(index), name(&channel), &mut Last::default());
    }
    for number in 0..10_240 {
        kept(&mut hub, &format!("asked-{number}"));
    }
    hub.look_after();
    let left: usize = (0..200)
        .map(|number| kept(&mut hub, &format!("kept-{number}")))
        .sum();
    assert_eq!((left, hub.evicted_total()), (200, 0));
}

#[test]
fn silent_channels_without_subscribers_have_a_bound_of_their_own() {
    let mut hub = hub(1 << 20);
    publish(&mut hub, "kept", &[0; 1_000]);
    let held = hub.counts().history_bytes;
    for number in 0..20_000 {
        kept(&mut hub, &format!("asked-{number}"));
        let silent = hub.counts().history_bytes - held;
        assert!(silent <= (1 << 18) + 400, "{silent} after {number}");
    }
    assert_eq!(kept(&mut hub, "kept"), 1);
    // Who is subscribed to such a channel keeps its position.
    let (position, _) = join(&mut hub, 0, "used", None);
    for number in 0..20_000 {
        kept(&mut hub, &format!("asked-{number}"));
    }
    let (_, recovered) = join(&mut hub, 1, "used", Some(position));
    assert_eq!(recovered, Some((true, 0)));
}

#[test]
fn silent_channels_that_are_in_use_keep_nobody_from_giving() {
    let mut hub = hub(1 << 20);
    for index in 0..5_000 {
        join(&mut hub, index, &format!("silent-{index}"), None);
    }
    let base = hub.counts().history_bytes;
    for number in 0..20_000 {
        publish(&mut hub, &format!("loud-{}", number % 50), &[0; 1_000]);
    }
    let bytes = hub.counts().history_bytes;
    let most = base + (1 << 20);
    assert!(bytes <= most, "{bytes}, {base} before");
    assert!(hub.evicted_total() > 0);
}

#[test]
fn a_channel_that_did_not_remember_for_a_while_begins_again() {
    let mut hub = hub(1 << 20);
    let (start, _) = join(&mut hub, 0, "news", None);
    publish(&mut hub, "news", b"one");
    hub.set_history(Arc::default(), 1 << 20);
    publish(&mut hub, "news", b"without a number");
    hub.set_history(remembering(), 1 << 20);
    let known = Since { offset: 1, ..start };
    let (position, recovered) = join(&mut hub, 1, "news", Some(known));
    assert_eq!(recovered, Some((false, 0)));
    assert_ne!(position.epoch, start.epoch);
    // Where nothing went out meanwhile nothing is missing.
    publish(&mut hub, "news", b"two");
    hub.set_history(Arc::default(), 1 << 20);
    hub.set_history(remembering(), 1 << 20);
    let (_, recovered) = join(&mut hub, 2, "news", Some(position));
    assert_eq!(recovered, Some((true, 1)));
}

#[test]
fn epochs_say_nothing_of_the_seed_of_names() {
    let epoch = |seed, epoch_seed| {
        let options = Options {
            epoch_seed,
            ..Options::default()
        };
        let mut hub = Hub::new(WorkerId(0), 1, seed, options);
        hub.set_history(remembering(), 1 << 20);
        join(&mut hub, 0, "news", None).0.epoch
    };
    assert_eq!(epoch(1, 5), epoch(2, 5));
    assert_ne!(epoch(1, 5), epoch(1, 6));
}
