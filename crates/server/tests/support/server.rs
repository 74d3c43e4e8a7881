//! The server under test: `veche serve` with its own configuration.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::{SOON, Setup, now, process, until};

/// The header line with the API key of every test server.
pub(crate) const KEY_HEADER: &str = "X-API-Key: key\r\n";

/// The options that differ between tests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options<'o> {
    /// Lines of the section `[limits]`.
    pub(crate) limits: &'o str,
    /// Additional lines of the public `[[listen]]`; it accepts every host name by default.
    pub(crate) listen: &'o str,
    /// Additional lines of `[api]`.
    pub(crate) api: &'o str,
    /// Additional lines at the end of the configuration, such as routes.
    pub(crate) routes: &'o str,
    /// The limit of file descriptors with which the server starts.
    pub(crate) descriptors: Option<u32>,
    /// Shell commands that run before the server; ignored if `descriptors` is set.
    pub(crate) shell: &'o str,
    /// Additional lines of `[server]`.
    pub(crate) server: &'o str,
    /// The log level; `info` if empty.
    pub(crate) log: &'o str,
    /// Files beside the configuration, by name.
    pub(crate) files: &'o [(&'o str, &'o str)],
}

/// Returns the server binary under test: that of this build, or the one named by `VECHE_TEST_BIN`,
/// such as an optimised build.
fn binary() -> PathBuf {
    let chosen = std::env::var_os("VECHE_TEST_BIN");
    chosen.map_or_else(|| env!("CARGO_BIN_EXE_veche").into(), PathBuf::from)
}

pub(crate) struct Server {
    pub(crate) folder: PathBuf,
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
        Self::prepared(setup, options, |_| {})
    }

    /// Starts a server after preparing its folder.
    pub(crate) fn prepared(
        setup: Setup,
        options: &Options<'_>,
        prepare: impl FnOnce(&Path),
    ) -> Self {
        let mut server = Self::prepare(setup);
        prepare(&server.folder);
        fs::create_dir_all(server.folder.join("site")).expect("a folder");
        fs::write(server.folder.join("site/index.html"), "<p>hello</p>").expect("written");
        server.configure(options);
        server.launch(options);
        server.find_addresses();
        server
    }

    /// Starts a server with these routes and files beside the configuration.
    pub(crate) fn serving(setup: Setup, routes: &str, files: &[(&str, &str)]) -> Self {
        let options = Options {
            routes,
            files,
            ..Options::default()
        };
        Self::with(setup, &options)
    }

    /// Starts a server in a copy of `folder`, with the configuration of that folder. Only addresses, workers and the
    /// I/O driver are changed.
    pub(crate) fn copy_of(setup: Setup, folder: &Path) -> Self {
        Self::copy_with(setup, folder, &Options::default())
    }

    /// Starts a copy like [`copy_of`](Self::copy_of), with options.
    pub(crate) fn copy_with(setup: Setup, folder: &Path, options: &Options<'_>) -> Self {
        let mut server = Self::prepare(setup);
        copy(folder, &server.folder);
        let text = fs::read_to_string(server.config()).expect("a config");
        let workers = format!("workers = {}\nio = \"{}\"", setup.workers, setup.io);
        let text: Vec<String> = text
            .lines()
            .map(|line| match line.split_once(" = ") {
                Some(("address", _)) => "address = \"127.0.0.1:0\"".to_owned(),
                Some(("workers", _)) => workers.clone(),
                _ => line.to_owned(),
            })
            .collect();
        server.write_config(&text.join("\n"));
        server.launch(options);
        server.public = server.address("public").expect("browsers connect to it");
        server.internal = server.address("internal").unwrap_or(server.public);
        server.push = server.address("push").unwrap_or(server.public);
        server
    }

    /// Stops the server as a service manager does.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.exit_code(), Some(0), "{}", self.log());
    }

    /// Kills the supervisor alone. The server process notices that, and drains.
    pub(crate) fn kill_supervisor(&mut self) {
        let mut child = self.child.take().expect("started");
        child.kill().expect("ours");
        child.wait().expect("killed");
    }

    /// Sets the number of workers for the next start.
    pub(crate) fn set_workers(&mut self, workers: usize) {
        self.setup.workers = workers;
    }

    /// Starts the server again after a [`stop`](Self::stop).
    pub(crate) fn start_again(&mut self, options: &Options<'_>) {
        self.configure(options);
        self.launch(options);
        self.find_addresses();
    }

    fn find_addresses(&mut self) {
        let address = |role| self.address(role).expect("all three are configured");
        (self.public, self.internal, self.push) =
            (address("public"), address("internal"), address("push"));
    }

    /// Creates the folder without starting anything.
    fn prepare(setup: Setup) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("veche-served-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let none = ([127, 0, 0, 1], 0).into();
        Self {
            folder,
            setup,
            child: None,
            public: none,
            internal: none,
            push: none,
        }
    }

    /// Starts the server and waits until it is ready.
    fn launch(&mut self, options: &Options<'_>) {
        let log = fs::File::create(self.folder.join("stderr")).expect("a log");
        let limit = options
            .descriptors
            .map(|limit| format!("ulimit -n {limit}"));
        let first = limit.as_deref().unwrap_or(options.shell);
        let mut command = match first {
            "" => Command::new(binary()),
            first => {
                let mut shell = Command::new("sh");
                let script = format!("{first} && exec \"$0\" \"$@\"");
                shell.args(["-c", &script]).arg(binary());
                shell
            }
        };
        command
            .arg("serve")
            .arg("-c")
            .arg(self.config())
            .current_dir(&self.folder);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.child = Some(command.spawn().expect("it starts"));
        until("the server to be ready", || {
            self.status()
                .is_some_and(|status| status["state"] == "ready")
        });
    }

    /// Returns the address of the first listener with a role.
    fn address(&self, role: &str) -> Option<SocketAddr> {
        let status = self.status()?;
        let mut listeners = status["listeners"].as_array()?.iter();
        let listener = listeners.find(|listener| listener["role"] == role)?;
        listener["address"].as_str()?.parse().ok()
    }

    /// Writes the configuration; a running server has to be reloaded.
    pub(crate) fn configure(&self, options: &Options<'_>) {
        for (name, text) in options.files {
            let path = self.folder.join(name);
            fs::create_dir_all(path.parent().expect("the folder")).expect("a folder");
            fs::write(path, text).expect("written");
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
        let hosts = if options.listen.contains("hosts") {
            ""
        } else {
            "hosts = [\"*\"]"
        };
        // Each listener asks for a free port. When a running server is reloaded, it keeps its ports.
        let text = format!(
            "[server]\nworkers = {workers}\nio = \"{io}\"\nlog = \"{log}\"\n{server}\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\n{hosts}\n{listen}\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\nrole = \"internal\"\nhosts = [\"*\"]\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\nrole = \"push\"\n\
             [[route]]\npath = \"/ws\"\nhandler = \"push\"\nidentity = \"query:user\"\n\
             channels = [\"news\", \"room:*\"]\n\
             [[route]]\npath = \"/echo\"\nhandler = \"echo\"\n\
             [[route]]\npath = \"/*\"\nhandler = \"static\"\nroot = \"site\"\n\
             {routes}\n[limits]\n{limits}\n{drain_time}\n[api]\nkeys = [\"key\"]\n{api}\n",
            server = options.server,
            listen = options.listen,
            routes = options.routes,
            limits = options.limits,
            api = options.api,
        );
        self.write_config(&text);
    }

    pub(crate) fn write_config(&self, text: &str) {
        fs::write(self.config(), text).expect("written");
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.join("veche.toml")
    }

    /// Returns a command with this server's configuration.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(arguments)
            .arg("-c")
            .arg(self.config())
            .stdin(Stdio::null());
        command
    }

    /// Sends a command to the control socket; returns the response, if any.
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

    /// Returns the process id of the server process.
    pub(crate) fn pid(&self) -> u32 {
        self.try_pid().expect("a server process runs")
    }

    pub(crate) fn try_pid(&self) -> Option<u32> {
        self.status()?["server"]["pid"]
            .as_u64()
            .map(|pid| u32::try_from(pid).expect("a pid"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        process::kill(self.child.as_ref().expect("it runs").id(), signal);
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("stderr")).unwrap_or_default()
    }

    /// Returns the server's own count of connections.
    pub(crate) fn connections(&self) -> u64 {
        self.status()
            .and_then(|status| status["report"]["connections"].as_u64())
            .expect("a report")
    }

    /// Waits until the server counts this many connections.
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

    /// Waits until the supervisor has exited; returns its exit code.
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

    /// Ends the server without waiting for its clients to leave.
    fn end(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let server = self.try_pid();
        let deadline = now() + Duration::from_secs(5);
        // The first signal starts a drain, the second one ends it.
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

/// Copies files and folders recursively.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a readable folder") {
        let entry = entry.expect("a directory entry");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            fs::create_dir_all(&to).expect("a folder");
            copy(&from, &to);
        } else if from.is_file() {
            fs::copy(&from, &to).expect("copied");
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
