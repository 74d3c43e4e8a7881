//! Tests the real binary as a shell sees it: output, errors, exit codes. The tests simulate servers.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

#[path = "config_cli/hints.rs"]
mod hints;
#[path = "config_cli/migrate.rs"]
mod migrate;
#[path = "config_cli/new.rs"]
mod new;
#[path = "config_cli/readiness.rs"]
mod readiness;

/// A temporary folder for each test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("veche-cli-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the temporary folder is writable");
        Self(path)
    }

    fn write(&self, text: &str) {
        fs::write(self.0.join("veche.toml"), text).expect("the folder is writable");
    }

    fn veche(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_veche"));
        command.current_dir(&self.0).args(args).stdin(Stdio::null());
        command
    }

    /// Runs a command and returns exit code, standard output and standard error.
    fn run(&self, args: &[&str]) -> (i32, String, String) {
        seen(self.veche(args).output().expect("the binary runs"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn seen(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).expect("output is text");
    (
        output.status.code().unwrap_or(-1),
        text(output.stdout),
        text(output.stderr),
    )
}

const GOOD: &str = "\
[[listen]]
address = \"127.0.0.1:8080\"
[[listen]]
address = \"127.0.0.1:8082\"
role = \"push\"
[[route]]
path = \"/\"
handler = \"static\"
root = \"builtin:demo\"
";

#[test]
fn check() {
    let folder = Folder::new("check");
    let (code, out, err) = folder.run(&["check"]);
    let missing = "veche.toml: can't be read: there is no such file; use another one with -c FILE, or create an application with `veche new NAME`\n";
    assert_eq!((code, out.as_str(), err.as_str()), (1, "", missing));
    folder.write(GOOD);
    let fine = "veche.toml: ok (2 listeners, 1 route)\n".to_owned();
    assert_eq!(folder.run(&["check"]), (0, fine, String::new()));
    let bad = GOOD.replace(
        "address = \"127.0.0.1:8080\"",
        "adress = \"127.0.0.1:8080\"",
    );
    folder.write(&bad.replace("builtin:demo", "builtin:x"));
    let (code, out, err) = folder.run(&["check", "-c", "veche.toml"]);
    let expected = "\
veche.toml:2:1: unknown directive \"adress\" in [[listen]]; did you mean \"address\"?
  2 | adress = \"127.0.0.1:8080\"
    | ^^^^^^
    = example: address = \"127.0.0.1:8080\"
veche.toml:9:8: root: Veche has no built-in files named \"builtin:x\"; did you mean \"builtin:demo\"?
  9 | root = \"builtin:x\"
    |        ^^^^^^^^^^^
    = example: root = \"public\"
";
    assert_eq!((code, out.as_str(), err.as_str()), (1, "", expected));
    let (code, _, err) = folder.run(&["serve"]);
    assert_eq!((code, err.as_str()), (1, expected), "nothing starts");
    folder.write(&GOOD.replace("127.0.0.1:8082", "0.0.0.0:8082"));
    let (code, out, err) = folder.run(&["check"]);
    assert_eq!((code, out.lines().count()), (0, 1));
    assert!(
        err.starts_with("veche.toml:4:11: ") && err.ends_with("(warning)\n"),
        "{err}"
    );
}

/// Neither a check nor a start accepts a static route that could expose the configuration file or a file that
/// the configuration names.
#[test]
fn neither_check_nor_a_start_serves_what_the_configuration_names() {
    let folder = Folder::new("served");
    let file = |name: &str, mode: u32| {
        let path = folder.0.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, "a-secret-that-is-long-enough-for-it\n").expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(path, mode).expect("its mode");
    };
    let link = |to: &str, name: &str| {
        std::os::unix::fs::symlink(to, folder.0.join(name)).expect("a link");
    };
    file("jwt.secret", 0o600);
    file("keys/api.key", 0o600);
    file("keys/page.txt", 0o644);
    file("site/index.html", 0o644);
    link(".", "all");
    link("keys", "shared");
    link("../keys/api.key", "site/api.key");
    let config = |root: &str, key: &str| {
        format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\n[[listen]]\naddress = \"127.0.0.1:0\"\nrole = \"internal\"\n\
             [api]\nkeys = [{{ file = \"{key}\" }}]\n[jwt]\nsecret_file = \"jwt.secret\"\n\
             [[route]]\npath = \"/*\"\nhandler = \"static\"\nroot = \"{root}\"\n"
        )
    };
    for (root, key, holds) in [
        (
            ".",
            "keys/api.key",
            "because . contains veche.toml (this configuration), ",
        ),
        ("all", "keys/api.key", "jwt.secret (token keys)"),
        ("../..", "keys/api.key", "keys/api.key (a key of the API)"),
        ("keys", "keys/api.key", "keys/api.key (a key of the API)"),
        ("shared", "keys/api.key", "keys/api.key (a key of the API)"),
        (
            "keys",
            "shared/api.key",
            "shared/api.key (a key of the API)",
        ),
        // A link in the root is not followed when files are served, but its target is checked.
        ("keys", "site/api.key", "site/api.key (a key of the API)"),
    ] {
        folder.write(&config(root, key));
        for command in ["check", "serve"] {
            let (code, out, err) = folder.run(&[command]);
            assert_eq!((code, out.as_str()), (1, ""), "{command} {root}: {err}");
            let line = "veche.toml:13:8: root: clients could read files that the configuration names, because ";
            assert!(err.starts_with(line), "{err}");
            assert!(
                err.contains(holds) && err.contains("serve a folder without them\n"),
                "{err}"
            );
        }
    }
    for key in ["keys/api.key", "site/api.key"] {
        folder.write(&config("site", key));
        let (code, _, err) = folder.run(&["check"]);
        assert_eq!((code, err.as_str()), (0, ""), "{key}");
    }
    // Warnings alone do not make the check fail.
    file("keys/api.key", 0o644);
    folder.write(&config("site", "keys/api.key"));
    let (code, _, err) = folder.run(&["check"]);
    let warning = "veche.toml:7:9: keys: every user of this machine can read keys/api.key; run chmod o= keys/api.key (warning)\n";
    assert_eq!((code, err.as_str()), (0, warning));
}

/// The configuration of every example is valid: users start from the examples.
#[test]
fn the_examples_are_good() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut count = 0;
    for entry in fs::read_dir(examples).expect("the examples") {
        let config = entry.expect("an entry").path().join("veche.toml");
        if !config.is_file() {
            continue;
        }
        let output = Command::new(env!("CARGO_BIN_EXE_veche"))
            .args(["check", "-c"])
            .arg(&config)
            .env(
                "CHAT_SECRET",
                "a secret that is long enough for the signatures",
            )
            .output();
        let (code, _, err) = seen(output.expect("it runs"));
        assert_eq!(code, 0, "{}: {err}", config.display());
        count += 1;
    }
    assert!(count >= 8, "{count} examples");
}

#[test]
fn config_is_toml_that_checks() {
    let folder = Folder::new("config");
    folder.write(&format!(
        "{GOOD}[api]\nkeys = [\"a-secret-of-some-length\"]\n"
    ));
    let (code, out, _) = folder.run(&["config"]);
    assert_eq!(code, 0);
    assert!(
        out.contains("# veche.toml:2\n") && out.contains("# default\n"),
        "{out}"
    );
    assert!(!out.contains("a-secret-of"), "{out}");
    folder.write(&out);
    assert_eq!(folder.run(&["check"]).0, 0, "{out}");
}

#[test]
fn usage() {
    let folder = Folder::new("usage");
    let version = format!("veche {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(folder.run(&["--version"]), (0, version, String::new()));
    let (code, out, _) = folder.run(&["--help"]);
    assert!(code == 0 && out.contains("Exit codes:"), "{out}");
    let both = ["push", "--user", "a", "--channel", "b", "hello"];
    for bad in [
        &["chek"][..],
        &[],
        &["push", "hello"],
        &both,
        &["check", "more"],
    ] {
        assert_eq!(folder.run(bad).0, 2, "{bad:?}");
    }
}

#[test]
fn no_server_answers() {
    let folder = Folder::new("nobody");
    folder.write(GOOD);
    for command in ["status", "reload", "stop"] {
        let expected = "veche: no server answers at ./veche.sock: is it running? (veche serve -c veche.toml)\n";
        assert_eq!(
            folder.run(&[command]),
            (3, String::new(), expected.to_owned()),
            "{command}"
        );
    }
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let (code, _, err) = folder.run(&["push", "--user", "a", "--address", &closed, "hello"]);
    let expected = format!("veche: no push listener answers at {closed}: is it running?\n");
    assert_eq!((code, err), (3, expected));
    folder.write("[[listen]]\naddress = \"127.0.0.1:8080\"\n");
    let (code, _, err) = folder.run(&["push", "--user", "a", "hello"]);
    let expected = "veche.toml: there is no push listener; add [[listen]] with role = \"push\", or use --address\n";
    assert_eq!((code, err.as_str()), (1, expected));
}

/// Simulates the push listener for one connection: responds to each line with `answer`.
fn push_listener(
    answer: impl Fn(&Value) -> Value + Send + 'static,
) -> (String, thread::JoinHandle<Vec<Value>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut requests = Vec::new();
        for line in BufReader::new(socket.try_clone().unwrap()).lines() {
            let request: Value = serde_json::from_str(&line.unwrap()).expect("an object a line");
            writeln!(socket, "{}", answer(&request)).unwrap();
            requests.push(request);
        }
        requests
    });
    (address, server)
}

fn handed_two(request: &Value) -> Value {
    json!({"id": request["id"], "result": {"handed": 2}})
}

#[test]
fn push_one() {
    let folder = Folder::new("push-one");
    let text = "a \"quote\"\n";
    for (args, mut expected) in [
        (
            &["--user", "tester01", text][..],
            json!({"user": "tester01", "data": text}),
        ),
        (
            &["--users", "a,b", "hello"],
            json!({"users": ["a", "b"], "data": "hello"}),
        ),
        (
            &["--channel", "news", "--json", "{\"x\": [1, null]}"],
            json!({"channel": "news", "data": {"x": [1, null]}}),
        ),
        (
            &["--user", "a", "--binary", "\u{1}hi"],
            json!({"user": "a", "binary": "AWhp"}),
        ),
        (
            &["--user", "a", "--", "-x"],
            json!({"user": "a", "data": "-x"}),
        ),
    ] {
        let (address, server) = push_listener(handed_two);
        let args = [&["push", "--address", &address], args].concat();
        let done = "handed to 2 connections\n".to_owned();
        assert_eq!(folder.run(&args), (0, done, String::new()), "{args:?}");
        expected["ack"] = json!(true);
        expected["id"] = json!(1);
        assert_eq!(server.join().unwrap(), [expected]);
    }
    let error = |_: &Value| json!({"id": 1, "error": {"code": 107, "message": "no such user"}});
    let (address, server) = push_listener(error);
    let (code, out, err) = folder.run(&["push", "--address", &address, "--user", "a", "hello"]);
    assert_eq!(
        (code, out.as_str(), err.as_str()),
        (4, "", "veche: no such user (error 107)\n")
    );
    server.join().unwrap();
    let (code, _, err) = folder.run(&[
        "push",
        "--address",
        "127.0.0.1:1",
        "--user",
        "a",
        "--json",
        "{",
    ]);
    assert!(
        code == 2 && err.starts_with("veche: the message is not JSON: "),
        "{err}"
    );
}

/// Pushes the lines of a text to a user by `veche push -`.
fn push_lines(folder: &Folder, address: &str, lines: &str) -> (i32, String, String) {
    let mut child = folder
        .veche(&["push", "--address", address, "--user", "a", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(lines.as_bytes()).unwrap();
    drop(input);
    seen(child.wait_with_output().unwrap())
}

#[test]
fn push_from_standard_input_is_pipelined() {
    const LINES: usize = 5_000;
    let folder = Folder::new("push-many");
    let (address, server) = push_listener(|request| match request["id"].as_u64() {
        Some(3) => json!({"id": 3, "error": {"code": 107, "message": "refused"}}),
        _ => handed_two(request),
    });
    // The last line of the input has no newline.
    let lines: Vec<String> = (1..=LINES).map(|line| format!("line {line}")).collect();
    let (code, out, err) = push_lines(&folder, &address, &lines.join("\n"));
    assert_eq!(out, "4999 pushes, handed to 9998 connections in all\n");
    let expected = "veche: line 3: refused (error 107)\nveche: 1 of 5000 lines were not pushed\n";
    assert_eq!((code, err.as_str()), (4, expected));
    let requests = server.join().unwrap();
    assert_eq!(requests.len(), LINES);
    for (index, request) in requests.iter().enumerate() {
        assert_eq!(request["data"], format!("line {}", index + 1));
    }
}

#[test]
fn a_lone_line_of_standard_input_leaves_at_once() {
    let folder = Folder::new("push-lone");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut child = folder
        .veche(&["push", "--address", &address, "--channel", "c", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    let mut lines = BufReader::new(socket.try_clone().unwrap()).lines();
    for word in ["one", "two"] {
        writeln!(input, "{word}").unwrap();
        let request: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(request["data"], word);
        writeln!(socket, "{}", handed_two(&request)).unwrap();
    }
    drop(input);
    assert!(child.wait().unwrap().success());
}

/// Simulates the supervisor for as many commands as there are responses.
fn supervisor(folder: &Folder, answers: Vec<Value>) -> thread::JoinHandle<Vec<Value>> {
    let listener = UnixListener::bind(folder.0.join("veche.sock")).unwrap();
    thread::spawn(move || {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut socket, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(socket.try_clone().unwrap())
                .read_line(&mut line)
                .unwrap();
            requests.push(serde_json::from_str(&line).unwrap());
            writeln!(socket, "{answer}").unwrap();
        }
        requests
    })
}

#[test]
fn status_and_reload() {
    let folder = Folder::new("control");
    folder.write("[[listen]]\nbroken = 1\n");
    let status =
        json!({"version": "9.9", "supervisor": {"pid": 7, "uptime_ms": 90_000}, "restarts": 0});
    let changes = json!({"ok": true, "changed": ["limits.idle_timeout"], "needs_restart": ["server.workers"]});
    let server = supervisor(
        &folder,
        vec![
            json!({"ok": true, "status": status}),
            json!({"ok": true, "status": status}),
            changes,
            json!({"ok": true, "changed": [], "needs_restart": ["server.workers", "server.io"]}),
            json!({"ok": true, "changed": [], "needs_restart": []}),
            json!({"ok": false, "error": "veche.toml:2:1: unknown directive"}),
            json!("nonsense"),
        ],
    );
    let (code, out, _) = folder.run(&["status"]);
    assert_eq!(
        (code, out.as_str()),
        (
            0,
            "pid       7\nuptime    1m 30s\nversion   9.9\nrestarts  0\n"
        )
    );
    let (code, out, _) = folder.run(&["status", "--json"]);
    assert_eq!(
        (code, serde_json::from_str::<Value>(&out).unwrap()),
        (0, status)
    );
    let (code, out, err) = folder.run(&["reload"]);
    assert_eq!((code, out.as_str()), (0, "reloaded: limits.idle_timeout\n"));
    assert_eq!(
        err,
        "veche: these changes take effect only after a restart: server.workers\n"
    );
    let later =
        "veche: these changes take effect only after a restart: server.workers, server.io\n";
    assert_eq!(
        folder.run(&["reload"]),
        (0, String::new(), later.to_owned()),
        "something did change"
    );
    let same = "reloaded: nothing changed\n";
    assert_eq!(folder.run(&["reload"]), (0, same.to_owned(), String::new()));
    let (code, _, err) = folder.run(&["reload"]);
    assert_eq!(
        (code, err.as_str()),
        (4, "veche: veche.toml:2:1: unknown directive\n")
    );
    let (code, _, err) = folder.run(&["status"]);
    assert_eq!(
        (code, err.as_str()),
        (4, "veche: the server refused without a reason\n")
    );
    let requests = server.join().unwrap();
    assert_eq!(requests[0], json!({"version": 1, "command": "status"}));
    assert_eq!(requests[2], json!({"version": 1, "command": "reload"}));
}

#[test]
fn stop_waits_until_the_process_is_gone() {
    let folder = Folder::new("stop");
    folder.write(GOOD);
    // `stop` waits until `sleeper` has ended, because the responses of the simulated supervisor contain its pid.
    let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
    let status = json!({"ok": true, "status": {"supervisor": {"pid": sleeper.id()}}});
    let ok = json!({"ok": true});
    let server = supervisor(&folder, vec![status.clone(), ok.clone(), status, ok]);
    let (code, out, err) = folder.run(&["stop", "--timeout", "300ms"]);
    assert_eq!((code, out.as_str()), (6, ""));
    assert!(err.contains("is still running"), "{err}");
    let stop = folder
        .veche(&["stop", "--now"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    sleeper.kill().unwrap();
    let (code, out, _) = seen(stop.wait_with_output().unwrap());
    assert_eq!((code, out.as_str()), (0, "stopped\n"));
    sleeper.wait().unwrap();
    let requests = server.join().unwrap();
    assert_eq!(requests[1], json!({"version": 1, "command": "stop"}));
    assert_eq!(
        requests[3],
        json!({"version": 1, "command": "stop", "now": true})
    );
}

#[test]
fn check_loads_the_scripts() {
    let folder = Folder::new("scripts");
    folder.write(&format!(
        "{GOOD}\n[[route]]\npath = \"/lua\"\nhandler = \"lua\"\nscript = \"app.lua\"\n"
    ));
    let check = |script: &str| {
        fs::write(folder.0.join("app.lua"), script).expect("the folder is writable");
        folder.run(&["check"])
    };
    let (code, out, _) = check("return { message = function(conn, data) conn:send(data) end }");
    assert!(code == 0 && out.contains("ok"), "{out}");
    for (script, words) in [
        ("return {\n  message = function(\n", "app.lua:3"),
        ("return {}, error('at load')", "app.lua:1: at load"),
        ("while true do end", "ran too long"),
        ("return nil", "returns nil"),
    ] {
        let (code, _, error) = check(script);
        assert!(
            code == 1 && error.contains(words),
            "{script}: {code} {error}"
        );
    }
}

#[test]
fn reload_says_that_scripts_were_looked_at() {
    let folder = Folder::new("control-scripts");
    // The environment of `veche reload` may lack variables that the configuration names.
    let route = "[[route]]\npath = \"/lua\"\nhandler = \"lua\"\nscript = \"app.lua\"\n";
    folder.write(&format!(
        "{GOOD}{route}[hooks]\nsecrets = {{ env = \"NOT_HERE\" }}\n"
    ));
    fs::write(folder.0.join("app.lua"), "return {}").expect("the folder is writable");
    let server = supervisor(
        &folder,
        vec![
            json!({"ok": true, "changed": [], "needs_restart": [], "has_scripts": true}),
            json!({"ok": true, "changed": ["server.log"], "needs_restart": [], "has_scripts": true}),
            json!({"ok": true, "changed": [], "needs_restart": [], "has_scripts": false}),
        ],
    );
    for expected in [
        "reloaded: scripts that changed\n",
        "reloaded: server.log, scripts that changed\n",
        "reloaded: nothing changed\n",
    ] {
        assert_eq!(
            folder.run(&["reload"]),
            (0, expected.to_owned(), String::new())
        );
    }
    assert_eq!(server.join().expect("it answered").len(), 3);
}

/// With `--unsupervised`, which is for tools such as Valgrind, one process serves and drains.
#[test]
fn without_a_supervisor_one_process_serves() {
    let folder = Folder::new("unsupervised");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound");
    folder.write(&format!(
        "[[listen]]\naddress = \"{address}\"\n[[route]]\npath = \"/echo\"\nhandler = \"echo\"\n"
    ));
    let (code, _, printed) = folder.run(&["serve", "--unsupervised"]);
    assert_eq!(code, 5, "{printed}");
    assert!(printed.contains("in use"), "{printed}");
    drop(taken);

    let mut command = folder.veche(&["serve", "--unsupervised"]);
    let mut server = command.stderr(Stdio::null()).spawn().expect("it starts");
    let answer = (0..1000).find_map(|_| {
        thread::sleep(Duration::from_millis(10));
        let mut client = TcpStream::connect(address).ok()?;
        let request = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n";
        client.write_all(request).ok()?;
        let mut line = String::new();
        BufReader::new(client).read_line(&mut line).ok()?;
        Some(line)
    });
    assert_eq!(answer.as_deref(), Some("HTTP/1.1 404 Not Found\r\n"));
    let pid = server.id();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    assert_eq!(children.unwrap_or_default(), "", "it has no other process");
    let killed = Command::new("kill").arg(pid.to_string()).status();
    assert!(killed.expect("kill runs").success());
    let ended = server.wait().expect("a child");
    assert!(ended.success(), "{ended}");
}
