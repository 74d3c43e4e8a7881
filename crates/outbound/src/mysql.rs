//! The client of MySQL and MariaDB, on top of `mysql_async`. All statements of scripts are prepared, with bound values.

mod errors;
mod traces;
mod values;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::thread;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts, OptsBuilder, Row, SslOpts};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::timeout;
use veche_calls::mysql::{Database, MysqlAction, MysqlReply, MysqlValue, ResultMode, Rows};
use veche_calls::{CallError, CallErrorKind, CallOutcome, CallReply, Lease, MysqlCall, TlsMode};

use crate::authority;
use crate::metrics::ClientMetrics;
use crate::pool::active_uses::shortened;
use crate::pool::{ConnectionPool, Connector, PoolLimits, PooledConnection};
use errors::{call_error, has_ended_transaction, lost, not_connected};
use traces::changes_session_state;

/// The maximum number of prepared statements that a connection caches.
const STATEMENTS: usize = 256;

/// The connections to a database.
#[derive(Debug)]
pub(crate) struct MysqlClient {
    database: Arc<Database>,
    pool: Arc<ConnectionPool<MysqlDialer>>,
}

impl MysqlClient {
    /// Creates the client. Has to be called within the tokio runtime.
    pub(crate) fn new(database: &Arc<Database>, figures: Arc<ClientMetrics>) -> Self {
        let limits = PoolLimits {
            size: database.pool,
            connect_timeout: database.connect_timeout,
            wait_timeout: database.wait_timeout,
            idle_timeout: database.idle_timeout,
        };
        let dialer = MysqlDialer {
            options: options(database),
            tls: database.server.tls.clone(),
        };
        let name = match &database.pool_name {
            Some(name) => name.clone(),
            None => {
                let of = database.name.as_deref().unwrap_or_default();
                database.server.pool_name(of)
            }
        };
        Self {
            database: Arc::clone(database),
            pool: ConnectionPool::new("mysql", name, dialer, limits, figures),
        }
    }

    pub(crate) async fn perform(&self, call: MysqlCall) -> CallOutcome {
        let reply = match call.action {
            MysqlAction::Begin => self.begin().await,
            MysqlAction::End { lease, commit } => self.end(&lease, commit).await,
            MysqlAction::Run {
                within,
                sql,
                values,
                wanted,
            } => {
                let statement = Statement {
                    sql,
                    values,
                    wanted,
                };
                match &within {
                    None => self.run(statement).await,
                    Some(lease) => self.run_within(lease, statement).await,
                }
            }
        };
        reply.map(CallReply::Mysql)
    }

    /// Runs a statement on a pooled connection.
    async fn run(&self, statement: Statement) -> Result<MysqlReply, CallError> {
        let mut taken = self.pool.take(shortened(&statement.sql)).await?;
        let leaves_traces = changes_session_state(&statement.sql);
        let (reply, is_usable) = self.within_time(&mut taken, statement).await;
        if is_usable {
            if leaves_traces || is_in_transaction(taken.connection()) {
                self.clean(taken).await;
            } else {
                taken.give_back();
            }
        }
        reply
    }

    async fn begin(&self) -> Result<MysqlReply, CallError> {
        let mut taken = self.pool.take("a transaction".to_owned()).await?;
        self.command(&mut taken, "START TRANSACTION").await?;
        let transaction = Transaction {
            open: Mutex::new(Some(OpenTransaction {
                taken,
                has_traces: false,
                ended: None,
            })),
            runtime: Handle::current(),
        };
        Ok(MysqlReply::Begun(Lease::new(transaction)))
    }

    async fn run_within(
        &self,
        lease: &Lease,
        statement: Statement,
    ) -> Result<MysqlReply, CallError> {
        let transaction = transaction(lease)?;
        // Another coroutine may be running a statement in the same transaction.
        let mut slot = transaction.open.lock().await;
        // From here on, the connection is owned by this call, so it is closed if the call is cancelled.
        let mut open = slot.take().ok_or_else(over)?;
        if let Some(why) = open.ended {
            *slot = Some(open);
            return Err(CallError::new(CallErrorKind::Invalid, why));
        }
        open.has_traces |= changes_session_state(&statement.sql);
        let short = shortened(&statement.sql);
        open.taken.set_use(format!("{short} in a transaction"));
        let (reply, is_usable) = self.within_time(&mut open.taken, statement).await;
        let idle = format!("a transaction that waits for its script after {short}");
        open.taken.set_use(idle);
        if is_usable {
            open.ended = match &reply {
                Ok(_) if !is_in_transaction(open.taken.connection()) => Some(
                    "mysql: a statement has ended the transaction: it is COMMIT or ROLLBACK, or commits implicitly",
                ),
                Err(fault) if has_ended_transaction(fault) => {
                    Some("mysql: the server has rolled back the transaction")
                }
                _ => None,
            };
            *slot = Some(open);
        }
        reply
    }

    async fn end(&self, lease: &Lease, commit: bool) -> Result<MysqlReply, CallError> {
        let mut slot = transaction(lease)?.open.lock().await;
        let mut open = slot.take().ok_or_else(over)?;
        if let (true, Some(why)) = (commit, open.ended) {
            self.clean(open.taken).await;
            return Err(CallError::new(CallErrorKind::Invalid, why));
        }
        let command = if commit { "COMMIT" } else { "ROLLBACK" };
        self.command(&mut open.taken, command).await?;
        if open.has_traces {
            self.clean(open.taken).await;
        } else {
            open.taken.give_back();
        }
        Ok(MysqlReply::Done)
    }

    /// Runs a statement of this module, such as COMMIT; closes the connection if it fails.
    async fn command(
        &self,
        taken: &mut PooledConnection<MysqlDialer>,
        command: &str,
    ) -> Result<(), CallError> {
        let running = taken.begin().query_drop(command);
        let Ok(done) = timeout(self.database.timeout, running).await else {
            return Err(self.too_slow());
        };
        taken.finish_use();
        done.map_err(|error| call_error(&error))
    }

    /// Runs a statement within the time limit. Returns the reply, and whether the connection can still be used.
    async fn within_time(
        &self,
        taken: &mut PooledConnection<MysqlDialer>,
        statement: Statement,
    ) -> (Result<MysqlReply, CallError>, bool) {
        let running = statement.run(taken.begin(), &self.database);
        let error = match timeout(self.database.timeout, running).await {
            Ok(Ok(reply)) => {
                taken.finish_use();
                return (Ok(reply), true);
            }
            Ok(Err(StatementError::Driver(error))) => error,
            // The rest of the result has not been read, so the connection can't be used again.
            Ok(Err(StatementError::Result(fault))) => return (Err(fault), false),
            Err(_) => return (Err(self.too_slow()), false),
        };
        taken.finish_use();
        (Err(call_error(&error)), !lost(&error))
    }

    fn too_slow(&self) -> CallError {
        let words = format!("mysql: no result within {:?}", self.database.timeout);
        CallError::new(CallErrorKind::Timeout, words)
    }

    /// Resets a connection and puts it back into the pool; closes the connection if the reset fails.
    async fn clean(&self, mut taken: PooledConnection<MysqlDialer>) {
        let connection = taken.begin();
        let reset = async {
            // The reset does not restore the selected database, so the database is selected again.
            let is_reset = connection.reset().await?;
            match &self.database.name {
                Some(name) if is_reset => {
                    let name = name.replace('`', "``");
                    connection.query_drop(format!("USE `{name}`")).await?;
                    Ok(true)
                }
                _ => Ok::<bool, mysql_async::Error>(false),
            }
        };
        let reset = timeout(self.database.connect_timeout, reset).await;
        if let Ok(reset) = reset {
            taken.finish_use();
            if matches!(reset, Ok(true)) {
                taken.give_back();
            }
        }
    }
}

/// A connection in a transaction, held by a lease.
struct Transaction {
    /// `None` once the transaction has ended or its connection was lost.
    open: Mutex<Option<OpenTransaction>>,
    runtime: Handle,
}

struct OpenTransaction {
    taken: PooledConnection<MysqlDialer>,
    /// Whether a statement may have changed session state that outlasts the transaction.
    has_traces: bool,
    /// The reason why the transaction has ended; `None` while it is open.
    ended: Option<&'static str>,
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // The driver needs the tokio runtime to close a connection, and a transaction may be dropped on any thread.
        let _runtime = self.runtime.enter();
        self.open.get_mut().take();
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transaction")
    }
}

fn transaction(lease: &Lease) -> Result<&Transaction, CallError> {
    lease.of().ok_or_else(over)
}

fn over() -> CallError {
    CallError::new(CallErrorKind::Invalid, "mysql: the transaction has ended")
}

/// Establishes connections to a database.
struct MysqlDialer {
    options: Opts,
    tls: TlsMode,
}

impl fmt::Debug for MysqlDialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MysqlDialer")
    }
}

impl Connector for MysqlDialer {
    type Connection = Conn;

    async fn dial(&self) -> Result<Conn, CallError> {
        authority::read("mysql", &self.tls).await?;
        Conn::new(self.options.clone())
            .await
            .map_err(|error| not_connected(&error))
    }

    async fn is_alive(&self, connection: &mut Conn) -> bool {
        connection.ping().await.is_ok()
    }

    /// Kills the connection's statement with a second connection, since a server continues a statement after its client has
    /// disconnected.
    async fn abort(&self, connection: Conn) {
        let connection = UnreadConnection(Some(connection));
        if let (Some(unheard), Ok(mut other)) =
            (&connection.0, Conn::new(self.options.clone()).await)
        {
            let _ = other.query_drop(format!("KILL {}", unheard.id())).await;
            let _ = other.disconnect().await;
        }
    }
}

/// A connection with an unread response.
struct UnreadConnection(Option<Conn>);

impl Drop for UnreadConnection {
    fn drop(&mut self) {
        // The connection is dropped on a thread outside the tokio runtime: if it were dropped inside, the driver would
        // wait for the response before it closes the socket.
        let connection = self.0.take();
        let _ = thread::Builder::new().spawn(move || drop(connection));
    }
}

fn options(database: &Database) -> Opts {
    let server = &database.server;
    let tls = match &server.tls {
        TlsMode::Off => None,
        TlsMode::Public => Some(SslOpts::default()),
        TlsMode::Authority(file) => Some(
            SslOpts::default()
                .with_root_certs(vec![std::path::PathBuf::from(file).into()])
                .with_disable_built_in_roots(true),
        ),
    };
    OptsBuilder::default()
        .ip_or_hostname(server.host.as_str())
        .tcp_port(server.port)
        .user(server.user.as_deref())
        .pass(server.password.as_ref().map(|password| password.0.as_str()))
        .db_name(database.name.as_deref())
        .prefer_socket(false)
        .stmt_cache_size(STATEMENTS)
        .ssl_opts(tls)
        .into()
}

fn is_in_transaction(connection: &mut Conn) -> bool {
    use mysql_async::consts::StatusFlags;
    let status = connection
        .last_ok_packet()
        .map(|packet| packet.status_flags());
    status.is_some_and(|status| status.contains(StatusFlags::SERVER_STATUS_IN_TRANS))
}

/// Returns the first word of a statement in lower case.
fn first_word(sql: &str) -> String {
    let word = sql
        .trim_start()
        .split(|c: char| c.is_whitespace() || c == ';')
        .next();
    word.unwrap_or_default().to_ascii_lowercase()
}

struct Statement {
    sql: String,
    values: Vec<MysqlValue>,
    wanted: ResultMode,
}

/// The reason why a statement has no result.
enum StatementError {
    /// The result exceeds a limit on rows or bytes, or has two columns of the same name.
    Result(CallError),
    Driver(mysql_async::Error),
}

impl From<mysql_async::Error> for StatementError {
    fn from(error: mysql_async::Error) -> Self {
        Self::Driver(error)
    }
}

impl Statement {
    async fn run(
        self,
        connection: &mut Conn,
        database: &Database,
    ) -> Result<MysqlReply, StatementError> {
        let values: Vec<mysql_async::Value> =
            self.values.into_iter().map(values::to_server).collect();
        let changes = ["insert", "replace", "delete"].contains(&&*first_word(&self.sql));
        let mut result = connection.exec_iter(self.sql, values).await?;
        if self.wanted == ResultMode::Changes && result.columns_ref().is_empty() {
            let affected = result.affected_rows();
            let last_id = result.last_insert_id();
            result.drop_result().await?;
            return Ok(MysqlReply::Changes {
                affected,
                last_id,
                rows: None,
            });
        }
        let columns = result.columns().unwrap_or_default();
        let names: Vec<String> = columns
            .iter()
            .map(|one| one.name_str().into_owned())
            .collect();
        if self.wanted != ResultMode::Value {
            let mut seen = HashSet::new();
            if let Some(twice) = names.iter().find(|name| !seen.insert(name.as_str())) {
                let words = format!(
                    "mysql: two columns of the result are named {twice:?}: rename one with AS"
                );
                return Err(StatementError::Result(CallError::new(
                    CallErrorKind::Invalid,
                    words,
                )));
            }
        }
        let mut rows = Rows {
            columns: names,
            values: Vec::new(),
        };
        let (mut count, mut bytes) = (0, 0);
        while let Some(row) = result.next().await? {
            // Rows after the first are read and dropped if only the first is requested.
            if matches!(self.wanted, ResultMode::Row | ResultMode::Value) && count > 0 {
                continue;
            }
            count += 1;
            if count > database.rows_max {
                let words = format!(
                    "mysql: the result has more than {} rows (rows_max)",
                    database.rows_max
                );
                return Err(StatementError::Result(CallError::new(
                    CallErrorKind::Broken,
                    words,
                )));
            }
            for (value, column) in Row::unwrap(row).into_iter().zip(columns.iter()) {
                let value = values::from_server(value, column);
                bytes += values::bytes_of(&value);
                rows.values.push(value);
            }
            if bytes > database.bytes_max {
                let words = format!(
                    "mysql: the result has more than {} bytes (bytes_max)",
                    database.bytes_max
                );
                return Err(StatementError::Result(CallError::new(
                    CallErrorKind::Broken,
                    words,
                )));
            }
        }
        result.drop_result().await?;
        Ok(match self.wanted {
            ResultMode::Row => MysqlReply::Row(rows),
            ResultMode::Value => MysqlReply::Value(rows.values.into_iter().next()),
            // For a statement that returns rows (RETURNING) the server reports no counts; the driver's counts would be those of
            // an earlier statement.
            ResultMode::Changes => MysqlReply::Changes {
                affected: if changes { rows.count() as u64 } else { 0 },
                last_id: None,
                rows: Some(rows),
            },
            ResultMode::Rows => MysqlReply::Rows(rows),
        })
    }
}
