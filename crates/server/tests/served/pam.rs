//! `identity = "pam:SERVICE"` on the real server, with PAM rules and a module script that the test
//! creates.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;
use serde_json::json;

use crate::support::http::Response;
use crate::support::metrics::Metrics;
use crate::support::{Http, Options, Server, Setup, Socket, USUAL, call, on_all, process, until};

/// The script run by `pam_exec`: it records its run, waits while a file `hold` exists, and checks the password. The
/// password `crash` makes it kill the helper.
const CHECK: &str = r#"
here=$1
password=$(tr -d '\0')
echo "$PAM_USER from $PAM_RHOST for $PAM_SERVICE tty<$PAM_TTY>" >> "$here/asked"
env >> "$here/environment"
while [ -e "$here/hold" ]; do sleep 0.02; done
case "$password" in
  crash) kill -9 $PPID ;;
  "right:$PAM_USER" | pässwörd) exit 0 ;;
esac
exit 1
"#;

const APP: &str = r#"
local app = {}
function app.open(conn) conn:send("user " .. tostring(conn.user)) end
function app.request(req)
  return req.user .. " " .. #req.body .. " " .. tostring(req.headers.authorization)
end
return app
"#;

/// The folder of a test's rules, and of its script's files.
struct Rules(PathBuf);

impl Rules {
    /// Creates the rules. If PAM is not installed, prints that and returns `None`.
    fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !has_module() {
            eprintln!("PAM is not on this machine (libpam0g, libpam-modules): nothing tested");
            return None;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("veche-pam-{}-{number}", std::process::id());
        let rules = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(&rules.0).expect("a folder");
        let folder = rules.0.display();
        let check = format!("pam_exec.so quiet expose_authtok /bin/sh {folder}/check.sh {folder}");
        let fine = "account required pam_permit.so\n";
        rules.write("check.sh", CHECK);
        rules.write("usual", &format!("auth required {check}\n{fine}"));
        rules.write("other-one", &format!("auth required {check}\n{fine}"));
        rules.write(
            "ended",
            &format!("auth required {check}\naccount required pam_deny.so\n"),
        );
        // Rules that accept guests' addresses as passwords, and map all guests to "guest".
        rules.write(
            "mapped",
            &format!("auth required pam_ftp.so users=guest,visitor\n{fine}"),
        );
        rules.write("broken", &format!("auth required pam_not_there.so\n{fine}"));
        // Rules that prompt twice.
        rules.write(
            "two",
            &format!(
                "auth required pam_ftp.so users=a,b ignore\nauth required pam_unix.so\n{fine}"
            ),
        );
        Some(rules)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).expect("written");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }

    /// Returns the number of the script's runs.
    fn asked(&self) -> usize {
        self.read("asked").lines().count()
    }

    fn hold(&self) {
        self.write("hold", "");
    }

    fn go(&self) {
        fs::remove_file(self.0.join("hold")).expect("held");
    }

    /// Returns one route for each handler, all with this service.
    fn routes(&self, service: &str, pam: &str) -> String {
        let service = self.0.join(service);
        let identity = format!("identity = \"pam:{}\"", service.display());
        format!(
            "[[route]]\npath = \"/pam\"\nhandler = \"push\"\n{identity}\n\
             [[route]]\npath = \"/lua/*\"\nhandler = \"lua\"\nscript = \"app.lua\"\n{identity}\n\
             [pam]\n{pam}\n"
        )
    }

    fn serve(&self, setup: Setup, service: &str, pam: &str) -> Server {
        let options = Options {
            routes: &self.routes(service, pam),
            files: &[("app.lua", APP)],
            log: "debug",
            ..Options::default()
        };
        Server::with(setup, &options)
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns whether the PAM module `pam_exec` is installed.
fn has_module() -> bool {
    let libraries = ["/lib", "/lib64", "/usr/lib", "/usr/lib64"];
    let folders = libraries.iter().flat_map(|folder| {
        let inner = fs::read_dir(folder).into_iter().flatten().flatten();
        let inner = inner.map(|entry| entry.path());
        inner.chain([PathBuf::from(folder)])
    });
    let mut modules = folders.map(|folder| folder.join("security/pam_exec.so"));
    modules.any(|module| module.exists())
}

fn basic(credentials: impl AsRef<[u8]>) -> String {
    let encoded = STANDARD.encode(credentials);
    format!("Authorization: Basic {encoded}\r\n")
}

fn handshake(server: &Server, target: &str, headers: &str) -> Response {
    let mut http = Http::connect(server.public);
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    );
    http.raw(request.as_bytes()).expect("the server reads");
    http.head().expect("an answer")
}

fn status(server: &Server, credentials: &str) -> u16 {
    handshake(server, "/pam", &basic(credentials)).status
}

fn open(server: &Server, target: &str, credentials: &str) -> Socket {
    let socket = TcpStream::connect(server.public).expect("a connection");
    let value = format!("Basic {}", STANDARD.encode(credentials));
    Socket::upgrade(socket, target, &[("Authorization", &value)]).expect("it opens")
}

fn checks(server: &Server, outcome: &str) -> f64 {
    let label = format!("outcome=\"{outcome}\"");
    Metrics::scrape(server.internal).sum("veche_pam_checks_total", &[&label])
}

fn gauge(server: &Server, name: &str) -> f64 {
    Metrics::scrape(server.internal).sum(name, &[])
}

/// Returns the helper processes of a server process.
fn helpers(server: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("a /proc");
    let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers
        .filter(|&pid: &u32| {
            let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}"));
            let (line, stat) = (
                read("cmdline").unwrap_or_default(),
                read("stat").unwrap_or_default(),
            );
            let parent = stat
                .rsplit(") ")
                .next()
                .and_then(|rest| rest.split(' ').nth(1));
            line.contains("pam-helper") && parent == Some(&server.to_string())
        })
        .collect()
}

#[test]
fn pam_names_the_user() {
    let Some(rules) = Rules::new() else { return };
    on_all(|setup| {
        let server = rules.serve(
            setup,
            "usual",
            "realm = \"the chat\"\nwrong_per_address = \"off\"",
        );
        let mut ann = open(&server, "/pam", "ann:right:ann");
        call(
            server.internal,
            "push",
            &json!({"user": "ann", "data": "hello"}),
        );
        assert_eq!(ann.text(), "hello");
        let mut bob = open(&server, "/lua/x", "bob:pässwörd");
        assert_eq!(bob.text(), "user bob");

        for headers in [
            String::new(),
            "Authorization: Bearer abc\r\n".to_owned(),
            "Authorization: Basic\r\n".to_owned(),
            "Authorization: Basic !!!!\r\n".to_owned(),
            basic("ann"),
            basic("ann:"),
            basic(":right:"),
            basic("ann:right:\0ann"),
            basic("ann:\0"),
            basic(b"\xff:right"),
            basic("ann:wrong-word"),
            basic("bob:right:ann"),
            basic("ann:right:ann "),
        ] {
            for target in ["/pam", "/lua/x"] {
                let refused = handshake(&server, target, &headers);
                assert_eq!(refused.status, 401, "{headers}");
                assert_eq!(
                    refused.header("www-authenticate"),
                    Some("Basic realm=\"the chat\", charset=\"UTF-8\"")
                );
            }
        }
        // A handshake from a foreign origin is refused before the password is checked.
        let before = rules.asked();
        let foreign = format!("Origin: https://evil.example\r\n{}", basic("eve:right:eve"));
        assert_eq!(handshake(&server, "/pam", &foreign).status, 403);
        assert!(!rules.read("asked").contains("eve"), "{before}");

        let mut http = Http::connect(server.public);
        let mut ask = |headers: &str, body: &[u8]| {
            let response = http.request("POST", "/lua/x", headers, body);
            response.expect("an answer")
        };
        let fine = basic("ann:right:ann");
        assert_eq!(ask(&fine, b"").text(), "ann 0 nil");
        assert_eq!(ask(&fine, b"12345").text(), "ann 5 nil");
        // A page that requires a password has to reject anonymous requests, or browsers would not prompt.
        for headers in [String::new(), basic("ann:wrong-word")] {
            let refused = ask(&headers, b"12345");
            assert_eq!(refused.status, 401);
            let challenge = refused.header("www-authenticate").expect("a challenge");
            assert!(challenge.starts_with("Basic realm="), "{challenge}");
        }
        assert_eq!(ask(&fine, b"1").text(), "ann 1 nil");

        let asked = rules.read("asked");
        let line = "ann from 127.0.0.1 for usual tty<>";
        assert!(asked.lines().any(|one| one == line), "{asked}");
        let log = server.log();
        let encoded = STANDARD.encode("ann:right:ann");
        for secret in ["right:", "pässwörd", "wrong-word", &encoded] {
            assert!(!log.contains(secret), "{secret} in {log}");
        }
        until("a word of who was refused", || {
            let log = server.log();
            log.contains("refused: ") && log.contains("wrong user name or password")
        });
        drop((ann, bob));
    });
    let environment = rules.read("environment");
    assert!(
        !environment.contains("HOME=") && !environment.contains("CARGO"),
        "{environment}"
    );
}

#[test]
fn rules_have_the_last_word() {
    let Some(rules) = Rules::new() else { return };
    let server = rules.serve(USUAL, "ended", "");
    // The password is right, but the account is not admitted.
    assert_eq!(status(&server, "ann:right:ann"), 401);
    assert_eq!(rules.asked(), 1);
    let server = rules.serve(USUAL, "mapped", "");
    let mut socket = open(&server, "/lua/x", "visitor:me@example.org");
    assert_eq!(socket.text(), "user guest");
    let server = rules.serve(USUAL, "broken", "");
    let failed = handshake(&server, "/pam", &basic("ann:right:ann"));
    assert_eq!(failed.status, 503);
    assert_eq!(failed.header("retry-after"), Some("1"));
    assert_eq!(checks(&server, "failed"), 1.0);
    until("a word of it in the log", || {
        server.log().contains("broken: ")
    });
    // Missing rules are not replaced by PAM's service "other".
    fs::remove_file(rules.0.join("broken")).expect("there");
    assert_eq!(status(&server, "ann:right:ann"), 503);
    let server = rules.serve(USUAL, "two", "");
    assert_eq!(status(&server, "ann:right:ann"), 401);
}

/// Returns the PAM rules in the guide.
fn rules_of_the_guide() -> Vec<String> {
    let guide = include_str!("../../../../docs/guide/identity.md");
    let blocks = guide.split("```text\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    let rules = blocks.filter(|block| block.starts_with("auth "));
    rules.map(str::to_owned).collect()
}

#[test]
fn rules_of_the_guide_refuse_wrong_passwords() {
    let Some(rules) = Rules::new() else { return };
    let all = rules_of_the_guide();
    assert_eq!(all.len(), 2);
    let folder = rules.0.display();
    let counted = rules.0.join("counted");
    let check = format!("pam_exec.so quiet expose_authtok /bin/sh {folder}/check.sh {folder}");
    // Replaces the PAM module of the directory service, which the guide names, by a module of the test.
    let with = |text: &str, module: &str| {
        let lines = text.lines().map(|line| match line.starts_with("auth") {
            true => line.replace("pam_sss.so", module),
            false => line.replace("pam_sss.so", "pam_permit.so"),
        });
        let kept = format!("dir={} deny=1", counted.display());
        let lines: Vec<String> = lines
            .map(|line| line.replace("dir=/var/lib/veche/faillock", &kept))
            .collect();
        lines.join("\n") + "\n"
    };
    let pam = "cache_time = \"off\"\ntimeout = \"60s\"";
    for text in all {
        let _ = fs::remove_dir_all(&counted);
        fs::create_dir(&counted).expect("a folder");
        rules.write("guide", &with(&text, "pam_deny.so"));
        let server = rules.serve(USUAL, "guide", pam);
        assert_eq!(status(&server, "daemon:right:daemon"), 401, "{text}");
        drop(server);
        rules.write("guide", &with(&text, &check));
        let server = rules.serve(USUAL, "guide", pam);
        // The account `nobody` exists on every machine.
        assert_eq!(status(&server, "nobody:right:nobody"), 101, "{text}");
        assert_eq!(status(&server, "nobody:wrong"), 401, "{text}");
        let is_locked = text.contains("pam_faillock");
        let after = if is_locked { 401 } else { 101 };
        assert_eq!(status(&server, "nobody:right:nobody"), after, "{text}");
    }
}

#[test]
fn a_slow_module_does_not_delay_other_clients() {
    let Some(rules) = Rules::new() else { return };
    let server = rules.serve(
        Setup {
            io: "epoll",
            workers: 1,
        },
        "usual",
        "waiting = 2\nhelpers = 1\ntimeout = \"60s\"\nhelper_idle = \"100ms\"\nwrong_per_address = \"off\"",
    );
    let mut echo = Socket::open(server.public, "/echo");
    rules.hold();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| status(&server, "ann:right:ann")))
            .collect();
        until("both to wait", || {
            gauge(&server, "veche_pam_waiting") == 2.0
        });
        until("one to be asked about", || rules.asked() == 1);
        assert_eq!(checks(&server, "joined"), 1.0);
        for number in 0..100 {
            echo.say(&number.to_string());
            assert_eq!(echo.text(), number.to_string());
        }
        // The maximum number of requests is waiting, so a further request is rejected.
        let crowded = handshake(&server, "/pam", &basic("bob:right:bob"));
        assert_eq!(crowded.status, 503);
        assert_eq!(crowded.header("retry-after"), Some("1"));
        assert_eq!(checks(&server, "crowded"), 1.0);
        rules.go();
        for one in waiting {
            assert_eq!(one.join().expect("no panic"), 101);
        }
    });
    assert_eq!((rules.asked(), checks(&server, "named")), (1, 1.0));
    // A client that disconnects while it waits leaves nothing behind.
    rules.hold();
    let mut gone = Http::connect(server.public);
    let request = format!(
        "GET /lua/x HTTP/1.1\r\nHost: test\r\n{}\r\n",
        basic("dan:right:dan")
    );
    gone.raw(request.as_bytes()).expect("the server reads");
    until("it to wait", || gauge(&server, "veche_pam_waiting") == 1.0);
    drop(gone);
    drop(echo);
    server.await_connections(0);
    rules.go();
    until("no request to wait", || {
        gauge(&server, "veche_pam_waiting") == 0.0
    });
    // Helpers that are idle for a while end.
    until("no helper", || helpers(server.pid()).is_empty());
    until("none to be counted", || {
        gauge(&server, "veche_pam_helpers") == 0.0
    });
    assert_eq!(status(&server, "ann:right:ann"), 101);
}

#[test]
fn several_helpers_work_side_by_side() {
    let Some(rules) = Rules::new() else { return };
    let server = rules.serve(USUAL, "usual", "helpers = 3\ntimeout = \"60s\"");
    rules.hold();
    let names = ["ann", "bob", "dan", "eve"];
    std::thread::scope(|scope| {
        let server = &server;
        let waiting =
            names.map(|name| scope.spawn(move || status(server, &format!("{name}:right:{name}"))));
        until("three to be asked about", || rules.asked() == 3);
        assert_eq!(helpers(server.pid()).len(), 3);
        assert_eq!(gauge(server, "veche_pam_waiting"), 4.0);
        rules.go();
        for one in waiting {
            assert_eq!(one.join().expect("no panic"), 101);
        }
    });
    assert_eq!(gauge(&server, "veche_pam_helpers"), 3.0);
}

#[test]
fn a_helper_that_dies_is_replaced() {
    let Some(rules) = Rules::new() else { return };
    on_all(|setup| {
        let server = rules.serve(setup, "usual", "helpers = 1\ncache_time = \"off\"");
        for _ in 0..3 {
            assert_eq!(status(&server, "ann:crash"), 503);
            assert_eq!(status(&server, "ann:right:ann"), 101);
        }
        assert_eq!(checks(&server, "failed"), 3.0);
        // An idle helper is killed.
        let before = helpers(server.pid());
        assert_eq!(before.len(), 1);
        process::end(before[0]);
        until("it to be gone", || !process::is_alive(before[0]));
        assert_eq!(status(&server, "bob:right:bob"), 101);
        assert!(
            server.log().contains("the helper ended"),
            "{}",
            server.log()
        );
    });
}

#[test]
fn a_password_check_that_times_out_is_charged() {
    let Some(rules) = Rules::new() else { return };
    let pam = "helpers = 1\ncache_time = \"10m\"\ntimeout = \"5s\"\nwrong_per_address = \"2/h\"";
    let server = rules.serve(USUAL, "usual", pam);
    assert_eq!(status(&server, "ann:right:ann"), 101);
    let before = helpers(server.pid());
    rules.hold();
    assert_eq!(status(&server, "bob:right:bob"), 503);
    rules.go();
    until("it to be over", || !process::is_alive(before[0]));
    until("another one to do its work", || {
        status(&server, "bob:right:bob") == 101
    });
    assert!(
        server.log().contains("the helper did not answer within 5s"),
        "{}",
        server.log()
    );
    // The check that timed out counts as a wrong password of its address, and so does a check whose helper dies.
    assert_eq!(status(&server, "eve:crash"), 503);
    assert_eq!(status(&server, "dan:right:dan"), 429);
    // A cached result is used although the limit of wrong passwords is reached.
    assert_eq!(status(&server, "bob:right:bob"), 101);
}

#[test]
fn right_passwords_are_known_for_a_moment_and_until_a_reload() {
    let Some(rules) = Rules::new() else { return };
    let pam = "cache_time = \"10m\"\nwrong_per_address = \"off\"";
    let server = rules.serve(USUAL, "usual", pam);
    for _ in 0..3 {
        assert_eq!(status(&server, "ann:right:ann"), 101);
    }
    assert_eq!((rules.asked(), checks(&server, "cached")), (1, 2.0));
    // Results for wrong passwords are cached too, for a minute; each service, name and password has a separate entry.
    for _ in 0..3 {
        assert_eq!(status(&server, "ann:right:bob"), 401);
    }
    assert_eq!((rules.asked(), checks(&server, "cached")), (2, 4.0));
    assert_eq!(status(&server, "bob:right:bob"), 101);
    assert_eq!(rules.asked(), 3);
    // A reload discards cached results, since the rules may have changed.
    rules.write(
        "usual",
        "auth required pam_deny.so\naccount required pam_permit.so\n",
    );
    assert_eq!(status(&server, "ann:right:ann"), 101);
    assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
    assert_eq!(status(&server, "ann:right:ann"), 401);
    let reconfigure = |service: &str, pam: &str| {
        server.configure(&Options {
            routes: &rules.routes(service, pam),
            ..Options::default()
        });
        server.ask("reload").expect("an answer")
    };
    assert_eq!(reconfigure("other-one", pam)["ok"], true);
    assert_eq!(status(&server, "ann:right:ann"), 101);
    assert!(rules.read("asked").ends_with("for other-one tty<>\n"));
    // An unusable service is rejected, and nothing changes.
    let refused = reconfigure("missing", pam);
    assert_eq!(refused["ok"], false, "{refused}");
    assert!(refused.to_string().contains("does not exist"), "{refused}");
    assert_eq!(status(&server, "ann:right:ann"), 101);
    // A reload starts new helpers and ends the old ones; without a PAM route there are no helpers.
    let before = helpers(server.pid());
    assert_eq!(
        reconfigure("other-one", "helpers = 2\ncache_time = \"off\"")["ok"],
        true
    );
    assert_eq!(status(&server, "ann:right:ann"), 101);
    until("the helpers before to end", || {
        !before.iter().any(|&pid| process::is_alive(pid))
    });
    server.configure(&Options::default());
    assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
    until("no helper", || helpers(server.pid()).is_empty());
}

#[test]
fn repeated_wrong_passwords_are_delayed() {
    let Some(rules) = Rules::new() else { return };
    on_all(|setup| {
        let server = rules.serve(setup, "usual", "helpers = 1\nwrong_per_address = \"3/h\"");
        assert_eq!(status(&server, "bob:right:bob"), 101);
        for number in [0, 1, 0, 0, 2] {
            assert_eq!(status(&server, &format!("ann:guess-{number}")), 401);
        }
        let refused = handshake(&server, "/pam", &basic("ann:right:ann"));
        assert_eq!(refused.status, 429);
        assert_eq!(refused.header("www-authenticate"), None);
        let wait = refused.header("retry-after").expect("when").parse::<u32>();
        assert!((1..=1200).contains(&wait.expect("seconds")));
        assert_eq!(
            (checks(&server, "refused"), checks(&server, "throttled")),
            (3.0, 1.0)
        );
        // Credentials that can't be parsed are refused without a check.
        assert_eq!(handshake(&server, "/pam", "").status, 401);
    });
}

#[test]
fn a_helper_has_no_descriptors_and_ends_with_the_server() {
    let Some(rules) = Rules::new() else { return };
    let is_root = rustix::process::geteuid().is_root();
    let options = Options {
        routes: &rules.routes("usual", "timeout = \"60s\""),
        files: &[("app.lua", APP)],
        server: if is_root { "user = \"nobody\"" } else { "" },
        ..Options::default()
    };
    let mut server = Server::prepared(USUAL, &options, |_| {
        // The script's files are writable for all.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(&rules.0, open).expect("ours");
    });
    assert_eq!(status(&server, "ann:right:ann"), 101);
    let helper = helpers(server.pid())[0];
    if is_root {
        // The helper's process exposes nothing to other users.
        let folder = PathBuf::from(format!("/proc/{helper}"));
        let descriptors = fs::read_dir(folder.join("fd")).expect("it runs");
        let leads_to = |path: PathBuf| fs::read_link(path).unwrap_or_default();
        let all: Vec<PathBuf> = descriptors
            .flatten()
            .map(|entry| leads_to(entry.path()))
            .collect();
        let other = |path: &&PathBuf| *path != Path::new("/dev/null");
        let sockets = all.iter().filter(other).count();
        assert_eq!((all.len() >= 4, sockets), (true, 1), "{all:?}");
        assert_eq!(fs::read(folder.join("environ")).expect("it runs"), b"");
        let received = fs::read_to_string(folder.join("status")).expect("it runs");
        let words: Vec<&str> = received.split_whitespace().collect();
        let received = words.join(" ");
        assert!(
            received.contains("Uid: 65534 65534") && received.contains("NoNewPrivs: 1"),
            "{received}"
        );
        assert!(received.contains("CapEff: 0000000000000000"), "{received}");
        let limits = fs::read_to_string(folder.join("limits")).expect("it runs");
        let words: Vec<&str> = limits.split_whitespace().collect();
        assert!(
            words.join(" ").contains("Max core file size 0 0"),
            "{limits}"
        );
    }
    // The server process dies during a check.
    let hold = || {
        rules.hold();
        let mut http = Http::connect(server.public);
        let request = format!(
            "GET /lua/x HTTP/1.1\r\nHost: test\r\n{}\r\n",
            basic("dan:right:dan")
        );
        let before = rules.asked();
        http.raw(request.as_bytes()).expect("the server reads");
        until("it to be asked about", || rules.asked() > before);
        http
    };
    let waits = hold();
    let all = helpers(server.pid());
    assert!(!all.is_empty());
    process::end(server.pid());
    until("no helper to be left", || {
        !all.iter().any(|&pid| process::is_alive(pid))
    });
    drop(waits);
    rules.go();
    until("another server process", || {
        server
            .try_pid()
            .is_some_and(|_| status(&server, "ann:right:ann") == 101)
    });
    // The server is stopped during a check.
    let waits = hold();
    let all = helpers(server.pid());
    assert!(!all.is_empty());
    server.signal(Signal::TERM);
    assert_eq!(server.exit_code(), Some(0));
    until("no helper to be left", || {
        !all.iter().any(|&pid| process::is_alive(pid))
    });
    drop(waits);
    rules.go();
}
