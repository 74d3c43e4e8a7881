//! A `veche serve` of the test: its folder, configuration, process and log.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::ask::{self, ask};
use crate::support::process::{self, kill};
use crate::support::{SOON, Socket, now, until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_veche");
/// A request that makes the server close the connection after the response.
pub(crate) const REQUEST: &[u8] = b"GET /nowhere HTTP/1.0\r\nHost: localhost\r\n\r\n";

pub(crate) struct Veche {
    folder: PathBuf,
    child: Option<Child>,
    address: SocketAddr,
    limits: String,
}

/// Sends SIGSTOP and waits until it takes effect.
pub(crate) fn freeze(raw: u32) {
    kill(raw, Signal::STOP);
    until("the process to freeze", || {
        fs::read_to_string(format!("/proc/{raw}/stat")).is_ok_and(|stat| stat.contains(") T "))
    });
}

impl Veche {
    /// Creates the folder and the configuration of a supervisor without starting it.
    pub(crate) fn prepare(name: &str, limits: &str) -> Self {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("veche-{name}-{}-{count}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        let address = ([127, 0, 0, 1], 0).into();
        let veche = Self {
            folder,
            child: None,
            address,
            limits: limits.to_owned(),
        };
        veche.write_config(limits, "");
        veche
    }

    /// Starts Veche and waits until it is ready; `limits` are lines of `[limits]`.
    pub(crate) fn start(name: &str, limits: &str) -> Self {
        let mut veche = Self::prepare(name, limits);
        veche.start_again();
        veche
    }

    pub(crate) fn start_again(&mut self) {
        self.spawn();
        self.find_address();
    }

    /// Waits until the server is ready, and records its address.
    pub(crate) fn find_address(&mut self) {
        self.await_status("ready", |status| status["state"] == "ready");
        let status = self.status();
        self.address = status["listeners"][0]["address"]
            .as_str()
            .expect("text")
            .parse()
            .expect("an address");
    }

    pub(crate) fn spawn(&mut self) {
        self.spawn_with(|command| command);
    }

    /// Starts Veche with a command that `change` modifies, without waiting until it is ready.
    pub(crate) fn spawn_with(&mut self, change: impl FnOnce(&mut Command) -> &mut Command) {
        let mut command = self.command();
        self.run(change(&mut command));
    }

    /// Starts the server with another command.
    pub(crate) fn run(&mut self, command: &mut Command) {
        self.child = Some(command.spawn().expect("it starts"));
    }

    /// Returns a command that starts the server with this configuration and appends its standard error to the log.
    pub(crate) fn command(&self) -> Command {
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(self.folder.join("log"))
            .expect("a log");
        let own = self.program();
        let program = if own.exists() { own } else { PROGRAM.into() };
        let mut command = Command::new(program);
        command
            .arg("serve")
            .arg("-c")
            .arg(self.folder.join("veche.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        command
    }

    pub(crate) fn write_config(&self, limits: &str, server: &str) {
        let workers = if server.contains("workers") {
            ""
        } else {
            "workers = 2"
        };
        let io = std::env::var("VECHE_TEST_IO");
        let io = io.map_or(String::new(), |io| format!("io = {io:?}"));
        let text = format!(
            "[server]\ncontrol = {:?}\n{workers}\n{io}\n{server}\n[[listen]]\naddress = \"{}\"\n\
             [[route]]\npath = \"/\"\nhandler = \"echo\"\n[limits]\n{limits}\n",
            self.control().display().to_string(),
            self.address,
        );
        fs::write(self.folder.join("veche.toml"), text).expect("written");
    }

    /// Sets the address for the next start.
    pub(crate) fn set_address(&mut self, address: SocketAddr) {
        self.address = address;
        self.write_config(&self.limits, "");
    }

    pub(crate) fn folder(&self) -> &PathBuf {
        &self.folder
    }

    /// Returns the path of the program in the test's folder, which exists after [`install`](Self::install).
    pub(crate) fn program(&self) -> PathBuf {
        self.folder.join("veche")
    }

    /// Installs the program like a package manager: a new file replaces the old one.
    pub(crate) fn install(&self) {
        self.install_copy(PROGRAM.as_ref());
    }

    /// Installs a shell script in place of the program.
    pub(crate) fn install_script(&self, script: &str) {
        self.install_text(&format!("#!/bin/sh\n{script}\n"));
    }

    /// Installs an executable file with this content.
    pub(crate) fn install_text(&self, text: &str) {
        let written = self.folder.join("veche.text");
        fs::write(&written, text).expect("written");
        fs::set_permissions(&written, fs::Permissions::from_mode(0o755)).expect("executable");
        self.install_copy(&written);
    }

    /// Copies the file in a separate process. A file written by this process may still be open in
    /// children of other tests, which prevents executing the file (ETXTBSY).
    fn install_copy(&self, from: &Path) {
        let new = self.folder.join("veche.new");
        let copied = Command::new("cp").arg(from).arg(&new).status();
        assert!(copied.expect("there is a cp").success());
        fs::rename(new, self.program()).expect("installed");
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.folder.join("veche.sock")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("started").id()
    }

    pub(crate) fn status(&self) -> Value {
        let answer = ask(&self.control(), ask::STATUS);
        answer.unwrap_or_else(|error| panic!("{error}\n{}", self.log()))["status"].take()
    }

    pub(crate) fn server_pid(&self) -> u32 {
        let pid = self.status()["server"]["pid"]
            .as_u64()
            .expect("a server runs");
        u32::try_from(pid).expect("a pid")
    }

    pub(crate) fn await_status(&self, what: &str, is: impl Fn(&Value) -> bool) {
        until(what, || {
            ask(&self.control(), ask::STATUS).is_ok_and(|answer| is(&answer["status"]))
        });
    }

    pub(crate) fn await_log(&self, part: &str) {
        until(part, || self.log().contains(part));
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    pub(crate) fn connect(&self) -> io::Result<TcpStream> {
        let client = TcpStream::connect(self.address)?;
        client.set_read_timeout(Some(SOON))?;
        Ok(client)
    }

    /// Opens a WebSocket session and checks that it answers.
    pub(crate) fn open(&self) -> Socket {
        let mut socket = Socket::open(self.address, "/");
        assert!(socket.is_alive());
        socket
    }

    /// Sends a request on its own connection; returns whether it gets a response.
    pub(crate) fn is_answering(&self) -> io::Result<bool> {
        let mut client = self.connect()?;
        client.write_all(REQUEST)?;
        let mut answer = String::new();
        client.read_to_string(&mut answer)?;
        Ok(answer.starts_with("HTTP/1.1 "))
    }

    /// Waits until a server process other than `old` is ready and answers.
    pub(crate) fn await_another_than(&self, old: u32) -> u32 {
        self.await_status("another server process", |status| {
            status["state"] == "ready" && status["server"]["pid"] != old
        });
        assert!(self.is_answering().expect("it is ready"));
        self.server_pid()
    }

    /// Returns the id of the server process from `/proc`, without asking the supervisor.
    pub(crate) fn child(&self) -> Option<u32> {
        let pid = self.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split(' ').next()?.parse().ok()
    }

    /// Returns the supervisor's CPU time in hundredths of a second.
    pub(crate) fn cpu_ticks(&self) -> u64 {
        process::cpu_ticks(self.pid())
    }

    /// Kills and reaps the supervisor.
    pub(crate) fn kill_supervisor(&mut self) {
        let mut child = self.child.take().expect("started");
        child.kill().expect("killed");
        child.wait().expect("reaped");
    }

    /// Waits until the supervisor has exited; returns its exit code.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        let mut child = self.child.take().expect("started");
        let deadline = now() + SOON;
        loop {
            if let Some(status) = child.try_wait().expect("ours") {
                return status.code();
            }
            if now() > deadline {
                let _ = child.kill();
                panic!("it does not end\n{}", self.log());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Veche {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.log());
        }
        if let Some(mut child) = self.child.take() {
            let server = ask(&self.control(), ask::STOP_NOW);
            if server.is_err() {
                let _ = child.kill();
            }
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
