//! Calls to MySQL and MariaDB.

use std::sync::Arc;
use std::time::Duration;

use crate::{Lease, ServerAccount};

/// A database and its settings. Equal values share connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Database {
    /// The server and the account.
    pub server: ServerAccount,
    /// The name of the database that is selected; `None` if none is.
    pub name: Option<String>,
    /// The name of the pool; `None` for a name made from the server and the database. Databases that differ only in
    /// this name share no connections.
    pub pool_name: Option<String>,
    /// Maximum number of connections, at least 1.
    pub pool: usize,
    /// The time limit for connecting.
    pub connect_timeout: Duration,
    /// How long a call may wait for a free connection.
    pub wait_timeout: Duration,
    /// The time limit of a statement.
    pub timeout: Duration,
    /// The idle time after which a connection is closed.
    pub idle_timeout: Duration,
    /// Maximum number of rows of a result.
    pub rows_max: usize,
    /// Maximum total length of a result's values in bytes.
    pub bytes_max: usize,
}

/// A call to a database.
#[derive(Clone, Debug, PartialEq)]
pub struct MysqlCall {
    /// The database to call, with its settings.
    pub database: Arc<Database>,
    /// The action to perform.
    pub action: MysqlAction,
}

/// The actions on a database.
#[derive(Clone, Debug, PartialEq)]
pub enum MysqlAction {
    /// Runs a statement with its values.
    Run {
        /// The lease of the transaction in which the statement runs, if any.
        within: Option<Lease>,
        /// The statement, with a `?` for each value.
        sql: String,
        /// The values of the placeholders.
        values: Vec<MysqlValue>,
        /// The part of the result that is returned.
        wanted: ResultMode,
    },
    /// Begins a transaction; answered by [`MysqlReply::Begun`].
    Begin,
    /// Ends a transaction and its lease of a connection; answered by [`MysqlReply::Done`].
    End {
        /// The lease of the transaction.
        lease: Lease,
        /// Whether the transaction is committed; otherwise it is rolled back.
        commit: bool,
    },
}

/// The part of a result that is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultMode {
    /// All rows of the result.
    Rows,
    /// The first row only, if any.
    Row,
    /// The first value of the first row.
    Value,
    /// The number of affected rows, the generated id, and the rows that the statement returns, if
    /// any.
    Changes,
}

/// A value of a database.
#[derive(Clone, Debug, PartialEq)]
pub enum MysqlValue {
    /// The SQL value NULL.
    Null,
    /// A boolean, 0 or 1 in the database.
    Boolean(bool),
    /// A float, or an integer that a double holds exactly.
    Number(f64),
    /// Text, bytes, and values of all other types.
    Bytes(Vec<u8>),
}

/// The reply to a call.
#[derive(Clone, Debug, PartialEq)]
pub enum MysqlReply {
    /// The answer for [`ResultMode::Rows`].
    Rows(Rows),
    /// The answer for [`ResultMode::Row`]: at most one row.
    Row(Rows),
    /// The answer for [`ResultMode::Value`].
    Value(Option<MysqlValue>),
    /// The answer for [`ResultMode::Changes`].
    Changes {
        /// The number of affected rows.
        affected: u64,
        /// The first id that the server generated for a new row; `None` if it generated none.
        last_id: Option<u64>,
        /// The rows, for a statement that also returns some.
        rows: Option<Rows>,
    },
    /// The answer to [`MysqlAction::Begin`].
    Begun(Lease),
    /// The action succeeded without a result.
    Done,
}

/// The rows of a result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// The column names, without duplicates.
    pub columns: Vec<String>,
    /// The values, row by row.
    pub values: Vec<MysqlValue>,
}

impl Rows {
    /// Returns the number of rows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.values.len() / self.columns.len().max(1)
    }
}
