//! Measured paths through a worker. Each operation is one turn of the worker's loop, from the received bytes to the sent
//! bytes.

use veche::stage::WorkerRig;
use veche_net::ConnectionId;

use crate::Path;
use crate::client::{ask, frame, open};

const CONFIG: &str = r#"
[server]
workers = 1

[[listen]]
address = "127.0.0.1:0"
hosts = ["*"]

[[listen]]
address = "127.0.0.1:0"
role = "push"

[[route]]
path = "/echo"
handler = "echo"

[[route]]
path = "/ws"
handler = "push"
identity = "query:user"
channels = ["news"]

[[route]]
path = "/c"
handler = "centrifuge"
identity = "query:user"

[[route]]
path = "/app"
handler = "lua"
script = "app.lua"

[[route]]
path = "/*"
handler = "static"
root = "site"

[[namespace]]
name = "room"
history_size = 100
history_ttl = "1h"
recovery = "missed"
subscribe = "client"
"#;

/// The configuration with an application. It is separate from [`CONFIG`], because each application
/// adds instructions to every turn.
const PUBLISHING: &str = r#"
[server]
workers = 1

[[listen]]
address = "127.0.0.1:0"
hosts = ["*"]

[[route]]
path = "/ws"
handler = "push"
identity = "query:user"
channels = ["news"]

[[route]]
path = "/app"
handler = "lua"
script = "publish.lua"
"#;

/// The index of the listener for back ends' push connections.
const PUSH: u32 = 1;
/// Number of idle connections that are open while idle turns are counted.
const IDLE: usize = 1000;
/// The number of messages after which LuaJIT has finished compiling.
const WARM: usize = 2000;
/// Number of uncounted operations before the counted ones. The uncounted ones fill caches and let
/// buffers grow.
const WARM_UP: usize = 10;

/// Returns a measured path that handles each of these messages in its own turn. A run fails if the messages
/// do not produce `bytes_each` bytes each on average.
fn turns(mut rig: WorkerRig, messages: Vec<(ConnectionId, Vec<u8>)>, bytes_each: u64) -> Path {
    let count = messages.len();
    for (id, bytes) in messages {
        rig.arrive(id, bytes);
    }
    rig.forget();
    let before = rig.sent_bytes();
    Path::new(move || {
        for _ in 0..count {
            rig.turn();
        }
        let sent = rig.sent_bytes() - before;
        match sent == bytes_each * count as u64 {
            true => Ok(()),
            false => Err(format!(
                "{sent} bytes sent by {count} operations of {bytes_each}"
            )),
        }
    })
}

/// Returns a measured path that handles one message `count` times, after `warm_up` uncounted times. Each
/// counted message has to produce as many bytes as the last uncounted message.
fn repeated(
    mut rig: WorkerRig,
    from: ConnectionId,
    message: &[u8],
    warm_up: usize,
    count: u32,
) -> Path {
    let mut bytes_each = 0;
    for _ in 0..warm_up {
        let before = rig.sent_bytes();
        rig.arrive(from, message.to_vec());
        rig.settle();
        bytes_each = rig.sent_bytes() - before;
    }
    assert!(bytes_each > 0, "something is sent");
    let messages = (0..count).map(|_| (from, message.to_vec())).collect();
    turns(rig, messages, bytes_each)
}

/// Counts the instructions spent on a client's message that the route's handler echoes.
pub(crate) fn echo(bytes: usize, count: u32) -> Path {
    let mut rig = WorkerRig::new(CONFIG);
    let client = open(&mut rig, "/echo");
    let message = frame(&vec![b'x'; bytes]);
    let echoed = ask(&mut rig, client, message.clone());
    assert!(echoed.ends_with(&vec![b'x'; bytes]), "it is echoed");
    repeated(rig, client, &message, WARM_UP, count)
}

/// Counts the instructions spent on a client's message that a Lua handler echoes.
pub(crate) fn lua_echo(count: u32) -> Path {
    let mut rig = WorkerRig::new(CONFIG);
    let client = open(&mut rig, "/app");
    let message = frame(&[b'x'; 20]);
    let echoed = ask(&mut rig, client, message.clone());
    assert!(echoed.ends_with(&[b'x'; 20]), "it is echoed");
    repeated(rig, client, &message, WARM, count)
}

/// Counts the instructions spent on a message that a Lua handler publishes, until it is in the outbox of the only
/// subscriber.
pub(crate) fn lua_publish(count: u32) -> Path {
    let mut rig = WorkerRig::new(PUBLISHING);
    let subscriber = open(&mut rig, "/ws?user=ann&channel=news");
    let client = open(&mut rig, "/app");
    let message = frame(b"hello");
    ask(&mut rig, client, message.clone());
    let received = rig.take_sent(subscriber);
    assert!(received.ends_with(b"hello"), "the subscriber receives it");
    repeated(rig, client, &message, WARM, count)
}

/// Counts the instructions spent on a request for a small file on a keep-alive connection.
pub(crate) fn http_request(count: u32) -> Path {
    let mut rig = WorkerRig::new(CONFIG);
    let client = rig.dial(0);
    let request =
        b"GET /index.html HTTP/1.1\r\nHost: localhost\r\nUser-Agent: count\r\nAccept: */*\r\n\r\n";
    let answer = ask(&mut rig, client, request.to_vec());
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "it is there");
    repeated(rig, client, request, WARM_UP, count)
}

/// Counts the instructions spent on a line from a back end, until its message is in the outbox of the only recipient.
pub(crate) fn push_line(count: u32) -> Path {
    let mut rig = WorkerRig::new(CONFIG);
    let ann = open(&mut rig, "/ws?user=ann");
    let back_end = rig.dial(PUSH);
    let line = b"{\"user\":\"ann\",\"data\":\"hello\"}\n";
    ask(&mut rig, back_end, line.to_vec());
    assert!(rig.take_sent(ann).ends_with(b"hello"), "ann receives it");
    repeated(rig, back_end, line, WARM_UP, count)
}

/// Counts the instructions spent on a publication, until it is in the outboxes of all subscribers.
pub(crate) fn publish(subscribers: usize, count: u32) -> Path {
    let mut rig = WorkerRig::new(CONFIG);
    for number in 0..subscribers {
        open(&mut rig, &format!("/ws?user=u{number}&channel=news"));
    }
    let back_end = rig.dial(PUSH);
    let line = b"{\"channel\":\"news\",\"data\":\"hello\"}\n";
    repeated(rig, back_end, line, WARM_UP, count)
}

/// Counts the instructions spent on a subscription over Centrifugo's protocol that recovers the missed publications.
pub(crate) fn subscribe_and_recover(missed: usize, count: u32) -> Path {
    let mut rig = WorkerRig::new(CONFIG);
    let first = connected(&mut rig);
    let subscribe = br#"{"id":2,"subscribe":{"channel":"room:1"}}"#;
    let reply = ask(&mut rig, first, frame(subscribe));
    let reply = String::from_utf8_lossy(&reply).into_owned();
    let epoch = reply.split("\"epoch\":\"").nth(1);
    let epoch = epoch.and_then(|rest| rest.split('"').next());
    let epoch = epoch.unwrap_or_else(|| panic!("no epoch in {reply}"));
    let back_end = rig.dial(PUSH);
    for _ in 0..missed {
        let line = b"{\"channel\":\"room:1\",\"data\":\"hello\"}\n";
        ask(&mut rig, back_end, line.to_vec());
    }
    let recover = format!(
        r#"{{"id":2,"subscribe":{{"channel":"room:1","recover":true,"epoch":"{epoch}","offset":0}}}}"#
    );
    let recover = frame(recover.as_bytes());
    let mut bytes_each = 0;
    for _ in 0..WARM_UP {
        let client = connected(&mut rig);
        let reply = ask(&mut rig, client, recover.clone());
        let publications = String::from_utf8_lossy(&reply).matches("hello").count();
        assert_eq!(publications, missed, "all of them come");
        bytes_each = reply.len() as u64;
    }
    let clients: Vec<_> = (0..count).map(|_| connected(&mut rig)).collect();
    let messages = clients
        .into_iter()
        .map(|id| (id, recover.clone()))
        .collect();
    turns(rig, messages, bytes_each)
}

fn connected(rig: &mut WorkerRig) -> ConnectionId {
    let client = open(rig, "/c?user=ann");
    let reply = ask(rig, client, frame(br#"{"id":1,"connect":{}}"#));
    let reply = String::from_utf8_lossy(&reply);
    assert!(reply.contains("\"connect\""), "{reply}");
    client
}

/// Counts the instructions spent on a turn without events while idle connections are open.
pub(crate) fn idle_turn(count: u32) -> Path {
    let mut rig = WorkerRig::new(CONFIG);
    for _ in 0..IDLE {
        open(&mut rig, "/echo");
    }
    rig.forget();
    Path::new(move || {
        for _ in 0..count {
            rig.turn();
        }
        Ok(())
    })
}
