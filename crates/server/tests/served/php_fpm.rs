//! Tests applications that php-fpm runs, with the PHP SDK: events and answers are the same as with other
//! runtimes, but each event is a separate request.

use std::path::Path;
use std::time::Duration;

#[path = "../../../../tests/fpm.rs"]
pub(crate) mod fpm;

use crate::support::{Http, Options, Server, Setup, Socket, USUAL, get, now, on_all, skip, until};
use fpm::{CHILDREN, Fpm};

const APP: &str = r#"
$app = Veche\App::create();
$app->open(function (Veche\Connection $conn) {
    $user = $conn->request->query('user');
    if ($user === null) {
        return new Veche\Response(401, "who are you?\n");
    }
    $conn->identify($user);
    $conn->set('said', 0);
    $conn->subscribe('room');
    if ($conn->request->query('slow') !== null) {
        usleep(3000000);
    }
});
$app->message(function (Veche\Connection $conn, string $data, bool $isBinary) use ($app) {
    $conn->set('said', $conn->get('said') + 1);
    [$word, $rest] = explode(' ', $data, 2) + [1 => ''];
    match ($word) {
        'count' => $conn->send("$conn->user has said {$conn->get('said')}"),
        'say' => $app->publishTo('room', $rest),
        'sleep' => usleep((int) $rest * 1000),
        'throw' => throw new RuntimeException('as asked'),
        'exit' => exit,
        'die' => exec('kill -9 ' . getmypid()),
        'print' => print("printed by the handler\n"),
        'leave' => $conn->close(4000, 'as you wish'),
        'greet' => $conn->send($app->options()['greeting']),
        'presence' => $conn->send((string) $app->client()->presenceStats('room')->clients),
        default => $isBinary ? $conn->sendBinary($data) : $conn->send($data),
    };
    if ($word === 'sleep') {
        $conn->send("slept $rest");
    }
});
$app->close(fn (Veche\Connection $conn, int $code) => $app->publishTo('room', "$conn->user left with $code"));
$app->request(fn (Veche\Request $request) => $request->path === '/plain/throw'
    ? throw new RuntimeException('as asked')
    : new Veche\Response(201, $request->method . ' ' . $request->body, ['X-Path' => $request->path]));
$app->run();
"#;

/// Starts php-fpm with the application. If php-fpm is not installed, prints that and returns
/// `None`.
fn php(name: &str) -> Option<Fpm> {
    let fpm = Fpm::start(name, "php_admin_value[post_max_size] = 64M");
    let Some(fpm) = fpm else {
        skip("php-fpm is not installed");
        return None;
    };
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/php/veche.php");
    let require = format!("<?php require '{}';\n", sdk.display());
    fpm.script("app.php", &format!("{require}{APP}"));
    Some(fpm)
}

fn serve(setup: Setup, fpm: &Fpm, more: &str) -> Server {
    let folder = fpm.folder.display();
    let routes = format!(
        "[[app]]
name = \"chat\"
runtime = \"fastcgi\"
address = \"unix:{folder}/fpm.sock\"
script = \"{folder}/app.php\"
workers = {CHILDREN}
options = {{ greeting = \"hello\" }}
{more}
[[namespace]]
name = \"\"
presence = true
[[route]]
path = \"/php\"
handler = \"app\"
app = \"chat\"
[[route]]
path = \"/plain/*\"
handler = \"app\"
app = \"chat\""
    );
    let options = Options {
        routes: &routes,
        ..Options::default()
    };
    Server::with(setup, &options)
}

#[test]
fn handles_all_events() {
    let Some(fpm) = php("events") else { return };
    on_all(|setup| {
        let server = serve(setup, &fpm, "");
        let refused = Socket::try_open(server.public, "/php");
        assert!(refused.is_err(), "a client without a name is rejected");
        let mut ann = Socket::open(server.public, "/php?user=ann");
        let mut bob = Socket::open(server.public, "/php?user=bob");
        for text in ["hello", "", "вече 🔔", &"x".repeat(50_000)] {
            ann.say(text);
            assert_eq!(ann.text(), text);
        }
        ann.say("count");
        assert_eq!(ann.text(), "ann has said 5");
        ann.say("greet");
        assert_eq!(ann.text(), "hello");
        bob.say("say to all");
        assert_eq!((ann.text(), bob.text()), ("to all".into(), "to all".into()));
        bob.say("leave");
        assert_eq!(bob.closed(), 4000);
        assert_eq!(ann.text(), "bob left with 4000");
        let mut http = Http::connect(server.public);
        let response = http
            .request("POST", "/plain/a", "", b"body")
            .expect("an answer");
        assert_eq!((response.status, response.text()), (201, "POST body"));
        assert_eq!(response.header("X-Path"), Some("/plain/a"));
    });
}

#[test]
fn a_failure_ends_what_it_belongs_to_and_says_where() {
    let Some(fpm) = php("failures") else { return };
    let server = serve(USUAL, &fpm, "event_timeout = \"1s\"");
    for (word, why) in [
        ("throw", "RuntimeException: as asked in"),
        ("exit", "by exit or die"),
        ("die", "the connection ended before the response did"),
        ("sleep 3000", "no response within 1s"),
    ] {
        let mut socket = Socket::open(server.public, "/php?user=ann");
        socket.say(word);
        assert_eq!(socket.closed(), 1011, "{word}");
        until(why, || server.log().contains(why));
    }
    assert!(server.log().contains("app.php:"), "{}", server.log());
    assert_eq!(get(server.public, "/plain/throw").status, 500);
    let mut socket = Socket::open(server.public, "/php?user=ann");
    socket.say("print");
    until("a line", || server.log().contains("printed by the handler"));
    // Without the address of the API, handlers can't call it.
    socket.say("presence");
    assert_eq!(socket.closed(), 1011);
    until("a reason", || {
        server.log().contains("not possible under FastCGI")
    });
}

#[test]
fn the_api_is_called_over_http() {
    let Some(fpm) = php("api") else { return };
    let mut server = serve(USUAL, &fpm, "");
    let text = std::fs::read_to_string(server.config()).expect("a config");
    let api = format!(
        "runtime = \"fastcgi\"\napi_url = \"http://{}\"\napi_key_file = \"fpm.key\"",
        server.internal
    );
    std::fs::write(server.folder.join("fpm.key"), "key\n").expect("a key");
    server.write_config(&text.replace("runtime = \"fastcgi\"", &api));
    server.signal(rustix::process::Signal::HUP);
    until("a reload", || server.log().contains("reloaded"));
    let mut socket = Socket::open(server.public, "/php?user=ann");
    socket.say("presence");
    assert_eq!(socket.text(), "1");
    server.stop();
}

#[test]
fn where_all_processes_are_busy_events_wait_and_then_are_refused() {
    let Some(fpm) = php("busy") else { return };
    let server = serve(USUAL, &fpm, "queue_timeout = \"300ms\"");
    let mut echo = Socket::open(server.public, "/echo");
    let mut busy: Vec<Socket> = (0..CHILDREN)
        .map(|number| Socket::open(server.public, &format!("/php?user=busy{number}")))
        .collect();
    let mut late = Socket::open(server.public, "/php?user=late");
    let mut patient = Socket::open(server.public, "/php?user=patient");
    let gone = Socket::open(server.public, "/php?user=gone");
    for socket in &mut busy {
        socket.say("sleep 900");
    }
    std::thread::sleep(Duration::from_millis(100));
    late.say("hello");
    gone.leave();
    let refused = get(server.public, "/plain/a");
    assert_eq!(refused.status, 503);
    assert_eq!(late.closed(), 1013);
    let started = now();
    echo.say("hello");
    assert_eq!(echo.text(), "hello");
    assert!(
        started.elapsed() < Duration::from_millis(300),
        "other routes go on"
    );
    for socket in &mut busy {
        // The socket also receives events of other members, such as their leaves. They are skipped.
        while socket.text() != "slept 900" {}
    }
    // The close event of a connection is never dropped, even if the queue is full.
    while patient.text() != "gone left with 1000" {}
    patient.say("count");
    while patient.text() != "patient has said 1" {}
}

#[test]
fn events_of_one_connection_stay_in_order() {
    let Some(fpm) = php("order") else { return };
    let server = serve(USUAL, &fpm, "");
    let mut socket = Socket::open(server.public, "/php?user=ann");
    for number in 0..20 {
        socket.say(&format!("say {number}"));
    }
    for number in 0..20 {
        assert_eq!(socket.text(), number.to_string());
    }
    socket.say("sleep 200");
    socket.say("count");
    assert_eq!(socket.text(), "slept 200");
    assert_eq!(socket.text(), "ann has said 22");
}

#[test]
fn a_server_that_is_not_there_is_an_error_and_no_end() {
    let Some(fpm) = php("gone") else { return };
    let server = serve(USUAL, &fpm, "");
    let mut socket = Socket::open(server.public, "/php?user=ann");
    let folder = fpm.folder.clone();
    drop(fpm);
    assert!(!folder.exists());
    socket.say("hello");
    assert_eq!(socket.closed(), 1011);
    assert_eq!(get(server.public, "/plain/a").status, 500);
    until("a reason", || server.log().contains("not connected"));
}

#[test]
fn an_abandoned_handshake_leaves_no_state() {
    let Some(fpm) = php("given-up") else { return };
    let server = serve(USUAL, &fpm, "");
    let mut http = Http::connect(server.public);
    http.raw(
        b"GET /php?user=ann&slow HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
          Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    )
    .expect("sent");
    std::thread::sleep(Duration::from_millis(100));
    drop(http);
    until("nothing is left", || server.connections() == 0);
    let mut socket = Socket::open(server.public, "/php?user=bob");
    socket.say("count");
    // If the server reads the handshake together with the end of its connection, the handler runs to its end, and
    // `close` follows.
    assert_eq!(socket.text_after("ann left with 1006"), "bob has said 1");
}
