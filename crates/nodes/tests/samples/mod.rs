//! Samples of the messages between nodes: one of each kind and variant.

#![allow(
    dead_code,
    reason = "shared by several tests, none of which needs all of it"
)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use bytes::Bytes;
use veche_nodes::{
    Announcement, AppCaller, AppMessage, AppOrder, Ban, BanError, BanRequest, CHANNELS_LISTED_MAX,
    Caller, ChannelList, ChannelsQuery, ConnectionAddress, ConnectionInfo, ConnectionList,
    EmulationAddress, EmulationRequest, Envelope, Glob, ListConnections, NodeAnswer, NodeId,
    NodeMessage, NodeReply, SubscribeAction, Ticket, UserAction, UserCommand, UserCommandRequest,
    UserStatus, UserStatusQuery,
};
use veche_types::{ConnectionId, Epoch, MessageKind, Payload, PayloadKind, Since, WorkerId};

const SESSION: ConnectionId = ConnectionId {
    index: 70_000,
    generation: u32::MAX,
};

pub(crate) fn caller(ticket: u32) -> Caller {
    Caller {
        worker: WorkerId(3),
        session: SESSION,
        ticket: Ticket(ticket),
    }
}

pub(crate) fn place() -> ConnectionAddress {
    ConnectionAddress {
        worker: WorkerId(2),
        session: SESSION,
    }
}

pub(crate) fn relay(commands: &[u8]) -> NodeMessage {
    NodeMessage::Relay(EmulationRequest {
        to: EmulationAddress::new(WorkerId(1), SESSION, [0xa5; 16]),
        commands: commands.into(),
    })
}

pub(crate) fn instruct(user: &str, instruction: UserCommand) -> NodeMessage {
    NodeMessage::Instruct(UserCommandRequest {
        user: user.into(),
        instruction: Arc::new(instruction),
        caller: Some(caller(9)),
    })
}

pub(crate) fn disconnect(code: u16) -> UserCommand {
    UserCommand::to_all(UserAction::Disconnect {
        code,
        reason: "it was time".into(),
    })
}

fn block(block: Ban) -> NodeMessage {
    let caller = None;
    NodeMessage::Block(BanRequest { block, caller })
}

fn answer(answer: NodeAnswer) -> NodeMessage {
    let caller = caller(1);
    NodeMessage::Answer(NodeReply { caller, answer })
}

fn app(orders: Vec<AppOrder>) -> NodeMessage {
    let app = "chat".into();
    NodeMessage::App(AppMessage { app, orders })
}

fn payload(kind: PayloadKind, bytes: &'static [u8]) -> Payload {
    Payload {
        kind,
        bytes: Bytes::from_static(bytes),
    }
}

fn subscribe(since: Option<Since>) -> UserCommand {
    let subscribe = SubscribeAction {
        channel: "chat:42".into(),
        since,
        chan_info: Some(payload(PayloadKind::Json, br#"{"a":1}"#)),
        data: Some(payload(PayloadKind::Binary, &[0, 0xff, 0x80])),
        expires_at_s: Some(1_900_000_000),
        is_hidden: true,
        push_join_leave: Some(false),
    };
    UserCommand {
        client: Some("c1".into()),
        session: None,
        except: ["c2".into(), "c3".into()].into(),
        action: UserAction::Subscribe(Box::new(subscribe)),
    }
}

fn connected(address: IpAddr) -> ConnectionInfo {
    ConnectionInfo {
        client: "c1".into(),
        user: "ann".into(),
        handler: "centrifuge".into(),
        transport: "websocket".into(),
        protocol: "protobuf".into(),
        route: "/connection/websocket".into(),
        address,
        name: "js".into(),
        version: "5.3".into(),
        channels: ["#ann".into(), "chat:42".into()].into(),
    }
}

fn listing(channels: &[(&str, u32)]) -> ChannelList {
    let mut listing = ChannelList::default();
    for (channel, clients) in channels {
        assert!(listing.push((*channel).into(), *clients));
    }
    listing
}

/// Returns a message of each kind and variant with its name: the name of the kind, followed by the variant.
pub(crate) fn all() -> Vec<(&'static str, Envelope)> {
    let since = |epoch| Since { epoch, offset: 7 };
    let mut connections = ConnectionList::default();
    connections.push(connected(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    connections.push(connected(IpAddr::V6(Ipv6Addr::LOCALHOST)));
    let glob = |pattern| Arc::new(Glob::new(pattern).expect("a pattern"));
    let user = || "ann".to_owned();
    let messages = [
        (
            "announce",
            NodeMessage::Announce(Box::new(Announcement {
                name: "node-a".into(),
                version: "0.1.0".into(),
                settings: 0x1234_5678_9abc_def0,
                uptime_s: 60,
                clients: 1000,
                users: 900,
                channels: 50,
                subscriptions: 2000,
                is_draining: true,
            })),
        ),
        ("leave", NodeMessage::Leave),
        ("instruct, disconnect", instruct("ann", disconnect(4_501))),
        (
            "instruct, subscribe",
            instruct("Анна", subscribe(Some(since(Some(Epoch::from_bits(5)))))),
        ),
        (
            "instruct, subscribe, any epoch",
            instruct("ann", subscribe(Some(since(None)))),
        ),
        (
            "instruct, subscribe, unknown epoch",
            instruct("ann", subscribe(Some(since(Some(Epoch::UNKNOWN))))),
        ),
        ("instruct, subscribe, new", instruct("ann", subscribe(None))),
        (
            "instruct, unsubscribe",
            NodeMessage::Instruct(UserCommandRequest {
                user: "ann".into(),
                instruction: Arc::new(UserCommand {
                    session: Some("s1".into()),
                    ..UserCommand::to_all(UserAction::Unsubscribe {
                        channel: "chat:42".into(),
                    })
                }),
                caller: None,
            }),
        ),
        (
            "instruct, refresh",
            instruct(
                "ann",
                UserCommand::to_all(UserAction::Refresh {
                    is_expired: false,
                    expires_at_s: None,
                    info: Some(payload(PayloadKind::Text, b"in the garden")),
                }),
            ),
        ),
        (
            "block, user",
            block(Ban::User {
                user: user(),
                until_s: None,
            }),
        ),
        (
            "block, user no more",
            block(Ban::UserAllowed { user: user() }),
        ),
        (
            "block, token",
            NodeMessage::Block(BanRequest {
                block: Ban::Token {
                    id: "t1".to_owned(),
                    until_s: Some(1_900_000_000),
                },
                caller: Some(caller(2)),
            }),
        ),
        (
            "block, tokens of a user",
            block(Ban::TokensOf {
                user: user(),
                issued_before_s: 1_800_000_000,
                until_s: None,
            }),
        ),
        (
            "connections",
            NodeMessage::Connections(Arc::new(ListConnections {
                channel: "#ann".into(),
                name: Some("js".into()),
                caller: caller(3),
            })),
        ),
        (
            "channels",
            NodeMessage::Channels(ChannelsQuery {
                pattern: glob("{chat:*,news}"),
                caller: caller(4),
            }),
        ),
        (
            "channels, wildcards alone",
            NodeMessage::Channels(ChannelsQuery {
                pattern: glob("chat:*"),
                caller: caller(4),
            }),
        ),
        (
            "user status",
            NodeMessage::UserStatus(UserStatusQuery {
                user: "ann".into(),
                caller: caller(5),
            }),
        ),
        (
            "answer, instructed",
            answer(NodeAnswer::Instructed { connections: 3 }),
        ),
        ("answer, blocked", answer(NodeAnswer::Blocked(Ok(())))),
        (
            "answer, too many blocked",
            answer(NodeAnswer::Blocked(Err(BanError::TooMany))),
        ),
        (
            "answer, block not written",
            answer(NodeAnswer::Blocked(Err(BanError::NotWritten(
                "no space left on device".to_owned(),
            )))),
        ),
        (
            "answer, connections",
            answer(NodeAnswer::Connections(connections)),
        ),
        (
            "answer, channels",
            answer(NodeAnswer::Channels(listing(&[
                ("chat:42", 7),
                ("news", 1),
            ]))),
        ),
        (
            "answer, user status",
            answer(NodeAnswer::UserStatus(UserStatus {
                connections: 0,
                last_seen_ms: Some(1_800_000_000_123),
            })),
        ),
        ("relay", relay(b"{\"id\":2,\"subscribe\":{}}\n\xff\0")),
        (
            "app, send",
            app(vec![
                AppOrder::Send {
                    to: place(),
                    kind: MessageKind::Binary,
                    data: vec![0, 1, 0xfe, 0xff],
                },
                AppOrder::Send {
                    to: place(),
                    kind: MessageKind::Text,
                    data: "привет".into(),
                },
            ]),
        ),
        (
            "app, close",
            app(vec![AppOrder::Close {
                to: place(),
                code: 1000,
                reason: "bye".to_owned(),
            }]),
        ),
        (
            "app, find",
            app(vec![AppOrder::Find {
                user: user(),
                limit: 100,
                caller: AppCaller {
                    worker: WorkerId(0),
                    token: 1 << 40,
                },
            }]),
        ),
        (
            "app, found",
            app(vec![AppOrder::Found {
                caller: AppCaller {
                    worker: WorkerId(0),
                    token: 1 << 40,
                },
                places: vec![place()],
            }]),
        ),
    ];
    let envelope = |(number, (name, message))| {
        let envelope = Envelope {
            source: NodeId(0x0102_0304_0506_0708),
            sequence: number,
            within_ms: 5_000,
            message,
        };
        (name, envelope)
    };
    (1..).zip(messages).map(envelope).collect()
}

/// Returns an answer that exceeds the maximum length of a message.
pub(crate) fn too_large() -> Envelope {
    let mut listing = ChannelList::default();
    for number in 0..CHANNELS_LISTED_MAX {
        listing.push(format!("{number:0>1000}").into(), 1);
    }
    Envelope {
        source: NodeId(1),
        sequence: 0,
        within_ms: 0,
        message: answer(NodeAnswer::Channels(listing)),
    }
}
