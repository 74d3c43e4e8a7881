//! Long work on tables: it runs on threads of its own, a few at a time, and can be watched and stopped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use super::error::TableError;

/// Jobs that run at a time, of all tables; others wait for their turn.
pub const JOBS_MAX: usize = 4;

/// One clock reading: TTLs are kept by the monotonic clock in memory and by the wall clock in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// Monotonic milliseconds, as all other calls of a table have them.
    pub mono_ms: u64,
    /// Milliseconds since 1970.
    pub wall_ms: u64,
}

/// How far a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Rows that are done.
    pub rows: u64,
    /// Bytes that were read, or about what was written.
    pub bytes: u64,
    /// How many there are in all, as far as it is known: 0 before the files are looked at.
    pub bytes_total: u64,
}

/// Where in a file something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At a row, counted from 1, that begins at a byte.
    Row(u64, u64),
    /// At a line, counted from 1.
    Line(u64),
    /// At a byte, counted from 0.
    Byte(u64),
}

impl std::fmt::Display for Place {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Row(row, byte) => write!(out, "row {row}, at byte {byte}"),
            Self::Line(line) => write!(out, "line {line}"),
            Self::Byte(byte) => write!(out, "at byte {byte}"),
        }
    }
}

/// Why a job ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// Somebody wanted it to.
    #[error("it was cancelled")]
    Cancelled,
    /// There was no thread for it.
    #[error("no thread could be started: {0}")]
    Thread(String),
    /// A file can't be opened, read or written.
    #[error("{file}: {why}")]
    File {
        /// Which.
        file: String,
        /// The system's words.
        why: String,
    },
    /// What stands in a file is refused.
    #[error("{file}: {place}: {why}")]
    Row {
        /// Which file.
        file: String,
        /// Where in it.
        place: Place,
        /// What is wrong.
        why: String,
    },
    /// A file of rows is not as it was written.
    #[error("{file}: damaged at byte {at}: {why}")]
    Damaged {
        /// Which file.
        file: String,
        /// How far it is whole.
        at: u64,
        /// What is wrong there.
        why: String,
    },
    /// A file of rows has other columns than the table.
    #[error("{file}: it has other columns: {why}")]
    Columns {
        /// Which file.
        file: String,
        /// Which column.
        why: String,
    },
    /// The table refuses it.
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

/// A job that waits for its turn, runs or has ended.
#[derive(Debug, Default)]
pub struct Job {
    rows: AtomicU64,
    bytes: AtomicU64,
    bytes_total: AtomicU64,
    is_cancelled: AtomicBool,
    stage: Mutex<Stage>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Stage {
    has_begun: bool,
    outcome: Option<Result<u64, JobError>>,
}

impl Job {
    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress {
            rows: self.rows.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            bytes_total: self.bytes_total.load(Ordering::Relaxed),
        }
    }

    /// Rows that were read or written, or what went wrong, once it has ended.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<u64, JobError>> {
        self.stage.lock().outcome.clone()
    }

    /// Ends it soon, with [`JobError::Cancelled`] unless it has ended.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
        let mut stage = self.stage.lock();
        if !stage.has_begun && stage.outcome.is_none() {
            stage.outcome = Some(Err(JobError::Cancelled));
            self.ended.notify_all();
        }
    }

    /// Blocks until it has ended: for tests and programs that have nothing else to do.
    ///
    /// # Errors
    /// What went wrong.
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

    /// Whether it is to run: it may have been cancelled while it waited.
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

/// What a job does.
type Work = Box<dyn FnOnce(&Job) -> Result<u64, JobError> + Send>;

/// Those that run, and those that wait.
struct Turns {
    running: usize,
    waiting: VecDeque<(Arc<Job>, Work)>,
}

static TURNS: Mutex<Turns> = Mutex::new(Turns {
    running: 0,
    waiting: VecDeque::new(),
});

/// Starts a job, or lets it wait for its turn.
pub(super) fn start(work: impl FnOnce(&Job) -> Result<u64, JobError> + Send + 'static) -> Arc<Job> {
    let job = Arc::new(Job::default());
    let mut turns = TURNS.lock();
    turns.waiting.push_back((Arc::clone(&job), Box::new(work)));
    if turns.running == JOBS_MAX {
        return job;
    }
    let thread = std::thread::Builder::new().name("table".to_owned());
    match thread.spawn(run) {
        Ok(_) => turns.running += 1,
        // Those that run go on with it; where there are none it ends here.
        Err(error) if turns.running == 0 => {
            let (job, _) = turns.waiting.pop_back().expect("it was put in");
            job.end(Err(JobError::Thread(error.to_string())));
        }
        Err(_) => {}
    }
    job
}

/// Does one job after the other as long as any waits.
fn run() {
    loop {
        let mut turns = TURNS.lock();
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
