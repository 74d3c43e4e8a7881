//! MySQL and MariaDB.

use std::sync::Arc;
use std::time::Duration;

use crate::{Lease, ServerAccount};

/// A database and how it is used; those that are equal share their connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Database {
    /// Where it is.
    pub server: ServerAccount,
    /// Its name there.
    pub name: Option<String>,
    /// The name of its connections: databases that differ in it alone share none.
    pub pool_name: Option<String>,
    /// Most connections at once, at least 1.
    pub pool: usize,
    /// How long a connection may take to come about.
    pub connect_timeout: Duration,
    /// How long a call may wait for a connection to be free.
    pub wait_timeout: Duration,
    /// How long a statement may take.
    pub timeout: Duration,
    /// A connection that was not used for so long is closed.
    pub idle_timeout: Duration,
    /// Most rows of one result.
    pub rows_max: usize,
    /// Most bytes of one result's values.
    pub bytes_max: usize,
}

/// Asks a database.
#[derive(Clone, Debug, PartialEq)]
pub struct MysqlCall {
    /// Which.
    pub database: Arc<Database>,
    /// What for.
    pub action: MysqlAction,
}

/// What a database is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum MysqlAction {
    /// A statement with its values.
    Run {
        /// In that transaction, or in none.
        within: Option<Lease>,
        /// The statement, with a `?` for each value.
        sql: String,
        /// The values.
        values: Vec<MysqlValue>,
        /// What is wanted of the result.
        wanted: ResultMode,
    },
    /// A transaction; answered by [`MysqlReply::Begun`].
    Begin,
    /// The end of a transaction, and of its lease; answered by [`MysqlReply::Done`].
    End {
        /// Which.
        lease: Lease,
        /// Whether what it did is to stay.
        commit: bool,
    },
}

/// What is wanted of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultMode {
    /// All rows.
    Rows,
    /// The first row.
    Row,
    /// The first value of the first row.
    Value,
    /// What was changed.
    Changes,
}

/// A value of a database.
#[derive(Clone, Debug, PartialEq)]
pub enum MysqlValue {
    /// NULL.
    Null,
    /// 0 or 1 there.
    Boolean(bool),
    /// What a double holds exactly, or a float.
    Number(f64),
    /// Text, bytes, and what fits into no other.
    Bytes(Vec<u8>),
}

/// What a database answers.
#[derive(Clone, Debug, PartialEq)]
pub enum MysqlReply {
    /// To [`ResultMode::Rows`].
    Rows(Rows),
    /// To [`ResultMode::Row`]: at most one.
    Row(Rows),
    /// To [`ResultMode::MysqlValue`].
    Value(Option<MysqlValue>),
    /// To [`ResultMode::Changes`].
    Changes {
        /// Rows that were changed.
        affected: u64,
        /// The first number that the server gave to a new row.
        last_id: Option<u64>,
        /// What a statement gives that returns rows as well.
        rows: Option<Rows>,
    },
    /// To [`MysqlAction::Begin`].
    Begun(Lease),
    /// It is done.
    Done,
}

/// A result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// Names, each once.
    pub columns: Vec<String>,
    /// Row by row.
    pub values: Vec<MysqlValue>,
}

impl Rows {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.values.len() / self.columns.len().max(1)
    }
}
