//! What can be wrong with a file of rows, and where its rows go.

use super::row_batch::RowBatch;
use crate::table::error::TableError;
use crate::table::job::{FilePosition, JobError};

/// What is wrong with a file.
#[derive(Debug)]
pub(in super::super) enum LoadFault {
    /// It can't be read.
    Read(String),
    /// What stands there is refused.
    Text(FilePosition, String),
    /// The table refuses a row.
    Put(FilePosition, TableError),
    /// It is not about the file.
    Job(JobError),
}

impl LoadFault {
    pub(super) fn of(self, file: &str) -> JobError {
        let file = file.to_owned();
        match self {
            Self::Read(why) => JobError::File { file, why },
            Self::Text(place, why) => JobError::Row { file, place, why },
            // No row is to blame for these.
            Self::Put(_, error @ (TableError::Full { .. } | TableError::Loading)) => error.into(),
            Self::Put(place, error) => JobError::Row {
                file,
                place,
                why: error.to_string(),
            },
            Self::Job(error) => error,
        }
    }
}

/// What takes rows, and leaves the pack empty.
pub(super) type Sink<'a> = dyn FnMut(&mut RowBatch) -> Result<(), LoadFault> + 'a;
