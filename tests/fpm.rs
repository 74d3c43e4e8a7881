//! Debian's php-fpm with a pool of two processes, for tests.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Number of processes of the pool.
pub(crate) const CHILDREN: usize = 2;

/// Maximum number of attempts to connect to php-fpm at its start, with a pause after each.
const LOOKS: usize = 1000;
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) struct Fpm {
    process: Child,
    /// The temporary folder of the socket, the log and the scripts.
    pub(crate) folder: PathBuf,
}

impl Fpm {
    /// Starts php-fpm with `pool` as additional lines of its pool configuration. Returns `None` if
    /// php-fpm is not installed.
    pub(crate) fn start(name: &str, pool: &str) -> Option<Self> {
        let binary = binary()?;
        let folder = std::env::temp_dir().join(format!("veche-fpm-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder");
        let shown = folder.display();
        let (user, group) = (output("id", &["-un"]), output("id", &["-gn"]));
        let config = format!(
            "[global]\ndaemonize = no\nerror_log = {shown}/fpm.log\n\
             [www]\nlisten = {shown}/fpm.sock\nlisten.backlog = 2\npm = static\npm.max_children = {CHILDREN}\n\
             php_admin_flag[log_errors] = on\nuser = {user}\ngroup = {group}\n{pool}\n"
        );
        fs::write(folder.join("fpm.conf"), config).expect("a configuration");
        // -R permits root. Without php.ini (-n) all installations behave alike.
        let process = Command::new(binary)
            .args(["-R", "-n", "-F", "-y"])
            .arg(folder.join("fpm.conf"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("php-fpm starts");
        let fpm = Self { process, folder };
        for _ in 0..LOOKS {
            // The socket's file exists after `bind`, but connections succeed only after `listen`.
            if UnixStream::connect(fpm.socket()).is_ok() {
                return Some(fpm);
            }
            thread::sleep(PAUSE);
        }
        let log = fs::read_to_string(fpm.folder.join("fpm.log"));
        panic!("php-fpm does not listen: {log:?}")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("fpm.sock")
    }

    /// Writes a script, and returns its path.
    pub(crate) fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, text).expect("a script");
        path
    }
}

impl Drop for Fpm {
    fn drop(&mut self) {
        output("kill", &[&self.process.id().to_string()]);
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn binary() -> Option<PathBuf> {
    let folder = fs::read_dir("/usr/sbin").ok()?;
    let mut found: Vec<PathBuf> = folder.flatten().map(|entry| entry.path()).collect();
    found.retain(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("php-fpm"))
    });
    found.sort();
    found.pop()
}

fn output(name: &str, arguments: &[&str]) -> String {
    let output = Command::new(name)
        .args(arguments)
        .output()
        .expect("it runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
