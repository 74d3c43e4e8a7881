//! Snapshots: a table as a file with all its rows at one moment.
//!
//! ```text
//! file    = chunk of the header, chunk of each block, chunk of the footer; nothing after it
//! chunk   = bytes, CRC-32 of these bytes
//! header  = "VECHETBL", version u32 = 1, length of the rest u32,
//!           time of writing (wall clock, ms) u64, number of columns u16,
//!           for each column: length u16, name, length u32, type as in a schema
//! block   = length of the values u32, number of rows u32 (1 to 65536), values of each column
//! values  = byte 0; or byte 1 and a bitmap of the rows that have a value, lowest bit first;
//!           then for a type of fixed size: each value in the size of the type (zeros if missing);
//!           for strings: the length u16 of each, then the bytes of all strings
//! footer  = 0xffffffff, number of rows u64, CRC-32 of the header and all blocks without their CRC-32s
//! ```
//!
//! All numbers are little-endian; lengths are in bytes. Columns are in the order of the schema: the key, then the others
//! by name. If rows expire, a last column has the expiry as absolute wall-clock time; in memory it is a time of the
//! monotonic clock. Rows are in the order of their row numbers, which is the key order if the key is an integer of at
//! most 32 bits. Indexes are not stored but rebuilt.
//!
//! A snapshot is written to a new file, synced to disk, and renamed to the name of the file that it replaces. So a file with
//! that name is always complete.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crc32fast::Hasher;
use veche_files::WriteOptions;
use veche_types::Now;

use super::cell::{Cell, InputValue};
use super::error::TableError;
use super::job::{self, Job, JobError};
use super::leaf::Leaf;
use super::rows::TableRows;
use super::schema::Column;
use super::shape::kept_bits;
use super::watch::WatchEvent;
use super::{State, Table, build, json};

const MAGIC: &[u8; 8] = b"VECHETBL";
const VERSION: u32 = 1;
/// The value that marks the footer, in place of a block's length.
const FOOTER: u32 = u32::MAX;
/// Maximum length of a header or a block in bytes. A greater declared length is reported as damage. The limit exceeds the
/// size of a full leaf with the longest strings.
const CHUNK_MAX: u32 = 64 << 20;
/// Maximum number of rows of a block.
const ROWS_MAX: u32 = 1 << 16;
/// Buffer size for reading and writing in bytes.
const BUFFER: usize = 256 << 10;

impl Table {
    /// Starts to write all rows, as they are at one moment, to a file; the table may be changed meanwhile. The rows are written
    /// to a hidden file, which replaces an existing file once it is completely on disk.
    ///
    /// The job's outcome is the number of rows written. Errors: [`JobError::File`], [`JobError::Table`] while the table is
    /// being loaded, [`JobError::Thread`], [`JobError::Cancelled`]; after an error an existing file is unchanged.
    pub fn start_save(self: &Arc<Self>, path: PathBuf, now: Now) -> Arc<Job> {
        let table = Arc::clone(self);
        job::start(move |job| table.save(&path, now, job))
    }

    /// Starts to replace all rows by those of a file. Until the end the old rows can be read, and changes are refused. Rows
    /// that have expired since they were saved are left out. Watchers get a single event.
    ///
    /// The job's outcome is the number of rows. Errors: [`JobError::File`], [`JobError::Damaged`], [`JobError::Columns`],
    /// [`JobError::Table`], [`JobError::Thread`], [`JobError::Cancelled`]; after an error the table is unchanged.
    pub fn start_restore(self: &Arc<Self>, path: PathBuf, now: Now) -> Arc<Job> {
        let table = Arc::clone(self);
        job::start(move |job| {
            let shown = path.display().to_string();
            let fault = |error: io::Error| JobError::file(&shown, error);
            let file = veche_files::read(&path).map_err(fault)?;
            job.add_total(file.metadata().map_err(fault)?.len());
            table.restore(file, &shown, now, job)
        })
    }

    /// Like [`start_save`](Self::start_save), but writes to any writer and on the current thread.
    ///
    /// # Errors
    /// Those of [`start_save`](Self::start_save), with `name` as the file name.
    pub fn save_to(&self, out: impl Write, name: &str, now: Now) -> Result<u64, JobError> {
        let rows = self.rows_to_save()?;
        self.write(rows, out, name, now, &Job::default())
    }

    /// Like [`start_restore`](Self::start_restore), but reads from any reader and on the current thread.
    ///
    /// # Errors
    /// Those of [`start_restore`](Self::start_restore), with `name` as the file name.
    pub fn restore_from(&self, reader: impl Read, name: &str, now: Now) -> Result<u64, JobError> {
        self.restore(reader, name, now, &Job::default())
    }

    fn rows_to_save(&self) -> Result<TableRows, TableError> {
        let state = self.state.read();
        // The old rows stay until the new ones are complete.
        match state.is_loading {
            true => Err(TableError::Loading),
            false => Ok(state.rows.clone()),
        }
    }

    fn save(&self, path: &Path, now: Now, job: &Job) -> Result<u64, JobError> {
        let shown = path.display().to_string();
        let fault = |error: io::Error| JobError::file(&shown, error);
        let draft = DraftFile::open(path).map_err(fault)?;
        let rows = self.rows_to_save()?;
        job.add_total(rows.bytes() as u64);
        let count = self.write(rows, &draft.file, &shown, now, job)?;
        job.check()?;
        draft.publish(path).map_err(fault)?;
        Ok(count)
    }

    fn write(
        &self,
        rows: TableRows,
        out: impl Write,
        name: &str,
        now: Now,
        job: &Job,
    ) -> Result<u64, JobError> {
        let fault = |error: io::Error| JobError::file(name, error);
        let mut out = ChunkWriter {
            out: BufWriter::with_capacity(BUFFER, out),
            total: Hasher::new(),
            job,
        };
        let mut piece = self.header(now);
        out.write(&piece).map_err(fault)?;
        let mut count = 0;
        // Each leaf of the clone is dropped once it is written. Later changes of rows in that leaf then need not copy
        // it.
        for leaf in rows.into_leaves() {
            job.check()?;
            let written = self.block(&leaf, now, &mut piece);
            drop(leaf);
            if written > 0 {
                out.write(&piece).map_err(fault)?;
                job.add_rows(written);
                count += written;
            }
        }
        piece.clear();
        piece.extend_from_slice(&FOOTER.to_le_bytes());
        piece.extend_from_slice(&count.to_le_bytes());
        let total = out.total.clone().finalize();
        piece.extend_from_slice(&total.to_le_bytes());
        out.write(&piece).map_err(fault)?;
        out.out.flush().map_err(fault)?;
        Ok(count)
    }

    fn header(&self, now: Now) -> Vec<u8> {
        let columns = &self.schema.columns;
        let mut about = now.wall_ms.to_le_bytes().to_vec();
        about.extend_from_slice(&(columns.len() as u16).to_le_bytes());
        for column in columns {
            let kind = column.type_text();
            about.extend_from_slice(&(column.name.len() as u16).to_le_bytes());
            about.extend_from_slice(column.name.as_bytes());
            about.extend_from_slice(&(kind.len() as u32).to_le_bytes());
            about.extend_from_slice(kind.as_bytes());
        }
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&(about.len() as u32).to_le_bytes());
        header.extend_from_slice(&about);
        header
    }

    /// Encodes the rows of a leaf, except expired ones, as a block in `out`. Returns the number of encoded rows.
    fn block(&self, leaf: &Leaf, now: Now, out: &mut Vec<u8>) -> u64 {
        let shape = &self.shape;
        let expires = self.schema.expires();
        let stays = |place: &usize| {
            let at_ms = expires.map(|column| leaf.get(shape, *place, column));
            !matches!(at_ms, Some(Cell::Bits(at_ms)) if at_ms <= now.mono_ms)
        };
        let places: Vec<usize> = (0..leaf.len()).filter(stays).collect();
        out.clear();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(places.len() as u32).to_le_bytes());
        for (column, about) in self.schema.columns.iter().enumerate() {
            let cells = places.iter().map(|place| {
                match leaf.get(shape, *place, column) {
                    // An expiry is converted to wall-clock time.
                    Cell::Bits(at_ms) if Some(column) == expires => {
                        let left_ms = at_ms.saturating_sub(now.mono_ms);
                        Cell::Bits(now.wall_ms.saturating_add(left_ms))
                    }
                    cell => cell,
                }
            });
            write_column(about, cells, out);
        }
        let length = (out.len() - 8) as u32;
        out[..4].copy_from_slice(&length.to_le_bytes());
        places.len() as u64
    }

    fn restore(&self, reader: impl Read, name: &str, now: Now, job: &Job) -> Result<u64, JobError> {
        let mut state = self.state.write();
        state.refuse_while_loading()?;
        state.is_replacing = true;
        drop(state);
        let replacing = ReplaceGuard(self);
        let mut parts = ChunkReader {
            reader: BufReader::with_capacity(BUFFER, reader),
            name,
            at: 0,
            total: Hasher::new(),
            piece: Vec::new(),
        };
        let mut new = self.read_rows(&mut parts, now, job)?;
        new.rows.shrink_to_fit(&self.shape);
        let indexes = build::indexes(self, &new.rows, job)?;
        if let Some(keys) = new.keys.take() {
            let key = &self.schema.columns[0].name;
            new.keys = Some(build::fill(keys, key, self, &new.rows, job)?);
        }
        new.indexes = indexes;
        new.check_fits(self, false)?;
        let count = new.rows.count() as u64;
        let mut state = self.state.write();
        let old = std::mem::replace(&mut *state, new);
        // The replacement is complete, and another one may start now.
        std::mem::forget(replacing);
        self.notify_watchers(|out| json::event(out, WatchEvent::Load, None));
        drop(state);
        // The old rows are dropped without holding the lock, because freeing much memory takes time.
        drop(old);
        Ok(count)
    }

    fn read_rows(
        &self,
        parts: &mut ChunkReader<'_, impl Read>,
        now: Now,
        job: &Job,
    ) -> Result<State, JobError> {
        parts.header(&self.schema.columns)?;
        job.add_bytes(parts.at);
        let mut new = State::new(&self.schema, &self.shape);
        let mut read = 0_u64;
        loop {
            job.check()?;
            let begin = parts.at;
            let total = parts.total.clone().finalize();
            let Some(rows) = parts.block()? else {
                let [declared, sum] = parts.footer();
                if declared != read {
                    let why = format!("the file declares {declared} rows, but has {read}");
                    return parts.damaged(begin, why);
                }
                if sum != u64::from(total) {
                    return parts.damaged(begin, "a block is missing or was replaced");
                }
                parts.end()?;
                return Ok(new);
            };
            let put = self.read_block(&parts.piece[8..], rows, &mut new, now);
            match put {
                Ok(put) => job.add_rows(put),
                Err(why) => return parts.damaged(begin, why),
            }
            new.check_fits(self, true)?;
            read += u64::from(rows);
            job.add_bytes(parts.at - begin);
        }
    }

    /// Parses the rows of a block whose checksum is correct. Values that no table can have are refused nevertheless.
    fn read_block(
        &self,
        mut bytes: &[u8],
        rows: u32,
        new: &mut State,
        now: Now,
    ) -> Result<u64, String> {
        let columns = &self.schema.columns;
        let mut read = Vec::with_capacity(columns.len());
        for column in columns {
            let values = ColumnValues::read(column, rows as usize, &mut bytes);
            read.push(values.ok_or_else(|| format!("column {} is too short", column.name))?);
        }
        if !bytes.is_empty() {
            return Err("unexpected data after the last column".to_owned());
        }
        let expires = self.schema.expires();
        let mut row = Vec::with_capacity(columns.len());
        let mut put = 0;
        for place in 0..rows as usize {
            row.clear();
            for (column, values) in columns.iter().zip(&read) {
                let cell = values.get(column, place);
                let cell =
                    cell.ok_or_else(|| format!("a value is invalid for column {}", column.name))?;
                row.push(cell);
            }
            if let Some(column) = expires
                && let Cell::Bits(at_ms) = row[column]
            {
                let left_ms = at_ms.saturating_sub(now.wall_ms);
                if left_ms == 0 {
                    continue;
                }
                row[column] = Cell::Bits(now.mono_ms.saturating_add(left_ms));
            }
            let number = match (self.shape.key, row[0]) {
                (Some(number), Cell::Bits(bits)) => number.row(self.shape.kind(0), bits),
                // Rows are numbered in the order of the file. Duplicate keys are detected later, when the rows are
                // indexed.
                _ => match u32::try_from(new.rows.count()) {
                    Ok(number) if number < u32::MAX => number,
                    _ => return Err("too many rows".to_owned()),
                },
            };
            if new.rows.last().is_some_and(|last| number <= last) {
                return Err("the keys are not in ascending order".to_owned());
            }
            new.rows.insert(&self.shape, number, &row);
            new.next_row = number.wrapping_add(1);
            put += 1;
        }
        Ok(put)
    }
}

/// Prevents other changes of the table while this guard exists.
struct ReplaceGuard<'a>(&'a Table);

impl Drop for ReplaceGuard<'_> {
    fn drop(&mut self) {
        self.0.state.write().is_replacing = false;
    }
}

/// A draft file written next to the file that it replaces.
struct DraftFile {
    file: File,
    path: PathBuf,
    is_published: bool,
}

impl DraftFile {
    fn open(path: &Path) -> io::Result<Self> {
        let Some(name) = path.file_name() else {
            return Err(io::Error::other("the path does not end with a file name"));
        };
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(".saving");
        let draft = path.with_file_name(hidden);
        loop {
            // A draft that a killed process has left is overwritten. The lock ensures that no other process is writing
            // the draft.
            let file = WriteOptions::private().open(&draft)?.file;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(io::Error::other("the file is already being saved"));
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // Another process may have renamed the file after it was opened here, so that it is no longer a draft.
            let own = file.metadata()?;
            match fs::symlink_metadata(&draft) {
                Ok(there) if (there.dev(), there.ino()) == (own.dev(), own.ino()) => {}
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            }
            let draft = Self {
                file,
                path: draft,
                is_published: false,
            };
            draft.file.set_len(0)?;
            return Ok(draft);
        }
    }

    /// Syncs the draft, renames it to `path`, which it may replace, and syncs the folder.
    fn publish(mut self, path: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, path)?;
        self.is_published = true;
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        File::open(folder)?.sync_all()
    }
}

impl Drop for DraftFile {
    fn drop(&mut self) {
        if !self.is_published {
            // If the removal fails, the next save overwrites the draft.
            let _ = fs::remove_file(&self.path);
        }
    }
}

struct ChunkWriter<'a, W: Write> {
    out: BufWriter<W>,
    total: Hasher,
    job: &'a Job,
}

impl<W: Write> ChunkWriter<'_, W> {
    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.total.update(piece);
        self.out.write_all(piece)?;
        self.out.write_all(&crc32fast::hash(piece).to_le_bytes())?;
        self.job.add_bytes(piece.len() as u64 + 4);
        Ok(())
    }
}

fn write_column<'a>(
    column: &Column,
    cells: impl Iterator<Item = Cell<'a>> + Clone,
    out: &mut Vec<u8>,
) {
    let has_gaps = column.is_nullable && cells.clone().any(|cell| cell == Cell::Null);
    out.push(has_gaps.into());
    if has_gaps {
        for (place, cell) in cells.clone().enumerate() {
            if place % 8 == 0 {
                out.push(0);
            }
            let last = out.len() - 1;
            out[last] |= u8::from(cell != Cell::Null) << (place % 8);
        }
    }
    if let Some(bits) = column.kind.bits() {
        for cell in cells {
            let kept = kept_bits(&column.kind, cell).to_le_bytes();
            out.extend_from_slice(&kept[..bits as usize / 8]);
        }
        return;
    }
    let texts = cells.map(Cell::text);
    for text in texts.clone() {
        out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    }
    texts.for_each(|text| out.extend_from_slice(text));
}

/// The values of a column in a block.
struct ColumnValues<'a> {
    present: Option<&'a [u8]>,
    values: &'a [u8],
    /// The end offset of each string.
    ends: Vec<usize>,
}

/// Removes and returns the first `count` bytes; `None` if there are fewer.
fn cut<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (first, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(first)
}

impl<'a> ColumnValues<'a> {
    /// Parses the values of a column; `None` if there are too few bytes.
    fn read(column: &Column, rows: usize, bytes: &mut &'a [u8]) -> Option<Self> {
        let present = match cut(bytes, 1)? {
            [0] => None,
            [1] => Some(cut(bytes, rows.div_ceil(8))?),
            _ => return None,
        };
        let mut ends = Vec::new();
        let length = match column.kind.bits() {
            Some(bits) => rows * (bits as usize / 8),
            None => {
                let mut end = 0;
                for length in cut(bytes, rows * 2)?.as_chunks::<2>().0 {
                    end += usize::from(u16::from_le_bytes(*length));
                    ends.push(end);
                }
                end
            }
        };
        Some(Self {
            present,
            values: cut(bytes, length)?,
            ends,
        })
    }

    /// Returns the value of a row; `None` if it is invalid for the column.
    fn get(&self, column: &Column, place: usize) -> Option<Cell<'a>> {
        if let Some(present) = self.present
            && present[place / 8] >> (place % 8) & 1 == 0
        {
            return column.is_nullable.then_some(Cell::Null);
        }
        let Some(bits) = column.kind.bits() else {
            let from = if place == 0 { 0 } else { self.ends[place - 1] };
            let text = &self.values[from..self.ends[place]];
            return column.cell(InputValue::Text(text)).ok();
        };
        let size = bits as usize / 8;
        let mut narrow = [0; 8];
        narrow[..size].copy_from_slice(&self.values[place * size..(place + 1) * size]);
        let bits = column.kind.widen(u64::from_le_bytes(narrow));
        column.kind.has(bits).then_some(Cell::Bits(bits))
    }
}

struct ChunkReader<'a, R: Read> {
    reader: BufReader<R>,
    name: &'a str,
    /// The offset of the next chunk in the file.
    at: u64,
    total: Hasher,
    /// The chunk that was read last, without its checksum.
    piece: Vec<u8>,
}

impl<R: Read> ChunkReader<'_, R> {
    fn damaged<T>(&self, at: u64, why: impl Into<String>) -> Result<T, JobError> {
        Err(JobError::Damaged {
            file: self.name.to_owned(),
            at,
            why: why.into(),
        })
    }

    /// Reads `count` bytes from the file and appends them to `piece`.
    fn read(&mut self, count: usize) -> Result<(), JobError> {
        // The buffer grows with the bytes that arrive, so a false declared length can't exhaust memory.
        let mut some = (&mut self.reader).take(count as u64);
        let read = some.read_to_end(&mut self.piece);
        let read = read.map_err(|error| JobError::file(self.name, error))?;
        self.at += read as u64;
        match read == count {
            true => Ok(()),
            false => self.damaged(self.at, "unexpected end of file"),
        }
    }

    fn number(&self, at: usize) -> u32 {
        let bytes = self.piece[at..at + 4].first_chunk();
        u32::from_le_bytes(*bytes.expect("four bytes"))
    }

    /// Reads the chunk's checksum and verifies it.
    fn check(&mut self, begin: u64) -> Result<(), JobError> {
        let len = self.piece.len();
        self.read(4)?;
        let declared = self.number(len);
        self.piece.truncate(len);
        if declared != crc32fast::hash(&self.piece) {
            return self.damaged(begin, "the checksum does not match");
        }
        self.total.update(&self.piece);
        Ok(())
    }

    fn header(&mut self, columns: &[Column]) -> Result<(), JobError> {
        self.read(8)?;
        if self.piece != MAGIC {
            return self.damaged(0, "the file is not a table snapshot");
        }
        self.read(8)?;
        let (version, length) = (self.number(8), self.number(12));
        if length > CHUNK_MAX {
            return self.damaged(12, "the header is too long");
        }
        self.read(length as usize)?;
        self.check(0)?;
        if version != VERSION {
            let why = format!("the file has version {version}, but only {VERSION} is supported");
            return self.damaged(8, why);
        }
        let Some(there) = read_columns(&self.piece[16..]) else {
            return self.damaged(16, "the columns in the header are malformed");
        };
        match difference(columns, &there) {
            None => Ok(()),
            Some(why) => Err(JobError::Columns {
                file: self.name.to_owned(),
                why,
            }),
        }
    }

    /// Reads the next block. Returns its number of rows; `None` if it is the footer.
    fn block(&mut self) -> Result<Option<u32>, JobError> {
        let begin = self.at;
        self.piece.clear();
        self.read(8)?;
        let (length, rows) = (self.number(0), self.number(4));
        if length == FOOTER {
            self.read(8)?;
            self.check(begin)?;
            return Ok(None);
        }
        if length > CHUNK_MAX || rows == 0 || rows > ROWS_MAX {
            return self.damaged(begin, "no block of rows begins here");
        }
        self.read(length as usize)?;
        self.check(begin)?;
        Ok(Some(rows))
    }

    /// Returns the row count and the checksum in the footer.
    fn footer(&self) -> [u64; 2] {
        let rows = u64::from(self.number(4)) | u64::from(self.number(8)) << 32;
        [rows, self.number(12).into()]
    }

    fn end(&mut self) -> Result<(), JobError> {
        let mut byte = [0];
        let read = self.reader.read(&mut byte);
        match read.map_err(|error| JobError::file(self.name, error))? {
            0 => Ok(()),
            _ => self.damaged(self.at, "unexpected data after the end"),
        }
    }
}

/// Parses the names and types of columns in a header; `None` if the header is malformed.
fn read_columns(mut bytes: &[u8]) -> Option<Vec<(String, String)>> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    cut(&mut bytes, 8)?;
    let count = u16::from_le_bytes(*cut(&mut bytes, 2)?.first_chunk()?);
    let mut columns = Vec::new();
    for _ in 0..count {
        let length = u16::from_le_bytes(*cut(&mut bytes, 2)?.first_chunk()?);
        let name = text(cut(&mut bytes, length.into())?)?;
        let length = u32::from_le_bytes(*cut(&mut bytes, 4)?.first_chunk()?);
        columns.push((name, text(cut(&mut bytes, length as usize)?)?));
    }
    bytes.is_empty().then_some(columns)
}

/// Describes how a file's columns differ from those of a table; `None` if they are equal.
fn difference(own: &[Column], there: &[(String, String)]) -> Option<String> {
    let of = |name: &str| there.iter().find(|(other, _)| other == name);
    for (place, column) in own.iter().enumerate() {
        let kind = column.type_text();
        match of(&column.name) {
            None if column.name.starts_with('(') => {
                return Some(
                    "rows of the file don't expire, but rows of the table do (ttl)".to_owned(),
                );
            }
            None => return Some(format!("the file has no column {}", column.name)),
            Some((name, other)) if *other != kind => {
                return Some(format!(
                    "the column {name} is {other} in the file, but {kind} in the table"
                ));
            }
            Some((name, _)) if place == 0 && there[0].0 != *name => {
                return Some(format!(
                    "the key is {} in the file, but {name} in the table",
                    there[0].0
                ));
            }
            Some(_) => {}
        }
    }
    let more = there
        .iter()
        .find(|(name, _)| own.iter().all(|column| *column.name != **name));
    match more {
        Some((name, _)) if name.starts_with('(') => {
            Some("rows of the file expire, but rows of the table don't (ttl)".to_owned())
        }
        Some((name, _)) => Some(format!(
            "the file has a column {name}, which the table lacks"
        )),
        None => (own.len() != there.len()).then(|| "a column occurs twice in the file".to_owned()),
    }
}
