//! Lists of channels and connections, encodings, and the sizes of publications.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;
use veche_hub::{
    Audience, CHANNELS_LISTED_MAX, CONNECTIONS_LISTED_MAX, ChannelList, ClientInfo, ConnectionInfo,
    ConnectionList, ENCODINGS_MAX, EncodingId, Encodings, Glob, Hub, HubMessage, HubReply, Options,
    Payload, PayloadKind, PublicationInfo, PublishOptions, Ticket, WorkerId,
};

use crate::common::session;
use crate::node::{FAR, HOME, NEAR, Node, SOURCE};

const TICKET: Ticket = Ticket(5);

fn list(node: &mut Node, pattern: &str) -> (ChannelList, u32) {
    let pattern = Glob::new(pattern).expect("a pattern");
    node.hub
        .list((session(9), TICKET), pattern, &mut node.outlet)
}

fn sorted(listing: &ChannelList) -> Vec<(String, u32)> {
    let all = listing.channels().expect("it is short").iter();
    let mut all: Vec<_> = all
        .map(|(name, count)| (name.to_string(), *count))
        .collect();
    all.sort();
    all
}

#[test]
fn a_hub_knows_its_place() {
    let hub = Hub::new(WorkerId(2), 5, 1, Options::default());
    assert_eq!((hub.worker(), hub.workers()), (WorkerId(2), 5));
}

#[test]
fn homes_are_spread_evenly_over_workers() {
    let hub = Hub::new(HOME, 4, 1, Options::default());
    let mut counts = [0; 4];
    for number in 0..4_000 {
        let channel = format!("channel-{number}");
        let home = hub.home_of(crate::common::name(&channel));
        counts[usize::from(home.0)] += 1;
    }
    assert!(
        counts.iter().all(|count| (800..1200).contains(count)),
        "{counts:?}"
    );
}

#[test]
fn channels_with_subscribers_are_listed_by_their_home() {
    let mut node = Node::home();
    let [one, two, vacant] = node.names("chat");
    let away = (0..).map(|number| format!("chat:{number}"));
    let away = away.into_iter().find(|name| !node.is_home_of(name));
    node.subscribe(0, &one);
    node.subscribe(1, &one);
    node.subscribe_from(FAR, &two);
    node.subscribe(2, &away.expect("there are many"));
    node.subscribe(3, &vacant);
    node.unsubscribe(3, &vacant);
    // A channel without subscribers, whose entry exists only because of its stream, is not listed.
    let [remembered] = node.names("kept");
    node.put("a", &remembered);
    assert_eq!(sorted(&list(&mut node, "kept:*").0), []);
    node.outlet.sent.clear();
    let (listing, others) = list(&mut node, "chat:*");
    let mut expected = [(one.clone(), 2), (two, 1)];
    expected.sort();
    assert_eq!(sorted(&listing), expected);
    assert_eq!(others, 3);
    let asked = node.outlet.sent.iter().map(|(to, mail)| {
        assert!(matches!(mail, HubMessage::List { ticket: TICKET, .. }));
        *to
    });
    assert_eq!(asked.collect::<Vec<_>>(), [NEAR, FAR, SOURCE]);
    assert_eq!(sorted(&list(&mut node, &one).0), [(one.clone(), 2)]);

    // A list request from another worker is answered with the channels whose home is this worker.
    node.outlet.sent.clear();
    let mail = HubMessage::List {
        pattern: Arc::new(Glob::new(&one).expect("a pattern")),
        session: session(1),
        ticket: TICKET,
    };
    node.receive(FAR, mail);
    let [
        (
            FAR,
            HubMessage::Answer {
                ticket: TICKET,
                answer: HubReply::Channels(found),
                ..
            },
        ),
    ] = &node.outlet.sent[..]
    else {
        panic!("{:?}", node.outlet.sent);
    };
    assert_eq!(sorted(found), [(one, 2)]);
}

#[test]
fn a_listing_beyond_the_limit_is_refused() {
    let mut node = Node::alone();
    for number in 0..CHANNELS_LISTED_MAX as u32 {
        node.subscribe(0, &format!("chat:{number}"));
    }
    let (full, _) = list(&mut node, "*");
    assert_eq!(full.channels().map(<[_]>::len), Some(CHANNELS_LISTED_MAX));
    node.subscribe(0, "one:more");
    assert_eq!(list(&mut node, "*").0.channels(), None);
    let (one, _) = list(&mut node, "one:*");
    assert_eq!(one.channels().map(<[_]>::len), Some(1));

    let mut sum = ChannelList::default();
    sum.add(full.clone());
    assert_eq!(sum.channels().map(<[_]>::len), Some(CHANNELS_LISTED_MAX));
    sum.add(one);
    assert_eq!(sum.channels(), None);
    sum.add(ChannelList::default());
    assert_eq!(sum.channels(), None);
    let mut sum = ChannelList::default();
    sum.add(list(&mut node, "*").0);
    assert_eq!(sum.channels(), None, "one refused part refuses the whole");
}

fn connected(number: usize) -> ConnectionInfo {
    ConnectionInfo {
        client: number.to_string().into(),
        user: "".into(),
        handler: "socket".into(),
        transport: "websocket".into(),
        protocol: "".into(),
        route: "/".into(),
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        name: "".into(),
        version: "".into(),
        channels: Box::default(),
    }
}

fn connections(numbers: std::ops::Range<usize>) -> ConnectionList {
    let mut all = ConnectionList::default();
    for number in numbers {
        assert!(all.push(connected(number)));
    }
    all
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    let mut all = connections(0..3);
    all.add(connections(3..5));
    let clients = all.all().expect("they are few").iter();
    let clients: Vec<_> = clients.map(|one| one.client.to_string()).collect();
    assert_eq!(clients, ["0", "1", "2", "3", "4"]);

    let mut full = connections(0..CONNECTIONS_LISTED_MAX);
    assert_eq!(full.all().map(<[_]>::len), Some(CONNECTIONS_LISTED_MAX));
    let mut sum = full.clone();
    sum.add(ConnectionList::default());
    assert_eq!(sum.all().map(<[_]>::len), Some(CONNECTIONS_LISTED_MAX));
    sum.add(connections(0..2));
    assert_eq!(sum.all(), None);
    assert!(!full.push(connected(0)));
    assert_eq!(full.all(), None);
    let mut sum = connections(0..1);
    sum.add(full);
    assert_eq!(sum.all(), None, "one refused part refuses the whole");
    assert!(!sum.push(connected(1)));
}

#[test]
fn encodings_are_made_once_up_to_the_limit() {
    let mut encodings = Encodings::default();
    let encode = |encodings: &mut Encodings, format: u32| {
        let mut is_made = false;
        let bytes = encodings.find_or_encode(EncodingId(format), || {
            is_made = true;
            Bytes::from(format.to_string())
        });
        assert_eq!(bytes, format.to_string());
        is_made
    };
    for format in 0..ENCODINGS_MAX as u32 {
        assert!(encodings.find(EncodingId(format)).is_none());
        assert!(encode(&mut encodings, format) && !encode(&mut encodings, format));
        assert!(encodings.find(EncodingId(format)).is_some());
    }
    let beyond = ENCODINGS_MAX as u32;
    assert!(encode(&mut encodings, beyond) && encode(&mut encodings, beyond));
    encodings.insert(EncodingId(beyond), Bytes::from(beyond.to_string()));
    assert!(!encode(&mut encodings, beyond));
}

#[test]
fn publication_info_is_counted_to_the_byte() {
    let payload = |bytes: &'static [u8]| Payload {
        kind: PayloadKind::Text,
        bytes: Bytes::from_static(bytes),
    };
    let bare = ClientInfo {
        user: "ann".into(),
        client: "12345".into(),
        conn_info: None,
        chan_info: None,
    };
    let full = ClientInfo {
        conn_info: Some(payload(b"1234567")),
        chan_info: Some(payload(b"12345678901")),
        ..bare.clone()
    };
    let tags = [("name".into(), "value".into()), ("n".into(), "".into())];
    let tag_bytes = 2 * 2 * size_of::<Box<str>>() + "namevaluen".len();
    let own = size_of::<PublicationInfo>();
    let client_bytes = size_of::<ClientInfo>() + "ann12345".len();
    let rows = [
        (PublicationInfo::default(), own),
        (
            PublicationInfo {
                client: Some(Arc::new(bare)),
                ..PublicationInfo::default()
            },
            own + client_bytes,
        ),
        (
            PublicationInfo {
                client: Some(Arc::new(full)),
                ..PublicationInfo::default()
            },
            own + client_bytes + 18,
        ),
        (
            PublicationInfo {
                tags: tags.into(),
                ..PublicationInfo::default()
            },
            own + tag_bytes,
        ),
    ];
    let bytes = |info: Option<PublicationInfo>| {
        let mut node = Node::alone();
        let terms = PublishOptions {
            info: info.map(Arc::new),
            ..PublishOptions::default()
        };
        node.publish_with("a", "kept:1", terms).expect("room");
        node.hub.gauges().history_bytes
    };
    for (info, expected) in rows {
        let more = bytes(Some(info.clone())) - bytes(None);
        // The publisher's account stores the user's name too, and the gauge counts both copies.
        let user = info.client.as_ref().map_or(0, |client| client.user.len());
        assert_eq!(more, (expected + user) as u64, "{info:?}");
    }
}

#[test]
fn private_channels_are_recognised_by_name() {
    let namespaces = crate::node::namespaces();
    for (channel, is_private) in [
        ("$42", true),
        ("chat:$42", true),
        ("chat:42", false),
        ("chat:42#ann", false),
        ("#ann", false),
    ] {
        let audience = Audience::of(channel, &namespaces);
        assert_eq!(audience.is_private(), is_private, "{channel}");
    }
}
