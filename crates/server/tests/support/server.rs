//! The server under test: `veche serve` with a config of its own.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::{SOON, Setup, now, process, until};

/// The header line with the key of every server here.
pub(crate) const KEY_HEADER: &str = "X-API-Key: key\r\n";

/// What differs from test to test.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options<'o> {
    /// Lines of `[limits]`.
    pub(crate) limits: &'o str,
    /// Further lines at the end of the config: routes.
    pub(crate) routes: &'o str,
    /// Limit on descriptors to start under.
    pub(crate) descriptors: Option<u32>,
    /// What is logged; `info` if empty.
    pub(crate) log: &'o str,
    /// Files beside the config, by name.
    pub(crate) files: &'o [(&'o str, &'o str)],
}

pub(crate) struct Server {
    folder: PathBuf,
    setup: Setup,
    child: Option<Child>,
    pub(crate) public: SocketAddr,
    pub(crate) internal: SocketAddr,
    pub(crate) push: SocketAddr,
}

impl Server {
    pub(crate) fn start(setup: Setup) -> Self {
        Self::with(setup, &Options::default())
    }

    pub(crate) fn with(setup: Setup, options: &Options<'_>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("veche-served-{}-{number}", std::process::id()));
        fs::create_dir_all(folder.join("site")).expect("a folder");
        fs::write(folder.join("site/index.html"), "<p>hello</p>").expect("written");
        let none = ([127, 0, 0, 1], 0).into();
        let mut server = Self {
            folder,
            setup,
            child: None,
            public: none,
            internal: none,
            push: none,
        };
        server.configure(options);
        let log = fs::File::create(server.folder.join("stderr")).expect("a log");
        let mut command = match options.descriptors {
            None => Command::new(env!("CARGO_BIN_EXE_veche")),
            Some(limit) => {
                let mut shell = Command::new("sh");
                let script = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
                shell.args(["-c", &script, env!("CARGO_BIN_EXE_veche")]);
                shell
            }
        };
        command
            .arg("serve")
            .arg("-c")
            .arg(server.config())
            .current_dir(&server.folder);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        server.child = Some(command.spawn().expect("it starts"));
        until("the server to be ready", || {
            server
                .status()
                .is_some_and(|status| status["state"] == "ready")
        });
        let status = server.status().expect("ready");
        let address = |index: usize| {
            let text = status["listeners"][index]["address"]
                .as_str()
                .expect("an address");
            text.parse().expect("an address")
        };
        (server.public, server.internal, server.push) = (address(0), address(1), address(2));
        server
    }

    /// Writes the config; a running server has to be told.
    pub(crate) fn configure(&self, options: &Options<'_>) {
        for (name, text) in options.files {
            fs::write(self.folder.join(name), text).expect("written");
        }
        let Setup { io, workers } = self.setup;
        let log = if options.log.is_empty() {
            "info"
        } else {
            options.log
        };
        let drain_time = if options.limits.contains("drain_time") {
            ""
        } else {
            "drain_time = \"1s\""
        };
        // Listeners keep their addresses over a restart, and may keep the word for "any".
        let text = format!(
            "[server]\nworkers = {workers}\nio = \"{io}\"\nlog = \"{log}\"\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\nrole = \"internal\"\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\nrole = \"push\"\n\
             [[route]]\npath = \"/ws\"\nhandler = \"push\"\nidentity = \"query:user\"\n\
             channels = [\"news\", \"room:*\"]\n\
             [[route]]\npath = \"/echo\"\nhandler = \"echo\"\n\
             [[route]]\npath = \"/*\"\nhandler = \"static\"\nroot = \"site\"\n\
             {routes}\n[limits]\n{limits}\n{drain_time}\n[api]\nkeys = [\"key\"]\n",
            routes = options.routes,
            limits = options.limits,
        );
        self.write_config(&text);
    }

    pub(crate) fn write_config(&self, text: &str) {
        fs::write(self.config(), text).expect("written");
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.join("veche.toml")
    }

    /// A command with this server's config.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_veche"));
        command
            .args(arguments)
            .arg("-c")
            .arg(self.config())
            .stdin(Stdio::null());
        command
    }

    /// What the control socket answers to a command, if anything does.
    pub(crate) fn ask(&self, command: &str) -> Option<Value> {
        let mut socket = UnixStream::connect(self.folder.join("veche.sock")).ok()?;
        socket.set_read_timeout(Some(SOON)).ok()?;
        writeln!(socket, "{{\"version\":1,\"command\":\"{command}\"}}").ok()?;
        let mut line = String::new();
        BufReader::new(socket).read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }

    pub(crate) fn status(&self) -> Option<Value> {
        self.ask("status").map(|mut answer| answer["status"].take())
    }

    /// The process that serves.
    pub(crate) fn pid(&self) -> u32 {
        self.try_pid().expect("a server process runs")
    }

    pub(crate) fn try_pid(&self) -> Option<u32> {
        self.status()?["server"]["pid"]
            .as_u64()
            .map(|pid| u32::try_from(pid).expect("a pid"))
    }

    /// To the supervisor.
    pub(crate) fn signal(&self, signal: Signal) {
        process::kill(self.child.as_ref().expect("it runs").id(), signal);
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("stderr")).unwrap_or_default()
    }

    /// Connections that the server counts, by its own status.
    pub(crate) fn connections(&self) -> u64 {
        self.status()
            .and_then(|status| status["report"]["connections"].as_u64())
            .expect("a report")
    }

    /// Waits until the server counts so many connections.
    #[track_caller]
    pub(crate) fn await_connections(&self, count: u64) {
        let deadline = now() + SOON;
        loop {
            let have = self.connections();
            if have == count {
                return;
            }
            assert!(now() < deadline, "{have} connections instead of {count}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the supervisor's end.
    #[track_caller]
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        let mut child = self.child.take().expect("it runs");
        let deadline = now() + SOON;
        loop {
            if let Some(status) = child.try_wait().expect("a child of ours") {
                return status.code();
            }
            if now() > deadline {
                let _ = child.kill();
                panic!("it does not end\n{}", self.log());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it at once.
    fn end(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let server = self.try_pid();
        let deadline = now() + Duration::from_secs(5);
        // The first drains, the second kills.
        while now() < deadline && matches!(child.try_wait(), Ok(None)) {
            process::kill(child.id(), Signal::TERM);
            thread::sleep(Duration::from_millis(10));
        }
        let _ = child.kill();
        let _ = child.wait();
        if let Some(pid) = server.filter(|&pid| process::is_alive(pid)) {
            process::end(pid);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
        let log = self.log();
        if thread::panicking() {
            eprintln!("log on {:?}:\n{log}", self.setup);
        } else {
            assert!(!log.contains("panicked at"), "{log}");
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
