//! `veche.mysql` and `veche.redis` over TLS: real servers with certificates that the test creates.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::json;

use crate::support::backing::{Backing, Kind};
use crate::support::{Options, Server, Setup, USUAL, call, get};

/// An application that queries MariaDB or Redis over TLS and responds with the result or the error.
const APP: &str = r#"
local veche = require "veche"
local app, config = {}, veche.config

function app.request(req)
  local query = req.query
  local options = { host = query.host, port = config[query.of], tls = query.ca == "public" or { ca = query.ca }, connect_timeout = 5 }
  local ok, what
  if query.of == "mysql" then
    options.user = "root"
    local db = veche.mysql.connect(options)
    ok, what = pcall(db.row, db, "show status like 'Ssl_version'")
    if ok then what = what.Value end
  else
    local redis = veche.redis.connect(options)
    ok, what = pcall(redis.ping, redis)
  end
  return ok and 200 or 502, tostring(what)
end

return app
"#;

/// Returns a certificate authority.
fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    CertifiedIssuer::self_signed(params, key).expect("a certificate")
}

/// Returns a certificate for a name, and its key.
fn certificate(issuer: &CertifiedIssuer<'static, KeyPair>, name: &str) -> [String; 2] {
    let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, issuer).expect("a certificate");
    [certificate.pem(), key.serialize_pem()]
}

#[test]
fn databases_are_believed_by_their_certificates() {
    let (right, wrong) = (authority("right"), authority("wrong"));
    let [certificate, key] = certificate(&right, "localhost");
    let connections_max = 100;
    let mysql = Backing::with_tls(Kind::MariaDb { connections_max }, &certificate, &key);
    let redis = Backing::with_tls(Kind::Redis, &certificate, &key);
    let (right, wrong) = (right.pem(), wrong.pem());
    let routes = format!(
        "[[route]]\npath = \"/ask\"\nhandler = \"lua\"\nscript = \"app.lua\"\noptions = {{ mysql = {}, redis = {} }}\n",
        mysql.port, redis.port
    );
    let server = Server::with(
        Setup {
            io: "epoll",
            workers: 1,
        },
        &Options {
            routes: &routes,
            files: &[
                ("app.lua", APP),
                ("right.pem", &right),
                ("wrong.pem", &wrong),
                ("empty.pem", "nothing\n"),
            ],
            ..Options::default()
        },
    );
    let ask = |of: &str, host: &str, ca: &str| {
        let answer = get(server.public, &format!("/ask?of={of}&host={host}&ca={ca}"));
        (answer.status, answer.text().to_owned())
    };
    for (of, good) in [("mysql", "TLSv1."), ("redis", "PONG")] {
        let (status, what) = ask(of, "localhost", "right.pem");
        assert!(status == 200 && what.starts_with(good), "{of}: {what}");
        for (host, ca, words) in [
            // Certificates that another authority has signed.
            ("localhost", "wrong.pem", "UnknownIssuer"),
            ("localhost", "public", "UnknownIssuer"),
            // A certificate for another name.
            ("127.0.0.1", "right.pem", "not valid for name"),
            ("localhost", "empty.pem", "empty.pem"),
            ("localhost", "none.pem", "none.pem"),
        ] {
            let (status, what) = ask(of, host, ca);
            assert!(
                status == 502 && what.contains(words),
                "{of} {host} {ca}: {status} {what}"
            );
        }
        // A refused connection has no lasting effect.
        assert_eq!(ask(of, "localhost", "right.pem").0, 200);
    }
}

#[test]
fn an_engine_is_believed_by_its_certificate() {
    let right = authority("right");
    let [certificate, key] = certificate(&right, "localhost");
    let redis = Backing::with_tls(Kind::Redis, &certificate, &key);
    let routes = format!(
        "[[namespace]]\nname = \"chat\"\nhistory_size = 10\n\
         [engine]\ntype = \"redis\"\nurl = \"rediss://localhost:{}?ca=right.pem\"\n",
        redis.port
    );
    let options = Options {
        routes: &routes,
        files: &[("right.pem", &right.pem())],
        ..Options::default()
    };
    let server = Server::with(USUAL, &options);
    let body = json!({ "channel": "chat:1", "data": 1 });
    let published = call(server.internal, "publish", &body);
    assert_eq!(published["result"]["offset"], 1, "{published}");
}
