//! Servers that can't be used are refused at the start; the error is one line that explains the fix.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

use veche_calls::{CallErrorKind, Secret};
use veche_nodes::NodeId;
use veche_outbound::Outbound;
use veche_outbound::engine::{EngineSettings, Sentinel};

use crate::ports::free_address;
use crate::server::Server;

fn settings(server: &Server, account: Option<(&str, &str)>) -> EngineSettings {
    EngineSettings {
        keyspace: server.keyspace_of(account),
        sentinel: None,
        prefix: "test".into(),
        trusts_failover: false,
        node: NodeId(1),
        notice: Arc::new(|_| {}),
    }
}

fn refused(server: &Server, account: Option<(&str, &str)>) -> (CallErrorKind, String) {
    let settings = settings(server, account);
    let fault = Outbound::default().engine(settings).expect_err("refused");
    (fault.kind, fault.words)
}

#[test]
fn what_cannot_serve_is_refused_with_one_line() {
    let server = Server::start(&["--requirepass", "secret"]);
    let (_, words) = refused(&server, None);
    assert!(words.contains("set the password in the URL"), "{words}");
    let (_, words) = refused(&server, Some(("default", "wrong")));
    assert!(words.contains("check the user and the password"), "{words}");
    let cli = |arguments: &[&str]| {
        let login = ["-a", "secret", "--no-auth-warning"];
        server.cli(&[&login, arguments].concat());
    };
    cli(&[
        "ACL", "SETUSER", "ann", "on", ">pass", "~test:*", "&test:*", "+@all", "-xadd",
    ]);
    let (_, words) = refused(&server, Some(("ann", "pass")));
    assert_eq!(words, "redis: the account needs the rights +xadd");
    cli(&[
        "ACL", "SETUSER", "ben", "on", ">pass", "~other:*", "&test:*", "+@all",
    ]);
    let (_, words) = refused(&server, Some(("ben", "pass")));
    assert_eq!(words, "redis: the account needs the rights ~test:*");
    cli(&[
        "ACL", "SETUSER", "eve", "on", ">pass", "~test:*", "&test:*", "+@all",
    ]);
    cli(&["REPLICAOF", "127.0.0.1", "1"]);
    let (kind, words) = refused(&server, Some(("eve", "pass")));
    assert_eq!(kind, CallErrorKind::Refused);
    assert!(words.contains("read-only replica"), "{words}");
    server.crash();
    let (kind, _) = refused(&server, None);
    assert_eq!(kind, CallErrorKind::Unreachable);
    // Redis Cluster needs a second port. By default that port is the first one plus 10,000, which may be too high.
    let second = free_address().port().to_string();
    let cluster = Server::start(&["--cluster-enabled", "yes", "--cluster-port", &second]);
    let (_, words) = refused(&cluster, None);
    assert!(words.contains("Cluster"), "{words}");
}

/// Starts a server that claims to have this version, and supports the command `HELLO` if `knows_hello`. Returns its
/// port.
fn server_of(version: &'static str, knows_hello: bool) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = socket.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]).to_uppercase();
                // Each command begins with the number of its arguments.
                for command in text.split("\r\n*").filter(|one| !one.is_empty()) {
                    let info = format!("redis_version:{version}\r\nredis_mode:standalone\r\n");
                    let reply = match () {
                        () if command.contains("HELLO") && knows_hello => {
                            "%1\r\n+proto\r\n:3\r\n".to_owned()
                        }
                        () if command.contains("HELLO") => {
                            "-ERR unknown command `HELLO`, with args beginning with: `3`\r\n"
                                .to_owned()
                        }
                        () if command.contains("ROLE") => {
                            "*3\r\n+master\r\n:0\r\n*0\r\n".to_owned()
                        }
                        () if command.contains("INFO") && !command.contains("SETINFO") => {
                            format!("${}\r\n{info}\r\n", info.len())
                        }
                        () => "+OK\r\n".to_owned(),
                    };
                    if socket.write_all(reply.as_bytes()).is_err() {
                        break;
                    }
                }
            }
        }
    });
    port
}

#[test]
fn a_server_that_is_too_old_is_refused() {
    let server = Server::start(&[]);
    for (version, knows_hello, found) in
        [("6.0.16", true, "6.0.16"), ("5.0.14", false, "below 6.0")]
    {
        let port = server_of(version, knows_hello);
        let settings = EngineSettings {
            keyspace: server.keyspace_by(port),
            ..settings(&server, None)
        };
        let fault = Outbound::default().engine(settings).expect_err("refused");
        let expected =
            format!("redis: the server has version {found}, but 6.2 or later is required");
        assert_eq!(fault.words, expected);
    }
}

#[test]
fn sentinels_have_a_login_of_their_own() {
    let primary = Server::start(&["--requirepass", "of-redis"]);
    let port = primary.port();
    let sentinel = Server::sentinel(&format!(
        "requirepass of-sentinels\nsentinel monitor main 127.0.0.1 {port} 1\nsentinel auth-pass main of-redis\n"
    ));
    let connect = |user: Option<&str>, password: Option<&str>| {
        let settings = EngineSettings {
            keyspace: sentinel.keyspace_of(Some(("default", "of-redis"))),
            sentinel: Some(Sentinel {
                primary: "main".into(),
                others: Vec::new(),
                user: user.map(Into::into),
                password: password.map(|password| Secret(password.into())),
            }),
            ..settings(&sentinel, None)
        };
        Outbound::default().engine(settings)
    };
    connect(None, Some("of-sentinels")).expect("the right password");
    connect(Some("default"), Some("of-sentinels")).expect("with a user as well");
    for password in [None, Some("of-redis")] {
        let fault = connect(None, password).expect_err("refused");
        assert_eq!(fault.kind, CallErrorKind::Refused);
        let action = "check sentinel_user and sentinel_password in the URL";
        assert!(fault.words.ends_with(action), "{}", fault.words);
    }
}
