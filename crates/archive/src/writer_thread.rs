//! The writer thread: commits the waiting batches as one group, reports them as durable, and keeps the files small.
//! Failed writes are retried until they succeed; meanwhile batches wait in bounded queues.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::archive::SharedState;
use crate::database::{ArchiveDatabase, Maintenance};
use crate::error::Error;
use crate::index::{ChangeSet, Index};
use crate::lane::WriterLane;
use crate::lock::Lock;
use crate::options::{FsyncPolicy, Options};
use crate::record::ArchiveRecord;
use crate::run_state;

/// Maximum size of a commit in bytes, which bounds the time that the commit takes. A commit exceeds it by at most
/// one batch.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// Delay of maintenance after a commit, so that many small commits don't each cause it.
const MAINTENANCE_DELAY: Duration = Duration::from_millis(50);

/// Number of times that the database is found damaged before the thread ends.
const DAMAGES_MAX: u32 = 2;

/// The state of the writer thread.
#[derive(Debug)]
pub(crate) struct WriterThread {
    folder: PathBuf,
    fsync: FsyncPolicy,
    boot: Option<String>,
    retry: Duration,
    /// The open database; `None` after an error that may be specific to the open file. The next
    /// attempt then reopens the file.
    database: Option<ArchiveDatabase>,
    index: Index,
    /// Changes found necessary while the archive was opened; `None` once they are written.
    opening: Option<Opening>,
    shared: Arc<SharedState>,
    /// The index of the lane from which the last group took its first batch; the next group begins
    /// with the lane after it.
    first_lane: usize,
    /// Time of the next sync, if anything was written since the last one.
    sync_at: Option<Instant>,
    /// Time of the next maintenance step; `None` if nothing was written since a step found nothing to do.
    maintain_at: Option<Instant>,
    /// Whether the last maintenance step failed.
    is_maintenance_failing: bool,
    /// How often the database was found damaged.
    damages: u32,
    /// Dropped last, so that no other process opens the folder before the database is closed.
    _lock: Lock,
}

/// Changes found necessary while the archive was opened, which are written before anything else.
#[derive(Debug)]
pub(crate) struct Opening {
    /// Whether data reported as durable may be lost, so that the streams get new epochs.
    pub(crate) is_lost: bool,
    pub(crate) repairs: ChangeSet,
}

/// The content of one commit.
#[derive(Default)]
struct Group {
    records: Vec<ArchiveRecord>,
    parts: Vec<LanePart>,
    bytes: usize,
}

/// The part of a group that consists of the batches of one lane.
struct LanePart {
    lane: Arc<WriterLane>,
    /// Number of the lane's last batch in the group.
    batch: u64,
    batches: u64,
    bytes: usize,
}

impl WriterThread {
    pub(crate) fn new(
        folder: &Path,
        options: &Options,
        database: Option<ArchiveDatabase>,
        index: Index,
        opening: Opening,
        shared: Arc<SharedState>,
        lock: Lock,
    ) -> Self {
        let log = Self {
            folder: folder.into(),
            fsync: options.fsync,
            boot: options.boot.clone(),
            // Without a pause the thread would retry in a busy loop.
            retry: options.retry.max(Duration::from_millis(1)),
            database,
            index,
            opening: Some(opening),
            shared,
            first_lane: 0,
            sync_at: None,
            maintain_at: Some(now()),
            is_maintenance_failing: false,
            damages: 0,
            _lock: lock,
        };
        log.count();
        log
    }

    /// Writes the changes found necessary while the archive was opened. If the disk is full, retries this
    /// before anything is reported as durable.
    ///
    /// # Errors
    /// The archive is damaged.
    pub(crate) fn write_opening_records(&mut self) -> Result<(), Error> {
        match self.open() {
            Err(error) => {
                self.failed(&error);
                self.maintain_at = Some(now() + self.retry);
                match error {
                    Error::Damaged { .. } => Err(error),
                    _ => Ok(()),
                }
            }
            Ok(()) => Ok(()),
        }
    }

    /// Writes the changes found necessary while the archive was opened, unless they are written already.
    fn open(&mut self) -> Result<(), Error> {
        let Some(opening) = self.opening.take() else {
            return Ok(());
        };
        let written = self.write_opening(&opening);
        if written.is_err() {
            self.opening = Some(opening);
        }
        written
    }

    fn write_opening(&mut self, opening: &Opening) -> Result<(), Error> {
        let failed = |source| Error::Io {
            path: self.folder.clone(),
            source,
        };
        if opening.is_lost {
            // The evidence of the loss, such as the end of the log, disappears before the new epochs are safely on disk.
            // Until then the `run` file records the loss for the next start.
            run_state::begin(&self.folder, None, FsyncPolicy::Never).map_err(failed)?;
        }
        if !opening.repairs.is_empty() {
            self.database()?.commit(&opening.repairs)?;
        }
        self.database()?.cut_tail()?;
        if opening.is_lost {
            self.database()?.sync()?;
        }
        let failed = |source| Error::Io {
            path: self.folder.clone(),
            source,
        };
        run_state::begin(&self.folder, self.boot.as_deref(), self.fsync).map_err(failed)
    }

    /// Runs until the archive is closed.
    pub(crate) fn run(mut self) -> Result<(), Error> {
        let mut unwritten = 0;
        loop {
            // `is_closing` is read once per round, before the lanes are closed and batches are gathered. So every accepted
            // batch is in this group or a later one.
            let is_closing = self.is_closing();
            if is_closing {
                self.close_lanes();
            }
            if self.is_damaged() {
                break;
            }
            let group = self.gather();
            if group.parts.is_empty() {
                if is_closing {
                    break;
                }
                self.idle();
                continue;
            }
            let batches: u64 = group.parts.iter().map(|part| part.batches).sum();
            if !self.commit_group(group) {
                unwritten = batches + self.close_lanes();
                break;
            }
            self.maintain_if_due();
            self.sync_if_due();
        }
        if !self.is_damaged()
            && let Err(error) = self.open()
        {
            self.failed(&error);
        }
        if self.is_damaged() {
            // Makes the next start report the database as damaged, so that the server sets it aside.
            run_state::damaged(&self.folder);
            self.database = None;
            unwritten += self.close_lanes();
        }
        let reason = self.shared.counters.last_error.lock().clone();
        let closed = match self.database.take() {
            // The changes found necessary at the opening are not written, so the next start must find
            // the database unchanged.
            Some(_) if self.opening.is_some() => Ok(()),
            Some(database) => database.close().inspect(|()| {
                if unwritten == 0 {
                    run_state::end(&self.folder);
                }
            }),
            None => Ok(()),
        };
        match unwritten {
            0 => closed,
            batches => Err(Error::Unwritten {
                batches,
                reason: reason.unwrap_or_default(),
            }),
        }
    }

    /// Collects the batches that arrived while the last group was written: one batch of each lane in turn, until the group
    /// has the maximum size.
    fn gather(&mut self) -> Group {
        let mut group = Group::default();
        let mut lanes = {
            let mut lanes = self.shared.lanes.lock();
            lanes.retain(|lane| !lane.is_over());
            lanes.clone()
        };
        if !lanes.is_empty() {
            self.first_lane = (self.first_lane + 1) % lanes.len();
            lanes.rotate_left(self.first_lane);
        }
        let mut is_more = true;
        while is_more && group.bytes < GROUP_BYTES_MAX {
            is_more = false;
            for lane in &lanes {
                is_more |= group.take_from(lane);
            }
        }
        group
    }

    /// Commits a group and notifies its workers. Returns `false` if the group can't be written and the archive is being
    /// closed or is damaged.
    fn commit_group(&mut self, group: Group) -> bool {
        let (records, bytes) = (
            group.records.len() as u64,
            group.records.iter().map(payload_bytes).sum(),
        );
        let plan = self.index.change_set(group.records);
        if !plan.is_empty() && !self.commit(&plan) {
            return false;
        }
        let counters = &self.shared.counters;
        counters.records.fetch_add(records, Relaxed);
        counters.bytes.fetch_add(bytes, Relaxed);
        counters.ignored.fetch_add(plan.ignored, Relaxed);
        self.count();
        for part in group.parts {
            part.lane.committed(part.batch, part.bytes);
        }
        true
    }

    /// Retries until the commit succeeds, and returns `true`. Returns `false` if an attempt fails after the archive
    /// began to close, or if the database is damaged.
    fn commit(&mut self, plan: &ChangeSet) -> bool {
        loop {
            let is_last = self.is_closing();
            match self.attempt(plan) {
                Ok(()) => break,
                Err(_) if is_last || self.is_damaged() => return false,
                Err(_) => self.pause(),
            }
        }
        let counters = &self.shared.counters;
        counters.commits.fetch_add(1, Relaxed);
        counters.is_failing.store(false, Relaxed);
        let is_long = self
            .database
            .as_ref()
            .is_some_and(ArchiveDatabase::is_log_long);
        match is_long && !self.is_maintenance_failing {
            true => self.maintain_at = Some(now()),
            false => {
                self.maintain_at
                    .get_or_insert_with(|| now() + MAINTENANCE_DELAY);
            }
        }
        match self.fsync {
            FsyncPolicy::EveryCommit => {
                counters.fsyncs.fetch_add(1, Relaxed);
            }
            FsyncPolicy::Interval(interval) => {
                self.sync_at.get_or_insert_with(|| now() + interval);
            }
            FsyncPolicy::Never => {}
        }
        true
    }

    fn attempt(&mut self, plan: &ChangeSet) -> Result<(), Error> {
        let result = self.open().and_then(|()| self.database()?.commit(plan));
        if let Err(error) = &result {
            self.failed(error);
        }
        result
    }

    /// Returns the open file. After an error that may have been specific to the open file, reopens it first.
    fn database(&mut self) -> Result<&mut ArchiveDatabase, Error> {
        if self.database.is_none() {
            self.database = Some(ArchiveDatabase::open(&self.folder, self.fsync)?);
        }
        Ok(self.database.as_mut().expect("it was opened"))
    }

    /// Returns whether the database counts as damaged. A single finding may be caused by the open
    /// file, so the file is first reopened.
    fn is_damaged(&self) -> bool {
        self.damages >= DAMAGES_MAX
    }

    fn failed(&mut self, error: &Error) {
        self.damages += u32::from(matches!(error, Error::Damaged { .. }));
        self.shared.counters.failed(error);
        // If the disk is full, the open file is still usable.
        if !error.is_full() {
            self.database = None;
        }
    }

    /// Does a maintenance step if one is due.
    fn maintain_if_due(&mut self) {
        if self.maintain_at.is_none_or(|at| at > now()) {
            return;
        }
        let done = self.open().and_then(|()| {
            let database = self.database()?;
            Ok((database.maintain()?, database.file_bytes()))
        });
        self.is_maintenance_failing = done.is_err();
        let counters = &self.shared.counters;
        match done {
            Ok((done, bytes)) => {
                counters.is_failing.store(false, Relaxed);
                counters.file_bytes.store(bytes, Relaxed);
                counters
                    .checkpoints
                    .fetch_add(u64::from(done == Maintenance::Checkpoint), Relaxed);
                self.maintain_at = self.maintain_at.filter(|_| done != Maintenance::Idle);
            }
            Err(error) => {
                self.maintain_at = Some(now() + self.retry);
                self.failed(&error);
            }
        }
    }

    fn sync_if_due(&mut self) {
        if self.sync_at.is_none_or(|at| at > now()) {
            return;
        }
        match self.database().and_then(|database| database.sync()) {
            Ok(()) => {
                self.sync_at = None;
                self.shared.counters.fsyncs.fetch_add(1, Relaxed);
            }
            Err(error) => {
                self.sync_at = Some(now() + self.retry);
                self.failed(&error);
            }
        }
    }

    /// Waits until a batch arrives, or until maintenance or a sync is due, and then does the due work.
    fn idle(&mut self) {
        match [self.sync_at, self.maintain_at].into_iter().flatten().min() {
            Some(at) => thread::park_timeout(at.saturating_duration_since(now())),
            None => thread::park(),
        }
        self.maintain_if_due();
        self.sync_if_due();
    }

    /// Waits before the next attempt; closing the archive ends the wait.
    fn pause(&self) {
        let until = now() + self.retry;
        while !self.is_closing() {
            let left = until.saturating_duration_since(now());
            if left.is_zero() {
                break;
            }
            thread::park_timeout(left);
        }
    }

    /// Stops accepting batches. Returns the number of batches that are not written.
    fn close_lanes(&self) -> u64 {
        self.shared
            .lanes
            .lock()
            .iter()
            .map(|lane| lane.close())
            .sum()
    }

    fn is_closing(&self) -> bool {
        self.shared.is_closing.load(Acquire)
    }

    fn count(&self) {
        let counters = &self.shared.counters;
        counters.streams.store(self.index.streams(), Relaxed);
        counters
            .publications
            .store(self.index.publications(), Relaxed);
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.close_lanes();
        // Workers learn of a panic at once, not only with their next batch.
        for lane in self.shared.lanes.lock().iter() {
            lane.wake();
        }
    }
}

impl Group {
    fn take_from(&mut self, lane: &Arc<WriterLane>) -> bool {
        let Some(batch) = lane.pop() else {
            return false;
        };
        self.bytes += batch.bytes;
        self.records.extend(batch.records);
        match self
            .parts
            .iter_mut()
            .find(|part| Arc::ptr_eq(&part.lane, lane))
        {
            Some(part) => {
                part.batch = batch.number;
                part.batches += 1;
                part.bytes += batch.bytes;
            }
            None => self.parts.push(LanePart {
                lane: Arc::clone(lane),
                batch: batch.number,
                batches: 1,
                bytes: batch.bytes,
            }),
        }
        true
    }
}

fn payload_bytes(record: &ArchiveRecord) -> u64 {
    match record {
        ArchiveRecord::Published { publication, .. } => publication.bytes() as u64,
        ArchiveRecord::Opened { .. }
        | ArchiveRecord::Trimmed { .. }
        | ArchiveRecord::Cleared { .. }
        | ArchiveRecord::Dropped { .. } => 0,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this thread may read the clock itself: no decision depends on the time"
)]
fn now() -> Instant {
    Instant::now()
}
