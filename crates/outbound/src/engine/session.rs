//! A connection to a Redis server whose role, version and identity are verified.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, PushInfo, PushKind, Value};
use tokio::sync::Notify;
use tokio::time::timeout;
use veche_calls::redis::RedisDatabase;
use veche_calls::{CallError, CallErrorKind, ServerAccount};
use veche_nodes::engine::StoreState;

use super::replies::{bytes, list, text};
use super::scripts::{Fence, Loaded, RedisScript};
use super::shared::{EngineFigures, EngineSettings, Notice, Sentinel, SharedPorts};
use crate::redis::shared_connection::RedisDialer;
use crate::redis::values::call_error;

/// The oldest version of Redis that has all commands of the engine.
const VERSION_MIN: (u32, u32) = (6, 2);

/// Error codes that only nodes of a Redis Cluster return.
const CLUSTER_CODES: [&str; 4] = ["CLUSTERDOWN", "CROSSSLOT", "MOVED", "ASK "];

/// The generation of a store in which no promotion is recorded.
const NO_GENERATION: &str = "0";

/// The time for which a fence is stored: longer than a network may delay commands that were sent.
const FENCE_TTL: Duration = Duration::from_secs(3_600);

/// A connection to a Redis server. The server is verified before orders are executed.
pub(super) struct EngineSession {
    pub(super) connection: MultiplexedConnection,
    pub(super) scripts: Loaded,
    pub(super) fence: Fence,
    /// Notified when the connection ends.
    pub(super) over: Arc<Notify>,
    info: String,
}

/// The properties of the Redis server that a port was last connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownServer {
    replication: String,
    generation: String,
}

impl EngineSession {
    /// Connects to the Redis primary. `pushed` receives all push messages, except the one that
    /// reports the end of the connection.
    pub(super) async fn connect(
        shared: &SharedPorts,
        pushed: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Self, CallError> {
        let keyspace = &shared.settings.keyspace;
        let within = keyspace.connect_timeout;
        let connect = timeout(within, Self::connect_now(shared, pushed));
        connect.await.unwrap_or_else(|_| {
            let words = format!("redis: no connection within {within:?}");
            Err(CallError::new(CallErrorKind::Unreachable, words))
        })
    }

    async fn connect_now(
        shared: &SharedPorts,
        pushed: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Self, CallError> {
        let keyspace = primary(shared).await?;
        let over = Arc::new(Notify::new());
        let ended = Arc::clone(&over);
        let dialer = RedisDialer::new(&keyspace);
        let mut connection = dialer
            .connect(move |push| match push.kind {
                PushKind::Disconnection => ended.notify_one(),
                _ => pushed(push),
            })
            .await
            .map_err(examined)?;
        let role = list(query(&mut connection, &redis::cmd("ROLE")).await?);
        let role = role.and_then(|mut role| text(role.next()?));
        if role.as_deref() != Some("master") {
            let words = "redis: the server is a read-only replica: use the primary or Sentinels";
            return Err(CallError::new(CallErrorKind::Refused, words));
        }
        Ok(Self {
            connection,
            scripts: Loaded::default(),
            fence: Fence::default(),
            over,
            info: String::new(),
        })
    }

    /// Checks that the server can execute this engine's commands, makes it refuse delayed commands of the port's earlier
    /// connections, and determines the state of the store. `stored` is the number of publications in the store according to its latest reply to
    /// this port.
    pub(super) async fn verify(
        &mut self,
        shared: &SharedPorts,
        known: &mut Option<KnownServer>,
        stored: u64,
        fence: Fence,
    ) -> Result<StoreState, CallError> {
        self.load().await?;
        self.fence = fence;
        let (keys, trusts) = (&shared.keys, shared.settings.trusts_failover);
        let (identity, generation) = (keys.single("identity"), keys.single("generation"));
        let replication = self.field("master_replid").to_owned();
        let before = self.field("master_replid2").to_owned();
        let (count, begun_with) = (keys.single("stored"), keys.single("begun"));
        let used: [&[u8]; 5] = [&identity, &generation, &self.fence.key, &count, &begun_with];
        let mut command = self.scripts.run(RedisScript::Verify, &used);
        // The promotion of a replica begins a new generation, named after the server's replication id, unless failovers are
        // trusted.
        let begun = if trusts { "" } else { &*replication };
        command.arg(&replication).arg(&before).arg(begun);
        command
            .arg(self.fence.number)
            .arg(FENCE_TTL.as_millis() as u64);
        command
            .arg(known.as_ref().map_or("", |known| &*known.replication))
            .arg(stored);
        let reply = self.query(&command).await?;
        let mut parts = list(reply).into_iter().flatten().filter_map(text);
        let (Some(state), Some(generation)) = (parts.next(), parts.next()) else {
            return Err(CallError::new(
                CallErrorKind::Broken,
                "redis: malformed reply to the script that verifies the server",
            ));
        };
        let now = KnownServer {
            replication,
            generation,
        };
        // The promotion may already be recorded: by another port or node, or by this port if the reply was lost.
        let was_primary = known
            .as_ref()
            .is_some_and(|known| known.replication == before);
        let has_new_generation = known
            .as_ref()
            .is_some_and(|known| base(&known.generation) != base(&now.generation))
            && base(&now.generation) != NO_GENERATION;
        let is_promoted = state == "promoted" || was_primary || has_new_generation;
        let store = match known {
            None => StoreState::Same,
            Some(known) if *known == now => StoreState::Same,
            Some(known) if known.generation != now.generation => StoreState::Promoted,
            Some(_) if trusts && was_primary => StoreState::Same,
            Some(_) => StoreState::Restarted,
        };
        if is_promoted {
            let notice = if trusts {
                Notice::Trusted
            } else {
                Notice::Promoted
            };
            shared.replaced(&now.replication, &notice);
        } else if store != StoreState::Same {
            shared.replaced(&now.replication, &Notice::Restarted);
        }
        *known = Some(now);
        Ok(store)
    }

    /// Loads the scripts into Redis and reads the server's properties.
    pub(super) async fn load(&mut self) -> Result<(), CallError> {
        let mut pipeline = Pipeline::new();
        pipeline.add_command(info("server"));
        pipeline.add_command(info("replication"));
        for command in Loaded::commands() {
            pipeline.add_command(command);
        }
        let count = pipeline.cmd_iter().count();
        let sent = self
            .connection
            .send_packed_commands(&pipeline, 0, count)
            .await;
        let replies = sent.map_err(|error| call_error(&error))?;
        let mut replies = replies.into_iter().map(reply_or_error);
        self.info.clear();
        for _ in 0..2 {
            let reply = replies.next().unwrap_or(Ok(Value::Nil))?;
            if let Value::VerbatimString { text, .. } = &reply {
                self.info.push_str(text);
            } else if let Some(text) = text(reply) {
                self.info.push_str(&text);
            }
            self.info.push('\n');
        }
        let hashes: Vec<Value> = replies.collect::<Result<_, _>>()?;
        self.scripts = Loaded::new(hashes.into_iter().filter_map(text));
        Ok(())
    }

    /// Checks that the Redis server is usable before anything depends on it.
    ///
    /// # Errors
    /// One line that tells the operator what to do.
    pub(super) async fn examine(&mut self, shared: &SharedPorts) -> Result<(), CallError> {
        self.find_missing_rights(shared).await?;
        self.load().await?;
        let version = self.field("redis_version");
        let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
        let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        if version < VERSION_MIN {
            return Err(version_error(self.field("redis_version")));
        }
        match self.field("redis_mode") {
            "cluster" => Err(cluster_error()),
            _ => Ok(()),
        }
    }

    /// Executes separately each command that the scripts use, because the server's errors then name
    /// the missing permission.
    async fn find_missing_rights(&mut self, shared: &SharedPorts) -> Result<(), CallError> {
        let (hash, stream) = (shared.keys.single("check:h"), shared.keys.single("check:s"));
        let (value, set) = (shared.keys.single("check:v"), shared.keys.single("check:z"));
        let (sorted, channel) = (shared.keys.single("check:e"), shared.keys.single("check"));
        let rows: [(&str, &[&[u8]]); 31] = [
            ("PING", &[]),
            ("INFO", &[b"server"]),
            ("SCRIPT", &[b"LOAD", b"return 1"]),
            (
                "EVALSHA",
                &[b"0000000000000000000000000000000000000000", b"0"],
            ),
            ("HSET", &[&hash, b"a", b"1"]),
            ("HMGET", &[&hash, b"a"]),
            ("HGET", &[&hash, b"a"]),
            ("HGETALL", &[&hash]),
            ("HKEYS", &[&hash]),
            ("HINCRBY", &[&hash, b"a", b"1"]),
            ("HDEL", &[&hash, b"a"]),
            ("HLEN", &[&hash]),
            ("TIME", &[]),
            ("XADD", &[&stream, b"*", b"d", b""]),
            ("XRANGE", &[&stream, b"-", b"+"]),
            ("XREVRANGE", &[&stream, b"+", b"-"]),
            ("PEXPIRE", &[&stream, b"1000"]),
            ("SET", &[&value, b"1"]),
            ("GET", &[&value]),
            ("MGET", &[&value]),
            ("INCR", &[&value]),
            ("EXISTS", &[&value]),
            ("SADD", &[&set, b"1"]),
            ("SMEMBERS", &[&set]),
            ("SREM", &[&set, b"1"]),
            ("ZADD", &[&sorted, b"1", b"a"]),
            ("ZRANGEBYSCORE", &[&sorted, b"-inf", b"1"]),
            ("ZREM", &[&sorted, b"a"]),
            ("DEL", &[&hash, &stream, &value, &set, &sorted]),
            ("PUBLISH", &[&channel, b""]),
            ("SUBSCRIBE", &[&channel]),
        ];
        let mut rights: Vec<String> = Vec::new();
        let (mut misses_keys, mut misses_channels) = (false, false);
        for (name, arguments) in rows {
            let mut command = redis::cmd(name);
            for argument in arguments {
                command.arg(*argument);
            }
            match self
                .connection
                .send_packed_command(&command)
                .await
                .map(reply_or_error)
            {
                Ok(Err(fault)) if fault.words.contains("NOPERM") => {
                    misses_keys |= fault.words.contains("keys");
                    misses_channels |= fault.words.contains("channels");
                    if fault.words.contains("command") {
                        rights.push(format!("+{}", name.to_lowercase()));
                    }
                }
                Ok(Err(fault)) if name == "EVALSHA" && fault.words.contains("NOSCRIPT") => {}
                Ok(Err(fault)) => return Err(examined(fault)),
                Err(error) if error.code() == Some("NOPERM") => {
                    let words = error.to_string();
                    misses_keys |= words.contains("keys");
                    misses_channels |= words.contains("channels");
                    if words.contains("command") {
                        rights.push(format!("+{}", name.to_lowercase()));
                    }
                }
                Err(error) if name == "EVALSHA" && error.code() == Some("NOSCRIPT") => {}
                Err(error) => return Err(examined(call_error(&error))),
                Ok(Ok(_)) => {}
            }
        }
        let prefix = shared.keys.prefix();
        if misses_keys {
            rights.push(format!("~{prefix}*"));
        }
        if misses_channels {
            rights.push(format!("&{prefix}*"));
        }
        if rights.is_empty() {
            return Ok(());
        }
        let rights = rights.join(" ");
        let words = format!("redis: the account needs the rights {rights}");
        Err(CallError::new(CallErrorKind::Refused, words))
    }

    pub(super) async fn query(&mut self, command: &Cmd) -> Result<Value, CallError> {
        query(&mut self.connection, command).await
    }

    fn field(&self, name: &str) -> &str {
        let mut lines = self.info.lines();
        let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found.unwrap_or_default()
    }
}

/// Adds the required action to a server's error, if the operator has to act.
fn examined(fault: CallError) -> CallError {
    let words = &fault.words;
    let is_of_cluster = |code: &&str| words.contains(*code);
    // The first command of a connection is HELLO 3, which Redis supports since version 6.0.
    let is_old = words.contains("RESP3NotSupported");
    let action = if CLUSTER_CODES.iter().any(is_of_cluster) {
        return cluster_error();
    } else if is_old {
        return version_error("below 6.0");
    } else if words.contains("NOAUTH") {
        "set the password in the URL"
    } else if words.contains("WRONGPASS") {
        "check the user and the password in the URL"
    } else {
        return fault;
    };
    let words = format!("{words}: {action}");
    CallError::new(fault.kind, words)
}

/// Returns a generation without the suffix that `verify.lua` adds when a restarted server has lost publications.
fn base(generation: &str) -> &str {
    generation.split('/').next().unwrap_or_default()
}

fn version_error(found: &str) -> CallError {
    let (major, minor) = VERSION_MIN;
    let words =
        format!("redis: the server has version {found}, but {major}.{minor} or later is required");
    CallError::new(CallErrorKind::Refused, words)
}

fn cluster_error() -> CallError {
    let words = "redis: the server is a node of a Redis Cluster, which is not supported: use one server or Sentinels";
    CallError::new(CallErrorKind::Refused, words)
}

fn info(section: &str) -> Cmd {
    let mut command = redis::cmd("INFO");
    command.arg(section);
    command
}

async fn query(connection: &mut MultiplexedConnection, command: &Cmd) -> Result<Value, CallError> {
    let reply = connection.send_packed_command(command).await;
    reply_or_error(reply.map_err(|error| call_error(&error))?)
}

/// Returns a reply, or the server's error contained in it.
fn reply_or_error(reply: Value) -> Result<Value, CallError> {
    match reply {
        Value::ServerError(error) => {
            let (code, details) = (error.code(), error.details().unwrap_or_default());
            Err(CallError::new(
                CallErrorKind::Refused,
                format!("redis: {code} {details}"),
            ))
        }
        reply => Ok(reply),
    }
}

/// Returns the settings for connecting to the current primary. If Sentinels are configured, asks
/// them for its address.
async fn primary(shared: &SharedPorts) -> Result<Arc<RedisDatabase>, CallError> {
    let settings = &shared.settings;
    let Some(sentinel) = &settings.sentinel else {
        return Ok(Arc::clone(&settings.keyspace));
    };
    let server = &settings.keyspace.server;
    let own = (server.host.clone(), server.port);
    let mut last = None;
    for (host, port) in std::iter::once(&own).chain(&sentinel.others) {
        match ask_sentinel(settings, sentinel, host, *port).await {
            Ok((host, port)) => {
                let server = ServerAccount {
                    host,
                    port,
                    ..server.clone()
                };
                let keyspace = RedisDatabase {
                    server,
                    ..(*settings.keyspace).clone()
                };
                return Ok(Arc::new(keyspace));
            }
            Err(fault) => last = Some(fault),
        }
    }
    Err(last.unwrap_or_else(|| {
        CallError::new(
            CallErrorKind::Unreachable,
            "redis: no Sentinel is configured",
        )
    }))
}

async fn ask_sentinel(
    settings: &EngineSettings,
    sentinel: &Sentinel,
    host: &str,
    port: u16,
) -> Result<(String, u16), CallError> {
    let server = ServerAccount {
        host: host.to_owned(),
        port,
        // Sentinels have user accounts of their own, separate from those of the Redis server, and usually require
        // no login.
        user: sentinel.user.clone(),
        password: sentinel.password.clone(),
        ..settings.keyspace.server.clone()
    };
    let keyspace = RedisDatabase {
        server,
        database: 0,
        ..(*settings.keyspace).clone()
    };
    let dialer = RedisDialer::new(&Arc::new(keyspace));
    let within = settings.keyspace.connect_timeout / 2;
    let asked = timeout(within, async {
        let mut connection = dialer.connect(|_| {}).await?;
        let mut command = redis::cmd("SENTINEL");
        command
            .arg("get-master-addr-by-name")
            .arg(&sentinel.primary);
        query(&mut connection, &command).await
    });
    let unknown = || {
        let words = format!(
            "redis: the Sentinel at {host}:{port} does not know a primary named {}",
            sentinel.primary
        );
        CallError::new(CallErrorKind::Refused, words)
    };
    let reply = asked.await.unwrap_or_else(|_| {
        let words = format!("redis: the Sentinel at {host}:{port} did not reply");
        Err(CallError::new(CallErrorKind::Unreachable, words))
    });
    let reply = reply.map_err(|fault| {
        let is_login = fault.words.contains("NOAUTH") || fault.words.contains("WRONGPASS");
        match is_login {
            true => {
                let words = format!(
                    "redis: the Sentinel at {host}:{port} refuses the login: check sentinel_user and sentinel_password in the URL"
                );
                CallError::new(CallErrorKind::Refused, words)
            }
            false => fault,
        }
    })?;
    let mut parts = list(reply).ok_or_else(unknown)?.filter_map(bytes);
    let host = parts.next().and_then(|host| String::from_utf8(host).ok());
    let port = parts
        .next()
        .and_then(|port| str::from_utf8(&port).ok()?.parse().ok());
    host.zip(port).ok_or_else(unknown)
}

impl SharedPorts {
    /// Counts the end of a connection.
    pub(super) fn count_loss(&self) {
        EngineFigures::add(&self.figures.losses, 1);
    }
}
