//! The databases of a configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::mysql::Database;
use crate::redis::RedisDatabase;

/// Databases by the names that applications use for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Databases {
    /// MySQL and MariaDB databases.
    pub mysql: BTreeMap<String, Arc<Database>>,
    /// Redis databases.
    pub redis: BTreeMap<String, Arc<RedisDatabase>>,
}
