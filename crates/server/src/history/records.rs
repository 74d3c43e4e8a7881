//! Converts between the types of the hub and the archive.

use std::sync::Arc;

use bytes::Bytes;
use veche_archive::{ArchiveRecord, LoadedStream};
use veche_hub::{
    ClientInfo, Epoch, FeedEvent, LogBatch, LogRecord, Payload, PayloadKind, Position, Publication,
    PublicationInfo, RestoredStream, Version,
};

/// The format of a publication's metadata, as a number; later versions may have other formats.
const INFO_FORMAT: u8 = 1;

/// Converts a batch of the hub to records.
pub(crate) fn records_of(batch: LogBatch) -> Vec<ArchiveRecord> {
    batch.records.into_iter().map(record).collect()
}

fn record(append: LogRecord) -> ArchiveRecord {
    match append {
        LogRecord::Opened {
            channel,
            epoch,
            at_ms,
        } => ArchiveRecord::Opened {
            channel,
            epoch: epoch.bits(),
            at_ms,
        },
        LogRecord::Published {
            channel,
            publication,
            version,
        } => {
            let position = publication.position.unwrap_or(Position::UNKNOWN);
            debug_assert!(
                position.offset > 0,
                "a stored publication must have a position"
            );
            let version = version.map(|version| veche_archive::StoredVersion {
                number: version.number,
                epoch: (!version.epoch.is_empty()).then(|| version.epoch.into()),
            });
            ArchiveRecord::Published {
                channel,
                epoch: position.epoch.bits(),
                publication: veche_archive::StoredPublication {
                    offset: position.offset,
                    at_ms: publication.at_ms,
                    kind: kind_number(publication.payload.kind),
                    payload: publication.payload.bytes,
                    version,
                    extra: publication.info.as_deref().map(write_info),
                },
            }
        }
        LogRecord::Trimmed { channel, below } => ArchiveRecord::Trimmed { channel, below },
        LogRecord::Dropped { channel } => ArchiveRecord::Dropped { channel },
    }
}

/// Converts a loaded channel for the hub.
pub(super) fn restored(channel: LoadedStream) -> RestoredStream {
    let epoch = Epoch::from_bits(channel.epoch);
    let kept = channel.publications.into_iter();
    RestoredStream {
        channel: channel.name,
        epoch,
        top: channel.top,
        version: channel.version.map(version),
        publications: kept.map(|one| publication(epoch, one)).collect(),
    }
}

fn publication(epoch: Epoch, one: veche_archive::StoredPublication) -> Publication {
    Publication {
        payload: Payload {
            kind: kind_of(one.kind),
            bytes: one.payload,
        },
        position: Some(Position {
            epoch,
            offset: one.offset,
        }),
        at_ms: one.at_ms,
        event: FeedEvent::Published,
        info: one.extra.and_then(|extra| read_info(&extra)).map(Arc::new),
    }
}

fn version(version: veche_archive::StoredVersion) -> Version {
    Version {
        number: version.number,
        epoch: version.epoch.as_deref().unwrap_or_default().into(),
    }
}

/// Converts records back to their batch.
#[cfg(test)]
pub(crate) fn batch_of(number: u64, records: Vec<ArchiveRecord>) -> LogBatch {
    let append = |record| match record {
        ArchiveRecord::Opened {
            channel,
            epoch,
            at_ms,
        } => LogRecord::Opened {
            channel,
            epoch: Epoch::from_bits(epoch),
            at_ms,
        },
        ArchiveRecord::Published {
            channel,
            epoch,
            publication: one,
        } => LogRecord::Published {
            channel,
            version: one.version.clone().map(version),
            publication: publication(Epoch::from_bits(epoch), one),
        },
        ArchiveRecord::Trimmed { channel, below } => LogRecord::Trimmed { channel, below },
        ArchiveRecord::Dropped { channel } => LogRecord::Dropped { channel },
        ArchiveRecord::Cleared { .. } => panic!("the hub never reports that a channel was cleared"),
    };
    LogBatch {
        number,
        records: records.into_iter().map(append).collect(),
    }
}

fn kind_number(kind: PayloadKind) -> u8 {
    match kind {
        PayloadKind::Text => 0,
        PayloadKind::Json => 1,
        PayloadKind::Binary => 2,
    }
}

fn kind_of(number: u8) -> PayloadKind {
    match number {
        0 => PayloadKind::Text,
        1 => PayloadKind::Json,
        // The bytes of an unknown kind are returned unchanged.
        _ => PayloadKind::Binary,
    }
}

/// Encodes the metadata: the format, then the client if any, then the tags. Texts and bytes are preceded by their
/// length.
fn write_info(info: &PublicationInfo) -> Bytes {
    let mut out = vec![INFO_FORMAT];
    out.push(info.client.is_some().into());
    if let Some(client) = &info.client {
        write(&mut out, client.user.as_bytes());
        write(&mut out, client.client.as_bytes());
        for payload in [&client.conn_info, &client.chan_info] {
            match payload {
                None => out.push(u8::MAX),
                Some(payload) => {
                    out.push(kind_number(payload.kind));
                    write(&mut out, &payload.bytes);
                }
            }
        }
    }
    for (name, value) in &info.tags {
        write(&mut out, name.as_bytes());
        write(&mut out, value.as_bytes());
    }
    out.into()
}

fn write(out: &mut Vec<u8>, bytes: &[u8]) {
    // A payload is limited to the size of a request body, so its length fits.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&bytes[..length as usize]);
}

/// Parses the metadata; `None` if a later version wrote it in another format.
fn read_info(bytes: &Bytes) -> Option<PublicationInfo> {
    let mut rest = bytes.strip_prefix(&[INFO_FORMAT])?;
    let client = match byte(&mut rest)? {
        0 => None,
        _ => Some(Arc::new(ClientInfo {
            user: text(&mut rest)?,
            client: text(&mut rest)?,
            conn_info: payload(&mut rest)?,
            chan_info: payload(&mut rest)?,
        })),
    };
    let mut tags = Vec::new();
    while !rest.is_empty() {
        tags.push((text(&mut rest)?, text(&mut rest)?));
    }
    Some(PublicationInfo {
        channel: None,
        client,
        tags: tags.into(),
    })
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    let (first, others) = rest.split_first()?;
    *rest = others;
    Some(*first)
}

fn piece<'r>(rest: &mut &'r [u8]) -> Option<&'r [u8]> {
    let (length, others) = rest.split_first_chunk()?;
    let (piece, others) = others.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *rest = others;
    Some(piece)
}

fn text(rest: &mut &[u8]) -> Option<Box<str>> {
    Some(str::from_utf8(piece(rest)?).ok()?.into())
}

fn payload(rest: &mut &[u8]) -> Option<Option<Payload>> {
    Some(match byte(rest)? {
        u8::MAX => None,
        kind => Some(Payload {
            kind: kind_of(kind),
            bytes: Bytes::copy_from_slice(piece(rest)?),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> PublicationInfo {
        let payload = |kind, bytes: &'static [u8]| {
            Some(Payload {
                kind,
                bytes: Bytes::from_static(bytes),
            })
        };
        PublicationInfo {
            channel: None,
            client: Some(Arc::new(ClientInfo {
                user: "ann".into(),
                client: "".into(),
                conn_info: payload(PayloadKind::Json, b"{}"),
                chan_info: payload(PayloadKind::Binary, &[0, 255]),
            })),
            tags: [("a".into(), "1".into()), ("".into(), "вече".into())].into(),
        }
    }

    #[test]
    fn records_survive_a_round_trip() {
        let tags_only = PublicationInfo {
            client: None,
            ..info()
        };
        let mut bare = info();
        bare.tags = Box::default();
        bare.client = bare.client.map(|client| {
            Arc::new(ClientInfo {
                conn_info: None,
                chan_info: None,
                ..(*client).clone()
            })
        });
        for info in [info(), tags_only, bare, PublicationInfo::default()] {
            assert_eq!(read_info(&write_info(&info)), Some(info));
        }
        for kind in [PayloadKind::Text, PayloadKind::Json, PayloadKind::Binary] {
            assert_eq!(kind_of(kind_number(kind)), kind);
        }
    }

    #[test]
    fn truncated_records_and_other_formats_are_ignored() {
        let whole = write_info(&info());
        for length in 0..whole.len() {
            let cut = whole.slice(..length);
            // The metadata does not store how many tags it has, so if it is cut between two tags, what remains is valid
            // and has fewer tags.
            let read = read_info(&cut);
            assert!(read.is_none_or(|read| read.tags.len() < 2), "{length}");
        }
        assert_eq!(read_info(&Bytes::from_static(&[2, 0])), None);
    }

    #[test]
    fn a_publication_keeps_all_that_is_its() {
        let position = Position {
            epoch: Epoch::from_bits(77),
            offset: 3,
        };
        let publication = Publication {
            payload: Payload {
                kind: PayloadKind::Json,
                bytes: Bytes::from_static(b"[1]"),
            },
            position: Some(position),
            at_ms: 5,
            event: FeedEvent::Published,
            info: Some(Arc::new(info())),
        };
        let version = Version {
            number: 9,
            epoch: "".into(),
        };
        let append = LogRecord::Published {
            channel: "chat:1".into(),
            publication: publication.clone(),
            version: Some(version.clone()),
        };
        let ArchiveRecord::Published {
            channel,
            epoch,
            publication: kept,
        } = record(append)
        else {
            panic!("a publication");
        };
        let back = restored(LoadedStream {
            name: channel,
            epoch,
            opened_ms: 1,
            top: kept.offset,
            version: kept.version.clone(),
            publications: vec![kept],
        });
        assert_eq!(back.publications, [publication]);
        assert_eq!((back.version, back.epoch), (Some(version), position.epoch));
    }
}
