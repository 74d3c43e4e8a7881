//! Calls of workers to external servers: HTTP servers by URL, databases by the names of their pools.

use std::borrow::Cow;
use std::time::Duration;

use veche_calls::mysql::{MysqlAction, MysqlReply, MysqlValue, ResultMode, Rows};
use veche_calls::redis::{Fate, RedisAction, RedisCommand, RedisReply};
use veche_calls::{
    Call, CallError, CallErrorKind, CallReply, CertificateTrust, Databases, HttpCall, HttpReply,
    HttpRequest, MysqlCall, RedisCall, ReplyBody,
};

use super::frame::FrameLimits;
use super::head::{CallHead, ResultHead};
use super::part::PayloadParts;
use super::values;

/// The default and the maximum time limit of an HTTP request, in seconds.
const TIMEOUT_S: f64 = 30.0;
const TIMEOUT_MAX_S: f64 = 86_400.0;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of redirects that an HTTP request follows.
const REDIRECTS_MAX: u32 = 10;
/// The maximum number of connections to one host.
const CONNECTIONS_MAX: u32 = 64;

/// A call to an external server.
#[derive(Clone, Debug, PartialEq)]
pub enum Outside<'a> {
    /// A request to any HTTP server.
    Http(Box<HttpRequest>),
    /// A statement for a MySQL or MariaDB server.
    Mysql {
        /// The name of the `[[database]]` whose connections are used.
        database: Cow<'a, str>,
        /// The statement, with a `?` for each value.
        sql: Cow<'a, str>,
        /// The values of the placeholders.
        values: Vec<MysqlValue>,
        /// The part of the result that is requested.
        wanted: ResultMode,
    },
    /// A command for a Redis server.
    Redis {
        /// The name of the `[[database]]` whose connections are used.
        database: Cow<'a, str>,
        /// The name of the command in capitals, and its arguments.
        command: RedisCommand,
    },
}

impl<'a> Outside<'a> {
    /// Parses a call; returns `None` if it is not a call to an external server.
    pub(super) fn read(
        head: &mut CallHead<'a>,
        parts: &PayloadParts<'a>,
    ) -> Option<Result<Self, String>> {
        match &*head.call {
            "http" => Some(http(head, parts).map(|fetch| Self::Http(Box::new(fetch)))),
            "mysql" => Some(statement(head, parts)),
            "redis" => Some(command(head, parts)),
            _ => None,
        }
    }

    /// Converts the call to the form that `veche-outbound` performs.
    ///
    /// # Errors
    /// The configuration has no such database, or the command can't be used on a connection that handlers share.
    pub fn call(self, databases: &Databases) -> Result<Call, CallError> {
        let invalid = |words: String| CallError::new(CallErrorKind::Invalid, words);
        let unknown = |kind: &str, name: &str| {
            invalid(format!(
                "the configuration has no {kind} [[database]] named {name:?}"
            ))
        };
        match self {
            Self::Http(fetch) => Ok(Call::Http(HttpCall::Fetch(fetch))),
            Self::Mysql {
                database,
                sql,
                values,
                wanted,
            } => Ok(Call::Mysql(MysqlCall {
                database: (databases.mysql.get(&*database).cloned())
                    .ok_or_else(|| unknown("MySQL", &database))?,
                action: MysqlAction::Run {
                    within: None,
                    sql: sql.into_owned(),
                    values,
                    wanted,
                },
            })),
            Self::Redis { database, command } => {
                let action = match command.fate() {
                    Fate::Shared => RedisAction::Run(command),
                    Fate::Blocking => RedisAction::Block(command),
                    Fate::Refused(_) => {
                        let name = command.parts().next().map(String::from_utf8_lossy);
                        let name = name.unwrap_or_default();
                        return Err(invalid(format!(
                            "{name} is not allowed: handlers share the connections to Redis"
                        )));
                    }
                };
                let keyspace = databases.redis.get(&*database).cloned();
                let keyspace = keyspace.ok_or_else(|| unknown("Redis", &database))?;
                Ok(Call::Redis(RedisCall { keyspace, action }))
            }
        }
    }
}

fn http<'a>(head: &mut CallHead<'a>, parts: &PayloadParts<'a>) -> Result<HttpRequest, String> {
    let url = head.url.take().ok_or("the field \"url\" is missing")?;
    let is_http = ["http://", "https://"]
        .iter()
        .any(|scheme| url.starts_with(scheme));
    if !is_http || !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("url: must begin with http:// or https:// and have no spaces".to_owned());
    }
    let method = head.method.take().unwrap_or_else(|| "GET".into());
    let is_token = |text: &str| {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        !text.is_empty() && text.bytes().all(is_good)
    };
    if !is_token(&method) {
        return Err(format!("invalid method {method:?}"));
    }
    let mut headers = Vec::with_capacity(head.headers.len());
    for (name, value) in head.headers.drain(..) {
        if !is_token(&name)
            || value
                .bytes()
                .any(|byte| byte < 0x20 && byte != b'\t' || byte == 0x7f)
        {
            return Err(format!("invalid header {name:?}"));
        }
        headers.push((name.to_ascii_lowercase(), value.into_owned().into_bytes()));
    }
    let timeout = head.timeout.unwrap_or(TIMEOUT_S);
    if !(timeout > 0.0 && timeout <= TIMEOUT_MAX_S) {
        return Err(format!(
            "timeout: must be more than 0 and at most {TIMEOUT_MAX_S} seconds"
        ));
    }
    Ok(HttpRequest {
        method: method.to_ascii_uppercase(),
        url: url.into_owned(),
        headers,
        body: part(head, parts)?.to_vec(),
        timeout: Duration::from_secs_f64(timeout),
        connect_timeout: CONNECT_TIMEOUT,
        redirects_max: REDIRECTS_MAX,
        body_bytes_max: FrameLimits::default().payload_bytes_max as u64,
        connections_max: CONNECTIONS_MAX,
        trust: CertificateTrust::System,
        is_stream: false,
    })
}

fn statement<'a>(head: &mut CallHead<'a>, parts: &PayloadParts<'a>) -> Result<Outside<'a>, String> {
    Ok(Outside::Mysql {
        database: (head.database.take()).ok_or("the field \"database\" is missing")?,
        sql: head.sql.take().ok_or("the field \"sql\" is missing")?,
        values: values::read(part(head, parts)?)?,
        wanted: match head.wanted.as_deref() {
            None | Some("rows") => ResultMode::Rows,
            Some("row") => ResultMode::Row,
            Some("value") => ResultMode::Value,
            Some("changes") => ResultMode::Changes,
            Some(other) => {
                return Err(format!(
                    "wanted: expected \"rows\", \"row\", \"value\" or \"changes\", found {other:?}"
                ));
            }
        },
    })
}

fn command<'a>(head: &mut CallHead<'a>, parts: &PayloadParts<'a>) -> Result<Outside<'a>, String> {
    let mut command = RedisCommand::default();
    for value in values::read(part(head, parts)?)? {
        match value {
            MysqlValue::Bytes(bytes) if command.is_empty() => {
                command.push(&bytes.to_ascii_uppercase())
            }
            MysqlValue::Bytes(bytes) => command.push(&bytes),
            MysqlValue::Number(number) if number.is_finite() && !command.is_empty() => {
                command.push(number.to_string().as_bytes());
            }
            _ => return Err("a command must consist of its name, bytes and numbers".to_owned()),
        }
    }
    if command.is_empty() {
        return Err("a command must have a name".to_owned());
    }
    let database = (head.database.take()).ok_or("the field \"database\" is missing")?;
    Ok(Outside::Redis { database, command })
}

fn part<'a>(head: &CallHead<'a>, parts: &PayloadParts<'a>) -> Result<&'a [u8], String> {
    head.data.map_or(Ok(&[][..]), |number| parts.get(number))
}

/// Fills `head` with the result of a call to an external server, and returns the payload.
pub(super) fn result<'a>(head: &mut ResultHead<'a>, reply: &'a CallReply) -> Cow<'a, [u8]> {
    match reply {
        CallReply::Http(reply) => of_http(head, reply),
        CallReply::Mysql(reply) => of_mysql(head, reply),
        CallReply::Redis(RedisReply::Value(value)) => {
            let mut payload = Vec::new();
            values::put_redis(&mut payload, value);
            head.data = Some(0);
            payload.into()
        }
        _ => Cow::Borrowed(&[]),
    }
}

fn of_http<'a>(head: &mut ResultHead<'a>, reply: &'a HttpReply) -> Cow<'a, [u8]> {
    head.status = Some(reply.status);
    let text =
        |(name, value): &'a (String, Vec<u8>)| (Cow::from(&**name), String::from_utf8_lossy(value));
    head.headers = reply.headers.iter().map(text).collect();
    head.url = Some(Cow::from(&*reply.url));
    head.data = Some(0);
    match &reply.body {
        ReplyBody::Whole(body) => Cow::Borrowed(body),
        ReplyBody::Stream(_) => Cow::Borrowed(&[]),
    }
}

fn of_mysql<'a>(head: &mut ResultHead<'a>, reply: &'a MysqlReply) -> Cow<'a, [u8]> {
    let mut payload = Vec::new();
    let rows = match reply {
        MysqlReply::Rows(rows) | MysqlReply::Row(rows) => Some(rows),
        MysqlReply::Value(value) => {
            // If there is no row, the payload is empty, which differs from a row with NULL.
            if let Some(value) = value {
                values::put(&mut payload, value);
            }
            head.data = Some(0);
            None
        }
        MysqlReply::Changes {
            affected,
            last_id,
            rows,
        } => {
            head.affected = Some(*affected);
            head.last_id = *last_id;
            rows.as_ref()
        }
        MysqlReply::Begun(_) | MysqlReply::Done => None,
    };
    if let Some(Rows {
        columns,
        values: cells,
    }) = rows
    {
        head.columns = Some(columns.iter().map(|name| Cow::from(&**name)).collect());
        head.data = Some(0);
        for value in cells {
            values::put(&mut payload, value);
        }
    }
    payload.into()
}
