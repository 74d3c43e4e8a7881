//! The database file: two SQLite tables, with a row for each stream and each publication.
//!
//! The rows of publications are numbered in order of arrival, not by channel. So new rows fill pages at one end of the
//! table, and trimming empties pages at the other end. The write-ahead log makes commits atomic, whenever the process ends;
//! rows have checksums, because SQLite's pages have none.

mod load;

pub(crate) use load::Contents;

use std::fs::{self, File};
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, params};
use veche_files::WriteOptions;

use crate::error::Error;
use crate::index::{ChangeSet, PublicationRow, StreamRow};
use crate::options::FsyncPolicy;
use crate::wal_tail::{self, WalTail};

/// Application id in the file header: "vech".
const APPLICATION: i32 = 0x7665_6368;

/// Version of the format; a change that older versions can't read gets the next number.
const FORMAT: u32 = 1;

/// A file may have the tables of this version, but a format number above [`FORMAT`]. If the difference is less than
/// this constant, the file counts as written by a later version; otherwise it counts as damaged.
const COMPATIBLE_FORMATS: i64 = 16;

const PAGE_BYTES: u64 = 8192;

/// Number of frames in the write-ahead log that triggers a checkpoint: as many as the tables have pages, but at least
/// 256 (2 MiB). The maximum of 1,024 (8 MiB) bounds the time for which a checkpoint delays commits.
const LOG_FRAMES: RangeInclusive<u64> = 256..=1024;

/// Minimum number of free pages kept for reuse: 1 MiB. If a quarter of the file is more, a quarter is
/// kept.
const FREE_PAGES_MIN: u64 = 128;

/// Pages released in one step: 1 MiB. The number bounds the time for which a step delays commits.
const VACUUM_PAGES: u64 = 128;

const TABLES: &str = "
    create table stream (
        id integer primary key,
        name text not null,
        epoch integer not null,
        opened_ms integer not null,
        top integer not null,
        version integer,
        version_epoch text,
        checksum integer not null
    ) strict;
    create table publication (
        number integer primary key,
        stream integer not null,
        offset integer not null,
        at_ms integer not null,
        kind integer not null,
        payload blob not null,
        version integer,
        version_epoch text,
        extra blob,
        checksum integer not null
    ) strict;";

/// The database file of one folder, opened by one process.
#[derive(Debug)]
pub(crate) struct ArchiveDatabase {
    connection: Connection,
    path: PathBuf,
    fsync: FsyncPolicy,
    /// The part of the log after its last valid commit when the file was opened.
    tail: WalTail,
    /// Length of the log in bytes above which maintenance is not postponed; set by each maintenance
    /// step.
    log_bytes_max: u64,
}

/// The result of a maintenance step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maintenance {
    /// No maintenance was due.
    Idle,
    /// The log was moved into the tables.
    Checkpoint,
    /// Some free pages were released; there may be more.
    Vacuum,
}

impl ArchiveDatabase {
    /// Opens the database file in the folder, or creates it.
    pub(crate) fn open(folder: &Path, fsync: FsyncPolicy) -> Result<Self, Error> {
        let failed = |path: &Path, source| Error::Io {
            path: path.into(),
            source,
        };
        // Symbolic links in the folder's path are resolved here, because SQLite is told not to
        // follow any.
        let folder = fs::canonicalize(folder).map_err(|error| failed(folder, error))?;
        let path = folder.join("history.sqlite");
        // Creates the file with private permissions; SQLite gives its log the same mode.
        for (file, is_made) in [(&path, true), (&wal_path(&path), false)] {
            if is_made || fs::symlink_metadata(file).is_ok() {
                WriteOptions::private()
                    .open(file)
                    .map_err(|error| failed(file, error))?;
            }
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let connection =
            Connection::open_with_flags(&path, flags).map_err(|source| explain(&path, source))?;
        let mut database = Self {
            connection,
            path,
            fsync,
            tail: WalTail::default(),
            log_bytes_max: 0,
        };
        database.prepare()?;
        Ok(database)
    }

    /// Returns whether the folder has a non-empty database file.
    pub(crate) fn is_in(folder: &Path) -> bool {
        fs::metadata(folder.join("history.sqlite")).is_ok_and(|file| file.len() > 0)
    }

    fn prepare(&mut self) -> Result<(), Error> {
        // With exclusive locking the log's index is on the heap, where a full disk can't affect it.
        self.run("pragma locking_mode = exclusive")?;
        // With this setting, a connection that is dropped after an error leaves the log as it is.
        self.connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
            .map_err(|source| explain(&self.path, source))?;
        let (application, format) = (self.number("application_id")?, self.number("user_version")?);
        // Opening the database has read the log; nothing has been written to it yet.
        self.tail = self.read_tail()?;
        let tables = tables_of(&self.connection).map_err(|source| explain(&self.path, source))?;
        let is_new = application == 0 && tables.is_empty();
        if !is_new {
            self.check_format(application, format, &tables)?;
        }
        if is_new {
            // `page_size` and `auto_vacuum` take effect only before the first page is written, and setting
            // `auto_vacuum` always writes.
            self.run(&format!(
                "pragma page_size = {PAGE_BYTES}; pragma auto_vacuum = incremental;"
            ))?;
        }
        let synchronous = match self.fsync {
            FsyncPolicy::EveryCommit => "full",
            // With `normal`, SQLite syncs at checkpoints only. Without these syncs a power cut could
            // damage old data.
            FsyncPolicy::Interval(_) | FsyncPolicy::Never => "normal",
        };
        let settings = format!(
            "pragma journal_mode = wal; pragma synchronous = {synchronous}; pragma wal_autocheckpoint = 0;
             pragma journal_size_limit = {}; pragma cache_size = -16384; pragma temp_store = memory;
             pragma cell_size_check = on; pragma trusted_schema = off;",
            2 * LOG_FRAMES.end() * PAGE_BYTES,
        );
        self.run(&settings)?;
        if is_new {
            let tables = format!(
                "begin; pragma application_id = {APPLICATION}; pragma user_version = {FORMAT}; {TABLES} commit;"
            );
            self.run(&tables)?;
        }
        Ok(())
    }

    /// Checks the application id and the format number. If the tables are those of this version, an
    /// id with one wrong byte or a format number out of range counts as damage.
    fn check_format(&self, application: i64, format: i64, tables: &[String]) -> Result<(), Error> {
        let path = self.path.clone();
        let expected = Connection::open_in_memory().and_then(|memory| {
            memory.execute_batch(TABLES)?;
            tables_of(&memory)
        });
        let are_ours = tables == expected.map_err(|source| explain(&path, source))?;
        let (is_ours, is_known) = (application == APPLICATION.into(), format == FORMAT.into());
        if are_ours && is_ours && is_known {
            return Ok(());
        }
        // An application id with one damaged byte still identifies a file of Veche.
        let is_near_ours = { application.to_be_bytes().into_iter() }
            .zip(i64::from(APPLICATION).to_be_bytes())
            .filter(|(found, byte)| found != byte)
            .count()
            == 1;
        if !(is_ours || are_ours && is_near_ours) {
            return Err(Error::Foreign { path });
        }
        let is_near = (1..COMPATIBLE_FORMATS).contains(&(format - i64::from(FORMAT)));
        if format > FORMAT.into() && (!are_ours || is_near) {
            let found = format.try_into().unwrap_or(u32::MAX);
            return Err(Error::Newer {
                path,
                found,
                known: FORMAT,
            });
        }
        Err(Error::Damaged {
            path,
            reason: format!(
                "the header or the schema of the file has been changed (format {format})"
            ),
        })
    }

    /// Finds damage that loading does not detect: in free pages and in the page structure.
    fn check(&self) -> Result<(), Error> {
        let found = self
            .connection
            .query_row("pragma quick_check(1)", [], |row| row.get::<_, String>(0));
        let found = found.map_err(|source| explain(&self.path, source))?;
        match found.as_str() {
            "ok" => Ok(()),
            _ => Err(Error::Damaged {
                path: self.path.clone(),
                reason: found,
            }),
        }
    }

    /// Commits a change set atomically. If the disk is full, moves the log into the tables, which
    /// may free space, and tries again.
    pub(crate) fn commit(&mut self, plan: &ChangeSet) -> Result<(), Error> {
        let Err(source) = self.write(plan) else {
            return Ok(());
        };
        // Cuts off the remains of the failed attempt in the log, which would look like lost commits.
        let cut = self.cut_tail();
        let is_full = source.sqlite_error_code() == Some(ErrorCode::DiskFull);
        let has_room = is_full && cut.is_ok() && self.checkpoint("truncate").is_ok();
        match has_room {
            true => self.write(plan).inspect_err(|_| {
                let _ = self.cut_tail();
            }),
            false => Err(source),
        }
        .map_err(|source| explain(&self.path, source))
    }

    fn write(&mut self, plan: &ChangeSet) -> rusqlite::Result<()> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut delete = transaction
                .prepare_cached("delete from publication where number between ? and ?")?;
            for &(first, last) in &plan.removed {
                delete.execute([first.cast_signed(), last.cast_signed()])?;
            }
            let mut drop = transaction.prepare_cached("delete from stream where id = ?")?;
            for &id in &plan.dropped {
                drop.execute([id.cast_signed()])?;
            }
            let mut replace = transaction
                .prepare_cached("insert or replace into stream values (?, ?, ?, ?, ?, ?, ?, ?)")?;
            for head in &plan.streams {
                let version = head.version.as_ref();
                replace.execute(params![
                    head.id.cast_signed(),
                    &*head.name,
                    head.epoch.cast_signed(),
                    head.opened_ms.cast_signed(),
                    head.top.cast_signed(),
                    version.map(|version| version.number.cast_signed()),
                    version.and_then(|version| version.epoch.as_deref()),
                    head.checksum(),
                ])?;
            }
            let mut insert = transaction.prepare_cached(
                "insert or replace into publication values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?;
            for (number, row) in (plan.first..).zip(&plan.added) {
                let Some(row) = row else {
                    continue;
                };
                let publication = &row.publication;
                let version = publication.version.as_ref();
                insert.execute(params![
                    number.cast_signed(),
                    row.stream.cast_signed(),
                    publication.offset.cast_signed(),
                    publication.at_ms.cast_signed(),
                    publication.kind,
                    &*publication.payload,
                    version.map(|version| version.number.cast_signed()),
                    version.and_then(|version| version.epoch.as_deref()),
                    publication.extra.as_deref(),
                    row.checksum(number),
                ])?;
            }
        }
        transaction.commit()
    }

    /// Syncs committed data to disk.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        let path = self.log();
        match File::open(&path).and_then(|file| file.sync_data()) {
            // There is no log, because all its content is in the tables.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            synced => synced.map_err(|source| Error::Io { path, source }),
        }
    }

    /// Does one maintenance step that keeps the files small, if one is due. Its duration is bounded.
    pub(crate) fn maintain(&mut self) -> Result<Maintenance, Error> {
        let (frames, moved) = self.wal_frames()?;
        let (free, all) = (
            self.number("freelist_count")?.cast_unsigned(),
            self.number("page_count")?.cast_unsigned(),
        );
        let frames_max = all.clamp(*LOG_FRAMES.start(), *LOG_FRAMES.end());
        self.log_bytes_max = frames_max * PAGE_BYTES;
        if frames - moved >= frames_max {
            // Truncates the log, so that it never mixes frames written before and after a
            // checkpoint.
            self.checkpoint("truncate")?;
            return Ok(Maintenance::Checkpoint);
        }
        if free > FREE_PAGES_MIN + VACUUM_PAGES && free > all / 4 {
            self.run(&format!("pragma incremental_vacuum({VACUUM_PAGES})"))?;
            return Ok(Maintenance::Vacuum);
        }
        Ok(Maintenance::Idle)
    }

    /// Returns whether the log is so long that maintenance should not wait.
    pub(crate) fn is_log_long(&self) -> bool {
        fs::metadata(self.log()).is_ok_and(|log| log.len() > self.log_bytes_max)
    }

    /// Returns the size of the files in bytes.
    pub(crate) fn file_bytes(&self) -> u64 {
        let bytes = |path: &Path| fs::metadata(path).map_or(0, |meta| meta.len());
        bytes(&self.path) + bytes(&self.log())
    }

    /// Moves the log into the tables and closes the file.
    pub(crate) fn close(self) -> Result<(), Error> {
        self.checkpoint("truncate")?;
        // Makes SQLite delete the log on closing, so that the database can be copied as a single file.
        let is_kept = self
            .connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false);
        is_kept.map_err(|source| explain(&self.path, source))?;
        let closed = self.connection.close();
        closed.map_err(|(_, source)| explain(&self.path, source))
    }

    /// Returns whether the log showed on opening that commits were lost.
    pub(crate) fn has_lost(&self) -> bool {
        self.tail.is_loss()
    }

    fn read_tail(&self) -> Result<WalTail, Error> {
        let (frames, _) = self.wal_frames()?;
        let path = self.log();
        WalTail::read(&path, frames, PAGE_BYTES).map_err(|source| Error::Io { path, source })
    }

    /// Truncates the log after its last valid commit.
    pub(crate) fn cut_tail(&mut self) -> Result<(), Error> {
        let (frames, _) = self.wal_frames()?;
        let path = self.log();
        wal_tail::cut(&path, frames, PAGE_BYTES).map_err(|source| Error::Io { path, source })
    }

    /// Returns the number of complete frames in the log, and how many of them were copied into the tables.
    fn wal_frames(&self) -> Result<(u64, u64), Error> {
        self.checkpoint("noop")
    }

    fn checkpoint(&self, how: &str) -> Result<(u64, u64), Error> {
        let text = format!("pragma wal_checkpoint({how})");
        let mut statement = self
            .connection
            .prepare_cached(&text)
            .map_err(|source| explain(&self.path, source))?;
        let row = statement.query_row([], |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)));
        let (frames, moved) = row.map_err(|source| explain(&self.path, source))?;
        // SQLite reports -1 if there is no log yet.
        Ok((frames.max(0).cast_unsigned(), moved.max(0).cast_unsigned()))
    }

    fn log(&self) -> PathBuf {
        wal_path(&self.path)
    }

    fn run(&self, text: &str) -> Result<(), Error> {
        self.connection
            .execute_batch(text)
            .map_err(|source| explain(&self.path, source))
    }

    fn number(&self, pragma: &str) -> Result<i64, Error> {
        let value = self
            .connection
            .pragma_query_value(None, pragma, |row| row.get(0));
        value.map_err(|source| explain(&self.path, source))
    }
}

/// Returns the SQL statement that created each table.
fn tables_of(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare("select sql from sqlite_schema order by name")?;
    let texts = statement.query_map([], |row| row.get(0))?;
    texts.collect()
}

/// Returns the path of SQLite's write-ahead log.
fn wal_path(path: &Path) -> PathBuf {
    path.with_extension("sqlite-wal")
}

impl StreamRow {
    fn checksum(&self) -> u32 {
        let mut sum = RowChecksum::default();
        for number in [self.id, self.epoch, self.opened_ms, self.top] {
            sum.number(number);
        }
        sum.bytes(Some(self.name.as_bytes()));
        sum.version(self.version.as_ref());
        sum.0.finalize()
    }
}

impl PublicationRow {
    fn checksum(&self, number: u64) -> u32 {
        let publication = &self.publication;
        let mut sum = RowChecksum::default();
        for number in [
            number,
            self.stream,
            publication.offset,
            publication.at_ms,
            publication.kind.into(),
        ] {
            sum.number(number);
        }
        sum.version(publication.version.as_ref());
        sum.bytes(publication.extra.as_deref());
        sum.bytes(Some(&publication.payload));
        sum.0.finalize()
    }
}

/// CRC-32 of a row's columns. Texts and byte strings are preceded by their length.
#[derive(Default)]
struct RowChecksum(crc32fast::Hasher);

impl RowChecksum {
    fn number(&mut self, number: u64) {
        self.0.update(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: Option<&[u8]>) {
        self.number(bytes.map_or(u64::MAX, |bytes| bytes.len() as u64));
        self.0.update(bytes.unwrap_or_default());
    }

    fn version(&mut self, version: Option<&crate::StoredVersion>) {
        self.number(version.is_some().into());
        if let Some(version) = version {
            self.number(version.number);
            self.bytes(version.epoch.as_deref().map(str::as_bytes));
        }
    }
}

/// Converts a database error. Errors that mean a corrupt file become [`Error::Damaged`], on which the server sets the
/// file aside; all others become [`Error::Database`].
fn explain(path: &Path, source: rusqlite::Error) -> Error {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Error::Damaged {
            path,
            reason: source.to_string(),
        },
        _ => Error::Database { path, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a test on a database with publications that have a page each, all moved into the tables.
    fn with_pages(pages: u64, test: impl FnOnce(&mut ArchiveDatabase)) {
        let name = format!("veche-archive-pages-{}-{pages}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        let mut database = ArchiveDatabase::open(&folder, FsyncPolicy::Never).expect("opened");
        let rows = format!(
            "with recursive numbers(number) as (select 1 union all select number + 1 from numbers where number < {pages})
             insert into publication select number, 1, number, 0, 0, zeroblob(8000), null, null, null, 0 from numbers"
        );
        database.run(&rows).expect("filled");
        database.checkpoint("truncate").expect("moved");
        test(&mut database);
        let _ = fs::remove_dir_all(&folder);
    }

    fn after_trimming(database: &mut ArchiveDatabase, below: u64) -> Maintenance {
        let trim = format!("delete from publication where number < {below}");
        database.run(&trim).expect("trimmed");
        database.checkpoint("truncate").expect("moved");
        database.maintain().expect("maintained")
    }

    #[test]
    fn free_pages_are_released_if_they_are_many_and_a_quarter_of_the_file() {
        with_pages(2_000, |large| {
            assert_eq!(after_trimming(large, 400), Maintenance::Idle);
            assert_eq!(after_trimming(large, 600), Maintenance::Vacuum);
        });
        with_pages(400, |small| {
            assert_eq!(after_trimming(small, 200), Maintenance::Idle);
            assert_eq!(after_trimming(small, 300), Maintenance::Vacuum);
        });
    }
}
