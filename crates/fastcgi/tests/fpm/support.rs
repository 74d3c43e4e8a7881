//! A php-fpm for a test, with scripts of its own.

use std::path::Path;
use std::time::Duration;

use veche_fastcgi::{Address, Cgi, Client, ClientLimits, Error, Params, Response};

use crate::fpm::Fpm;
use crate::skip::skip;

pub(crate) use crate::fpm::CHILDREN;

pub(crate) const LIMITS: ClientLimits = ClientLimits {
    idle_timeout: Duration::ZERO,
    connect_timeout: Duration::from_secs(5),
    response_bytes_max: 32 << 20,
    log_bytes_max: 64 << 10,
};

/// Limits with which idle connections are kept.
pub(crate) const KEPT: ClientLimits = ClientLimits {
    idle_timeout: Duration::from_secs(2),
    ..LIMITS
};

/// A script that executes the action in the parameter `X_DO`.
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
    case 'finish': echo 'early'; fastcgi_finish_request(); usleep(3000000); break;
    case 'kill': exec('kill -9 ' . getmypid()); break;
    case 'fatal': str_repeat('x', 1 << 40); break;
}
"#;

/// A script that responds before it reads the body of the request.
const EAGER: &str =
    "<?php echo str_repeat('y', 4 << 20); flush(); echo strlen(file_get_contents('php://input'));";

/// Starts a php-fpm with `pool` as additional lines of its pool configuration. If php-fpm is not
/// installed, reports the test as skipped and returns `None`.
pub(crate) fn start(name: &str, pool: &str) -> Option<Fpm> {
    let fpm = Fpm::start(&format!("client-{name}"), pool);
    match &fpm {
        Some(fpm) => {
            fpm.script("app.php", SCRIPT);
            fpm.script("eager.php", EAGER);
        }
        None => skip("php-fpm is not installed"),
    }
    fpm
}

impl Fpm {
    pub(crate) fn client(&self, limits: ClientLimits) -> Client {
        Client::new(Address::Unix(self.socket()), limits)
    }

    /// Makes the script perform one action.
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

    /// Does the same as `ask`, but panics if the call fails, and returns the body as text.
    pub(crate) async fn text(&self, client: &Client, what: &str, body: &[u8]) -> String {
        let response = self.ask(client, what, body).await.expect(what);
        String::from_utf8(response.body).expect("text")
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
