//! Tests the restrictions of the server process: it runs as a user other than root, gains no privileges, and has access
//! only to the configured files.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use rustix::process::Signal;

use crate::support::http::Http;
use crate::support::{Options, Server, Socket, USUAL, get, until};

/// The id of Debian's user `nobody`.
const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the value of a line of `/proc/PID/status`, with single spaces.
fn of_status(pid: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let words: Vec<&str> = line.expect("there").split_whitespace().collect();
    words.join(" ")
}

#[test]
fn the_confined_process_serves_ports_bound_by_root() {
    if !is_root() {
        eprintln!("not root: nothing tested");
        return;
    }
    let options = Options {
        server: "user = \"nobody\"\nlog_file = \"logs/veche.log\"",
        routes: "[access_log]\nfile = \"logs/access.log\"\n",
        ..Options::default()
    };
    let server = Server::prepared(USUAL, &options, |folder| {
        fs::create_dir_all(folder.join("logs")).expect("a folder");
        fs::create_dir_all(folder.join("site")).expect("a folder");
        let secret = folder.join("site/secret.txt");
        fs::write(&secret, "of root").expect("written");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("set");
    });
    let pid = server.pid();
    let all = [NOBODY.to_string().as_str()].repeat(4).join(" ");
    assert_eq!(of_status(pid, "Uid:"), all);
    assert!(!of_status(pid, "Gid:").split(' ').any(|gid| gid == "0"));
    assert_eq!(of_status(pid, "Groups:"), "");
    assert_eq!(of_status(pid, "NoNewPrivs:"), "1");
    assert_eq!(of_status(pid, "CapEff:"), "0000000000000000");

    assert_eq!(get(server.public, "/index.html").status, 200);
    let refused = get(server.public, "/secret.txt");
    assert!(
        refused.status >= 400 && !refused.text().contains("of root"),
        "{refused:?}"
    );
    let mut echo = Socket::open(server.public, "/echo");
    echo.say("a");
    assert_eq!(echo.text(), "a");

    // The folder belongs to root, so the server's user is made the owner of each log file,
    // including reopened ones.
    let logs = server.folder.join("logs");
    let text = |name: &str| fs::read_to_string(logs.join(name)).unwrap_or_default();
    let is_written = || {
        text("veche.log").contains("workers are up") && text("access.log").contains("/secret.txt")
    };
    until("lines of the server process", is_written);
    for name in ["veche.log", "access.log"] {
        assert_eq!(fs::metadata(logs.join(name)).expect("there").uid(), NOBODY);
        fs::rename(logs.join(name), logs.join("old")).expect("moved");
    }
    server.signal(Signal::USR1);
    until("new files", || {
        get(server.public, "/again");
        text("access.log").contains("/again")
            && text("veche.log").contains("process: log files reopened")
    });
    // A reload is checked by the supervisor and applied by the server process.
    assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
    echo.say("b");
    assert_eq!(echo.text(), "b");
    // The server process that replaces a killed one is confined in the same way.
    crate::support::process::end(pid);
    until("another server process", || {
        server.try_pid().is_some_and(|next| next != pid)
    });
    assert_eq!(of_status(server.pid(), "Uid:"), all);
}

#[test]
fn a_user_that_is_not_there_is_no_start() {
    let server = Server::start(USUAL);
    server.configure(&Options {
        server: "user = \"veche-has-no-such-user\"\ncontrol = \"other.sock\"",
        ..Options::default()
    });
    let output = server.command(&["serve"]).output().expect("it runs");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(5), "{printed}");
    assert!(
        printed.contains("no user \"veche-has-no-such-user\""),
        "{printed}"
    );
}

#[test]
fn a_server_in_its_sandbox_does_all_its_work() {
    let app = "local app = {}\nfunction app.request() return \"from lua\" end\nreturn app\n";
    let options = Options {
        server: "sandbox = true\nlog_file = \"logs/veche.log\"\nlog_rotate = \"4KiB\"",
        routes: "[access_log]\nfile = \"logs/access.log\"\nrotate = \"4KiB\"\n\
                 [[route]]\npath = \"/lua\"\nhandler = \"lua\"\nscript = \"app.lua\"\n",
        files: &[("app.lua", app), ("logs/.keep", "")],
        ..Options::default()
    };
    let prepared = |folder: &std::path::Path| {
        fs::create_dir_all(folder.join("logs")).expect("a folder");
        if is_root() {
            // Even a server process that runs as root is confined.
            chown(folder.join("logs"), Some(0), Some(0)).expect("ours");
        }
    };
    let server = Server::prepared(USUAL, &options, prepared);
    assert_eq!(of_status(server.pid(), "NoNewPrivs:"), "1");
    let mut client = Http::connect(server.public);
    let rotated = server.folder.join("logs/access.log.1");
    until("a rotated log", || {
        client
            .raw(b"GET /index.html HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        assert_eq!(client.response().expect("an answer").status, 200);
        rotated.exists()
    });
    assert_eq!(get(server.public, "/lua").text(), "from lua");
    let mut echo = Socket::open(server.public, "/echo");
    assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
    echo.say("a");
    assert_eq!(echo.text(), "a");
    assert_eq!(get(server.public, "/lua").text(), "from lua");
    assert_eq!(get(server.internal, "/metrics").status, 200);
}

/// The server process must be able to store ACME certificates, even in a folder owned by root.
#[test]
fn the_cache_of_certificates_is_given_to_the_user() {
    if !is_root() {
        eprintln!("not root: nothing tested");
        return;
    }
    let options = Options {
        server: "user = \"nobody\"",
        listen: "tls = { acme = [\"a.veche.test\"] }",
        // No server listens at this address.
        routes: "[acme]\ndirectory = \"https://127.0.0.1:1/dir\"\n",
        ..Options::default()
    };
    let server = Server::with(USUAL, &options);
    let cache = server.folder.join("acme/127.0.0.1-1-dir");
    until("the first try", || {
        server
            .log()
            .contains("there is no certificate to present; the next attempt is in ")
    });
    for path in [&cache, &cache.join("a.veche.test-9646ee1a.attempts")] {
        assert_eq!(fs::metadata(path).expect("there").uid(), NOBODY, "{path:?}");
    }
    assert_eq!(fs::metadata(&server.folder).expect("there").uid(), 0);
}

/// Scripts may save files in one folder only; the error message names it.
#[test]
fn tables_are_saved_in_a_sandbox_where_the_config_says() {
    let app = r#"
        local app = {}
        local veche = require("veche")
        local t = veche.table("t", { key = "id:u32", columns = { mark = "u8" } })
        function app.request(req)
          local done, said = pcall(t[req.query.how], t, req.query.path)
          return tostring(said)
        end
        return app"#;
    let routes = "[[route]]\npath = \"/lua\"\nhandler = \"lua\"\nscript = \"app.lua\"\n";
    let user = if is_root() { "user = \"nobody\"" } else { "" };
    let with = |more: &str, test: &dyn Fn(&Server)| {
        let options = Options {
            server: &format!("sandbox = true\n{user}\n{more}"),
            routes,
            files: &[("app.lua", app)],
            ..Options::default()
        };
        test(&Server::with(USUAL, &options));
    };
    let ask = |server: &Server, how: &str, path: &str| {
        get(server.public, &format!("/lua?how={how}&path={path}"))
            .text()
            .to_owned()
    };
    with("", &|server| {
        let received = ask(server, "save", "t.table");
        assert!(
            received.contains("set a folder for them in server.snapshots"),
            "{received}"
        );
    });
    with("snapshots = \"tables\"", &|server| {
        let log = server.log();
        assert!(log.contains("sandbox enforced=files"), "{log}");
        for path in ["t.table", "t.table"] {
            assert_eq!(ask(server, "save", path), "0");
        }
        assert_eq!(ask(server, "load", "t.table"), "0");
        let folder = server.folder.join("tables");
        for (path, mode) in [(folder.join("t.table"), 0o600), (folder.clone(), 0o700)] {
            let found = fs::metadata(&path).expect("there");
            assert_eq!(found.mode() & 0o777, mode, "{path:?}");
            if is_root() {
                assert_eq!(found.uid(), NOBODY, "{path:?}");
            }
        }
        for path in ["../t.table", "/tmp/t.table"] {
            let received = ask(server, "save", path);
            assert!(
                received.contains("(server.snapshots), not as"),
                "{received}"
            );
        }
    });
}
