//! A php-fpm of a test, with scripts of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use veche_fastcgi::{Address, Cgi, Client, Error, Limits, Params, Response};

use crate::skip::skip;

/// Processes of the pool.
pub(crate) const CHILDREN: usize = 2;

pub(crate) const LIMITS: Limits = Limits {
    idle_timeout: Duration::ZERO,
    connect_timeout: Duration::from_secs(5),
    response_bytes_max: 32 << 20,
    log_bytes_max: 64 << 10,
};

/// Limits with connections that are kept.
pub(crate) const KEPT: Limits = Limits {
    idle_timeout: Duration::from_secs(2),
    ..LIMITS
};

/// Does what the parameter `X_DO` says.
const SCRIPT: &str = r#"<?php
ini_set('display_errors', '0');
$body = file_get_contents('php://input');
switch ($_SERVER['X_DO'] ?? '') {
    case 'echo': echo $body; break;
    case 'server': ksort($_SERVER); echo json_encode($_SERVER, JSON_INVALID_UTF8_SUBSTITUTE); break;
    case 'pid': echo getmypid(); break;
    case 'sleep': usleep((int) $body * 1000); echo 'slept'; break;
    case 'stderr': for ($i = 0; $i < 4000; $i++) { error_log(str_repeat('e', 100)); } echo 'logged'; break;
    case 'flood': echo str_repeat('x', (int) $body); break;
    case 'status': http_response_code(404); header('X-Two: 1'); header('X-Two: 2', false); echo 'no'; break;
    case 'finish': echo 'early'; fastcgi_finish_request(); usleep(300000); break;
    case 'kill': exec('kill -9 ' . getmypid()); break;
    case 'fatal': str_repeat('x', 1 << 40); break;
}
"#;

/// Answers before it reads the body.
const EAGER: &str =
    "<?php echo str_repeat('y', 4 << 20); flush(); echo strlen(file_get_contents('php://input'));";

pub(crate) struct Fpm {
    process: Child,
    pub(crate) folder: PathBuf,
}

impl Fpm {
    /// Starts a php-fpm whose pool has these lines too; `None` where none is installed, after a line that says so.
    pub(crate) fn start(name: &str, pool: &str) -> Option<Self> {
        let Some(binary) = binary() else {
            skip("php-fpm is not installed");
            return None;
        };
        let folder =
            std::env::temp_dir().join(format!("veche-fastcgi-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder");
        fs::write(folder.join("app.php"), SCRIPT).expect("a script");
        fs::write(folder.join("eager.php"), EAGER).expect("a script");
        let shown = folder.display();
        let user = command("id", &["-un"]);
        let group = command("id", &["-gn"]);
        let config = format!(
            "[global]\ndaemonize = no\nerror_log = {shown}/fpm.log\n\
             [www]\nlisten = {shown}/fpm.sock\nlisten.backlog = 2\npm = static\npm.max_children = {CHILDREN}\n\
             php_admin_flag[log_errors] = on\nuser = {user}\ngroup = {group}\n{pool}\n"
        );
        fs::write(folder.join("fpm.conf"), config).expect("a configuration");
        let process = Command::new(binary)
            .args(["-R", "-n", "-F", "-y"])
            .arg(folder.join("fpm.conf"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("php-fpm starts");
        let fpm = Self { process, folder };
        let start = crate::now::now();
        while !fpm.socket().exists() {
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "php-fpm does not listen: {}",
                fpm.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(fpm)
    }

    pub(crate) fn client(&self, limits: Limits) -> Client {
        Client::new(Address::Unix(self.socket()), limits)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("fpm.sock")
    }

    /// Has the script do one thing.
    pub(crate) async fn ask(
        &self,
        client: &Client,
        what: &str,
        body: &[u8],
    ) -> Result<Response, Error> {
        client
            .request(params(&self.folder.join("app.php"), what, body), body)
            .await
    }

    /// The same, where it has to succeed.
    pub(crate) async fn text(&self, client: &Client, what: &str, body: &[u8]) -> String {
        let response = self.ask(client, what, body).await.expect(what);
        String::from_utf8(response.body).expect("text")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("fpm.log")).unwrap_or_default()
    }
}

impl Drop for Fpm {
    fn drop(&mut self) {
        let _ = command("kill", &[&self.process.id().to_string()]);
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn params(script: &Path, what: &str, body: &[u8]) -> Params {
    let mut params = cgi(script.to_str().expect("text"), body)
        .params([])
        .expect("short ones");
    params.push("X_DO", what.as_bytes()).expect("a short one");
    params
}

pub(crate) fn cgi<'a>(script: &'a str, body: &[u8]) -> Cgi<'a> {
    Cgi {
        script,
        body_bytes: body.len(),
        content_type: "application/octet-stream",
        path: "/chat",
        query: "a=1&b=%20",
        remote: Some("203.0.113.9".parse().expect("an address")),
        local: Some("127.0.0.1:8443".parse().expect("an address")),
        is_tls: true,
    }
}

fn binary() -> Option<PathBuf> {
    let folder = fs::read_dir("/usr/sbin").ok()?;
    let mut found: Vec<PathBuf> = folder.flatten().map(|entry| entry.path()).collect();
    found.retain(|path| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("php-fpm"))
    });
    found.sort();
    found.pop()
}

fn command(name: &str, arguments: &[&str]) -> String {
    let output = Command::new(name)
        .args(arguments)
        .output()
        .expect("it runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
