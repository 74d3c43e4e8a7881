//! The stored form of publications and members in an engine outside this process.
//!
//! | bytes | publication |
//! |---|---|
//! | 0 | [`DATA_VERSION`] |
//! | 1–8 | its id, big-endian; the last byte is the number of the attempt to order it |
//! | 9–16 | milliseconds since 1970, big-endian |
//! | 17 | kind of the payload in bits 0–1, event in bits 2–3, whether there is an info in bit 4 |
//! | – | the info: its length in four bytes, big-endian, then the client and the tags |
//! | – | the payload |
//!
//! Within an info, texts and lists are preceded by their length in four bytes, big-endian; an optional part is a list
//! of at most one element.

use std::sync::Arc;

use bytes::Bytes;
use veche_nodes::engine::channel::DATA_VERSION;

use crate::{
    ClientInfo, FeedEvent, Payload, PayloadKind, PayloadRef, Publication, PublicationInfo,
};

const KINDS: [PayloadKind; 3] = [PayloadKind::Text, PayloadKind::Json, PayloadKind::Binary];
const EVENTS: [FeedEvent; 3] = [FeedEvent::Published, FeedEvent::Joined, FeedEvent::Left];
const HAS_INFO: u8 = 1 << 4;
const HEAD_BYTES: usize = 18;
const ATTEMPT_PLACE: usize = 8;

/// Maximum number of tags of a publication; the bytes of a publication with more tags are invalid.
const TAGS_MAX: usize = 1024;

/// Encodes a publication for the store. `id` distinguishes it from all other publications.
pub(crate) fn encode(
    id: u64,
    payload: PayloadRef<'_>,
    at_ms: u64,
    event: FeedEvent,
    info: Option<&PublicationInfo>,
) -> Bytes {
    let room = info.map_or(0, PublicationInfo::bytes);
    let mut out = Vec::with_capacity(HEAD_BYTES + room + payload.bytes.len());
    out.push(DATA_VERSION);
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(&at_ms.to_be_bytes());
    let kind = place_of(&KINDS, payload.kind);
    let flags = kind | place_of(&EVENTS, event) << 2;
    match info {
        None => out.push(flags),
        Some(info) => {
            out.push(flags | HAS_INFO);
            let begin = out.len();
            put_count(&mut out, 0);
            put_info(&mut out, info);
            let length = (out.len() - begin - 4) as u32;
            out[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
        }
    }
    out.extend_from_slice(payload.bytes);
    out.into()
}

/// Returns an id for the first attempt to order a publication.
pub(crate) fn first_id(rng: &mut fastrand::Rng) -> u64 {
    rng.u64(1..1 << (u64::BITS - u8::BITS)) << u8::BITS
}

/// Returns an encoded publication with the id of the next attempt to order it.
pub(crate) fn next_attempt(data: &[u8]) -> Bytes {
    let mut data = data.to_vec();
    if let Some(attempt) = data.get_mut(ATTEMPT_PLACE) {
        *attempt = attempt.wrapping_add(1);
    }
    data.into()
}

/// Decodes a publication; its position is transferred separately. Returns `None` if the bytes are invalid or have
/// another version.
pub(crate) fn decode(data: &Bytes) -> Option<Publication> {
    let head = data.first_chunk::<HEAD_BYTES>()?;
    if head[0] != DATA_VERSION {
        return None;
    }
    let at_ms = u64::from_be_bytes(*head[9..].first_chunk()?);
    let flags = head[17];
    let kind = *KINDS.get(usize::from(flags & 3))?;
    let event = *EVENTS.get(usize::from(flags >> 2 & 3))?;
    let mut rest = &data[HEAD_BYTES..];
    let mut info = None;
    if flags & HAS_INFO != 0 {
        let mut part = take(&mut rest)?;
        info = Some(Arc::new(take_info(&mut part)?));
    }
    Some(Publication {
        payload: Payload {
            kind,
            bytes: data.slice_ref(rest),
        },
        position: None,
        at_ms,
        event,
        info,
    })
}

/// Encodes a member for the store, which does not interpret it.
pub(crate) fn encode_member(client: &ClientInfo) -> Bytes {
    let mut out = Vec::with_capacity(1 + client.bytes());
    out.push(DATA_VERSION);
    put_client(&mut out, client);
    out.into()
}

/// Decodes a member. Returns `None` if the bytes are invalid or have another version.
pub(crate) fn decode_member(data: &[u8]) -> Option<ClientInfo> {
    let (version, mut rest) = data.split_first()?;
    match *version == DATA_VERSION {
        true => take_client(&mut rest),
        false => None,
    }
}

fn place_of<T: PartialEq>(all: &[T], one: T) -> u8 {
    let place = all.iter().position(|known| *known == one);
    place.unwrap_or_default() as u8
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u32).to_be_bytes());
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_info(out: &mut Vec<u8>, info: &PublicationInfo) {
    put_count(out, usize::from(info.client.is_some()));
    if let Some(client) = &info.client {
        put_client(out, client);
    }
    put_count(out, info.tags.len());
    for (name, value) in &info.tags {
        put(out, name.as_bytes());
        put(out, value.as_bytes());
    }
}

fn put_client(out: &mut Vec<u8>, client: &ClientInfo) {
    put(out, client.user.as_bytes());
    put(out, client.client.as_bytes());
    for payload in [&client.conn_info, &client.chan_info] {
        put_count(out, usize::from(payload.is_some()));
        if let Some(payload) = payload {
            out.push(place_of(&KINDS, payload.kind));
            put(out, &payload.bytes);
        }
    }
}

fn take_count(rest: &mut &[u8]) -> Option<usize> {
    let (count, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(u32::from_be_bytes(*count) as usize)
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let count = take_count(rest)?;
    let (found, behind) = rest.split_at_checked(count)?;
    *rest = behind;
    Some(found)
}

fn take_text(rest: &mut &[u8]) -> Option<Box<str>> {
    str::from_utf8(take(rest)?).ok().map(Into::into)
}

fn take_info(rest: &mut &[u8]) -> Option<PublicationInfo> {
    let client = match take_count(rest)? {
        0 => None,
        1 => Some(Arc::new(take_client(rest)?)),
        _ => return None,
    };
    let count = take_count(rest).filter(|count| *count <= TAGS_MAX)?;
    let tags = (0..count).map(|_| Some((take_text(rest)?, take_text(rest)?)));
    Some(PublicationInfo {
        client,
        tags: tags.collect::<Option<_>>()?,
        channel: None,
    })
}

fn take_client(rest: &mut &[u8]) -> Option<ClientInfo> {
    Some(ClientInfo {
        user: take_text(rest)?,
        client: take_text(rest)?,
        conn_info: take_payload(rest)?,
        chan_info: take_payload(rest)?,
    })
}

fn take_payload(rest: &mut &[u8]) -> Option<Option<Payload>> {
    match take_count(rest)? {
        0 => Some(None),
        1 => {
            let (kind, behind) = rest.split_first()?;
            *rest = behind;
            let kind = *KINDS.get(usize::from(*kind))?;
            let bytes = Bytes::copy_from_slice(take(rest)?);
            Some(Some(Payload { kind, bytes }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use veche_nodes::engine::channel::id_of;

    use super::*;

    fn client() -> ClientInfo {
        ClientInfo {
            user: "ann".into(),
            client: "7".into(),
            conn_info: None,
            chan_info: Some(Payload {
                kind: PayloadKind::Json,
                bytes: Bytes::from_static(b"{}"),
            }),
        }
    }

    #[test]
    fn publications_are_read_as_they_are_written() {
        let info = PublicationInfo {
            client: Some(Arc::new(client())),
            tags: [("a".into(), "b".into())].into(),
            channel: None,
        };
        for kind in KINDS {
            for event in EVENTS {
                for info in [None, Some(&info)] {
                    let payload = PayloadRef {
                        kind,
                        bytes: b"text",
                    };
                    let data = encode(42, payload, 1_234, event, info);
                    assert_eq!(id_of(&data), Some(42));
                    let read = decode(&data).expect("one");
                    assert_eq!(read.payload.borrow(), payload);
                    assert_eq!((read.at_ms, read.event), (1_234, event));
                    assert_eq!(read.info.as_deref(), info);
                }
            }
        }
    }

    #[test]
    fn attempts_of_one_publication_differ_in_their_number() {
        let id = first_id(&mut fastrand::Rng::with_seed(1));
        let payload = PayloadRef {
            kind: PayloadKind::Text,
            bytes: b"text",
        };
        let mut data = encode(id, payload, 1, FeedEvent::Published, None);
        let first = decode(&data);
        for attempt in 1..=u64::from(u8::MAX) {
            data = next_attempt(&data);
            assert_eq!(id_of(&data), Some(id + attempt));
            assert_eq!(decode(&data), first);
        }
        assert_eq!(id_of(&next_attempt(&data)), Some(id));
    }

    #[test]
    fn truncated_data_and_other_versions_are_rejected() {
        let info = PublicationInfo {
            client: Some(Arc::new(client())),
            ..PublicationInfo::default()
        };
        let payload = PayloadRef {
            kind: PayloadKind::Text,
            bytes: b"",
        };
        let data = encode(42, payload, 1, FeedEvent::Joined, Some(&info));
        for length in 0..data.len() {
            assert_eq!(decode(&data.slice(..length)), None, "{length}");
        }
        let mut other = data.to_vec();
        other[0] += 1;
        assert_eq!(decode(&other.into()), None);
    }

    #[test]
    fn members_are_read_as_they_are_written() {
        let data = encode_member(&client());
        assert_eq!(decode_member(&data), Some(client()));
        for length in 0..data.len() {
            assert_eq!(decode_member(&data[..length]), None, "{length}");
        }
    }
}
