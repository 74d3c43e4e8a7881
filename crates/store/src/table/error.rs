//! Errors of tables. A failed operation has changed nothing, except that expired or evicted rows were
//! removed for it.

/// Why an operation on a table failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The name or the schema is invalid.
    #[error("{0}")]
    Schema(String),
    /// The table exists with another schema.
    #[error("the table already exists with another schema: {0}")]
    Differs(String),
    /// The table does not exist, and no schema was given.
    #[error("there is no such table; pass a schema to create it")]
    Missing,
    /// The maximum number of tables is reached.
    #[error("the limit of {most} tables is reached")]
    TooMany {
        /// The maximum number of tables.
        most: usize,
    },
    /// The column does not exist.
    #[error("there is no column \"{0}\"")]
    Column(String),
    /// The index does not exist.
    #[error("there is no index \"{0}\"")]
    Index(String),
    /// A value does not fit its column.
    #[error("column {column}: {value}: {why}")]
    Value {
        /// The name of the column.
        column: Box<str>,
        /// The refused value, shortened for display.
        value: String,
        /// The accepted values of the column.
        why: String,
    },
    /// A row with the key exists.
    #[error("column {column}: a row with the key {value} already exists")]
    DuplicateKey {
        /// The name of the key column.
        column: Box<str>,
        /// The key that exists already.
        value: String,
    },
    /// Another row has the same values in the columns of a unique index.
    #[error("index {index} is unique and another row has {values}")]
    UniqueViolation {
        /// The name of the unique index.
        index: Box<str>,
        /// The values that both rows have.
        values: String,
    },
    /// No row has the key.
    #[error("there is no row with the key {0}")]
    NoRow(String),
    /// The table is full, and its schema allows no eviction that would make room.
    #[error(
        "the table is full: {needed} bytes more would exceed its limit of {bytes_max} (bytes_max)"
    )]
    Full {
        /// The approximate number of additional bytes.
        needed: usize,
        /// The table's memory limit in bytes.
        bytes_max: usize,
    },
    /// All row numbers are in use.
    #[error("a table may have at most 4294967295 rows")]
    Rows,
    /// The values or limits of a scan don't match the index.
    #[error("{0}")]
    Scan(String),
    /// The table is being loaded, so it can't be used as requested.
    #[error("the table is being loaded")]
    Loading,
    /// A batch has too many changes.
    #[error("a batch may have at most {most} changes")]
    Batch {
        /// The maximum number of changes.
        most: usize,
    },
    /// The values of a batch are too large.
    #[error("the values of a batch may have at most {most} MiB")]
    BatchBytes {
        /// The maximum total size of the values in MiB.
        most: usize,
    },
}
