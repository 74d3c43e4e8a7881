//! Reads `[engine]` and `[node]`: where channels are ordered, and the name of this server as a
//! node.

use std::sync::Arc;
use std::time::Duration;

use url::Url;
use veche_calls::redis::RedisDatabase;
use veche_calls::{Secret, ServerAccount, TlsMode};

use super::{Checker, text};
use crate::raw::RawTable;
use crate::types::{EngineConfig, HistoryStore, RedisEngine, Sentinels};
use crate::value::DirectiveValue;

/// The time limit of a Redis command. `CONNECT_TIMEOUT` limits the opening of a connection.
const TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;

/// Maximum length of the prefix in bytes.
const PREFIX_BYTES_MAX: usize = 64;

impl Checker<'_> {
    pub(super) fn engine(
        &mut self,
        table: &RawTable,
        history: Option<&HistoryStore>,
    ) -> EngineConfig {
        let is_remote = table.value("type") == Some(DirectiveValue::Word("redis"));
        if !is_remote {
            for name in ["url", "prefix", "on_failover"] {
                if table.has(name) {
                    let why = format!("{name}: has no effect without type = \"redis\"");
                    self.warn(table.key_at(name), why);
                }
            }
            return EngineConfig::Memory;
        }
        if history.is_some() {
            let why =
                "type: with \"redis\", history is stored in Redis; remove path from [history]";
            self.problems.add(table.value_at("type"), why.to_owned());
        }
        let prefix = text(table, "prefix").unwrap_or_default();
        let is_plain = |prefix: &str| prefix.bytes().all(|byte| byte.is_ascii_graphic());
        if prefix.is_empty() || prefix.len() > PREFIX_BYTES_MAX || !is_plain(&prefix) {
            let why = "prefix: expected 1 to 64 ASCII characters without spaces";
            self.problems.add(table.value_at("prefix"), why.to_owned());
        }
        let Some(found) = text(table, "url") else {
            if table.is_sound("url") {
                let why = "url: required with type = \"redis\"";
                self.problems.add(table.value_at("type"), why.to_owned());
            }
            return EngineConfig::Memory;
        };
        match read(&found) {
            Ok((mut keyspace, sentinels)) => {
                if let TlsMode::Authority(file) = &mut keyspace.server.tls {
                    *file = self.base.join(&*file).to_string_lossy().into_owned();
                }
                EngineConfig::Redis(RedisEngine {
                    keyspace: Arc::new(keyspace),
                    sentinels,
                    prefix,
                    trusts_failover: table.value("on_failover")
                        == Some(DirectiveValue::Word("trust")),
                })
            }
            Err(why) => {
                let why = format!("url: {why}");
                self.problems.add(table.value_at("url"), why);
                EngineConfig::Memory
            }
        }
    }
}

/// Parses a URL. Errors contain at most the scheme and the name of an unknown option, since other parts may be
/// passwords.
fn read(url: &str) -> Result<(RedisDatabase, Option<Sentinels>), String> {
    let url = Url::parse(url).map_err(|error| error.to_string())?;
    let (is_sentinel, mut has_tls) = match url.scheme() {
        "redis" => (false, false),
        "rediss" => (false, true),
        "redis+sentinel" => (true, false),
        other => {
            return Err(format!(
                "expected redis://, rediss:// or redis+sentinel://, found {other}://"
            ));
        }
    };
    let path = path_of(&url)?;
    let (mut authority, mut others) = (None, Vec::new());
    let (mut user, mut password) = (None, None);
    for (name, value) in url.query_pairs() {
        match &*name {
            "ca" => authority = Some(value.into_owned()),
            "tls" if is_sentinel => has_tls = &*value == "true",
            "addr" if is_sentinel => others.push(address(&value)?),
            "sentinel_user" if is_sentinel => user = Some(value.into_owned()),
            "sentinel_password" if is_sentinel => password = Some(Secret(value.into_owned())),
            other => return Err(format!("unknown option {other:?}")),
        }
    }
    let tls = tls_mode(has_tls, authority)?;
    let database = match &*path {
        _ if is_sentinel => 0,
        "" => 0,
        number => {
            let number = number.parse();
            number.map_err(|_| "expected a database number after the host")?
        }
    };
    if is_sentinel && path.is_empty() {
        return Err(
            "the name of the primary is missing after the address of the Sentinel".to_owned(),
        );
    }
    let port = match is_sentinel {
        true => SENTINEL_PORT,
        false => REDIS_PORT,
    };
    let keyspace = RedisDatabase {
        server: account(&url, port, tls)?,
        database,
        pool_name: None,
        pool: 1,
        connect_timeout: CONNECT_TIMEOUT,
        wait_timeout: TIMEOUT,
        timeout: TIMEOUT,
        idle_timeout: TIMEOUT,
        queue: 1,
    };
    if user.is_some() && password.is_none() {
        return Err("sentinel_user: has no effect without sentinel_password".to_owned());
    }
    let sentinels = is_sentinel.then_some(Sentinels {
        primary: path,
        others,
        user,
        password,
    });
    Ok((keyspace, sentinels))
}

fn decoded(text: &str) -> Result<String, String> {
    let bytes = percent_encoding::percent_decode_str(text);
    let text = bytes
        .decode_utf8()
        .map_err(|_| "the URL has percent-encoded bytes that are not UTF-8".to_owned());
    text.map(String::from)
}

/// Returns the path of a URL without the slash at its beginning.
pub(super) fn path_of(url: &Url) -> Result<String, String> {
    decoded(url.path().trim_start_matches('/'))
}

/// Returns the server of a URL and the account for it.
pub(super) fn account(url: &Url, port: u16, tls: TlsMode) -> Result<ServerAccount, String> {
    let host = url.host_str().filter(|host| !host.is_empty());
    let host = decoded(host.ok_or("the host is missing")?)?;
    Ok(ServerAccount {
        host: host.trim_matches(['[', ']']).to_owned(),
        port: url.port().unwrap_or(port),
        user: Some(decoded(url.username())?).filter(|user| !user.is_empty()),
        password: url.password().map(decoded).transpose()?.map(Secret),
        tls,
    })
}

pub(super) fn tls_mode(has_tls: bool, authority: Option<String>) -> Result<TlsMode, String> {
    match (has_tls, authority) {
        (true, Some(file)) => Ok(TlsMode::Authority(file)),
        (true, None) => Ok(TlsMode::Public),
        (false, None) => Ok(TlsMode::Off),
        (false, Some(_)) => Err("ca: has no effect without TLS".to_owned()),
    }
}

fn address(text: &str) -> Result<(String, u16), String> {
    let bad = || "addr: expected HOST:PORT".to_owned();
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| bad())?),
        None => (text, SENTINEL_PORT),
    };
    match host.trim_matches(['[', ']']) {
        "" => Err(bad()),
        host => Ok((host.to_owned(), port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let (keyspace, sentinels) = read("redis://ann:p%40ss@db.example:7000/3").expect("one");
        let server = &keyspace.server;
        assert_eq!((&*server.host, server.port), ("db.example", 7000));
        assert_eq!(server.user.as_deref(), Some("ann"));
        assert_eq!(server.password, Some(Secret("p@ss".into())));
        assert_eq!((&server.tls, keyspace.database), (&TlsMode::Off, 3));
        assert_eq!(sentinels, None);
        let (keyspace, _) = read("rediss://[::1]?ca=/a.pem").expect("one");
        let server = keyspace.server;
        assert_eq!((&*server.host, server.port), ("::1", 6379));
        assert_eq!(server.tls, TlsMode::Authority("/a.pem".into()));
        let text = "redis+sentinel://:secret@one/main?addr=two:7001&addr=three";
        let (keyspace, sentinels) = read(text).expect("one");
        assert_eq!(keyspace.server.port, 26_379);
        let others = vec![("two".to_owned(), 7001), ("three".to_owned(), 26_379)];
        let expected = Sentinels {
            primary: "main".to_owned(),
            others,
            user: None,
            password: None,
        };
        assert_eq!(sentinels.as_ref(), Some(&expected));
        assert_eq!(keyspace.server.password, Some(Secret("secret".to_owned())));
        let text = "redis+sentinel://one/main?sentinel_user=eve&sentinel_password=p%26ss";
        let (keyspace, sentinels) = read(text).expect("one");
        assert_eq!(keyspace.server.password, None);
        let found = sentinels.map(|found| (found.user, found.password));
        let account = (Some("eve".to_owned()), Some(Secret("p&ss".to_owned())));
        assert_eq!(found, Some(account));
    }

    #[test]
    fn invalid_redis_urls_are_rejected() {
        for (text, words) in [
            ("", "relative URL"),
            ("http://h", "found http://"),
            ("redis://", "host is missing"),
            ("redis://h/x", "a database number"),
            ("redis://h?tls=true", "unknown option"),
            ("redis://h?ca=/a", "without TLS"),
            ("redis+sentinel://h", "name of the primary"),
            ("redis+sentinel://h/main?addr=:1", "HOST:PORT"),
            ("redis+sentinel://h/main?sentinel_user=a", "no effect"),
            ("redis://h?sentinel_password=a", "unknown option"),
            ("redis+sentinel://h/main?addr=a:b", "HOST:PORT"),
        ] {
            let why = read(text).expect_err(text);
            assert!(why.contains(words), "{text}: {why}");
        }
    }
}
