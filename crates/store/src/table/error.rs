//! What can go wrong with a table, in words for whoever called. Nothing has changed then.

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// Its name, or what it is made of.
    #[error("{0}")]
    Schema(String),
    /// It exists and is made of something else.
    #[error("it exists with another schema: {0}")]
    Differs(String),
    /// It was asked for without a schema, and there is none.
    #[error("there is no such table; pass a schema to create it")]
    Missing,
    /// There are as many as there may be.
    #[error("there are {most} tables already")]
    TooMany {
        /// How many.
        most: usize,
    },
    /// No column has that name.
    #[error("there is no column \"{0}\"")]
    Column(String),
    /// No index has that name.
    #[error("there is no index \"{0}\"")]
    Index(String),
    /// A value does not fit its column.
    #[error("column {column}: {value}: {why}")]
    Value {
        /// Which column.
        column: Box<str>,
        /// The value, shortened.
        value: String,
        /// What would fit.
        why: String,
    },
    /// The key is there.
    #[error("column {column}: a row with the key {value} exists")]
    KeyTaken {
        /// The key's column.
        column: Box<str>,
        /// The key.
        value: String,
    },
    /// Another row has these values.
    #[error("index {index} is unique and another row has {values}")]
    Taken {
        /// Which index.
        index: Box<str>,
        /// The values.
        values: String,
    },
    /// No row has the key, where one is needed.
    #[error("there is no row with the key {0}")]
    NoRow(String),
    /// No room, and nothing may be evicted.
    #[error(
        "the table is full: {needed} bytes more would exceed its limit of {bytes_max} (bytes_max)"
    )]
    Full {
        /// About what would have been added.
        needed: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// All numbers of rows are taken.
    #[error("a table has at most 4294967295 rows")]
    Rows,
    /// A scan by what the index does not have.
    #[error("{0}")]
    Scan(String),
    /// Its indexes are being built.
    #[error("the table is being loaded")]
    Loading,
    /// A batch is too long.
    #[error("a batch has at most {most} changes")]
    Batch {
        /// How many.
        most: usize,
    },
}
