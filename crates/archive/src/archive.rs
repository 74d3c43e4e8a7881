//! Opening, using and closing an archive.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;

use crate::database::{ArchiveDatabase, Contents};
use crate::error::Error;
use crate::lane::{Writer, WriterLane};
use crate::loaded::LoadedStreams;
use crate::lock::Lock;
use crate::options::Options;
use crate::run_state::{self, LastRun, Renewal, RenewalCause};
use crate::stats::{ArchiveStats, Counters};
use crate::writer_thread::{Opening, WriterThread};

/// An open archive. Batches submitted before it is closed or dropped are written.
#[derive(Debug)]
pub struct Archive {
    shared: Arc<SharedState>,
    queue_bytes_max: usize,
    /// The writer thread; `None` once the archive is closed.
    thread: Option<JoinHandle<Result<(), Error>>>,
}

/// The state shared with the writer thread.
#[derive(Debug, Default)]
pub(crate) struct SharedState {
    pub(crate) lanes: Mutex<Vec<Arc<WriterLane>>>,
    pub(crate) is_closing: AtomicBool,
    pub(crate) counters: Counters,
}

/// Opens the archive in a folder, which is created if necessary, and reads all of it.
///
/// # Errors
/// Returns an [`Error`] and leaves the stored data unchanged.
pub fn open(folder: &Path, options: &Options) -> Result<(Archive, LoadedStreams), Error> {
    make(folder).map_err(|source| Error::Io {
        path: folder.into(),
        source,
    })?;
    let lock = Lock::take(folder)?;
    let failed = |source| Error::Io {
        path: folder.into(),
        source,
    };
    let boot = options.boot.as_deref();
    let last = run_state::last(folder, boot).map_err(failed)?;
    if last == LastRun::Damaged {
        return Err(Error::Damaged {
            path: folder.into(),
            reason: "the previous run could not write to the archive".to_owned(),
        });
    }
    let is_new = !ArchiveDatabase::is_in(folder);
    let database = match ArchiveDatabase::open(folder, options.fsync) {
        // If the disk is full, the file is created later, when there is room.
        Err(error) if is_new && error.is_full() => None,
        opened => Some(opened?),
    };
    let cause = match (&database, last) {
        (Some(database), _) if database.has_lost() => Some(RenewalCause::Log),
        (_, LastRun::Lost) => Some(RenewalCause::Machine),
        (_, LastRun::Renew) => Some(RenewalCause::Asked),
        _ => None,
    };
    let renewal = cause
        .map(|cause| Ok((cause, Renewal::random()?)))
        .transpose();
    let renewal = renewal.map_err(failed)?;
    let contents = match &database {
        Some(database) => database.load(renewal)?,
        None => Contents::default(),
    };
    let opening = Opening {
        is_lost: renewal.is_some(),
        repairs: contents.repairs,
    };
    let shared = Arc::new(SharedState::default());
    let mut log = WriterThread::new(
        folder,
        options,
        database,
        contents.index,
        opening,
        Arc::clone(&shared),
        lock,
    );
    log.write_opening_records()?;
    let thread = thread::Builder::new()
        .name("archive".into())
        .spawn(|| log.run());
    let thread = thread.map_err(|source| Error::Io {
        path: folder.into(),
        source,
    })?;
    let archive = Archive {
        shared,
        queue_bytes_max: options.queue_bytes_max,
        thread: Some(thread),
    };
    Ok((archive, contents.loaded))
}

/// Moves the files of a [damaged](Error::Damaged) archive into a new folder beside them, so that the next [`open`]
/// starts with an empty archive. Returns the new folder.
///
/// # Errors
/// [`Error::InUse`], [`Error::Io`].
pub fn set_aside(folder: &Path) -> Result<PathBuf, Error> {
    let _lock = Lock::take(folder)?;
    let failed = |source| Error::Io {
        path: folder.into(),
        source,
    };
    let free = (1..)
        .map(|number: u32| folder.join(format!("damaged-{number}")))
        .find(|path| !path.exists());
    let aside = free.ok_or_else(|| failed(io::ErrorKind::AlreadyExists.into()))?;
    make(&aside).map_err(failed)?;
    for name in ["history.sqlite", "history.sqlite-wal"] {
        match fs::rename(folder.join(name), aside.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
    }
    run_state::end(folder);
    Ok(aside)
}

/// Makes the next [`open`] give all streams new epochs. Needed after the folder was restored from a
/// backup, since clients may know later offsets of the same epochs.
///
/// # Errors
///
/// [`Error::InUse`], [`Error::Io`].
pub fn renew_epochs(folder: &Path) -> Result<(), Error> {
    let _lock = Lock::take(folder)?;
    run_state::renew(folder).map_err(|source| Error::Io {
        path: folder.into(),
        source,
    })
}

/// Creates the folder, private to the owner because it contains the messages of channels.
fn make(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    match folder
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

impl Archive {
    /// Creates a writer for one worker. `wake` is called on the archive's thread whenever a batch of that worker has become
    /// durable, and when that thread ends. `wake` must not block.
    #[must_use]
    pub fn writer(&self, wake: impl Fn() + Send + Sync + 'static) -> Writer {
        let lane = Arc::new(WriterLane::new(self.queue_bytes_max, Box::new(wake)));
        let Some(thread) = &self.thread else {
            lane.close();
            return Writer::new(lane, Arc::clone(&self.shared), thread::current());
        };
        let mut lanes = self.shared.lanes.lock();
        if self.shared.is_closing.load(Ordering::Acquire) {
            lane.close();
        }
        lanes.push(Arc::clone(&lane));
        Writer::new(lane, Arc::clone(&self.shared), thread.thread().clone())
    }

    /// Returns the current statistics.
    #[must_use]
    pub fn stats(&self) -> ArchiveStats {
        let queued = self
            .shared
            .lanes
            .lock()
            .iter()
            .map(|lane| lane.bytes() as u64)
            .sum();
        self.shared.counters.snapshot(queued)
    }

    /// Writes the submitted batches and closes the files, so that another process can open the folder.
    ///
    /// # Errors
    /// [`Error::Unwritten`] if batches could not be written. Any other error means that everything is on disk and
    /// only closing has failed.
    pub fn close(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        self.shared.is_closing.store(true, Ordering::Release);
        thread.thread().unpark();
        // The thread panics only because of a bug, which the panic hook has reported.
        thread.join().unwrap_or(Ok(()))
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
