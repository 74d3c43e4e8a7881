//! Loading of rows from JSON, NDJSON and CSV files.
//!
//! Several files are read in parallel, each by one thread. A thread reads its file in parts and converts them to rows, which
//! are added to the table in batches, so no file is in memory as a whole. Rows of one file are added in their order; rows of a
//! later file may be added before those of an earlier one.

mod csv;
mod fault;
mod json;
mod object;
pub(super) mod row_batch;
mod source;
mod value;
mod window;

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use veche_types::Now;

use super::Table;
use super::bulk::BulkLoader;
use super::change::PutMode;
use super::job::{self, Job, JobError};
use fault::LoadFault;
use row_batch::RowBatch;
use source::LoadSource;
use window::Window;

/// Maximum number of reading threads.
const THREADS_MAX: usize = 8;

/// The format of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadFormat {
    /// JSON: a list of objects, or an object that contains such a list.
    Json,
    /// NDJSON: one object per line.
    Ndjson,
    /// CSV: comma-separated fields; the first line names them.
    Csv,
}

impl LoadFormat {
    /// Returns the file extensions of the format, used to select files by default.
    fn endings(self) -> &'static [&'static str] {
        match self {
            Self::Json => &[".json"],
            Self::Ndjson => &[".ndjson", ".jsonl"],
            Self::Csv => &[".csv"],
        }
    }
}

/// What to do with a row whose key exists already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conflict {
    /// The load fails if the row exists. This is the default.
    #[default]
    Error,
    /// Replaces the existing row.
    Replace,
    /// Skips the row and keeps the existing one.
    Skip,
}

/// Options of a load.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The format of the files.
    pub format: LoadFormat,
    /// A pattern with `*` and `?` that selects files of a folder or an archive; by default files are selected by the extension
    /// of the format.
    pub files: Option<String>,
    /// For JSON: the name of the field that contains the list; by default the only field that is a list.
    pub list: Option<String>,
    /// What to do with a row whose key exists already.
    pub conflict: Conflict,
}

impl LoadOptions {
    /// Returns the default options for a format.
    #[must_use]
    pub fn new(format: LoadFormat) -> Self {
        Self {
            format,
            files: None,
            list: None,
            conflict: Conflict::Error,
        }
    }
}

impl Table {
    /// Starts to load rows from a file (`.gz` if compressed), from the files of a folder, or from the files of an archive
    /// (`.zip`). An empty table gets all rows or none, and is [loading](TableError::Loading) until its indexes are built;
    /// watchers get a single event. If the table already has rows, the rows that were added before an error stay. The loaded
    /// rows expire after the schema's default time, if it has one.
    ///
    /// The job's outcome is the number of rows added. Errors: [`JobError::File`], [`JobError::Row`], [`JobError::Table`],
    /// [`JobError::Thread`], [`JobError::Cancelled`]. If the rows exceed the memory limit of a table that was empty, nothing is
    /// evicted and the load fails.
    pub fn start_load(self: &Arc<Self>, path: PathBuf, options: LoadOptions, now: Now) -> Arc<Job> {
        let table = Arc::clone(self);
        job::start(move |job| {
            let source =
                LoadSource::find_files(&path, options.format, options.files.as_deref(), job)?;
            let loader = BulkLoader::new(&table, options.put_mode(), now)?;
            table.load_files(&source, &options, &loader, job)?;
            loader.finish(job)?;
            Ok(job.progress().rows)
        })
    }

    /// Like [`start_load`](Self::start_load), but for one file, read from `reader` on the current thread.
    ///
    /// # Errors
    /// Those of [`start_load`](Self::start_load), with `name` as the file name.
    pub fn load_from(
        &self,
        reader: impl Read,
        name: &str,
        options: &LoadOptions,
        now: Now,
    ) -> Result<u64, JobError> {
        let job = Job::default();
        let loader = BulkLoader::new(self, options.put_mode(), now)?;
        let mut buffers = LoadBuffers::new(self);
        self.load_file(Box::new(reader), options, &loader, &job, &mut buffers)
            .map_err(|fault| fault.of(name))?;
        loader.finish(&job)?;
        Ok(job.progress().rows)
    }

    fn load_files(
        &self,
        source: &LoadSource,
        options: &LoadOptions,
        loader: &BulkLoader<'_>,
        job: &Job,
    ) -> Result<(), JobError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.min(THREADS_MAX).min(source.len());
        let next = AtomicUsize::new(0);
        let first: Mutex<Option<JobError>> = Mutex::new(None);
        let work = || {
            let mut buffers = LoadBuffers::new(self);
            let mut archive = None;
            while first.lock().is_none() {
                let place = next.fetch_add(1, Ordering::Relaxed);
                if place >= source.len() {
                    break;
                }
                let loaded = source.open(place, &mut archive, job).and_then(|reader| {
                    self.load_file(reader, options, loader, job, &mut buffers)
                        .map_err(|fault| fault.of(&source.name(place)))
                });
                if let Err(error) = loaded.and_then(|()| job.check()) {
                    // If the job was cancelled, the reader's error is only a consequence, so the
                    // job's error replaces it.
                    let error = job.check().err().unwrap_or(error);
                    first.lock().get_or_insert(error);
                }
            }
        };
        std::thread::scope(|scope| {
            // If some threads can't be started, the others do all the work.
            for _ in 1..threads {
                let thread = std::thread::Builder::new().name("table".to_owned());
                if thread.spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
        first.into_inner().map_or(Ok(()), Err)
    }

    fn load_file(
        &self,
        reader: Box<dyn Read + '_>,
        options: &LoadOptions,
        loader: &BulkLoader<'_>,
        job: &Job,
        buffers: &mut LoadBuffers,
    ) -> Result<(), LoadFault> {
        let LoadBuffers { batch, bytes } = buffers;
        batch.clear();
        let mut sink = |batch: &mut RowBatch| {
            job.check().map_err(LoadFault::Job)?;
            let put = loader.put(batch);
            let put = put.map_err(|(row, error)| LoadFault::Put(batch.place(row), error))?;
            job.add_rows(put);
            batch.clear();
            Ok(())
        };
        match options.format {
            LoadFormat::Csv => csv::file(reader, &self.schema, batch, &mut sink)?,
            format => {
                let window = Window::new(reader, std::mem::take(bytes));
                let list = options.list.as_deref();
                let mut reader = json::JsonReader::new(window, &self.schema, list);
                match format {
                    LoadFormat::Ndjson => reader.lines(batch, &mut sink)?,
                    _ => reader.file(batch, &mut sink)?,
                }
                *bytes = reader.window.into_bytes();
            }
        }
        if batch.len() > 0 {
            sink(batch)?;
        }
        Ok(())
    }
}

impl LoadOptions {
    fn put_mode(&self) -> PutMode {
        match self.conflict {
            Conflict::Error => PutMode::Insert,
            Conflict::Replace => PutMode::Upsert,
            Conflict::Skip => PutMode::Add,
        }
    }
}

/// The reusable buffers of a thread.
struct LoadBuffers {
    batch: RowBatch,
    bytes: Vec<u8>,
}

impl LoadBuffers {
    fn new(table: &Table) -> Self {
        Self {
            batch: RowBatch::new(table.schema.visible().len()),
            bytes: Vec::new(),
        }
    }
}
