//! Tests a home that has no credit for deliveries to some workers: which publications wait, which continue, and in
//! which order they are delivered.

mod common;

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use veche_hub::{
    Caller, ClientInfo, ConnectionId, Delivery, FeedEvent, Hub, HubMessage, HubMessageClass,
    HubReply, NamespaceOptions, Namespaces, NoCredit, Options, Outlet, Payload, PayloadKind,
    PayloadRef, RequestOutcome, SubscribeOptions, Ticket, UserCommand, WorkerId,
};

use common::{name, session, subscribe};

const HOME: WorkerId = WorkerId(0);
const NEAR: WorkerId = WorkerId(1);
const FAR: WorkerId = WorkerId(2);
const SOURCE: WorkerId = WorkerId(3);

/// An outlet with a number of credits per worker. It records its output as text.
#[derive(Default)]
struct TestOutlet {
    credits: [usize; 4],
    out: RefCell<Vec<String>>,
}

impl TestOutlet {
    fn take(&self) -> Vec<String> {
        self.out.take()
    }
}

impl Outlet for TestOutlet {
    fn send_message(&mut self, to: WorkerId, mail: HubMessage) {
        let word = match mail {
            HubMessage::Deliver { publication, .. } => {
                self.credits[usize::from(to.0)] -= 1;
                let text = String::from_utf8_lossy(&publication.payload.bytes);
                format!("{text} to {}", to.0)
            }
            HubMessage::Answer {
                answer: HubReply::Published(published),
                ..
            } => format!("handed {}", published.receivers.unwrap_or_default()),
            _ => return,
        };
        self.out.borrow_mut().push(word);
    }
    fn has_credit(&self, to: WorkerId, _: HubMessageClass) -> bool {
        self.credits[usize::from(to.0)] > 0
    }
    fn return_credit(&mut self, from: WorkerId, _: HubMessageClass) {
        self.out.borrow_mut().push(format!("done {}", from.0));
    }
    fn deliver(&mut self, _: ConnectionId, delivery: &mut Delivery<'_>) {
        let text = match delivery.event {
            FeedEvent::Published => String::from_utf8_lossy(delivery.payload.bytes).into_owned(),
            event => format!("{event:?} {}", delivery.channel),
        };
        self.out.borrow_mut().push(text);
    }
    fn send_reply(&mut self, _: ConnectionId, _: Ticket, _: HubReply) {}
    fn execute_command(&mut self, _: ConnectionId, _: &Arc<UserCommand>) {}
    fn command_dispatched(&mut self, _: Caller, _: &Arc<UserCommand>) {}
}

/// Returns the names of three channels whose home is worker 0 of four.
fn names(hub: &Hub) -> Vec<String> {
    let all = (0..).map(|number| format!("channel-{number}"));
    let is_home = |text: &String| hub.home_of(name(text)) == HOME;
    all.filter(is_home).take(3).collect()
}

/// Subscribes a session of another worker: passes the messages of a hub on that worker to `home`.
fn subscribe_from(worker: WorkerId, channel: &str, home: &mut Hub, outlet: &mut TestOutlet) {
    struct Carry<'a>(&'a mut Hub, &'a mut TestOutlet, WorkerId);
    impl Outlet for Carry<'_> {
        fn send_message(&mut self, _: WorkerId, mail: HubMessage) {
            self.0.receive(self.2, mail, self.1);
        }
        fn has_credit(&self, _: WorkerId, _: HubMessageClass) -> bool {
            true
        }
        fn return_credit(&mut self, _: WorkerId, _: HubMessageClass) {}
        fn deliver(&mut self, _: ConnectionId, _: &mut Delivery<'_>) {}
        fn send_reply(&mut self, _: ConnectionId, _: Ticket, _: HubReply) {}
        fn execute_command(&mut self, _: ConnectionId, _: &Arc<UserCommand>) {}
        fn command_dispatched(&mut self, _: Caller, _: &Arc<UserCommand>) {}
    }
    let mut there = Hub::new(worker, 4, 5, Options::default());
    let mut carry = Carry(home, outlet, worker);
    subscribe(
        &mut there,
        session(0),
        name(channel),
        Ticket(0),
        &SubscribeOptions::default(),
        &mut carry,
    )
    .expect("there is room");
}

fn publish_from_source(text: &'static str, channel: &str, home: &mut Hub, outlet: &mut TestOutlet) {
    let payload = Payload {
        kind: PayloadKind::Text,
        bytes: Bytes::from_static(text.as_bytes()),
    };
    let reply = Some((session(0), Ticket(0)));
    home.receive(
        SOURCE,
        HubMessage::Publish {
            channel: Arc::from(channel),
            payload,
            terms: None,
            reply,
        },
        outlet,
    );
}

fn publish_here(
    text: &str,
    channel: &str,
    home: &mut Hub,
    outlet: &mut TestOutlet,
) -> Result<RequestOutcome<u32>, NoCredit> {
    let payload = PayloadRef {
        kind: PayloadKind::Text,
        bytes: text.as_bytes(),
    };
    let outcome = home.publish(None, name(channel), payload, None, outlet)?;
    Ok(match outcome {
        RequestOutcome::Done(published) => {
            RequestOutcome::Done(published.receivers.unwrap_or_default())
        }
        RequestOutcome::Pending => RequestOutcome::Pending,
    })
}

#[test]
fn a_stalled_publication_keeps_its_place_and_its_lanes_but_no_others() {
    let mut home = Hub::new(HOME, 4, 5, Options::default());
    let mut outlet = TestOutlet {
        credits: [0, 1, 0, 9],
        ..TestOutlet::default()
    };
    let names = names(&home);
    let [both, near, source] = &names[..] else {
        panic!("three names")
    };
    subscribe_from(NEAR, both, &mut home, &mut outlet);
    subscribe_from(FAR, both, &mut home, &mut outlet);
    subscribe_from(NEAR, near, &mut home, &mut outlet);
    subscribe_from(SOURCE, source, &mut home, &mut outlet);

    publish_from_source("first", both, &mut home, &mut outlet);
    publish_from_source("second", both, &mut home, &mut outlet);
    assert!(
        outlet.take().is_empty(),
        "FAR can't be sent to; credits are kept"
    );
    assert_eq!(home.gauges().stalled, 2);
    assert_eq!(
        publish_here("third", both, &mut home, &mut outlet),
        Err(NoCredit)
    );
    assert_eq!(
        publish_here("thief", near, &mut home, &mut outlet),
        Err(NoCredit),
        "the one credit of NEAR is the first publication's"
    );
    assert_eq!(
        publish_here("free", source, &mut home, &mut outlet),
        Ok(RequestOutcome::Done(1))
    );
    assert_eq!(outlet.take(), ["free to 3"]);

    outlet.credits[2] = 2;
    home.sweep(0, &mut outlet);
    assert_eq!(
        outlet.take(),
        ["first to 1", "first to 2", "handed 2", "done 3"]
    );
    outlet.credits[1] = 2;
    home.sweep(0, &mut outlet);
    assert_eq!(
        outlet.take(),
        ["second to 1", "second to 2", "handed 2", "done 3"]
    );
    assert_eq!(home.gauges().stalled, 0);
    assert_eq!(
        publish_here("honest", near, &mut home, &mut outlet),
        Ok(RequestOutcome::Done(1))
    );
    assert_eq!(outlet.take(), ["honest to 1"]);
}

#[test]
fn a_stalled_publication_is_not_overtaken_when_its_lanes_change() {
    let mut home = Hub::new(HOME, 4, 5, Options::default());
    let mut outlet = TestOutlet {
        credits: [0, 0, 0, 9],
        ..TestOutlet::default()
    };
    let name = names(&home).remove(0);
    subscribe_from(FAR, &name, &mut home, &mut outlet);
    publish_from_source("first", &name, &mut home, &mut outlet);
    subscribe_from(SOURCE, &name, &mut home, &mut outlet);
    home.receive(
        FAR,
        HubMessage::Unsubscribe {
            client: None,
            registration: None,
            channel: Arc::from(&name[..]),
        },
        &mut outlet,
    );
    publish_from_source("second", &name, &mut home, &mut outlet);
    assert!(outlet.take().is_empty());
    home.sweep(0, &mut outlet);
    let expected = [
        "first to 3",
        "handed 1",
        "done 3",
        "second to 3",
        "handed 1",
        "done 3",
    ];
    assert_eq!(outlet.take(), expected);
}

#[test]
fn a_full_queue_refuses_and_a_sweep_makes_room() {
    let options = Options {
        channel_queue_publications_max: 2,
        ..Options::default()
    };
    let mut home = Hub::new(HOME, 4, 5, options);
    let mut outlet = TestOutlet::default();
    let channel = names(&home).remove(0);
    for index in 0..20 {
        let subscribe_options = SubscribeOptions::default();
        subscribe(
            &mut home,
            session(index),
            name(&channel),
            Ticket(0),
            &subscribe_options,
            &mut outlet,
        )
        .expect("there is room");
    }
    for text in ["a", "b"] {
        assert_eq!(
            publish_here(text, &channel, &mut home, &mut outlet),
            Ok(RequestOutcome::Done(20))
        );
    }
    assert_eq!(
        publish_here("c", &channel, &mut home, &mut outlet),
        Err(NoCredit)
    );
    publish_from_source("d", &channel, &mut home, &mut outlet);
    assert_eq!((home.gauges().queued, home.gauges().stalled), (2, 1));
    assert!(outlet.take().is_empty());
    assert!(home.needs_sweep());

    assert!(home.sweep(39, &mut outlet), "one delivery is left");
    assert_eq!(
        outlet.take()[..4],
        ["a", "b", "a", "b"],
        "the whole batch for each in turn"
    );
    assert!(home.sweep(1, &mut outlet), "the stalled one is queued now");
    assert_eq!(outlet.take(), ["b", "handed 20", "done 3"]);
    assert!(!home.sweep(100, &mut outlet));
    assert_eq!(outlet.take(), vec!["d"; 20]);
    assert!(!home.needs_sweep());
}

#[test]
fn joins_of_a_channel_without_credit_hold_up_no_others() {
    const MANY: u32 = 300;
    let mut outlet = TestOutlet::default();
    let mut home = Hub::new(HOME, 4, 5, Options::default());
    let mut namespaces = Namespaces::new();
    let with_joins = NamespaceOptions {
        join_leave: true,
        ..NamespaceOptions::default()
    };
    namespaces.insert("", with_joins);
    home.set_history(Arc::new(namespaces), usize::MAX);
    let names = names(&home);
    let (blocked, free) = (&names[0], &names[1]);
    subscribe_from(FAR, blocked, &mut home, &mut outlet);

    let join = |home: &mut Hub, outlet: &mut TestOutlet, index: u32, channel: &str| {
        let client = ClientInfo {
            user: "".into(),
            client: index.to_string().into(),
            conn_info: None,
            chan_info: None,
        };
        let subscribe_options = SubscribeOptions {
            client: Some(Arc::new(client)),
            ..SubscribeOptions::default()
        };
        subscribe(
            home,
            session(index),
            name(channel),
            Ticket(0),
            &subscribe_options,
            outlet,
        )
        .expect("there is room");
    };
    for index in 0..MANY {
        join(&mut home, &mut outlet, index, blocked);
    }
    join(&mut home, &mut outlet, MANY, free);
    assert!(home.needs_sweep(), "no attempt was made yet");
    assert!(!home.sweep(100, &mut outlet), "nothing can go on by itself");
    assert_eq!(outlet.take(), [format!("Joined {free}")]);
    assert!(home.has_pending_output());
    assert!(!home.needs_sweep(), "only credit helps");

    // With credit, the waiting joins are delivered too, each to the subscribers on both workers.
    outlet.credits[usize::from(FAR.0)] = usize::MAX;
    while home.sweep(1 << 20, &mut outlet) {}
    let sent = outlet.take();
    let far = sent.iter().filter(|line| line.ends_with("to 2")).count();
    assert_eq!(far, MANY as usize);
    let near = format!("Joined {blocked}");
    assert_eq!(
        sent.iter().filter(|line| **line == near).count(),
        (MANY * MANY) as usize
    );
    assert!(!home.has_pending_output());
}
