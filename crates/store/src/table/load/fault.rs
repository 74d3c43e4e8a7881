//! The errors of loading a file, and the type of the function that receives the rows.

use super::row_batch::RowBatch;
use crate::table::error::TableError;
use crate::table::job::{FilePosition, JobError};

/// An error while loading a file.
#[derive(Debug)]
pub(in super::super) enum LoadFault {
    /// The file can't be read.
    Read(String),
    /// The content is invalid.
    Text(FilePosition, String),
    /// The table refuses a row.
    Put(FilePosition, TableError),
    /// The job failed for a reason that does not concern the file.
    Job(JobError),
}

impl LoadFault {
    pub(super) fn of(self, file: &str) -> JobError {
        let file = file.to_owned();
        match self {
            Self::Read(why) => JobError::File { file, why },
            Self::Text(place, why) => JobError::Row { file, place, why },
            // These errors are not caused by a particular row.
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

/// A function that receives a batch of rows and leaves it empty.
pub(super) type Sink<'a> = dyn FnMut(&mut RowBatch) -> Result<(), LoadFault> + 'a;
