//! A Redis server from Debian's package, on its own port and in its own folder.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use veche_calls::redis::RedisDatabase;
use veche_calls::{ServerAccount as Address, TlsMode};

use crate::ports::free_address;

pub(crate) struct Server {
    folder: PathBuf,
    port: u16,
    arguments: Vec<String>,
    child: Mutex<Option<Child>>,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::make(arguments, None)
    }

    /// Starts a Sentinel with this configuration.
    pub(crate) fn sentinel(config: &str) -> Self {
        Self::make(&["--sentinel"], Some(config))
    }

    fn make(arguments: &[&str], config: Option<&str>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("veche-engine-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let server = Self {
            folder,
            port: free_address().port(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            child: Mutex::default(),
        };
        if let Some(config) = config {
            std::fs::write(server.config(), config).expect("written");
        }
        server.begin();
        server
    }

    fn config(&self) -> PathBuf {
        self.folder.join("redis.conf")
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Starts the server with its existing data.
    pub(crate) fn begin(&self) {
        let mut command = Command::new("redis-server");
        command.current_dir(&self.folder);
        match self.config().exists() {
            true => command.arg(self.config()),
            false => command.args(["--save", ""]),
        };
        let child = command
            .args(["--bind", "127.0.0.1", "--port", &self.port.to_string()])
            .args(&self.arguments)
            .stdout(Stdio::null())
            .spawn();
        *self.child.lock() = Some(child.expect("make setup-test"));
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "it does not serve"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the server as a crash would.
    pub(crate) fn crash(&self) {
        if let Some(mut child) = self.child.lock().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Runs a command with `redis-cli` and returns its output.
    pub(crate) fn cli(&self, arguments: &[&str]) -> String {
        let output = Command::new("redis-cli")
            .args(["-p", &self.port.to_string()])
            .args(arguments)
            .output()
            .expect("make setup-test");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    pub(crate) fn keyspace(&self) -> Arc<RedisDatabase> {
        self.keyspace_of(None)
    }

    /// Returns the server's keyspace with another port, such as that of a relay.
    pub(crate) fn keyspace_by(&self, port: u16) -> Arc<RedisDatabase> {
        let mut keyspace = (*self.keyspace()).clone();
        keyspace.server.port = port;
        Arc::new(keyspace)
    }

    pub(crate) fn keyspace_of(&self, account: Option<(&str, &str)>) -> Arc<RedisDatabase> {
        let within = Duration::from_secs(5);
        Arc::new(RedisDatabase {
            server: Address {
                host: "127.0.0.1".into(),
                port: self.port,
                user: account.map(|(user, _)| user.into()),
                password: account.map(|(_, password)| veche_calls::Secret(password.into())),
                tls: TlsMode::Off,
            },
            database: 0,
            pool_name: None,
            pool: 1,
            connect_timeout: within,
            wait_timeout: within,
            timeout: within,
            idle_timeout: within,
            queue: 1,
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.crash();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
