//! Loads an archive: reads the whole file once and skips damaged rows.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::types::{FromSql, FromSqlError, ValueRef};

use super::{ArchiveDatabase, explain};
use crate::error::Error;
use crate::index::{ChangeSet, Index, PublicationRow, StreamRow};
use crate::loaded::{LoadedStream, LoadedStreams, Warning};
use crate::record::{StoredPublication, StoredVersion};
use crate::run_state::{Renewal, RenewalCause};
use crate::wal_tail::WalTail;

/// The content of the file.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) loaded: LoadedStreams,
    pub(crate) index: Index,
    /// Changes to write before anything else: removal of useless rows, and new epochs.
    pub(crate) repairs: ChangeSet,
}

/// A stream while its publications are being read.
struct LoadingStream {
    channel: LoadedStream,
    id: u64,
    /// Row numbers of the stream's publications.
    numbers: Vec<u64>,
    damage: Damage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Damage {
    None,
    /// The latest publication of the stream is unreadable.
    Top,
    /// The latest publication of the stream is readable, but earlier ones are not.
    Older,
}

/// Collects the streams that were read.
#[derive(Default)]
struct Loader {
    streams: Vec<LoadingStream>,
    /// Indices in `streams`, by the stream's row number.
    places: HashMap<u64, usize, foldhash::fast::RandomState>,
    warnings: Vec<Warning>,
    index: Index,
    /// Row numbers of publications to remove: unreadable ones, older ones, and those of unreadable streams.
    lost: Vec<u64>,
    lost_streams: Vec<u64>,
    /// Set if publications may be missing at the end of each stream, so that all streams get new epochs.
    renewal: Option<(RenewalCause, Renewal)>,
}

impl ArchiveDatabase {
    /// Reads everything without writing. With `renewal`, publications may be missing at the end of streams, so all
    /// streams get new epochs.
    pub(crate) fn load(&self, renewal: Option<(RenewalCause, Renewal)>) -> Result<Contents, Error> {
        let mut reader = Loader {
            renewal,
            ..Loader::default()
        };
        self.check()?;
        self.read(&mut reader)
            .map_err(|source| explain(&self.path, source))?;
        Ok(reader.finish(self.tail))
    }

    fn read(&self, reader: &mut Loader) -> rusqlite::Result<()> {
        let text =
            "select id, name, epoch, opened_ms, top, version, version_epoch, checksum from stream";
        let mut statement = self.connection.prepare(text)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let id = row.get::<_, i64>(0)?.cast_unsigned();
            match head(id, row) {
                Ok(head) => reader.stream(&head),
                Err(_) => reader.lose_stream(id, row.get_ref(1)?),
            }
        }
        let text = "select number, stream, offset, at_ms, kind, payload, version, version_epoch, extra, checksum
                    from publication order by number";
        let mut statement = self.connection.prepare(text)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let number = row.get::<_, i64>(0)?.cast_unsigned();
            let stream = number_of(row.get_ref(1)?).unwrap_or(0);
            match publication(number, stream, row) {
                Ok(publication) => reader.publication(number, stream, publication),
                Err(_) => reader.lose(number, stream),
            }
        }
        Ok(())
    }
}

impl Loader {
    fn stream(&mut self, head: &StreamRow) {
        self.places.insert(head.id, self.streams.len());
        self.index.skip_to_stream(head.id);
        let channel = LoadedStream {
            name: Arc::clone(&head.name),
            epoch: self
                .renewal
                .map_or(head.epoch, |(_, renewal)| renewal.apply(head.epoch)),
            opened_ms: head.opened_ms,
            top: head.top,
            version: head.version.clone(),
            publications: Vec::new(),
        };
        self.streams.push(LoadingStream {
            channel,
            id: head.id,
            numbers: Vec::new(),
            damage: Damage::None,
        });
    }

    fn lose_stream(&mut self, id: u64, name: ValueRef<'_>) {
        self.index.skip_to_stream(id);
        self.lost_streams.push(id);
        let name = match name {
            ValueRef::Text(name) => String::from_utf8_lossy(name).into_owned(),
            _ => String::new(),
        };
        self.warnings.push(Warning::Stream {
            channel: name.into(),
        });
    }

    fn publication(&mut self, number: u64, stream: u64, publication: StoredPublication) {
        self.index.skip_to(number);
        let reading = self
            .places
            .get(&stream)
            .and_then(|&place| self.streams.get_mut(place));
        let Some(reading) = reading else {
            // The stream of this publication could not be read.
            self.lost.push(number);
            return;
        };
        if reading.damage == Damage::Top {
            reading.damage = Damage::Older;
        }
        reading.numbers.push(number);
        reading.channel.publications.push(publication);
    }

    /// Discards an unreadable publication and all earlier ones of its stream, since only the
    /// publications after a gap form a complete history.
    fn lose(&mut self, number: u64, stream: u64) {
        self.index.skip_to(number);
        self.lost.push(number);
        let reading = self
            .places
            .get(&stream)
            .and_then(|&place| self.streams.get_mut(place));
        if let Some(reading) = reading {
            reading.damage = Damage::Top;
            reading.channel.publications.clear();
            self.lost.append(&mut reading.numbers);
        }
    }

    fn finish(mut self, tail: WalTail) -> Contents {
        let mut channels = Vec::with_capacity(self.streams.len());
        let mut renewed = Vec::new();
        for reading in self.streams {
            let mut channel = reading.channel;
            let name = Arc::clone(&channel.name);
            match reading.damage {
                Damage::Top => {
                    self.warnings.push(Warning::Stream { channel: name });
                    self.lost_streams.push(reading.id);
                    continue;
                }
                Damage::Older => {
                    let offset = channel
                        .publications
                        .first()
                        .map_or(0, |first| first.offset.saturating_sub(1));
                    self.warnings.push(Warning::History {
                        channel: name,
                        offset,
                    });
                }
                Damage::None => {}
            }
            let head = StreamRow {
                id: reading.id,
                name: Arc::clone(&channel.name),
                epoch: channel.epoch,
                opened_ms: channel.opened_ms,
                top: channel.top,
                version: channel.version.clone(),
            };
            self.index.load(&head);
            if self.renewal.is_some() {
                renewed.push(head);
            }
            for (number, publication) in reading.numbers.iter().zip(&channel.publications) {
                self.index.load_row(&channel.name, *number, publication);
                channel.top = publication.offset;
                if publication.version.is_some() {
                    channel.version.clone_from(&publication.version);
                }
            }
            channels.push(channel);
        }
        let count = renewed.len() as u64;
        let WalTail { bytes, commits, .. } = tail;
        let cause = self.renewal.map(|(cause, _)| cause);
        if bytes > 0 && cause != Some(RenewalCause::Log) {
            self.warnings.push(Warning::Tail { bytes });
        }
        match cause {
            Some(RenewalCause::Log) => self.warnings.push(Warning::Cut {
                bytes,
                commits,
                channels: count,
            }),
            Some(RenewalCause::Machine) if count > 0 => {
                self.warnings.push(Warning::Lost { channels: count })
            }
            Some(RenewalCause::Asked) => self.warnings.push(Warning::Renewed { channels: count }),
            _ => {}
        }
        let mut repairs = ChangeSet::of_repairs(self.lost, self.lost_streams);
        repairs.streams = renewed;
        let publications = self.index.publications();
        let loaded = LoadedStreams {
            channels: channels.into_iter(),
            publications,
            warnings: self.warnings,
        };
        Contents {
            loaded,
            index: self.index,
            repairs,
        }
    }
}

/// The error of a row whose content is not what the archive has written.
struct Damaged;

impl From<FromSqlError> for Damaged {
    fn from(_: FromSqlError) -> Self {
        Self
    }
}

impl From<rusqlite::Error> for Damaged {
    fn from(_: rusqlite::Error) -> Self {
        Self
    }
}

fn head(id: u64, row: &rusqlite::Row<'_>) -> Result<StreamRow, Damaged> {
    let head = StreamRow {
        id,
        name: row.get_ref(1)?.as_str()?.into(),
        epoch: number_of(row.get_ref(2)?)?,
        opened_ms: number_of(row.get_ref(3)?)?,
        top: number_of(row.get_ref(4)?)?,
        version: version(row.get_ref(5)?, row.get_ref(6)?)?,
    };
    let is_whole = number_of(row.get_ref(7)?)? == head.checksum().into();
    if is_whole { Ok(head) } else { Err(Damaged) }
}

fn publication(
    number: u64,
    stream: u64,
    row: &rusqlite::Row<'_>,
) -> Result<StoredPublication, Damaged> {
    let publication = StoredPublication {
        offset: number_of(row.get_ref(2)?)?,
        at_ms: number_of(row.get_ref(3)?)?,
        kind: u8::column_result(row.get_ref(4)?)?,
        payload: Bytes::copy_from_slice(row.get_ref(5)?.as_blob()?),
        version: version(row.get_ref(6)?, row.get_ref(7)?)?,
        extra: row
            .get_ref(8)?
            .as_blob_or_null()?
            .map(Bytes::copy_from_slice),
    };
    let written = number_of(row.get_ref(9)?)?;
    let row = PublicationRow {
        stream,
        publication,
    };
    let is_whole = written == row.checksum(number).into();
    if is_whole {
        Ok(row.publication)
    } else {
        Err(Damaged)
    }
}

fn version(number: ValueRef<'_>, epoch: ValueRef<'_>) -> Result<Option<StoredVersion>, Damaged> {
    if number == ValueRef::Null {
        return Ok(None);
    }
    let epoch = epoch.as_str_or_null()?.map(Arc::from);
    Ok(Some(StoredVersion {
        number: number_of(number)?,
        epoch,
    }))
}

fn number_of(value: ValueRef<'_>) -> Result<u64, Damaged> {
    Ok(value.as_i64()?.cast_unsigned())
}
