//! Long-running work on tables: jobs run on a few separate threads, report progress and can be
//! cancelled.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use super::error::TableError;

/// Maximum number of jobs that run at a time, over all tables; further jobs wait.
pub const JOBS_MAX: usize = 4;

/// The progress of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobProgress {
    /// Number of rows processed so far.
    pub rows: u64,
    /// Bytes read, or approximate bytes written.
    pub bytes: u64,
    /// The total number of bytes; 0 until it is known.
    pub bytes_total: u64,
}

/// The location of an error in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePosition {
    /// The number of the row, counted from 1, and a byte offset in the file: of the invalid content, or of the row's
    /// beginning if the exact location is unknown.
    Row(u64, u64),
    /// The number of the line, counted from 1.
    Line(u64),
    /// The offset of the byte, counted from 0.
    Byte(u64),
}

impl std::fmt::Display for FilePosition {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Row(row, byte) => write!(out, "row {row}, at byte {byte}"),
            Self::Line(line) => write!(out, "line {line}"),
            Self::Byte(byte) => write!(out, "at byte {byte}"),
        }
    }
}

/// Why a job failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The job was cancelled.
    #[error("the job was cancelled")]
    Cancelled,
    /// No thread could be started.
    #[error("no thread could be started: {0}")]
    Thread(String),
    /// A file can't be opened, read or written.
    #[error("{file}: {why}")]
    File {
        /// The name of the file.
        file: String,
        /// The error message of the system.
        why: String,
    },
    /// The content of a file is invalid.
    #[error("{file}: {place}: {why}")]
    Row {
        /// The name of the file.
        file: String,
        /// The location of the invalid content in the file.
        place: FilePosition,
        /// The reason why the content is invalid.
        why: String,
    },
    /// A snapshot is damaged.
    #[error("{file}: damaged at byte {at}: {why}")]
    Damaged {
        /// The name of the damaged snapshot.
        file: String,
        /// The byte up to which the snapshot is intact.
        at: u64,
        /// The kind of damage found after the intact part.
        why: String,
    },
    /// A snapshot's columns differ from those of the table.
    #[error("{file} does not fit the table: {why}")]
    Columns {
        /// The name of the snapshot.
        file: String,
        /// The difference between the snapshot's columns and the table's.
        why: String,
    },
    /// The table refuses a row.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl JobError {
    pub(super) fn file(file: &str, error: impl std::fmt::Display) -> Self {
        Self::File {
            file: file.to_owned(),
            why: error.to_string(),
        }
    }
}

/// A job that is waiting, running or finished.
#[derive(Debug, Default)]
pub struct Job {
    rows: AtomicU64,
    bytes: AtomicU64,
    bytes_total: AtomicU64,
    is_cancelled: AtomicBool,
    stage: Mutex<JobState>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct JobState {
    has_begun: bool,
    outcome: Option<Result<u64, JobError>>,
}

impl Job {
    /// Returns the progress made so far.
    #[must_use]
    pub fn progress(&self) -> JobProgress {
        JobProgress {
            rows: self.rows.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            bytes_total: self.bytes_total.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of rows read or written, or the error; `None` until the job has finished.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<u64, JobError>> {
        self.stage.lock().outcome.clone()
    }

    /// Cancels the job, which then fails with [`JobError::Cancelled`] unless it has already finished.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
        let mut stage = self.stage.lock();
        if !stage.has_begun && stage.outcome.is_none() {
            stage.outcome = Some(Err(JobError::Cancelled));
            self.ended.notify_all();
        }
    }

    /// Blocks until the job has finished; for tests and programs without other work.
    ///
    /// # Errors
    /// The error of the job.
    pub fn wait(&self) -> Result<u64, JobError> {
        let mut stage = self.stage.lock();
        loop {
            match &stage.outcome {
                Some(outcome) => return outcome.clone(),
                None => self.ended.wait(&mut stage),
            }
        }
    }

    pub(super) fn check(&self) -> Result<(), JobError> {
        match self.is_cancelled.load(Ordering::Relaxed) {
            true => Err(JobError::Cancelled),
            false => Ok(()),
        }
    }

    pub(super) fn add_rows(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    pub(super) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_total(&self, bytes: u64) {
        self.bytes_total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns whether to run the job; a job that was cancelled while it waited is not run.
    fn begin(&self) -> bool {
        let mut stage = self.stage.lock();
        stage.has_begun = true;
        stage.outcome.is_none()
    }

    fn end(&self, outcome: Result<u64, JobError>) {
        self.stage.lock().outcome.get_or_insert(outcome);
        self.ended.notify_all();
    }
}

/// The work of a job.
type Work = Box<dyn FnOnce(&Job) -> Result<u64, JobError> + Send>;

/// Running and waiting jobs.
struct JobQueue {
    running: usize,
    waiting: VecDeque<(Arc<Job>, Work)>,
}

static JOB_QUEUE: Mutex<JobQueue> = Mutex::new(JobQueue {
    running: 0,
    waiting: VecDeque::new(),
});

/// Starts a job, or queues it.
pub(super) fn start(work: impl FnOnce(&Job) -> Result<u64, JobError> + Send + 'static) -> Arc<Job> {
    let job = Arc::new(Job::default());
    let mut turns = JOB_QUEUE.lock();
    turns.waiting.push_back((Arc::clone(&job), Box::new(work)));
    if turns.running == JOBS_MAX {
        return job;
    }
    let thread = std::thread::Builder::new().name("table".to_owned());
    match thread.spawn(run) {
        Ok(_) => turns.running += 1,
        // If other jobs are running, their threads will run this job, so it stays queued. Otherwise it fails here.
        Err(error) if turns.running == 0 => {
            let (job, _) = turns
                .waiting
                .pop_back()
                .expect("the job must still be in the queue");
            job.end(Err(JobError::Thread(error.to_string())));
        }
        Err(_) => {}
    }
    job
}

/// Runs queued jobs until none is left.
fn run() {
    loop {
        let mut turns = JOB_QUEUE.lock();
        let Some((job, work)) = turns.waiting.pop_front() else {
            turns.running -= 1;
            return;
        };
        drop(turns);
        if job.begin() {
            let outcome = work(&job);
            job.end(outcome);
        }
    }
}
