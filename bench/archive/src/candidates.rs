//! Puts the candidate libraries behind one trait: commit a group, read all records, close.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read, Write};
use std::path::Path;

use crate::Group;

pub trait Candidate {
    fn commit(&mut self, group: &Group<'_>);
    /// Reads all records in order of arrival; returns their number and their total bytes.
    fn read(&mut self) -> (u64, u64);
    fn close(self: Box<Self>);
}

pub fn open(library: &str, folder: &Path, is_synced: bool) -> Box<dyn Candidate> {
    match library {
        "floor" => Box::new(Floor::open(folder, is_synced)),
        "fjall-seq" => Box::new(Fjall::open(folder, is_synced, Keys::Sequence, false)),
        "fjall-weak" => Box::new(Fjall::open(folder, is_synced, Keys::Sequence, true)),
        "fjall-channel" => Box::new(Fjall::open(folder, is_synced, Keys::Channel, false)),
        "redb" => Box::new(Redb::open(folder, is_synced)),
        "lmdb" => Box::new(Lmdb::open(folder, is_synced)),
        "sqlite" => Box::new(Sqlite::open(folder, is_synced, 8192, "incremental")),
        "sqlite-4k" => Box::new(Sqlite::open(folder, is_synced, 4096, "incremental")),
        "sqlite-16k" => Box::new(Sqlite::open(folder, is_synced, 16384, "incremental")),
        "sqlite-keep" => Box::new(Sqlite::open(folder, is_synced, 8192, "none")),
        other => panic!("{other}?"),
    }
}

/// Encodes the stored fields of a record as the archive does: channel, offset, time, kind, payload.
fn value(channel: u32, offset: u64, payload: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(payload.len() + 24);
    value.extend_from_slice(&channel.to_le_bytes());
    value.extend_from_slice(&offset.to_le_bytes());
    value.extend_from_slice(&[0; 9]);
    value.extend_from_slice(payload);
    value
}

/// A single file that is only appended to and never cleaned: the lower bound of the cost.
struct Floor {
    file: File,
    is_synced: bool,
    buffer: Vec<u8>,
    folder: std::path::PathBuf,
}

impl Floor {
    fn open(folder: &Path, is_synced: bool) -> Self {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.join("log"))
            .expect("a file");
        Self {
            file,
            is_synced,
            buffer: Vec::new(),
            folder: folder.to_owned(),
        }
    }
}

impl Candidate for Floor {
    fn commit(&mut self, group: &Group<'_>) {
        self.buffer.clear();
        for &(_, channel, offset) in &group.appended {
            let value = value(channel, offset, group.payload);
            self.buffer
                .extend_from_slice(&(value.len() as u32).to_le_bytes());
            self.buffer
                .extend_from_slice(&crc32fast::hash(&value).to_le_bytes());
            self.buffer.extend_from_slice(&value);
        }
        for &(_, channel, offset) in &group.trimmed {
            self.buffer.extend_from_slice(&0_u32.to_le_bytes());
            self.buffer.extend_from_slice(&channel.to_le_bytes());
            self.buffer.extend_from_slice(&offset.to_le_bytes());
        }
        self.file.write_all(&self.buffer).expect("written");
        if self.is_synced {
            self.file.sync_data().expect("synced");
        }
    }

    fn read(&mut self) -> (u64, u64) {
        let mut reader = BufReader::with_capacity(
            1 << 20,
            File::open(self.folder.join("log")).expect("a file"),
        );
        let (mut records, mut bytes) = (0, 0);
        let mut head = [0; 8];
        let mut value = Vec::new();
        while reader.read_exact(&mut head).is_ok() {
            let length = u32::from_le_bytes(head[..4].try_into().expect("four"));
            if length == 0 {
                reader.read_exact(&mut head).expect("the offset");
                continue;
            }
            value.resize(length as usize, 0);
            reader.read_exact(&mut value).expect("a value");
            assert_eq!(
                crc32fast::hash(&value),
                u32::from_le_bytes(head[4..].try_into().expect("four"))
            );
            records += 1;
            bytes += u64::from(length);
        }
        (records, bytes)
    }

    fn close(self: Box<Self>) {}
}

enum Keys {
    Sequence,
    Channel,
}

struct Fjall {
    database: fjall::Database,
    records: fjall::Keyspace,
    keys: Keys,
    is_synced: bool,
    is_weak: bool,
}

impl Fjall {
    fn open(folder: &Path, is_synced: bool, keys: Keys, is_weak: bool) -> Self {
        let database = fjall::Database::builder(folder)
            .cache_size(16 << 20)
            .max_journaling_size(128 << 20)
            .worker_threads(1)
            .open()
            .expect("a database");
        let options = || {
            fjall::KeyspaceCreateOptions::default()
                .max_memtable_size(32 << 20)
                .filter_policy(fjall::config::FilterPolicy::disabled())
                .expect_point_read_hits(true)
                .manual_journal_persist(true)
        };
        let records = database.keyspace("records", options).expect("a keyspace");
        Self {
            database,
            records,
            keys,
            is_synced,
            is_weak,
        }
    }

    fn key(&self, number: u64, channel: u32, offset: u64) -> ([u8; 12], usize) {
        let mut key = [0; 12];
        match self.keys {
            Keys::Sequence => {
                key[..8].copy_from_slice(&number.to_be_bytes());
                (key, 8)
            }
            Keys::Channel => {
                key[..4].copy_from_slice(&channel.to_be_bytes());
                key[4..].copy_from_slice(&offset.to_be_bytes());
                (key, 12)
            }
        }
    }
}

impl Candidate for Fjall {
    fn commit(&mut self, group: &Group<'_>) {
        let mode = if self.is_synced {
            fjall::PersistMode::SyncData
        } else {
            fjall::PersistMode::Buffer
        };
        let mut batch = self.database.batch().durability(Some(mode));
        for &(number, channel, offset) in &group.appended {
            let (key, length) = self.key(number, channel, offset);
            batch.insert(
                &self.records,
                &key[..length],
                value(channel, offset, group.payload),
            );
        }
        for &(number, channel, offset) in &group.trimmed {
            let (key, length) = self.key(number, channel, offset);
            if self.is_weak {
                batch.remove_weak(&self.records, &key[..length]);
            } else {
                batch.remove(&self.records, &key[..length]);
            }
        }
        batch.commit().expect("committed");
    }

    fn read(&mut self) -> (u64, u64) {
        let (mut records, mut bytes) = (0, 0);
        for guard in self.records.iter() {
            let value = guard.value().expect("a value");
            records += 1;
            bytes += value.len() as u64;
        }
        (records, bytes)
    }

    fn close(self: Box<Self>) {}
}

const TABLE: redb::TableDefinition<u64, &[u8]> = redb::TableDefinition::new("records");

/// Writes without syncing. `Durability::None` is no substitute, since it keeps commits in the process.
#[derive(Debug)]
struct Unsynced(redb::backends::FileBackend);

impl redb::StorageBackend for Unsynced {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.read(offset, out)
    }
    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.set_len(len)
    }
    fn sync_data(&self) -> std::io::Result<()> {
        Ok(())
    }
    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write(offset, data)
    }
}

struct Redb {
    database: redb::Database,
}

impl Redb {
    fn open(folder: &Path, is_synced: bool) -> Self {
        let path = folder.join("records.redb");
        let mut builder = redb::Builder::new();
        builder.set_cache_size(64 << 20);
        let database = if is_synced {
            builder.create(path).expect("a database")
        } else {
            let file = OpenOptions::new()
                .create(true)
                .read(true)
                .write(true)
                .truncate(false)
                .open(path);
            let backend = Unsynced(
                redb::backends::FileBackend::new(file.expect("a file")).expect("a backend"),
            );
            builder.create_with_backend(backend).expect("a database")
        };
        Self { database }
    }
}

impl Candidate for Redb {
    fn commit(&mut self, group: &Group<'_>) {
        let transaction = self.database.begin_write().expect("a transaction");
        {
            let mut table = transaction.open_table(TABLE).expect("a table");
            for &(number, channel, offset) in &group.appended {
                table
                    .insert(number, value(channel, offset, group.payload).as_slice())
                    .expect("inserted");
            }
            for &(number, ..) in &group.trimmed {
                table.remove(number).expect("removed");
            }
        }
        transaction.commit().expect("committed");
    }

    fn read(&mut self) -> (u64, u64) {
        use redb::{ReadableDatabase, ReadableTable};
        let transaction = self.database.begin_read().expect("a transaction");
        let table = transaction.open_table(TABLE).expect("a table");
        let (mut records, mut bytes) = (0, 0);
        for entry in table.iter().expect("an iterator") {
            let (_, value) = entry.expect("an entry");
            records += 1;
            bytes += value.value().len() as u64;
        }
        (records, bytes)
    }

    fn close(self: Box<Self>) {}
}

type Number = heed::types::U64<heed::byteorder::BE>;

struct Lmdb {
    environment: heed::Env,
    records: heed::Database<Number, heed::types::Bytes>,
}

impl Lmdb {
    fn open(folder: &Path, is_synced: bool) -> Self {
        let mut options = heed::EnvOpenOptions::new();
        options.map_size(16 << 30);
        if !is_synced {
            // SAFETY: the folder is deleted after each run, so a power cut can damage nothing of value.
            unsafe { options.flags(heed::EnvFlags::NO_SYNC) };
        }
        // SAFETY: the folder is not shared.
        let environment = unsafe { options.open(folder) }.expect("an environment");
        let mut transaction = environment.write_txn().expect("a transaction");
        let records = environment
            .create_database(&mut transaction, None)
            .expect("a database");
        transaction.commit().expect("committed");
        Self {
            environment,
            records,
        }
    }
}

impl Candidate for Lmdb {
    fn commit(&mut self, group: &Group<'_>) {
        let mut transaction = self.environment.write_txn().expect("a transaction");
        for &(number, channel, offset) in &group.appended {
            let value = value(channel, offset, group.payload);
            let flags = heed::PutFlags::APPEND;
            self.records
                .put_with_flags(&mut transaction, flags, &number, &value)
                .expect("put");
        }
        for (number, ..) in &group.trimmed {
            self.records
                .delete(&mut transaction, number)
                .expect("deleted");
        }
        transaction.commit().expect("committed");
    }

    fn read(&mut self) -> (u64, u64) {
        let transaction = self.environment.read_txn().expect("a transaction");
        let (mut records, mut bytes) = (0, 0);
        for entry in self.records.iter(&transaction).expect("an iterator") {
            let (_, value) = entry.expect("an entry");
            records += 1;
            bytes += value.len() as u64;
        }
        (records, bytes)
    }

    fn close(self: Box<Self>) {
        self.environment.prepare_for_closing().wait();
    }
}

struct Sqlite {
    connection: rusqlite::Connection,
}

impl Sqlite {
    fn open(folder: &Path, is_synced: bool, page: u32, vacuum: &str) -> Self {
        let connection =
            rusqlite::Connection::open(folder.join("records.sqlite")).expect("a database");
        let synchronous = if is_synced { "full" } else { "normal" };
        let text = format!(
            "pragma page_size = {page}; pragma auto_vacuum = {vacuum}; pragma locking_mode = exclusive;
             pragma journal_mode = wal; pragma synchronous = {synchronous}; pragma cache_size = -16384;
             pragma wal_autocheckpoint = {};
             create table if not exists records (number integer primary key, value blob not null) strict;",
            (16 << 20) / page,
        );
        connection.execute_batch(&text).expect("pragmas");
        Self { connection }
    }
}

impl Candidate for Sqlite {
    fn commit(&mut self, group: &Group<'_>) {
        let transaction = self.connection.transaction().expect("a transaction");
        {
            let mut insert = transaction
                .prepare_cached("insert into records values (?, ?)")
                .expect("a statement");
            for &(number, channel, offset) in &group.appended {
                insert
                    .execute((number as i64, value(channel, offset, group.payload)))
                    .expect("inserted");
            }
            let text = "delete from records where number between ? and ?";
            let mut delete = transaction.prepare_cached(text).expect("a statement");
            let mut numbers: Vec<u64> = group.trimmed.iter().map(|&(number, ..)| number).collect();
            numbers.sort_unstable();
            for run in numbers.chunk_by(|before, after| before + 1 == *after) {
                delete
                    .execute([run[0] as i64, run[run.len() - 1] as i64])
                    .expect("deleted");
            }
        }
        transaction.commit().expect("committed");
    }

    fn read(&mut self) -> (u64, u64) {
        let mut statement = self
            .connection
            .prepare("select value from records order by number")
            .expect("a statement");
        let mut rows = statement.query([]).expect("a query");
        let (mut records, mut bytes) = (0, 0);
        while let Some(row) = rows.next().expect("a row") {
            records += 1;
            bytes += row
                .get_ref(0)
                .expect("a value")
                .as_blob()
                .expect("a blob")
                .len() as u64;
        }
        (records, bytes)
    }

    fn close(self: Box<Self>) {
        self.connection.close().expect("closed");
    }
}
