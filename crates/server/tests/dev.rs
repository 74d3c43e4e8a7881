//! Tests `veche dev`: saved changes take effect at once. Errors are shown in the log and on pages, and the old
//! code continues.

#[path = "support/mod.rs"]
mod support;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use support::http::Response;
use support::{Http, Socket, free_address, skip};

struct Dev {
    folder: PathBuf,
    address: SocketAddr,
    child: Child,
}

impl Dev {
    /// Starts `veche dev` or `veche serve`.
    fn start(command: &str, name: &str) -> Self {
        let mut veche = Command::new(env!("CARGO_BIN_EXE_veche"));
        veche.args([command, "-c", "veche.toml"]);
        Self::spawn(name, veche)
    }

    /// Starts `veche dev` in a time zone, on a terminal that util-linux's `script` creates.
    fn start_on_terminal(name: &str, time_zone: &str) -> Self {
        let mut script = Command::new("script");
        let line = concat!(env!("CARGO_BIN_EXE_veche"), " dev");
        script.args(["-qefc", line, "/dev/null"]);
        script.env("TZ", time_zone).env_remove("NO_COLOR");
        Self::spawn(name, script)
    }

    /// Starts the command in a folder with an application.
    fn spawn(name: &str, mut command: Command) -> Self {
        let folder = std::env::temp_dir().join(format!("veche-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("lib")).expect("a folder");
        fs::create_dir_all(folder.join("site")).expect("a folder");
        fs::write(folder.join("site/index.html"), PAGE).expect("written");
        let address = free_address();
        fs::write(
            folder.join("veche.toml"),
            format!(
                "[server]\ncontrol = \"veche.sock\"\n[[listen]]\naddress = \"{address}\"\n\
                 [[route]]\npath = \"/*\"\nhandler = \"lua\"\nscript = \"app.lua\"\n\
                 [[route]]\npath = \"/site/*\"\nhandler = \"static\"\nroot = \"site\"\n\
                 [limits]\ndrain_time = \"1h\"\n"
            ),
        )
        .expect("written");
        fs::write(folder.join("lib/words.lua"), "return 'one'").expect("written");
        fs::write(
            folder.join("app.lua"),
            "local words = require 'lib.words'
            return { request = function(req)
              if req.path == '/fail' then error('<b>failed</b> ' .. req.query.why) end
              return words
            end }",
        )
        .expect("written");
        let log = fs::File::create(folder.join("log")).expect("a file");
        let child = command
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .spawn()
            .expect("it starts");
        Self {
            folder,
            address,
            child,
        }
    }

    /// Runs another `veche` command in the folder.
    fn veche(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_veche"));
        command.args(args).current_dir(&self.folder);
        command.output().expect("it runs")
    }

    fn says(&self) -> Option<String> {
        std::net::TcpStream::connect(self.address).ok()?;
        Some(self.get("/").text().to_owned())
    }

    fn get(&self, path: &str) -> Response {
        let mut http = Http::connect(self.address);
        http.request("GET", path, "", b"").expect("an answer")
    }

    /// Connects like the script of a page.
    fn listen(&self) -> Socket {
        Socket::open(self.address, "/_veche/dev?channel=veche-dev")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    #[track_caller]
    fn until(&self, what: &str, happens: impl Fn() -> bool) {
        for _ in 0..400 {
            if happens() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("waited in vain for {what}:\n{}", self.log());
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        self.veche(&["stop", "--now"]);
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

const PAGE: &str = "<!doctype html><title>x</title><p>hello</p>";

/// Returns the next notice of a kind. Each notice is repeated, and notices of other kinds come in between.
#[track_caller]
fn notice(socket: &mut Socket, kind: &str) -> Value {
    loop {
        let notice: Value = serde_json::from_str(&socket.text()).expect("JSON");
        if notice["kind"] == kind {
            return notice;
        }
    }
}

#[test]
fn pages_show_what_looks_wrong() {
    let dev = Dev::start("dev", "dev-warnings");
    dev.until("the start", || dev.says().as_deref() == Some("one"));
    let app = |key: &str| {
        let text =
            format!("return {{ {key} = function() end, request = function() return '{key}' end }}");
        fs::write(dev.folder.join("app.lua"), text).expect("written");
        dev.until("the new code", || dev.says().as_deref() == Some(key));
    };
    app("mesage");
    // A page that connects seconds after the start still receives the warning.
    thread::sleep(Duration::from_secs(4));
    let warning = notice(&mut dev.listen(), "warning");
    let text = warning["text"].as_str().expect("text");
    assert!(text.contains("app.mesage is never called"), "{text}");
    assert!(dev.get("/_veche/dev.js").text().contains("\"warning\""));
    app("message");
    let mut page = dev.listen();
    fs::write(dev.folder.join("app.lua"), "return { opne = print }").expect("written");
    let warning = notice(&mut page, "warning");
    let text = warning["text"].as_str().expect("text");
    assert!(text.contains("app.opne is never called"), "{text}");
}

#[test]
fn the_log_is_short_and_says_what_to_open() {
    let dev = Dev::start("dev", "dev-log");
    dev.until("the start", || dev.says().as_deref() == Some("one"));
    let open = format!("INFO  open http://{}/\n", dev.address);
    dev.until("the address", || dev.log().contains(&open));
    let log = dev.log();
    assert_eq!(log.lines().count(), 1, "{log}");
    let time = log.split(' ').next().expect("a word");
    let is_time = time.len() == 8 && time.split(':').all(|part| part.parse::<u8>().is_ok());
    assert!(is_time, "{log}");
    assert!(!log.contains('\x1b'), "no terminal: {log}");
    // `veche serve` keeps the log format for operators.
    let serve = Dev::start("serve", "dev-log-serve");
    serve.until("the start", || serve.says().as_deref() == Some("one"));
    serve.until("its log", || {
        serve.log().contains("veche::server: workers are up")
    });
}

/// The time zone differs from UTC by half an hour, so the minutes show that local times are logged.
#[test]
fn the_log_is_in_local_time_and_in_colours() {
    let dev = Dev::start_on_terminal("dev-terminal", "<+0530>-05:30");
    dev.until("the address", || dev.log().contains("open http://"));
    let text = dev.log();
    let line = text.lines().find(|line| line.contains("open http://"));
    let line = line.expect("the line");
    let rest = line.strip_prefix("\x1b[2m").expect("a dimmed time");
    assert!(rest.contains("\x1b[32m INFO \x1b[0m"), "{line}");
    let utc = Command::new("date")
        .arg("-u")
        .arg("+%M")
        .output()
        .expect("date");
    let minute: i64 = String::from_utf8_lossy(&utc.stdout)
        .trim()
        .parse()
        .expect("a minute");
    let logged: i64 = rest[3..5].parse().expect("a minute");
    assert!((minute + 30 - logged).rem_euclid(60) < 10, "{line}");
}

#[test]
fn pages_show_errors() {
    let dev = Dev::start("dev", "dev-pages");
    dev.until("the start", || dev.says().as_deref() == Some("one"));
    let page = dev.get("/site/");
    assert!(page.text().starts_with(PAGE), "{}", page.text());
    assert!(
        page.text().contains("src=\"/_veche/dev.js\""),
        "{}",
        page.text()
    );
    let script = dev.get("/_veche/dev.js");
    assert_eq!(script.status, 200);
    assert!(
        script
            .header("Content-Type")
            .is_some_and(|kind| kind.contains("javascript"))
    );
    assert!(script.text().contains("attachShadow"));

    // A connected page and one that connects a moment later receive the same failure.
    let mut early = dev.listen();
    assert_eq!(dev.get("/fail?why=you%22").status, 500);
    let error = notice(&mut early, "error");
    assert_eq!(error["title"], "app.lua");
    let text = error["text"].as_str().expect("text");
    assert!(
        text.starts_with("app.lua:3: <b>failed</b> you\"\nstack traceback:\n"),
        "{text}"
    );
    assert_eq!(notice(&mut dev.listen(), "error")["id"], error["id"]);

    // The notice of a rejected reload is repeated until a reload succeeds.
    fs::write(dev.folder.join("lib/words.lua"), "return = 'two'").expect("written");
    let refused = notice(&mut early, "refused");
    assert!(
        refused["text"]
            .as_str()
            .is_some_and(|text| text.contains("lib/words.lua:1")),
        "{refused}"
    );
    thread::sleep(Duration::from_secs(4));
    assert_eq!(notice(&mut dev.listen(), "refused")["id"], refused["id"]);
    fs::write(dev.folder.join("lib/words.lua"), "return 'two'").expect("written");
    notice(&mut early, "reloaded");
    // Pages also show the error of an invalid configuration.
    let config = fs::read_to_string(dev.folder.join("veche.toml")).expect("a config");
    fs::write(
        dev.folder.join("veche.toml"),
        format!("{config}\nhandlr = 5\n"),
    )
    .expect("written");
    let refused = notice(&mut early, "refused");
    assert!(
        refused["text"]
            .as_str()
            .is_some_and(|text| text.contains("handlr")),
        "{refused}"
    );
    fs::write(dev.folder.join("veche.toml"), config).expect("written");
    notice(&mut early, "reloaded");

    // Changed page files make pages reload; scripts alone don't.
    fs::write(dev.folder.join("site/style.css"), "p { color: red }").expect("written");
    notice(&mut early, "files");
    let fresh = dev.get("/site/style.css");
    assert_eq!(fresh.text(), "p { color: red }");
}

#[test]
fn serve_shows_no_errors_on_pages() {
    let serve = Dev::start("serve", "dev-not");
    serve.until("the start", || serve.says().as_deref() == Some("one"));
    assert_eq!(serve.get("/site/").text(), PAGE);
    // Under `veche serve`, paths below `/_veche/` belong to the application, like all other paths.
    assert_eq!(serve.get("/_veche/dev.js").text(), "one");
    assert_eq!(serve.get("/_veche/dev").text(), "one");
}

#[test]
fn saved_changes_take_effect() {
    let dev = Dev::start("dev", "dev");
    dev.until("the start", || dev.says().as_deref() == Some("one"));
    // Editors save in this way: a new file replaces the old one.
    fs::write(dev.folder.join("lib/words.lua~"), "return 'two'").expect("written");
    let words = dev.folder.join("lib/words.lua");
    fs::rename(dev.folder.join("lib/words.lua~"), &words).expect("renamed");
    dev.until("the new code", || dev.says().as_deref() == Some("two"));
    fs::write(&words, "return = 'three'").expect("written");
    dev.until("the error", || dev.log().contains("lib/words.lua:1"));
    assert_eq!(dev.says().as_deref(), Some("two"));
    fs::write(&words, "return 'three'").expect("written");
    dev.until("the mended code", || dev.says().as_deref() == Some("three"));
}

#[test]
fn programs_that_are_saved_run_in_new_processes() {
    if !std::path::Path::new("/usr/bin/php").exists() {
        return skip("php is not installed");
    }
    let dev = Dev::start("dev", "dev-php");
    dev.until("the start", || dev.says().is_some());
    let sdk = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/php/veche.php");
    let save = |answer: &str| {
        let text = format!(
            "<?php require '{sdk}';\n$app = Veche\\App::create();\n\
             $app->request(fn (Veche\\Request $request) => {answer});\n$app->run();\n"
        );
        fs::write(dev.folder.join("app.php"), text).expect("written");
    };
    save("'one in PHP'");
    let config = dev.folder.join("veche.toml");
    let mut text = fs::read_to_string(&config).expect("a config");
    text += "[[app]]\nname = \"php\"\nruntime = \"php\"\ncommand = [\"php\", \"app.php\"]\n\
             [[route]]\npath = \"/php/*\"\nhandler = \"app\"\napp = \"php\"\n";
    fs::write(&config, text).expect("written");
    let answers = |text: &str| dev.get("/php/").text() == text;
    dev.until("the program", || answers("one in PHP"));
    save("'two in PHP'");
    dev.until("the new program", || answers("two in PHP"));
    let mut page = dev.listen();
    save("'three");
    let error = notice(&mut page, "error");
    let text = error["text"].as_str().unwrap_or_default();
    assert!(
        text.contains("app.php on line 3") || text.contains("app.php:"),
        "{text}"
    );
    assert!(answers("two in PHP"), "the old program goes on");
    save("'three in PHP'");
    dev.until("the mended program", || answers("three in PHP"));
}

#[test]
fn an_interrupt_ends_it_though_a_page_is_open() {
    let mut dev = Dev::start("dev", "dev-interrupt");
    dev.until("the start", || dev.says().is_some());
    let _open = dev.listen();
    let pid = nix::unistd::Pid::from_raw(dev.child.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("it runs");
    dev.until("the end", || !dev.folder.join("veche.sock").exists());
    assert!(dev.child.wait().expect("a status").success());
    // The process ends before `drain_time` has passed, although the client does not answer close frames.
    let log = dev.log();
    assert!(log.contains("closing the remaining connections"), "{log}");
}

#[test]
fn a_stop_reports_what_it_waits_for() {
    let serve = Dev::start("serve", "stop-waits");
    serve.until("the start", || serve.says().is_some());
    let _open = Http::connect(serve.address);
    let counted = || {
        let status = serve.veche(&["status", "--json"]).stdout;
        let status: Value = serde_json::from_slice(&status).unwrap_or_default();
        status["report"]["connections"].as_u64() >= Some(1)
    };
    serve.until("the connection", counted);
    let stopped = serve.veche(&["stop"]);
    let output = String::from_utf8_lossy(&stopped.stderr).into_owned();
    assert!(
        output.starts_with("draining 1 connection, at most "),
        "{output}"
    );
}
