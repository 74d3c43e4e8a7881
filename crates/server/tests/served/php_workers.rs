//! Applications in worker processes, with the PHP SDK: real processes behind the real server.

use std::path::Path;
use std::time::Duration;

use crate::support::metrics::Metrics;
use crate::support::{Http, Server, Setup, Socket, USUAL, get, now, on_all, skip, until};

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
});
$app->message(function (Veche\Connection $conn, string $data, bool $isBinary) use ($app) {
    $conn->set('said', $conn->get('said') + 1);
    [$word, $rest] = explode(' ', $data, 2) + [1 => ''];
    match ($word) {
        'count' => $conn->send("$conn->user has said {$conn->get('said')}"),
        'say' => $app->publishTo('room', $rest),
        'sleep' => usleep((int) $rest * 1000),
        'throw' => throw new RuntimeException('as asked'),
        'fatal' => missing_function(),
        'exit' => exit,
        'die' => exec('kill -9 ' . getmypid()),
        'print' => print("printed by the handler\n"),
        'pid' => $conn->send((string) getmypid()),
        'leak' => $GLOBALS['leak'] ??= str_repeat('x', 100 << 20),
        'rubbish' => fwrite(fopen('php://fd/3', 'w'), 'this is no frame at all'),
        'half' => fwrite(fopen('php://fd/3', 'w'), "\x09\0\0\0\0\0\0\0{") && exec('kill -9 ' . getmypid()),
        'part' => fwrite(fopen('php://fd/3', 'w'), "\x09\0\0\0\0\0\0\0{") && sleep(60),
        'huge' => fwrite(fopen('php://fd/3', 'w'), "\x09\0\0\0\x01\0\0\x01{"),
        'leave' => $conn->close(4000, 'as you wish'),
        'greet' => $conn->send($app->options()['greeting']),
        'presence' => $conn->send((string) $app->client()->presenceStats('room')->clients),
        'history' => $conn->send((string) count($app->client()->history('room', limit: 10)->publications)),
        default => $isBinary ? $conn->sendBinary($data) : $conn->send($data),
    };
    if ($word === 'sleep') {
        $conn->send("slept $rest");
    }
});
$app->close(fn (Veche\Connection $conn, int $code) => $app->publishTo('room', "$conn->user left with $code"));
$app->start(fn () => file_put_contents(__DIR__ . '/started', getmypid() . "\n", FILE_APPEND));
$app->stop(fn () => file_put_contents(__DIR__ . '/stopped', getmypid() . "\n", FILE_APPEND));
$app->request(fn (Veche\Request $request) => $request->path === '/plain/throw'
    ? throw new RuntimeException('as asked')
    : new Veche\Response(201, $request->method . ' ' . $request->body, ['X-Path' => $request->path]));
$app->run();
"#;

fn routes(more: &str) -> String {
    format!(
        "[[app]]
name = \"chat\"
runtime = \"php\"
command = [\"php\", \"app.php\"]
options = {{ greeting = \"hello\" }}
{more}
[[namespace]]
name = \"\"
presence = true
history_size = 10
history_ttl = \"1m\"
[[route]]
path = \"/php\"
handler = \"app\"
app = \"chat\"
[[route]]
path = \"/plain/*\"
handler = \"app\"
app = \"chat\"
"
    )
}

fn program(app: &str) -> String {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/php/veche.php");
    format!("<?php require '{}';\n{app}", sdk.display())
}

/// Returns whether PHP is installed; prints a line if it is not.
pub(super) fn has_php() -> bool {
    let is_there = Path::new("/usr/bin/php").exists();
    if !is_there {
        skip("php is not installed");
    }
    is_there
}

fn serve(setup: Setup, more: &str) -> Server {
    Server::serving(setup, &routes(more), &[("app.php", &program(APP))])
}

/// Returns the value of a metric of the application `chat`, summed over samples with this label.
fn metric(server: &Server, name: &str, label: &str) -> f64 {
    Metrics::scrape(server.internal).sum(name, &["app=\"chat\"", label])
}

#[test]
fn handles_all_events() {
    if !has_php() {
        return;
    }
    on_all(|setup| {
        let server = serve(setup, "workers = 2");
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
        ann.say("presence");
        assert_eq!(ann.text(), "2");
        bob.say("say to all");
        assert_eq!((ann.text(), bob.text()), ("to all".into(), "to all".into()));
        ann.say("history");
        assert_eq!(ann.text(), "1");
        bob.say("leave");
        assert_eq!(bob.closed(), 4000);
        assert_eq!(ann.text(), "bob left with 4000");
        ann.say("print");
        until("a line", || server.log().contains("printed by the handler"));
        let mut http = Http::connect(server.public);
        let response = http
            .request("POST", "/plain/a", "", b"body")
            .expect("an answer");
        assert_eq!((response.status, response.text()), (201, "POST body"));
        assert_eq!(response.header("X-Path"), Some("/plain/a"));
    });
}

#[test]
fn events_of_one_connection_stay_in_order() {
    if !has_php() {
        return;
    }
    let server = serve(USUAL, "workers = 4");
    let mut socket = Socket::open(server.public, "/php?user=ann");
    for number in 0..200 {
        socket.say(&format!("{number}"));
    }
    for number in 0..200 {
        assert_eq!(socket.text(), number.to_string());
    }
    socket.say("sleep 200");
    socket.say("count");
    assert_eq!(socket.text(), "slept 200");
    assert_eq!(socket.text(), "ann has said 202");
}

#[test]
fn a_failure_ends_what_it_belongs_to_and_says_where() {
    if !has_php() {
        return;
    }
    // PHP itself may take a second for an event on a busy machine.
    let server = serve(USUAL, "workers = 2\nevent_timeout = \"3s\"");
    for (word, why) in [
        ("throw", "RuntimeException: as asked in"),
        ("fatal", "undefined function missing_function() in"),
        ("exit", "by exit or die"),
        ("die", "signal: 9"),
        ("sleep 9000", "the event message took longer than 3s"),
        (
            "rubbish",
            "the output of the process does not follow the runtime protocol",
        ),
        ("half", "the output of the process ended within a frame"),
        (
            "huge",
            "the output of the process does not follow the runtime protocol: the payload of the frame has 16777217",
        ),
    ] {
        let mut socket = Socket::open(server.public, "/php?user=ann");
        socket.say(word);
        assert_eq!(socket.closed(), 1011, "{word}");
        until(why, || server.log().contains(why));
    }
    assert!(server.log().contains("app.php:"), "{}", server.log());
    assert_eq!(get(server.public, "/plain/throw").status, 500);
    let mut socket = Socket::open(server.public, "/php?user=ann");
    socket.say("count");
    // The application may handle the end of the first connection after the start of the second one.
    assert_eq!(socket.text_after("ann left with 1011"), "ann has said 1");
}

/// A shutdown function that makes the process run for a while after its last answer.
const SLOW: &str = "register_shutdown_function(fn () => sleep(4))";

/// Starts an application whose processes take long to end. Returns the server and a function that counts processes in a
/// state.
fn serve_slow_ends(app: &str, workers: u32) -> (Server, impl Fn(&str) -> f64) {
    let routes = routes(&format!("workers = {workers}"));
    let server = Server::serving(USUAL, &routes, &[("app.php", &*program(app))]);
    let internal = server.internal;
    let count = move |state: &str| {
        let state = format!("state=\"{state}\"");
        Metrics::scrape(internal).sum("veche_app_processes", &["app=\"chat\"", &state])
    };
    until("all processes", || count("idle") == f64::from(workers));
    (server, count)
}

#[test]
fn a_process_that_ends_by_exit_gets_no_further_events() {
    if !has_php() {
        return;
    }
    for app in [
        APP.replace("'exit' => exit", &format!("'exit' => {SLOW} ?? exit")),
        APP.replace("$app->run();", &format!("{SLOW};\n$app->run();")),
    ] {
        let (server, count) = serve_slow_ends(&app, 2);
        let mut bob = Socket::open(server.public, "/php?user=bob");
        let mut first = Socket::open(server.public, "/php?user=ann");
        first.say("exit");
        assert_eq!(first.closed(), 1011);
        assert_eq!(bob.text(), "ann left with 1011");
        let mut others = Vec::new();
        for number in 0..20 {
            let mut socket = Socket::open(server.public, &format!("/php?user=user{number}"));
            socket.say("count");
            assert_eq!(socket.text(), format!("user{number} has said 1"));
            others.push(socket);
        }
        until("its successor", || count("idle") == 2.0);
        assert_eq!(count("stopping"), 1.0);
        let restarts = "veche_app_process_restarts_total";
        assert_eq!(metric(&server, restarts, "reason=\"failed\""), 1.0);
        until("its end", || count("stopping") == 0.0);
        assert_eq!(metric(&server, restarts, ""), 1.0);
    }
}

/// Processes that take long to end are replaced before they have ended, but only up to this limit.
#[test]
fn there_are_at_most_twice_as_many_processes_as_workers() {
    if !has_php() {
        return;
    }
    let app = APP.replace("'exit' => exit", &format!("'exit' => {SLOW} ?? exit"));
    let (server, count) = serve_slow_ends(&app, 1);
    for ending in 1..=2 {
        let mut socket = Socket::open(server.public, "/php?user=ann");
        socket.say("exit");
        assert_eq!(socket.closed(), 1011);
        until("its end", || count("stopping") == f64::from(ending));
    }
    assert_eq!(count("starting") + count("idle") + count("busy"), 0.0);
    until("a successor", || count("idle") == 1.0);
}

#[test]
fn where_all_processes_are_busy_events_wait_and_then_are_refused() {
    if !has_php() {
        return;
    }
    let server = serve(USUAL, "workers = 2\nqueue_timeout = \"1s\"");
    let mut echo = Socket::open(server.public, "/echo");
    let mut busy: Vec<Socket> = (0..2)
        .map(|number| Socket::open(server.public, &format!("/php?user=busy{number}")))
        .collect();
    let mut late = Socket::open(server.public, "/php?user=late");
    let mut patient = Socket::open(server.public, "/php?user=patient");
    let gone = Socket::open(server.public, "/php?user=gone");
    for socket in &mut busy {
        socket.say("sleep 4000");
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
        started.elapsed() < Duration::from_secs(2),
        "other routes go on"
    );
    for socket in &mut busy {
        // Events about other members arrive too, for example that a member has left. They are
        // skipped.
        while socket.text() != "slept 4000" {}
    }
    // The close event of a connection is never dropped, even if the queue is full.
    while patient.text() != "gone left with 1000" {}
    patient.say("count");
    while patient.text() != "patient has said 1" {}
}

#[test]
fn a_full_queue_refuses_handshakes_at_once() {
    if !has_php() {
        return;
    }
    let server = serve(USUAL, "workers = 1\nqueue = 1");
    let mut busy = Socket::open(server.public, "/php?user=ann");
    busy.say("sleep 3000");
    std::thread::sleep(Duration::from_millis(100));
    let started = now();
    let waits = std::thread::spawn({
        let public = server.public;
        move || get(public, "/plain/a").status
    });
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(get(server.public, "/plain/a").status, 503);
    assert!(started.elapsed() < Duration::from_millis(2500));
    assert_eq!(waits.join().ok(), Some(201));
    assert_eq!(busy.text(), "slept 3000");
}

#[test]
fn worn_processes_are_replaced_and_connections_stay() {
    if !has_php() {
        return;
    }
    for (limits, word, why) in [
        ("workers = 1\nmax_jobs = 5", "hello", "max_jobs"),
        ("workers = 1\nttl = \"1s\"", "hello", "ttl"),
        ("workers = 1\nidle_ttl = \"1s\"", "", "idle_ttl"),
        ("workers = 1\nrss_max = \"64MiB\"", "leak", "rss_max"),
    ] {
        let server = serve(USUAL, limits);
        let mut socket = Socket::open(server.public, "/php?user=ann");
        socket.say("pid");
        let first = socket.text();
        until(why, || {
            if !word.is_empty() {
                socket.say(word);
                socket.say("pid");
                while socket.text() == "hello" {}
            }
            server
                .log()
                .contains(&format!("replacing a process: {why}"))
        });
        until("another process", || {
            socket.say("pid");
            socket.text() != first
        });
        // The new process handles events before the old process ends.
        until("its end", || {
            let stopped = std::fs::read_to_string(server.folder.join("stopped"));
            stopped.unwrap_or_default().contains(&first)
        });
        let reason = format!("reason=\"{why}\"");
        let restarts = metric(&server, "veche_app_process_restarts_total", &reason);
        assert!(restarts >= 1.0, "{why}");
    }
}

#[test]
fn figures_of_processes_are_in_the_metrics_and_in_the_status() {
    if !has_php() {
        return;
    }
    let server = serve(USUAL, "workers = 2\nevent_timeout = \"2s\"");
    let mut socket = Socket::open(server.public, "/php?user=ann");
    let state = |state: &str| {
        let state = format!("state=\"{state}\"");
        metric(&server, "veche_app_processes", &state)
    };
    until("both are idle", || state("idle") == 2.0);
    let memory = "veche_app_processes_memory_bytes";
    until("their memory", || metric(&server, memory, "") > 2e6);
    socket.say("sleep 1000");
    until("one is busy", || state("busy") == 1.0);
    assert_eq!(socket.text(), "slept 1000");
    until("both are idle", || state("idle") == 2.0);
    assert!(metric(&server, "veche_app_run_seconds_total", "") >= 1.0);
    let events = |outcome: &str| {
        let outcome = format!("outcome=\"{outcome}\"");
        metric(&server, "veche_app_events_total", &outcome)
    };
    // The two events are the handshake and the message.
    assert_eq!((events("answered"), events("failed")), (2.0, 0.0));
    socket.say("die");
    assert_eq!(socket.closed(), 1011);
    until("the loss is counted", || events("failed") == 1.0);
    let status = server.command(&["status"]).output().expect("it runs");
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    let pool = status
        .lines()
        .find(|line| line.contains("chat: processes:"));
    assert!(
        pool.is_some_and(|pool| pool.contains("restarts: 1 failed")),
        "{status}"
    );
}

#[test]
fn a_process_without_any_event_yet_is_not_replaced_for_being_idle() {
    if !has_php() {
        return;
    }
    let server = serve(USUAL, "workers = 1\nidle_ttl = \"1s\"");
    let mut socket = Socket::open(server.public, "/php?user=ann");
    socket.say("pid");
    let first = socket.text();
    let stopped = server.folder.join("stopped");
    until("its end", || {
        std::fs::read_to_string(&stopped).is_ok_and(|text| text.contains(&first))
    });
    // The wait is three times `idle_ttl`. The successor has had no event, so it is not replaced.
    std::thread::sleep(Duration::from_secs(3));
    let line = "replacing a process: idle_ttl";
    assert_eq!(server.log().matches(line).count(), 1);
    socket.say("pid");
    assert_ne!(socket.text(), first);
}

#[test]
fn at_most_a_quarter_of_the_processes_is_replaced_at_once() {
    if !has_php() {
        return;
    }
    let app = APP.replace(
        "$app->start(fn () => file_put_contents(__DIR__ . '/started', getmypid() . \"\\n\", FILE_APPEND));",
        "$app->start(function () {
    file_put_contents(__DIR__ . '/starts', '+', FILE_APPEND | LOCK_EX);
    usleep(300000);
    file_put_contents(__DIR__ . '/starts', '-', FILE_APPEND | LOCK_EX);
});",
    );
    let server = Server::serving(
        USUAL,
        &routes("workers = 8\nttl = \"3s\""),
        &[("app.php", &program(&app))],
    );
    let starts = server.folder.join("starts");
    let marks = || std::fs::read_to_string(&starts).unwrap_or_default();
    until("eight successors", || marks().matches('-').count() >= 16);
    let (mut begun, mut under_way) = (0, 0_usize);
    for mark in marks().chars() {
        match mark {
            '+' => (begun, under_way) = (begun + 1, under_way + 1),
            _ => under_way -= 1,
        }
        assert!(begun <= 8 || under_way <= 2, "{under_way} at once");
    }
}

#[test]
fn half_a_frame_without_its_rest_ends_at_the_time_limit() {
    if !has_php() {
        return;
    }
    let server = serve(USUAL, "workers = 1\nevent_timeout = \"1s\"");
    let mut socket = Socket::open(server.public, "/php?user=ann");
    socket.say("part");
    assert_eq!(socket.closed(), 1011);
    let why = "the event message took longer than 1s";
    until("the reason", || server.log().contains(why));
    let mut socket = Socket::open(server.public, "/php?user=ann");
    socket.say("count");
    // The application may handle the end of the first connection after the start of the second one.
    assert_eq!(socket.text_after("ann left with 1011"), "ann has said 1");
}

#[test]
fn processes_that_never_begin_are_killed_and_start_after_growing_delays() {
    if !has_php() {
        return;
    }
    let routes = routes("workers = 1\nstart_timeout = \"200ms\"\nqueue_timeout = \"700ms\"");
    let server = Server::serving(USUAL, &routes, &[("app.php", "<?php sleep(60);")]);
    assert_eq!(get(server.public, "/plain/a").status, 503);
    until("a reason", || {
        server
            .log()
            .contains("the process was not ready within 200ms")
    });
    let crash = "<?php fwrite(STDERR, \"as I like\\n\"); exit(3);";
    let server = Server::serving(USUAL, &routes, &[("app.php", crash)]);
    std::thread::sleep(Duration::from_millis(2000));
    let ends = server.log().matches("exit status: 3").count();
    assert!((2..=6).contains(&ends), "{ends} ends in 2 s");
    assert!(server.log().contains("as I like"));
}

#[test]
fn a_reload_switches_to_new_processes_and_connections_stay() {
    if !has_php() {
        return;
    }
    let server = serve(USUAL, "workers = 2");
    let mut socket = Socket::open(server.public, "/php?user=ann");
    socket.say("pid");
    let first = socket.text();
    let newer = program(APP).replace("has said", "has said by now");
    std::fs::write(server.folder.join("app.php"), newer).expect("a program");
    server.signal(rustix::process::Signal::HUP);
    until("newer code", || {
        socket.say("count");
        socket.text().contains("has said by now")
    });
    socket.say("pid");
    assert_ne!(socket.text(), first);
    let stopped = server.folder.join("stopped");
    until("the older ones stop", || {
        let text = std::fs::read_to_string(&stopped).unwrap_or_default();
        text.lines().count() == 2
    });
}

#[test]
fn ends_of_connections_reach_processes_before_the_server_ends() {
    if !has_php() {
        return;
    }
    let app = APP.replace(
        "$app->publishTo('room', \"$conn->user left with $code\")",
        "file_put_contents(__DIR__ . '/left', \"$conn->user\\n\", FILE_APPEND)",
    );
    let mut server = Server::serving(
        USUAL,
        &routes("workers = 1"),
        &[("app.php", &program(&app))],
    );
    let _sockets: Vec<Socket> = (0..50)
        .map(|number| Socket::open(server.public, &format!("/php?user=u{number}")))
        .collect();
    let left = server.folder.join("left");
    server.stop();
    let text = std::fs::read_to_string(left).unwrap_or_default();
    assert_eq!(text.lines().count(), 50);
}
