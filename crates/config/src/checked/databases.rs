//! `[[database]]`: servers that applications call by name.

use std::sync::Arc;
use std::time::Duration;

use url::Url;
use veche_calls::mysql::Database;
use veche_calls::redis::RedisDatabase;
use veche_calls::{Databases, Secret, ServerAccount, TlsMode};

use super::engine::{REDIS_PORT, account, path_of, tls_mode};
use super::identity::{duration, number};
use super::{Checker, text};
use crate::raw::RawTable;
use crate::secret::SecretSource;
use crate::value::DirectiveValue;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const MYSQL_PORT: u16 = 3306;

/// Maximum number of queued messages of a subscription.
const QUEUE: usize = 10_000;

/// A database as described by its URL.
#[derive(Debug, PartialEq)]
enum Kind {
    /// MariaDB or MySQL, with the name of the database.
    Mysql(ServerAccount, Option<String>),
    /// Redis, with the number of the database.
    Redis(ServerAccount, u32),
}

impl Checker<'_> {
    pub(super) fn databases<'t>(
        &mut self,
        tables: impl Iterator<Item = &'t RawTable>,
    ) -> Databases {
        let mut databases = Databases::default();
        for table in tables {
            let name = self.name_of_database(table, &databases);
            let Some(mut kind) = self.server_of_database(table) else {
                continue;
            };
            let (Kind::Mysql(server, _) | Kind::Redis(server, _)) = &mut kind;
            self.secure(table, server);
            let Some(name) = name else { continue };
            let pool = number(table, "pool") as usize;
            let wait_timeout = duration(table, "wait_timeout");
            let timeout = duration(table, "timeout");
            let idle_timeout = duration(table, "idle_timeout");
            match kind {
                Kind::Mysql(server, database) => {
                    let database = Database {
                        server,
                        name: database,
                        pool_name: Some(name.clone()),
                        pool,
                        connect_timeout: CONNECT_TIMEOUT,
                        wait_timeout,
                        timeout,
                        idle_timeout,
                        rows_max: number(table, "rows_max") as usize,
                        bytes_max: match table.value("bytes_max") {
                            Some(DirectiveValue::Size(bytes)) => bytes as usize,
                            _ => 0,
                        },
                    };
                    databases.mysql.insert(name, Arc::new(database));
                }
                Kind::Redis(server, database) => {
                    let database = RedisDatabase {
                        server,
                        database,
                        pool_name: Some(name.clone()),
                        pool,
                        connect_timeout: CONNECT_TIMEOUT,
                        wait_timeout,
                        timeout,
                        idle_timeout,
                        queue: QUEUE,
                    };
                    databases.redis.insert(name, Arc::new(database));
                }
            }
        }
        databases
    }

    fn name_of_database(&mut self, table: &RawTable, before: &Databases) -> Option<String> {
        let Some(name) = text(table, "name") else {
            if table.is_sound("name") {
                let why = "[[database]] lacks \"name\", which is required";
                self.problems.add(table.at, why);
            }
            return None;
        };
        let is_taken = before.mysql.contains_key(&name) || before.redis.contains_key(&name);
        let why = match name.is_empty() || name.contains("://") {
            true => "name: expected a name such as \"shop\"".to_owned(),
            false if is_taken => format!("name: there is another [[database]] named {name:?}"),
            false => return Some(name),
        };
        self.problems.add(table.value_at("name"), why);
        None
    }

    fn server_of_database(&mut self, table: &RawTable) -> Option<Kind> {
        let Some(url) = text(table, "url") else {
            if table.is_sound("url") {
                let why = "[[database]] lacks \"url\", which is required";
                self.problems.add(table.at, why);
            }
            return None;
        };
        self.take("url", table.value_at("url"), read(&url))
    }

    /// Adds the password from a file, and makes the path of a certificate absolute.
    fn secure(&mut self, table: &RawTable, server: &mut ServerAccount) {
        if let TlsMode::Authority(file) = &mut server.tls {
            *file = self.base.join(&*file).to_string_lossy().into_owned();
        }
        let Some(file) = text(table, "password_file") else {
            return;
        };
        let at = table.value_at("password_file");
        let file = self.base.join(file);
        let source = SecretSource::File(file.clone());
        let read = (self.world.secret)(&source);
        if let Some(password) = self.take("password_file", at, read) {
            server.password = Some(Secret(password.expose().to_owned()));
            self.only_for_some("password_file", at, &file);
        }
    }
}

/// Parses a database's URL. Errors never repeat user information, which may contain a password.
fn read(url: &str) -> Result<Kind, String> {
    let url = Url::parse(url).map_err(|error| error.to_string())?;
    let mut authority = None;
    for (name, value) in url.query_pairs() {
        match &*name {
            "ca" => authority = Some(value.into_owned()),
            other => return Err(format!("unknown option {other:?}")),
        }
    }
    let has_tls = matches!(url.scheme(), "mysqls" | "rediss");
    let tls = tls_mode(has_tls, authority)?;
    let path = Some(path_of(&url)?).filter(|path| !path.is_empty());
    match url.scheme() {
        "mysql" | "mysqls" => Ok(Kind::Mysql(account(&url, MYSQL_PORT, tls)?, path)),
        "redis" | "rediss" => {
            let number = path.map_or(Ok(0), |path| path.parse());
            let number = number
                .map_err(|_| "expected the number of a database after the host".to_owned())?;
            Ok(Kind::Redis(account(&url, REDIS_PORT, tls)?, number))
        }
        other => Err(format!(
            "expected mysql://, mysqls://, redis:// or rediss://, found {other}://"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_both_kinds_are_read() {
        let mysql = read("mysqls://ann:p%40ss@db.example/shop?ca=/a.pem").expect("one");
        let Kind::Mysql(server, Some(name)) = mysql else {
            panic!("{mysql:?}");
        };
        assert_eq!(
            (&*server.host, server.port, &*name),
            ("db.example", 3306, "shop")
        );
        assert_eq!(server.password, Some(Secret("p@ss".into())));
        assert_eq!(server.tls, TlsMode::Authority("/a.pem".into()));
        let redis = read("redis://[::1]:7000/3").expect("one");
        let Kind::Redis(server, number) = redis else {
            panic!("{redis:?}");
        };
        assert_eq!((&*server.host, server.port, number), ("::1", 7000, 3));
    }

    #[test]
    fn wrong_urls_are_refused_without_being_repeated() {
        for (url, words) in [
            ("postgres://h/d", "found postgres://"),
            ("redis://h/x", "number of a database"),
            ("mysql:///d", "host is missing"),
            ("mysql://h/d?x=1", "unknown option"),
            ("mysql://h/d?ca=/a", "no effect without TLS"),
        ] {
            let error = read(url).expect_err(url);
            assert!(error.contains(words), "{url}: {error}");
        }
    }
}
