//! Worker processes of applications and their spawner: the sandbox, accounts, and the processes that remain when the
//! server, a worker process or the spawner ends.

use std::fs;
use std::path::Path;

use rustix::process::Signal;

use crate::php_workers::has_php;
use crate::support::metrics::Metrics;
use crate::support::process::{end, is_alive};
use crate::support::{Options, Seen, Server, Socket, USUAL, until};

/// The application takes the user from the path, sends its process id on request, and can be kept busy.
const APP: &str = r#"
$app = Veche\App::create();
$app->message(function (Veche\Connection $conn, string $data): void {
    match (true) {
        $data === 'pid' => $conn->send((string) getmypid()),
        $data === 'user' => $conn->send(trim(shell_exec('id -u; id -g; id -G | wc -w'))),
        $data === 'busy' => sleep(600),
        $data === 'deaf' => exec('sleep 600'),
        default => $conn->send($data),
    };
});
$app->run();
"#;

/// Returns a configuration with the application, and its file.
fn app(more: &str) -> (String, String) {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/php/veche.php");
    let routes = format!(
        "[[app]]\nname = \"chat\"\nruntime = \"php\"\ncommand = [\"php\", \"app.php\"]\n{more}\n\
         [[route]]\npath = \"/php\"\nhandler = \"app\"\napp = \"chat\"\n"
    );
    (routes, format!("<?php require '{}';\n{APP}", sdk.display()))
}

fn serve(server: &str, more: &str) -> Server {
    let (routes, program) = app(more);
    Server::with(
        USUAL,
        &Options {
            server,
            routes: &routes,
            files: &[("app.php", &program)],
            ..Options::default()
        },
    )
}

/// Returns the id of a connection's worker process.
fn pid(socket: &mut Socket) -> u32 {
    socket.say("pid");
    socket.text().parse().expect("a process id")
}

/// Returns the id of a process's parent; 0 if the process has ended.
fn parent(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let behind = stat.rsplit_once(") ").map_or("", |(_, behind)| behind);
    let parent = behind.split(' ').nth(1).unwrap_or_default();
    parent.parse().unwrap_or_default()
}

/// Returns all descendants of a process.
fn descendants(of: u32) -> Vec<u32> {
    let mut found = vec![of];
    let mut at = 0;
    while at < found.len() {
        let list = format!("/proc/{0}/task/{0}/children", found[at]);
        let list = fs::read_to_string(list).unwrap_or_default();
        found.extend(
            list.split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
        at += 1;
    }
    found
}

fn are_gone(pids: &[u32]) -> bool {
    !pids.iter().any(|pid| is_alive(*pid))
}

#[test]
fn a_server_in_its_sandbox_has_worker_processes_outside_of_it() {
    if !has_php() {
        return;
    }
    let server = serve("sandbox = true", "workers = 2\nmax_jobs = 20");
    let mut socket = Socket::open(server.public, "/php");
    socket.say("hello");
    assert_eq!(socket.text(), "hello");
    // The server can read the memory usage of worker processes despite its sandbox.
    let memory = "veche_app_processes_memory_bytes";
    until("the memory of both", || {
        Metrics::scrape(server.internal).sum(memory, &["app=\"chat\""]) > 2e6
    });
    let first = pid(&mut socket);
    until("a successor", || {
        pid(&mut socket) != first && !is_alive(first)
    });
    // Each configuration has its own spawner, since a reload may add the first application.
    let before = parent(pid(&mut socket));
    server.signal(Signal::HUP);
    until("newer processes", || {
        ![0, before].contains(&parent(pid(&mut socket)))
    });
    until("the end of the older spawner", || !is_alive(before));
    socket.say("still here");
    assert_eq!(socket.text(), "still here");
    // The server process itself can't execute programs: the spawner is not its child.
    assert_eq!(descendants(server.pid()), [server.pid()]);
}

#[test]
fn the_first_worker_processes_of_a_sandboxed_server_come_with_a_reload() {
    if !has_php() {
        return;
    }
    let (routes, program) = app("");
    let bare = Options {
        server: "sandbox = true",
        files: &[("app.php", &program)],
        ..Options::default()
    };
    let server = Server::with(USUAL, &bare);
    assert!(Socket::try_open(server.public, "/php").is_err());
    server.configure(&Options {
        routes: &routes,
        ..bare
    });
    assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
    let mut socket = Socket::open(server.public, "/php");
    socket.say("hello");
    assert_eq!(socket.text(), "hello");
}

#[test]
fn no_process_is_left_after_a_kill_of_the_server_process_or_of_the_supervisor() {
    if !has_php() {
        return;
    }
    let mut server = serve("", "workers = 3");
    let old = server.pid();
    let mut socket = Socket::open(server.public, "/php");
    let supervisor = parent(old);
    let workers = descendants(parent(pid(&mut socket)));
    assert_eq!(workers.len(), 4, "the spawner and its processes");
    // One process is busy and does not notice the end of its socket, and another has a child process.
    let mut busy = Socket::open(server.public, "/php");
    busy.say("busy");
    let mut deaf = Socket::open(server.public, "/php");
    deaf.say("deaf");
    until("a child of a worker process", || {
        descendants(workers[0]).len() > workers.len()
    });
    let all = descendants(workers[0]);
    end(old);
    until("their end", || are_gone(&all));
    until("another server process", || {
        server.try_pid().is_some_and(|pid| pid != old)
    });
    let mut socket = Socket::open(server.public, "/php");
    let spawner = parent(pid(&mut socket));
    assert_eq!(parent(spawner), supervisor);
    // The spawner that was killed together with its server process has been reaped.
    until("no zombie", || {
        !Path::new(&format!("/proc/{}", workers[0])).exists()
    });

    let all = descendants(spawner);
    server.kill_supervisor();
    until("their end", || are_gone(&all));
}

#[test]
fn a_spawner_that_dies_is_replaced_with_its_processes_and_connections_stay() {
    if !has_php() {
        return;
    }
    let server = serve("sandbox = true", "workers = 2");
    let mut socket = Socket::open(server.public, "/php");
    let first = pid(&mut socket);
    let spawner = parent(first);
    let all = descendants(spawner);
    end(spawner);
    until("the end of its processes", || are_gone(&all));
    let mut other = Socket::open(server.public, "/php");
    let second = pid(&mut other);
    assert!(!all.contains(&second));
    assert_ne!(parent(second), spawner);
    assert!(
        server
            .log()
            .contains("the spawner of worker processes has ended")
    );
    // The connection had no event in progress, so it stays open.
    socket.say("hello");
    assert_eq!(socket.text(), "hello");
}

#[test]
fn a_replaced_server_process_ends_with_its_worker_processes() {
    if !has_php() {
        return;
    }
    let server = serve("sandbox = true", "workers = 2");
    let old = server.pid();
    let mut socket = Socket::open(server.public, "/php");
    let workers = descendants(parent(pid(&mut socket)));
    assert_eq!(server.ask("restart").expect("an answer")["ok"], true);
    until("the newer server process", || {
        server.try_pid().is_some_and(|pid| pid != old)
    });
    let mut newer = Socket::open(server.public, "/php");
    let other = pid(&mut newer);
    assert!(!workers.contains(&other));
    assert_eq!(socket.closed(), 1012);
    until("the end of the older ones", || {
        are_gone(&workers) && !is_alive(old)
    });
    newer.say("hello");
    assert_eq!(newer.text(), "hello");
}

#[test]
fn worker_processes_have_the_account_of_their_application() {
    if !has_php() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: nothing tested");
        return;
    }
    // The ids of Debian's users daemon and nobody.
    for (own, ids) in [
        ("user = \"daemon\"", "1\n1\n1"),
        ("user = \"daemon\"\ngroup = \"nogroup\"", "1\n65534\n1"),
        ("", "65534\n65534\n1"),
    ] {
        let server = serve("user = \"nobody\"\nsandbox = true", own);
        let mut socket = Socket::open(server.public, "/php");
        socket.say("user");
        assert_eq!(socket.text(), ids, "{own}");
        // A process that replaces another has the same account.
        let first = pid(&mut socket);
        end(first);
        until("an answer of a successor", || {
            let Ok(mut socket) = Socket::try_open(server.public, "/php") else {
                return false;
            };
            socket.say("user");
            matches!(socket.next(), Seen::Text(text) if text == ids)
        });
    }
}

#[test]
fn an_unknown_account_of_an_application_is_no_start_and_no_reload() {
    let (routes, program) = app("");
    let options = Options {
        routes: &routes,
        files: &[("app.php", &program)],
        ..Options::default()
    };
    let server = Server::with(USUAL, &options);
    let (routes, _) = app("user = \"veche-has-no-such-user\"");
    server.configure(&Options {
        routes: &routes,
        ..options
    });
    let answer = server.ask("reload").expect("an answer");
    let why = "app \"chat\": user: this machine has no user \"veche-has-no-such-user\"";
    assert!(
        answer.to_string().contains(&why.replace('"', "\\\"")),
        "{answer}"
    );
    server.configure(&Options {
        routes: &routes,
        server: "control = \"other.sock\"",
        ..options
    });
    let output = server.command(&["serve"]).output().expect("it runs");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && printed.contains(why),
        "{printed}"
    );
}

#[test]
fn a_command_that_does_not_exist_is_an_error_in_the_log() {
    for sandbox in ["", "sandbox = true"] {
        let (routes, _) = app("");
        let routes = routes.replace("\"php\", \"app.php\"", "\"veche-has-no-such-program\"");
        let server = Server::with(
            USUAL,
            &Options {
                server: sandbox,
                routes: &routes,
                ..Options::default()
            },
        );
        assert!(Socket::try_open(server.public, "/php").is_err());
        until("the reason", || {
            let log = server.log();
            log.contains("veche-has-no-such-program: not found")
                && log.contains("a process has ended: exit status: 127")
        });
    }
}

/// Handlers of `stop` and PHP's shutdown functions share one `stop_timeout`.
#[test]
fn a_process_has_stop_timeout_to_stop_and_is_killed_then() {
    if !has_php() {
        return;
    }
    let program = |stop: &str| {
        let (_, program) = app("");
        program.replace("$app->run();", &format!("{stop}\n$app->run();"))
    };
    let slow = program(
        "$app->stop(function () { sleep(1); file_put_contents(__DIR__ . '/stopped', 'x', FILE_APPEND); });
         register_shutdown_function(function () { sleep(1); file_put_contents(__DIR__ . '/over', 'x', FILE_APPEND); });",
    );
    let size = |server: &Server, name: &str| {
        fs::metadata(server.folder.join(name)).map_or(0, |file| file.len())
    };
    let (routes, _) = app("workers = 2\nstop_timeout = \"20s\"");
    let options = Options {
        routes: &routes,
        files: &[("app.php", &slow)],
        limits: "drain_time = \"20s\"",
        ..Options::default()
    };
    let mut server = Server::with(USUAL, &options);
    let mut socket = Socket::open(server.public, "/php");
    // Processes that have not started could not run a handler of `stop`.
    let idle = ["app=\"chat\"", "state=\"idle\""];
    until("both processes", || {
        Metrics::scrape(server.internal).sum("veche_app_processes", &idle) == 2.0
    });
    let workers = descendants(parent(pid(&mut socket)));
    drop(socket);
    // A stop of the server waits until its worker processes have ended.
    server.stop();
    assert_eq!((size(&server, "stopped"), size(&server, "over")), (2, 2));
    until("the end of the spawner", || are_gone(&workers));

    let deaf = program("$app->stop(fn () => sleep(600));");
    let (routes, _) = app("workers = 1\nmax_jobs = 3\nstop_timeout = \"1s\"");
    let server = Server::serving(USUAL, &routes, &[("app.php", &deaf)]);
    let mut socket = Socket::open(server.public, "/php");
    let first = pid(&mut socket);
    until("a successor", || pid(&mut socket) != first);
    assert!(is_alive(first), "it has a second");
    until("its end", || !is_alive(first));
    until("the reason in the log", || {
        let log = server.log();
        log.contains("the process has not stopped within 1s")
    });
}

/// The log entry of an event over its time limit contains everything needed to find its cause.
#[test]
fn the_log_of_an_event_over_its_time_names_its_process_and_its_client() {
    if !has_php() {
        return;
    }
    let (routes, program) = app("workers = 1\nevent_timeout = \"1s\"");
    let program = program.replace(
        "$app->message(",
        "$app->open(fn (Veche\\Connection $conn) => $conn->identify('ann'));\n$app->message(",
    );
    let server = Server::serving(USUAL, &routes, &[("app.php", &program)]);
    let mut socket = Socket::open(server.public, "/php");
    let worker = pid(&mut socket);
    socket.say("busy");
    assert_eq!(socket.closed(), 1011);
    let why = "the event message took longer than 1s";
    let process = format!("pid={worker}");
    let named = ["app=\"chat\"", "instance=1", &process, "user=\"ann\""];
    until("a line about it", || {
        let log = server.log();
        let mut lines = log.lines().filter(|line| line.contains(why));
        lines.any(|line| {
            named.iter().all(|name| line.contains(name)) && line.contains("connection=")
        })
    });
}
