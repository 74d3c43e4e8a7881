//! Real services for the server under test: Debian's MariaDB and Redis, each with its own port and
//! folder. A service ends when its value is dropped.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{free_address, process, until};

/// A running database server, stopped when it is dropped.
pub(crate) struct Backing {
    folder: PathBuf,
    kind: Kind,
    pub(crate) port: u16,
    child: Option<Child>,
}

/// Files in the service's folder, if it uses TLS.
const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";

/// The kind of service.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    MariaDb { connections_max: u32 },
    Redis,
}

impl Kind {
    /// Returns the account under which the service runs, in place of root.
    fn account(self) -> &'static str {
        match self {
            Self::MariaDb { .. } => "mysql",
            Self::Redis => "redis",
        }
    }
}

impl Backing {
    pub(crate) fn mariadb(connections_max: u32) -> Self {
        Self::new(Kind::MariaDb { connections_max }, None)
    }

    pub(crate) fn redis() -> Self {
        Self::new(Kind::Redis, None)
    }

    /// Starts a service with TLS, with a certificate and key as PEM. A Redis server started by this function
    /// has no listener without TLS.
    pub(crate) fn with_tls(kind: Kind, certificate: &str, key: &str) -> Self {
        Self::new(kind, Some([certificate, key]))
    }

    fn new(kind: Kind, tls: Option<[&str; 2]>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("veche-backing-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // A killed test run with the same process id may have left files.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        let mut backing = Self {
            folder,
            kind,
            port: free_address().port(),
            child: None,
        };
        backing.own(&backing.folder);
        if let Some(texts) = tls {
            for (name, text) in [CERTIFICATE, KEY].into_iter().zip(texts) {
                let file = backing.folder.join(name);
                fs::write(&file, text).expect("a file");
                backing.own(&file);
            }
        }
        if let Kind::MariaDb { .. } = kind {
            backing.install();
        }
        backing.start();
        backing
    }

    /// Copies MariaDB's system tables from a template in Cargo's target folder. Creates the template if it does not
    /// exist.
    fn install(&self) {
        let template = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mariadb");
        let lock = fs::File::create(template.with_extension("lock")).expect("a lock file");
        lock.lock().expect("a lock");
        if !template.exists() {
            self.create_template(&template);
        }
        drop(lock);
        copy_folder(&template, Path::new(&self.path("data")));
    }

    /// Creates a data folder with the system tables. Debian's script may fail on a busy machine, so it is retried from
    /// scratch, and its output is shown if it never succeeds.
    fn create_template(&self, template: &Path) {
        const TRIES: u32 = 5;
        let data = self.path("template");
        for _ in 0..TRIES {
            let installed = self
                .command("mariadb-install-db")
                .arg("--no-defaults")
                .arg(format!("--datadir={data}"))
                .args([
                    "--auth-root-authentication-method=normal",
                    "--skip-test-db",
                    "--innodb-log-file-size=8M",
                    "--innodb-buffer-pool-size=32M",
                    "--innodb-use-native-aio=0",
                ])
                .status();
            if installed.expect("make setup-test").success() {
                // The data is copied under another name and then renamed. It can't be renamed directly, because it may
                // be on another file system, and an interrupted copy must not be used.
                let part = template.with_extension("part");
                let _ = fs::remove_dir_all(&part);
                copy_folder(Path::new(&data), &part);
                let _ = fs::remove_dir_all(&data);
                fs::rename(&part, template).expect("a template");
                return;
            }
            let _ = fs::remove_dir_all(&data);
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        panic!("mariadb-install-db failed {TRIES} times:\n{log}");
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    fn own(&self, path: &Path) {
        if rustix::process::getuid().is_root() {
            let status = Command::new("chown")
                .arg(self.kind.account())
                .arg(path)
                .status();
            assert!(status.expect("chown").success());
        }
    }

    /// Returns a command under the service's account, with output to a file.
    fn command(&self, program: &str) -> Command {
        let mut command = if rustix::process::getuid().is_root() {
            let mut command = Command::new("setpriv");
            let account = self.kind.account();
            command.args([
                "--reuid",
                account,
                "--regid",
                account,
                "--init-groups",
                program,
            ]);
            command
        } else {
            Command::new(program)
        };
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("log"));
        let log = log.expect("a log");
        command
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log);
        command
    }

    /// Starts the server with its data, and waits until it serves.
    pub(crate) fn start(&mut self) {
        let port = self.port.to_string();
        let has_tls = self.folder.join(KEY).exists();
        let (certificate, key) = (self.path(CERTIFICATE), self.path(KEY));
        let mut command = match self.kind {
            Kind::MariaDb { connections_max } => {
                let mut command = self.command("mariadbd");
                command.arg("--no-defaults").args([
                    format!("--datadir={}", self.path("data")),
                    format!("--socket={}", self.path("socket")),
                    format!("--pid-file={}", self.path("pid")),
                    format!("--port={port}"),
                    format!("--max-connections={connections_max}"),
                ]);
                command.args([
                    "--bind-address=127.0.0.1",
                    "--skip-name-resolve",
                    "--innodb-log-file-size=8M",
                    "--innodb-buffer-pool-size=32M",
                    // InnoDB does not use io_uring, because its rings count toward the account's limit of locked
                    // memory, which all test runs share.
                    "--innodb-use-native-aio=0",
                    "--innodb-flush-log-at-trx-commit=0",
                    "--thread-cache-size=0",
                    "--back-log=2000",
                ]);
                if has_tls {
                    command.args([
                        format!("--ssl-cert={certificate}"),
                        format!("--ssl-key={key}"),
                    ]);
                }
                command
            }
            Kind::Redis => {
                let mut command = self.command("redis-server");
                let plain = if has_tls { "0" } else { &*port };
                command.args(["--bind", "127.0.0.1", "--port", plain, "--save", ""]);
                if has_tls {
                    command.args(["--tls-port", &port, "--tls-auth-clients", "no"]);
                    command.args(["--tls-cert-file", &certificate, "--tls-key-file", &key]);
                }
                command
            }
        };
        self.child = Some(command.spawn().expect("make setup-test"));
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        until("the server behind", || TcpStream::connect(address).is_ok());
    }

    /// Kills the server without a shutdown, as in a crash.
    pub(crate) fn crash(&mut self) {
        if let Some(mut child) = self.child.take() {
            process::end(child.id());
            let _ = child.wait();
        }
    }

    /// Runs a MariaDB statement.
    pub(crate) fn sql(&self, sql: &str) {
        let output = Command::new("mariadb")
            .arg("--no-defaults")
            .arg(format!("--port={}", self.port))
            .args(["--host=127.0.0.1", "--user=root", "-e", sql])
            .output()
            .expect("make setup-test");
        assert!(output.status.success(), "{output:?}");
    }

    /// Returns the service's URL, with options of `veche.mysql.connect`.
    pub(crate) fn url(&self, name: &str, options: &str) -> String {
        let Self { port, kind, .. } = self;
        match kind {
            Kind::MariaDb { .. } => format!("mysql://root@127.0.0.1:{port}/{name}?{options}"),
            Kind::Redis => format!("redis://127.0.0.1:{port}/{name}?{options}"),
        }
    }
}

/// Copies a folder with the owners of its files.
fn copy_folder(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.expect("cp").success());
}

impl Drop for Backing {
    fn drop(&mut self) {
        self.crash();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let from = lines.len().saturating_sub(20);
            eprintln!("log of {:?}:\n{}", self.kind, lines[from..].join("\n"));
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
