//! Rows from files: JSON, lines of JSON, CSV.
//!
//! Several files are read on several threads. Each reads a part of its file at a time and makes rows of it, which go into
//! the table some at once; no file is ever in memory as a whole. Rows of one file come in their order; where files are
//! read side by side, what is in one may come before what is in another.

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

use super::Table;
use super::bulk::BulkLoader;
use super::change::PutMode;
use super::job::{self, Clocks, Job, JobError};
use fault::LoadFault;
use row_batch::RowBatch;
use source::LoadSource;
use window::Window;

/// Most threads that read at a time.
const THREADS_MAX: usize = 8;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadFormat {
    /// A list of objects, or an object with one.
    Json,
    /// An object on each line.
    Ndjson,
    /// Fields with commas between them; the first line names them.
    Csv,
}

impl LoadFormat {
    /// How files end that have it, unless their names are told.
    fn endings(self) -> &'static [&'static str] {
        match self {
            Self::Json => &[".json"],
            Self::Ndjson => &[".ndjson", ".jsonl"],
            Self::Csv => &[".csv"],
        }
    }
}

/// What is done with a row whose key is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conflict {
    /// It is an error.
    #[default]
    Error,
    /// It takes the place of the one that is there.
    Replace,
    /// It is left out.
    Skip,
}

/// What to load.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// How it is written.
    pub format: LoadFormat,
    /// Which files of a folder or an archive, a pattern with `*` and `?`; by the ending unless told.
    pub files: Option<String>,
    /// JSON: the field that has the list; the only one that is a list unless told.
    pub list: Option<String>,
    /// What is done with a row whose key is there.
    pub conflict: Conflict,
}

impl LoadOptions {
    /// Of that format, the rest as it is unless told.
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
    /// Loads rows from a file (which may be compressed, `.gz`), from the files of a folder or from those of an archive
    /// (`.zip`). Into an empty table all rows come or none, and it is [loading](TableError::Loading) until its indexes are
    /// built; those who watch are told of that as a whole. A table with rows gets more of them, and what is in before an
    /// error stays. Rows expire as the schema says.
    ///
    /// The outcome is how many rows were put in. Errors: [`JobError::File`], [`JobError::Row`], [`JobError::Table`],
    /// [`JobError::Thread`], [`JobError::Cancelled`]. An empty table that becomes full evicts nothing: it is an error.
    pub fn start_load(
        self: &Arc<Self>,
        path: PathBuf,
        options: LoadOptions,
        clocks: Clocks,
    ) -> Arc<Job> {
        let table = Arc::clone(self);
        job::start(move |job| {
            let source =
                LoadSource::find_files(&path, options.format, options.files.as_deref(), job)?;
            let filler = BulkLoader::new(&table, options.put_mode(), clocks)?;
            table.load_files(&source, &options, &filler, job)?;
            filler.finish(job)?;
            Ok(job.progress().rows)
        })
    }

    /// As [`start_load`](Self::start_load), of one file that is read from `reader`, on this thread.
    ///
    /// # Errors
    /// The same; the file is called `name` there.
    pub fn load_from(
        &self,
        reader: impl Read,
        name: &str,
        options: &LoadOptions,
        clocks: Clocks,
    ) -> Result<u64, JobError> {
        let job = Job::default();
        let filler = BulkLoader::new(self, options.put_mode(), clocks)?;
        let mut desk = LoadBuffers::new(self);
        self.load_file(Box::new(reader), options, &filler, &job, &mut desk)
            .map_err(|fault| fault.of(name))?;
        filler.finish(&job)?;
        Ok(job.progress().rows)
    }

    fn load_files(
        &self,
        source: &LoadSource,
        options: &LoadOptions,
        filler: &BulkLoader<'_>,
        job: &Job,
    ) -> Result<(), JobError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.min(THREADS_MAX).min(source.len());
        let next = AtomicUsize::new(0);
        let first: Mutex<Option<JobError>> = Mutex::new(None);
        let work = || {
            let mut desk = LoadBuffers::new(self);
            let mut archive = None;
            while first.lock().is_none() {
                let place = next.fetch_add(1, Ordering::Relaxed);
                if place >= source.len() {
                    break;
                }
                let loaded = source.open(place, &mut archive, job).and_then(|reader| {
                    self.load_file(reader, options, filler, job, &mut desk)
                        .map_err(|fault| fault.of(&source.name(place)))
                });
                if let Err(error) = loaded.and_then(|()| job.check()) {
                    // A reader that ends because the job does has words of its own for it.
                    let error = job.check().err().unwrap_or(error);
                    first.lock().get_or_insert(error);
                }
            }
        };
        std::thread::scope(|scope| {
            // Where there are fewer threads than wanted, these do it all.
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
        filler: &BulkLoader<'_>,
        job: &Job,
        desk: &mut LoadBuffers,
    ) -> Result<(), LoadFault> {
        let LoadBuffers { pack, bytes } = desk;
        pack.clear();
        let mut sink = |pack: &mut RowBatch| {
            job.check().map_err(LoadFault::Job)?;
            let put = filler.put(pack);
            let put = put.map_err(|(row, error)| LoadFault::Put(pack.place(row), error))?;
            job.add_rows(put);
            pack.clear();
            Ok(())
        };
        match options.format {
            LoadFormat::Csv => csv::file(reader, &self.schema, pack, &mut sink)?,
            format => {
                let window = Window::new(reader, std::mem::take(bytes));
                let list = options.list.as_deref();
                let mut reader = json::Reader::new(window, &self.schema, list);
                match format {
                    LoadFormat::Ndjson => reader.lines(pack, &mut sink)?,
                    _ => reader.file(pack, &mut sink)?,
                }
                *bytes = reader.window.into_bytes();
            }
        }
        if pack.len() > 0 {
            sink(pack)?;
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

/// What a thread reads with, file after file.
struct LoadBuffers {
    pack: RowBatch,
    bytes: Vec<u8>,
}

impl LoadBuffers {
    fn new(table: &Table) -> Self {
        Self {
            pack: RowBatch::new(table.schema.visible().len()),
            bytes: Vec::new(),
        }
    }
}
