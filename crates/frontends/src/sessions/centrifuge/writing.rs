//! Conversion of the hub's data to protocol messages: publications, public client data, and the results of
//! subscriptions.

use std::borrow::Cow;
use std::sync::Arc;

use veche_centrifuge as wire;
use veche_centrifuge::{DeltaKind, Encoding, Outcome, PublicationData, TagsFilter};
use veche_hub::{
    ClientInfo, Epoch, PayloadKind, PayloadRef, Position, Publication, PublicationInfo, Since,
    SubscribeOutcome,
};

use super::frame::ReplyFrame;
use crate::outbox::PublicationFilter;

/// Converts data that a client has published to the payload type of the hub.
pub(super) fn payload(data: PublicationData<'_>) -> PayloadRef<'_> {
    let (kind, bytes) = match data {
        PublicationData::Json(json) => (PayloadKind::Json, json.as_bytes()),
        PublicationData::Text(text) => (PayloadKind::Text, text.as_bytes()),
        // Protobuf data is bytes without a kind; bytes that are valid JSON are treated as JSON.
        PublicationData::Binary(bytes) => match PublicationData::of_bytes(bytes) {
            PublicationData::Json(json) => (PayloadKind::Json, json.as_bytes()),
            _ => (PayloadKind::Binary, bytes),
        },
    };
    PayloadRef { kind, bytes }
}

/// Converts a payload for clients. Binary data that is valid JSON is sent as JSON, since some publishers can only
/// send their JSON as base64.
pub(super) fn data(payload: PayloadRef<'_>) -> PublicationData<'_> {
    match (payload.kind, str::from_utf8(payload.bytes)) {
        (PayloadKind::Json, Ok(json)) => PublicationData::Json(json),
        (PayloadKind::Text, Ok(text)) => PublicationData::Text(text),
        _ => PublicationData::of_bytes(payload.bytes),
    }
}

/// Returns whether deltas from and to this payload can be sent in this encoding. In Protobuf, this
/// is always possible; in JSON, it is not possible for binary data, which JSON contains as base64.
pub(super) fn has_deltas(payload: PayloadRef<'_>, encoding: Encoding) -> bool {
    encoding == Encoding::Protobuf || !matches!(data(payload), PublicationData::Binary(_))
}

/// Returns a text payload as a JSON string if the encoding is Protobuf; `None` for other payloads and
/// for the JSON encoding. In Protobuf, data is bytes without a kind. With the quotes, a client that parses the bytes
/// as JSON can read a text publication too.
pub(super) fn quoted(payload: PayloadRef<'_>, encoding: Encoding) -> Option<String> {
    if payload.kind != PayloadKind::Text || encoding != Encoding::Protobuf {
        return None;
    }
    let text = str::from_utf8(payload.bytes).ok()?;
    Some(serde_json::Value::from(text).to_string())
}

/// Returns the bytes that represent a payload when deltas are computed. They are the same in both encodings: text is a
/// JSON string, as returned by [`quoted`].
pub(super) fn whole(payload: PayloadRef<'_>) -> Cow<'_, [u8]> {
    match quoted(payload, Encoding::Protobuf) {
        Some(text) => Cow::Owned(text.into_bytes()),
        None => Cow::Borrowed(payload.bytes),
    }
}

/// Converts a delta for clients. It is sent as text if it is valid UTF-8, as deltas between texts are.
pub(super) fn patch(bytes: &[u8]) -> PublicationData<'_> {
    match str::from_utf8(bytes) {
        Ok(text) => PublicationData::Text(text),
        Err(_) => PublicationData::Binary(bytes),
    }
}

pub(super) fn as_json(text: &str) -> PayloadRef<'_> {
    PayloadRef {
        kind: PayloadKind::Json,
        bytes: text.as_bytes(),
    }
}

/// Converts a client's public data to the wire format's type.
pub(super) fn client(info: &ClientInfo) -> wire::ClientInfo<'_> {
    wire::ClientInfo {
        user: &info.user,
        client: &info.client,
        conn_info: info.conn_info.as_ref().map(|info| data(info.borrow())),
        chan_info: info.chan_info.as_ref().map(|info| data(info.borrow())),
    }
}

/// The tag that contains the channel's name, for wildcard subscribers. The protocol has a field for the name, but
/// not all SDKs expose it.
const CHANNEL_TAG: &str = "channel";

/// Returns the tags of a publication, borrowed.
pub(super) fn tags(info: Option<&PublicationInfo>) -> Vec<(&str, &str)> {
    let tags = info.map_or(&[][..], |info| &info.tags);
    let mut tags: Vec<_> = tags.iter().map(|(name, tag)| (&**name, &**tag)).collect();
    if let Some(channel) = info.and_then(|info| info.channel.as_deref())
        && !tags.iter().any(|(name, _)| *name == CHANNEL_TAG)
    {
        tags.push((CHANNEL_TAG, channel));
    }
    tags
}

/// Matches the filter against the tags that clients receive.
impl PublicationFilter for TagsFilter {
    fn selects(&self, info: Option<&PublicationInfo>) -> bool {
        self.matches(|name| {
            let info = info?;
            let found = info.tags.iter().find(|(one, _)| **one == *name);
            let channel = info.channel.as_deref().filter(|_| name == CHANNEL_TAG);
            found.map(|(_, tag)| &**tag).or(channel)
        })
    }
}

pub(super) fn publication<'a>(
    payload: PayloadRef<'a>,
    position: Option<Position>,
    info: Option<&'a PublicationInfo>,
    tags: &'a [(&'a str, &'a str)],
) -> wire::Publication<'a> {
    wire::Publication {
        info: info.and_then(|info| info.client.as_deref()).map(client),
        offset: position.map_or(0, |position| position.offset),
        tags,
        channel: info
            .and_then(|info| info.channel.as_deref())
            .unwrap_or_default(),
        ..wire::Publication::new(data(payload))
    }
}

/// Maximum number of bytes of missed publications that are compared for deltas, per recovering
/// client. Later publications are sent whole.
pub(super) const COMPARED_BYTES_MAX: usize = 64 << 10;

/// Publications, and the data that their wire format borrows.
pub(super) struct PublicationBuffer<'a> {
    all: Vec<&'a Publication>,
    tags: Vec<Vec<(&'a str, &'a str)>>,
    /// The encoded data of each publication; `None` if the client's encoding sends the data unchanged.
    quoted: Vec<Option<String>>,
    /// For each publication its delta from the previous one, or `None` if the publication is sent
    /// whole. The list itself is `None` if the client receives no deltas.
    patches: Option<Vec<Option<Vec<u8>>>>,
}

impl<'a> PublicationBuffer<'a> {
    pub(super) fn new(all: impl IntoIterator<Item = &'a Publication>, encoding: Encoding) -> Self {
        let all: Vec<_> = all.into_iter().collect();
        let quoted = all.iter().map(|one| quoted(one.payload.borrow(), encoding));
        Self {
            quoted: quoted.collect(),
            tags: all.iter().map(|one| tags(one.info.as_deref())).collect(),
            all,
            patches: None,
        }
    }

    /// Encodes all publications except the first as deltas, until [`COMPARED_BYTES_MAX`] bytes have
    /// been compared.
    fn with_deltas(self, encoding: Encoding) -> Self {
        let mut previous = None;
        let mut left = COMPARED_BYTES_MAX;
        let patches = self.all.iter().map(|one| {
            let has_deltas = has_deltas(one.payload.borrow(), encoding);
            let new = has_deltas.then(|| whole(one.payload.borrow()));
            let old = std::mem::replace(&mut previous, new.clone());
            let new = new?;
            let old = old.filter(|old: &Cow<'_, [u8]>| old.len() + new.len() <= left)?;
            left -= old.len() + new.len();
            wire::fossil_delta(&old, &new)
        });
        Self {
            patches: Some(patches.collect()),
            ..self
        }
    }

    pub(super) fn wire(&self) -> Vec<wire::Publication<'_>> {
        let all = self.all.iter().zip(&self.tags).zip(&self.quoted);
        all.enumerate()
            .map(|(place, ((one, tags), quoted))| {
                let payload = match quoted {
                    Some(text) => as_json(text),
                    None => one.payload.borrow(),
                };
                let publication = publication(payload, one.position, one.info.as_deref(), tags);
                let Some(patches) = &self.patches else {
                    return publication;
                };
                match &patches[place] {
                    Some(bytes) => wire::Publication {
                        delta: DeltaKind::Patch,
                        data: patch(bytes),
                        ..publication
                    },
                    None => wire::Publication {
                        delta: DeltaKind::Whole,
                        ..publication
                    },
                }
            })
            .collect()
    }

    /// Returns the total size of the payloads in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.all.iter().map(|one| one.payload.bytes.len()).sum()
    }
}

/// Determines which of the recovered publications a subscriber receives.
#[derive(Clone, Copy, Default)]
pub(super) struct RecoveryFilter<'f> {
    pub(super) filter: Option<&'f dyn PublicationFilter>,
    /// Whether the subscriber receives only the latest of the publications that match the filter.
    pub(super) only_latest: bool,
}

impl RecoveryFilter<'_> {
    fn passes(&self, publication: &Publication) -> bool {
        let info = publication.info.as_deref();
        self.filter.is_none_or(|filter| filter.selects(info))
    }
}

/// The result of a subscription, with the data that the reply to it borrows.
pub(super) struct SubscribeReply<'a> {
    joined: Option<&'a SubscribeOutcome>,
    epoch: String,
    publications: PublicationBuffer<'a>,
    is_whole: bool,
    /// Whether the client requested recovery.
    was_recovering: bool,
    has_deltas: bool,
    each_bytes: usize,
    /// The offset before the first publication of the reply.
    before: u64,
}

impl<'a> SubscribeReply<'a> {
    /// Creates the reply with the recovered publications. The first number in `bytes` is their maximum total size. The
    /// second is added to the payload size of each publication when the total is computed. If the total exceeds the
    /// maximum, the reply has no publications and the recovery is incomplete.
    pub(super) fn new(
        joined: Option<&'a SubscribeOutcome>,
        was_recovering: bool,
        encoding: Encoding,
        bytes: (usize, usize),
    ) -> Self {
        Self::filtered(
            joined,
            was_recovering,
            encoding,
            bytes,
            RecoveryFilter::default(),
        )
    }

    /// Creates the reply with those recovered publications that match the filter.
    pub(super) fn filtered(
        joined: Option<&'a SubscribeOutcome>,
        was_recovering: bool,
        encoding: Encoding,
        (bytes_max, each_bytes): (usize, usize),
        recovery_filter: RecoveryFilter<'_>,
    ) -> Self {
        let epoch = joined.map_or_else(String::new, |joined| joined.position.epoch.to_string());
        let recovered = joined.and_then(|joined| joined.recovered.as_ref());
        let missed = recovered.map_or(&[][..], |recovered| &recovered.publications);
        let mut is_whole = recovered.is_some_and(|recovered| recovered.is_complete);
        let passing = missed.iter().enumerate();
        let mut passing: Vec<_> = passing
            .filter(|(_, one)| recovery_filter.passes(one))
            .collect();
        if recovery_filter.only_latest {
            // The hub may have recovered only the latest publication. If the filter excludes that publication, the
            // recovery is incomplete.
            let are_latest = recovered.is_some_and(|recovered| recovered.is_latest_only);
            is_whole &= !are_latest || !passing.is_empty();
            passing.drain(..passing.len().saturating_sub(1));
        }
        let bytes = passing.len() * each_bytes;
        let before = recovered
            .zip(passing.first())
            .map_or(0, |(recovered, (first, _))| recovered.before(*first));
        let passing = passing.into_iter().map(|(_, one)| one);
        let mut publications = PublicationBuffer::new(passing, encoding);
        let bytes = bytes + publications.bytes();
        if bytes > bytes_max {
            publications = PublicationBuffer::new(&[], encoding);
            is_whole = false;
        }
        Self {
            joined,
            epoch,
            publications,
            is_whole,
            was_recovering,
            has_deltas: false,
            each_bytes,
            before,
        }
    }

    /// Encodes the recovered publications as deltas.
    pub(super) fn with_deltas(self, encoding: Encoding) -> Self {
        Self {
            publications: self.publications.with_deltas(encoding),
            has_deltas: true,
            ..self
        }
    }

    /// Returns whether the reply has recovered publications. If so, the client has the channel's
    /// latest publication after the reply.
    pub(super) fn has_publications(&self) -> bool {
        !self.publications.all.is_empty()
    }

    /// Returns whether the recovery is complete.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub(super) fn publications(&self) -> Vec<wire::Publication<'_>> {
        self.publications.wire()
    }

    /// Returns the size of the recovered publications, as counted against `bytes_max`.
    pub(super) fn bytes(&self) -> usize {
        self.publications.bytes() + self.publications.all.len() * self.each_bytes
    }

    /// Returns the position to report in a reply that precedes the recovered publications: the
    /// position before the first of them, or the current position if there are none.
    pub(super) fn begin(&self) -> Option<Position> {
        let mut position = self.joined?.position;
        if self.has_publications() {
            position.offset = self.before;
        }
        Some(position)
    }

    pub(super) fn result<'r>(
        &'r self,
        publications: &'r [wire::Publication<'r>],
    ) -> wire::SubscribeResult<'r> {
        wire::SubscribeResult {
            recoverable: self.joined.is_some(),
            positioned: self.joined.is_some(),
            epoch: &self.epoch,
            offset: self.joined.map_or(0, |joined| joined.position.offset),
            publications,
            recovered: self.is_whole,
            was_recovering: self.was_recovering,
            delta: self.has_deltas,
            ..wire::SubscribeResult::default()
        }
    }
}

/// Returns the position that a client sent, for recovery.
pub(super) fn since(epoch: &str, offset: u64) -> Since {
    let epoch = (!epoch.is_empty()).then(|| epoch.parse().unwrap_or(Epoch::UNKNOWN));
    Since { epoch, offset }
}

/// Writes the reply to a presence command.
pub(super) fn presence(frame: &mut ReplyFrame, id: u32, clients: &[Arc<ClientInfo>]) {
    let named = clients.iter().map(|one| (&*one.client, client(one)));
    let presence: Vec<_> = named.collect();
    let result = wire::PresenceResult {
        presence: &presence,
    };
    frame.reply(id, Outcome::Presence(result));
}

/// Writes the reply to a history command.
pub(super) fn history(frame: &mut ReplyFrame, id: u32, page: &veche_hub::HistoryPage) {
    let all: Vec<_> = page.iter().collect();
    let publications = PublicationBuffer::new(&all, frame.encoding());
    let epoch = page.position.epoch.to_string();
    let result = wire::HistoryResult {
        publications: &publications.wire(),
        epoch: &epoch,
        offset: page.position.offset,
    };
    frame.reply(id, Outcome::History(result));
}

#[cfg(test)]
mod tests {
    use veche_hub::{FeedEvent, Payload, Recovered};

    use super::*;

    #[test]
    fn the_channel_is_a_tag_where_nothing_else_is_called_so() {
        let info = |tags: &[(&str, &str)], channel: Option<&str>| PublicationInfo {
            tags: tags
                .iter()
                .map(|(name, tag)| ((*name).into(), (*tag).into()))
                .collect(),
            channel: channel.map(Into::into),
            ..PublicationInfo::default()
        };
        let own = [("a", "1"), ("channel", "own")];
        for (info, expected) in [
            (info(&own[..1], None), &own[..1]),
            (info(&own[..1], Some("c")), &[("a", "1"), ("channel", "c")]),
            (info(&own, Some("c")), &own),
            (info(&[], Some("c")), &[("channel", "c")]),
        ] {
            assert_eq!(tags(Some(&info)), expected);
        }
        assert_eq!(tags(None), []);
    }

    #[test]
    fn a_publication_names_the_channel_for_wildcard_subscribers() {
        for (channel, expected) in [(None, ""), (Some("wide:1"), "wide:1")] {
            let info = PublicationInfo {
                channel: channel.map(Into::into),
                ..PublicationInfo::default()
            };
            let publication = publication(as_json("1"), None, Some(&info), &[]);
            assert_eq!(publication.channel, expected);
        }
    }

    #[test]
    fn recovered_publications_are_sent_within_a_byte_limit_or_not_at_all() {
        let publication = |length: usize| Publication {
            payload: Payload {
                kind: PayloadKind::Json,
                bytes: "1".repeat(length).into(),
            },
            position: None,
            at_ms: 0,
            event: FeedEvent::Published,
            info: None,
        };
        let joined = SubscribeOutcome {
            position: Position {
                epoch: Epoch::from_bits(9),
                offset: 2,
            },
            recovered: Some(Recovered {
                is_complete: true,
                publications: vec![publication(300), publication(700)],
                is_latest_only: false,
                predecessor: 0,
            }),
        };
        for (bytes, is_complete) in [
            ((1_000, 0), true),
            ((999, 0), false),
            ((1_020, 10), true),
            ((1_019, 10), false),
            ((usize::MAX, 10), true),
            ((0, 0), false),
        ] {
            let welcome = SubscribeReply::new(Some(&joined), true, Encoding::Json, bytes);
            let count = if is_complete { 2 } else { 0 };
            assert_eq!(welcome.publications().len(), count, "{bytes:?}");
            assert_eq!(welcome.is_whole(), is_complete, "{bytes:?}");
            assert_eq!(welcome.has_publications(), is_complete, "{bytes:?}");
        }
    }
}
