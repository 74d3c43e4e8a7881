//! From the hub's words to those of the protocol: publications, clients, what somebody joins.

use std::borrow::Cow;
use std::sync::Arc;

use veche_centrifuge as wire;
use veche_centrifuge::{DeltaKind, Encoding, Outcome, PublicationData};
use veche_hub::{
    ClientInfo, Epoch, PayloadKind, PayloadRef, Position, Publication, Since, SubscribeOutcome,
};

use super::frame::ReplyFrame;
use super::pushes::forms::{as_json, client, has_deltas, patch, publication, quoted, tags, whole};
use crate::outbox::PublicationFilter;

/// As what a client's data go to the hub.
pub(super) fn payload(data: PublicationData<'_>) -> PayloadRef<'_> {
    let (kind, bytes) = match data {
        PublicationData::Json(json) => (PayloadKind::Json, json.as_bytes()),
        PublicationData::Text(text) => (PayloadKind::Text, text.as_bytes()),
        // Protobuf does not say what its bytes are.
        PublicationData::Binary(bytes) => match PublicationData::of_bytes(bytes) {
            PublicationData::Json(json) => (PayloadKind::Json, json.as_bytes()),
            _ => (PayloadKind::Binary, bytes),
        },
    };
    PayloadRef { kind, bytes }
}

/// So much of what somebody has missed is compared; the rest of it he is told whole. It is done for each who comes back.
pub(super) const COMPARED_BYTES_MAX: usize = 64 << 10;

/// Several publications, which lend what they hold to the wire's.
pub(super) struct PublicationBuffer<'a> {
    all: Vec<&'a Publication>,
    tags: Vec<Vec<(&'a str, &'a str)>>,
    /// Of those that have a form of their own in this encoding.
    quoted: Vec<Option<String>>,
    /// Where deltas are agreed on: from the one before to each, where that is less.
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

    /// The first is whole, and of the others only what has changed, as far as that is looked for.
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

    /// Bytes of their payloads.
    pub(super) fn bytes(&self) -> usize {
        self.all.iter().map(|one| one.payload.bytes.len()).sum()
    }
}

/// What somebody wants of what he has missed.
#[derive(Clone, Copy, Default)]
pub(super) struct RecoveryFilter<'f> {
    pub(super) filter: Option<&'f dyn PublicationFilter>,
    /// Of what passes he gets the latest.
    pub(super) only_latest: bool,
}

impl RecoveryFilter<'_> {
    fn passes(&self, publication: &Publication) -> bool {
        let info = publication.info.as_deref();
        self.filter.is_none_or(|filter| filter.selects(info))
    }
}

/// What somebody joins, with what is said of it: lends itself to a result.
pub(super) struct SubscribeReply<'a> {
    joined: Option<&'a SubscribeOutcome>,
    epoch: String,
    publications: PublicationBuffer<'a>,
    is_whole: bool,
    /// He has asked for what he missed.
    was_recovering: bool,
    has_deltas: bool,
    each_bytes: usize,
    /// The offset before the first publication that is sent.
    before: u64,
}

impl<'a> SubscribeReply<'a> {
    /// Of what is missed at most `bytes_max` are told: with more of it he has missed too much. Each publication takes
    /// `each_bytes` beside its payload.
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

    /// The same, of what passes.
    pub(super) fn filtered(
        joined: Option<&'a SubscribeOutcome>,
        was_recovering: bool,
        encoding: Encoding,
        (bytes_max, each_bytes): (usize, usize),
        sieve: RecoveryFilter<'_>,
    ) -> Self {
        let epoch = joined.map_or_else(String::new, |joined| joined.position.epoch.to_string());
        let recovered = joined.and_then(|joined| joined.recovered.as_ref());
        let missed = recovered.map_or(&[][..], |recovered| &recovered.publications);
        let mut is_whole = recovered.is_some_and(|recovered| recovered.is_complete);
        let passing = missed.iter().enumerate();
        let mut passing: Vec<_> = passing.filter(|(_, one)| sieve.passes(one)).collect();
        if sieve.only_latest {
            // Of nothing it can't be said that he has it.
            let are_latest = recovered.is_some_and(|recovered| recovered.is_latest_only);
            is_whole &= !are_latest || !passing.is_empty();
            passing.drain(..passing.len().saturating_sub(1));
        }
        let bytes = passing.len() * each_bytes;
        let before = recovered
            .zip(passing.first())
            .map_or(0, |(recovered, (first, _))| {
                recovered.predecessor_at(*first)
            });
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

    /// What he has missed he is told as what has changed.
    pub(super) fn with_deltas(self, encoding: Encoding) -> Self {
        Self {
            publications: self.publications.with_deltas(encoding),
            has_deltas: true,
            ..self
        }
    }

    /// Whether he is told something that he has missed: then he has the latest.
    pub(super) fn has_publications(&self) -> bool {
        !self.publications.all.is_empty()
    }

    /// Whether nothing is missing.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub(super) fn publications(&self) -> Vec<wire::Publication<'_>> {
        self.publications.wire()
    }

    /// What is told of `bytes_max`.
    pub(super) fn bytes(&self) -> usize {
        self.publications.bytes() + self.publications.all.len() * self.each_bytes
    }

    /// Where he is before what he missed, if that is told behind this.
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

/// Up to where a client says to know a channel.
pub(super) fn since(epoch: &str, offset: u64) -> Since {
    let epoch = (!epoch.is_empty()).then(|| epoch.parse().unwrap_or(Epoch::UNKNOWN));
    Since { epoch, offset }
}

/// Who is in a channel.
pub(super) fn presence(frame: &mut ReplyFrame, id: u32, clients: &[Arc<ClientInfo>]) {
    let named = clients.iter().map(|one| (&*one.client, client(one)));
    let presence: Vec<_> = named.collect();
    let result = wire::PresenceResult {
        presence: &presence,
    };
    frame.reply(id, Outcome::Presence(result));
}

/// A part of a channel's history.
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
    fn what_was_missed_is_told_up_to_a_limit_of_bytes_and_else_not_at_all() {
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
        for (bytes, is_told) in [
            ((1_000, 0), true),
            ((999, 0), false),
            ((1_020, 10), true),
            ((1_019, 10), false),
            ((usize::MAX, 10), true),
            ((0, 0), false),
        ] {
            let welcome = SubscribeReply::new(Some(&joined), true, Encoding::Json, bytes);
            let told = if is_told { 2 } else { 0 };
            assert_eq!(welcome.publications().len(), told, "{bytes:?}");
            assert_eq!(welcome.is_whole(), is_told, "{bytes:?}");
            assert_eq!(welcome.has_publications(), is_told, "{bytes:?}");
        }
    }
}
