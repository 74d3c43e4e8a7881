//! Handlers of Centrifugo's commands in PHP, and the behaviour of commands without a handler.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::Client;
use crate::asked::{Asked, answer};
use crate::php_workers::has_php;
use crate::support::{Options, Server, Setup, Socket, USUAL, on_all, until};

const APP: &str = r#"
use Veche\Hook\{Disconnection, Event, Grant, Refusal};

$app = Veche\App::create();
$app->connect(function (Event $event) {
    $cookie = array_column($event->client->headers, 1, 0)['cookie'] ?? '';
    if ($cookie === '') {
        return new Refusal(1001, 'who are you?');
    }
    $user = substr($cookie, 4);
    return $user === 'eve' ? new Disconnection(4501, 'not you') : new Grant(
        user: $user,
        expireAt: $user === 'brief' ? time() + 2 : null,
        info: ['name' => $user],
        data: ['asked' => $event->data],
        channels: ['open:1'],
        meta: ['seen' => $event->data],
    );
});
$app->refresh(function (Event $event) {
    file_put_contents(__DIR__ . '/refreshed', $event->client->user . "\n", FILE_APPEND);
    return new Grant(expireAt: time() + 3600);
});
$app->subscribe(fn (Event $event) => match ($event->channel) {
    'asked:closed' => new Refusal(1003, 'closed', true),
    'asked:brief' => new Grant(expireAt: time() + 2),
    default => new Grant(info: 'guest', data: $event->data),
});
$app->subRefresh(function (Event $event) {
    file_put_contents(__DIR__ . '/refreshed', $event->channel . "\n", FILE_APPEND);
    return new Grant(expireAt: time() + 3600);
});
$app->publish(fn (Event $event) => match ($event->data) {
    'darn' => new Grant(data: '****'),
    'spam' => new Disconnection(4000, 'spam'),
    'no' => new Refusal(1000, 'not this'),
    default => null,
});
$app->rpc(fn (Event $event) => match ($event->method) {
    'echo' => new Grant(data: ['echo' => $event->data, 'user' => $event->client->user, 'meta' => $event->client->meta]),
    'throw' => throw new RuntimeException('as asked'),
    'exit' => exit,
    'publish' => $app->publishTo('open:1', $event->data),
    default => new Refusal(104, 'method not found'),
});
$app->clientMessage(fn (Event $event) => $app->publishTo('open:1', ['said' => $event->data, 'by' => $event->client->user]));
$app->disconnect(fn (Event $event) => $app->publishTo('open:gone', ['gone' => $event->client->user, 'code' => $event->code]));
$app->run();
"#;

const ROUTES: &str = "[[route]]\npath = \"/c\"\nhandler = \"centrifuge\"\napp = \"decides\"\n\
    [[namespace]]\nname = \"asked\"\nhistory_size = 100\npresence = true\n\
    subscribe = \"hook\"\npublish = \"hook\"\n\
    [[namespace]]\nname = \"open\"\nsubscribe = \"client\"\n\
    [[app]]\nname = \"decides\"\nruntime = \"php\"\ncommand = [\"php\", \"app.php\"]\n";

fn program(app: &str) -> String {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/php/veche.php");
    format!("<?php require '{}';\n{app}", sdk.display())
}

fn start(setup: Setup) -> Server {
    Server::serving(setup, ROUTES, &[("app.php", &program(APP))])
}

fn open(server: &Server, user: &str) -> Client {
    let socket = std::net::TcpStream::connect(server.public).expect("a connection");
    let cookie = format!("sid={user}");
    let headers = [("Cookie", cookie.as_str())];
    let count = usize::from(!user.is_empty());
    let socket = Socket::upgrade(socket, "/c", &headers[..count]).expect("it opens");
    let lines = VecDeque::new();
    Client { socket, lines }
}

fn connect(server: &Server, user: &str) -> Client {
    let mut client = open(server, user);
    let reply = client.ask(json!({"id": 1, "connect": {}}));
    assert!(reply["connect"]["client"].is_string(), "{reply}");
    client
}

fn rpc(id: u32, method: &str) -> Value {
    json!({"id": id, "rpc": {"method": method, "data": {"n": id}}})
}

#[test]
fn an_application_in_php_decides_on_each_kind() {
    if !has_php() {
        return;
    }
    on_all(|setup| {
        let server = start(setup);
        let mut ann = open(&server, "ann");
        let reply = ann.ask(json!({"id": 1, "connect": {"data": {"k": 1}}}));
        let connected = &reply["connect"];
        assert_eq!(connected["data"], json!({"asked": {"k": 1}}), "{reply}");
        let subs = connected["subs"].as_object().expect("channels");
        let names: Vec<&String> = subs.keys().collect();
        assert_eq!(names, ["#ann", "open:1"]);
        let mut eve = open(&server, "eve");
        eve.say(&json!({"id": 1, "connect": {}}));
        assert_eq!(eve.socket.closed(), 4501);
        let refused = open(&server, "").ask(json!({"id": 1, "connect": {}}));
        let expected = json!({"code": 1001, "message": "who are you?"});
        assert_eq!(refused["error"], expected);
        // The subscribe handler.
        let mut bob = connect(&server, "bob");
        let request = json!({"channel": "asked:1", "data": {"as": "guest"}});
        let joined = bob.ask(json!({"id": 2, "subscribe": request}));
        assert_eq!(
            joined["subscribe"]["data"],
            json!({"as": "guest"}),
            "{joined}"
        );
        let presence = bob.ask(json!({"id": 3, "presence": {"channel": "asked:1"}}));
        let there = presence["presence"]["presence"].as_object();
        let there: Vec<&Value> = there.expect("clients").values().collect();
        let infos = (&there[0]["conn_info"], &there[0]["chan_info"]);
        assert_eq!(infos, (&json!({"name": "bob"}), &json!("guest")));
        let closed = bob.ask(json!({"id": 4, "subscribe": {"channel": "asked:closed"}}));
        let expected = json!({"code": 1003, "message": "closed", "temporary": true});
        assert_eq!(closed["error"], expected);
        // The publish handler.
        for (data, published) in [("hi", "hi"), ("darn", "****")] {
            let reply = ann.ask(json!({"id": 5, "publish": {"channel": "asked:1", "data": data}}));
            assert_eq!(reply["publish"], json!({}), "{reply}");
            assert_eq!(bob.publication()["data"], published);
        }
        let reply = ann.ask(json!({"id": 6, "publish": {"channel": "asked:1", "data": "no"}}));
        assert_eq!(reply["error"], json!({"code": 1000, "message": "not this"}));
        // The RPC handler.
        let reply = ann.ask(rpc(7, "echo"));
        let expected = json!({"echo": {"n": 7}, "user": "ann", "meta": {"seen": {"k": 1}}});
        assert_eq!(reply["rpc"]["data"], expected);
        let unknown = ann.ask(rpc(8, "unknown"));
        let expected = json!({"code": 104, "message": "method not found"});
        assert_eq!(unknown["error"], expected);
        let internal = json!({"code": 100, "message": "internal server error", "temporary": true});
        for method in ["throw", "exit"] {
            assert_eq!(ann.ask(rpc(9, method))["error"], internal, "{method}");
        }
        // Waits for the old process to end, because events sent to it in the meantime would be lost.
        until("its end", || server.log().contains("a process has ended"));
        // A `send` command has no reply, but its handler publishes, and so does the handler of disconnects.
        bob.say(&json!({"send": {"data": "hello"}}));
        let expected = json!({"said": "hello", "by": "bob"});
        assert_eq!(bob.publication()["data"], expected);
        assert_eq!(ann.publication()["data"], expected);
        let joined = bob.ask(json!({"id": 10, "subscribe": {"channel": "open:gone"}}));
        assert!(joined["subscribe"].is_object(), "{joined}");
        ann.say(&json!({"id": 11, "publish": {"channel": "asked:1", "data": "spam"}}));
        assert_eq!(ann.socket.closed(), 4000);
        assert_eq!(
            bob.publication()["data"],
            json!({"gone": "ann", "code": 4000})
        );
    });
}

#[test]
fn an_application_in_php_prolongs_connections_and_subscriptions() {
    if !has_php() {
        return;
    }
    let server = start(USUAL);
    let mut brief = connect(&server, "brief");
    let joined = brief.ask(json!({"id": 2, "subscribe": {"channel": "asked:brief"}}));
    assert!(joined["subscribe"].is_object(), "{joined}");
    let refreshed = || std::fs::read_to_string(server.folder.join("refreshed")).unwrap_or_default();
    until("both refreshes", || {
        let text = refreshed();
        text.contains("brief\n") && text.contains("asked:brief\n")
    });
    std::thread::sleep(Duration::from_secs(3));
    // Without the refresh the connection would have expired by now.
    assert_eq!(brief.ask(rpc(3, "echo"))["rpc"]["data"]["user"], "brief");
}

/// Until a slow process has started, the server does not know which handlers the application has.
#[test]
fn commands_without_a_handler_go_on_as_without_an_application() {
    if !has_php() {
        return;
    }
    const SMALL: &str = "sleep(1);
        $app = Veche\\App::create();
        $app->rpc(fn (Veche\\Hook\\Event $event) => new Veche\\Hook\\Grant(data: 'php'));
        $app->run();";
    on_all(|setup| {
        let back_end = Asked::new(|_| {
            let response = json!({"result": {"data": "back end"}});
            answer(200, "", &response.to_string())
        });
        let routes = format!(
            "{}[hooks]\npublish = \"http://{}/publish\"\n",
            ROUTES.replace(
                "app = \"decides\"\n[[name",
                "app = \"decides\"\nidentity = \"query:user\"\n[[name"
            ),
            back_end.address
        );
        let options = Options {
            routes: &routes,
            files: &[("app.php", &program(SMALL))],
            ..Options::default()
        };
        let server = Server::with(setup, &options);
        // In the first round the process has not started yet, in the second round it is running.
        for round in 0..2 {
            let socket = Socket::open(server.public, "/c?user=ann");
            let lines = VecDeque::new();
            let mut ann = Client { socket, lines };
            let reply = ann.ask(json!({"id": 1, "connect": {}}));
            assert!(
                reply["connect"]["subs"]["#ann"].is_object(),
                "{round}: {reply}"
            );
            let reply = ann.ask(json!({"id": 2, "subscribe": {"channel": "open:1"}}));
            assert!(reply["subscribe"].is_object(), "{round}: {reply}");
            let reply = ann.ask(json!({"id": 3, "publish": {"channel": "asked:1", "data": "x"}}));
            assert!(reply["publish"].is_object(), "{round}: {reply}");
            assert_eq!(ann.ask(rpc(4, "m"))["rpc"]["data"], "php", "{round}");
        }
        assert!(!server.log().contains("ERROR"), "{}", server.log());
    });
}
