//! A part of a channel's history, as it is asked for and as it is given out.

use std::ops::Range;

use crate::records::{Excerpt, Record};
use crate::{FeedEvent, Position, Publication, Since};

/// Default limit of a page in bytes of publications. A single publication may be larger.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// Which part of a channel's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Those behind it, or before it if the latest come first.
    pub since: Option<Since>,
    /// At most so many.
    pub limit: usize,
    /// The latest first.
    pub is_reverse: bool,
    /// Up to so many bytes, and at least one.
    pub bytes_max: usize,
}

impl Default for HistoryQuery {
    fn default() -> Self {
        Self {
            since: None,
            limit: 0,
            is_reverse: false,
            bytes_max: PAGE_BYTES_MAX,
        }
    }
}

/// A part of a channel's history. It refers to what the stream has stored and does not change with the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryPage {
    /// Of the latest publication.
    pub position: Position,
    content: Content,
    is_reverse: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    /// Stored in this process, with dense offsets from this one on.
    Excerpt(Excerpt, u64),
    Listed(Box<[Publication]>),
}

impl HistoryPage {
    pub(crate) fn new(position: Position, excerpt: Excerpt, lowest: u64, is_reverse: bool) -> Self {
        Self {
            position,
            content: Content::Excerpt(excerpt, lowest),
            is_reverse,
        }
    }

    /// Returns a page of these publications, in the order that was asked for.
    #[must_use]
    pub fn from_publications(position: Position, publications: Vec<Publication>) -> Self {
        Self {
            position,
            content: Content::Listed(publications.into()),
            is_reverse: false,
        }
    }

    /// Returns the number of publications.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.content {
            Content::Excerpt(excerpt, _) => excerpt.len(),
            Content::Listed(publications) => publications.len(),
        }
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many bytes the payloads of all publications have.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        let bytes = |place| match &self.content {
            Content::Excerpt(excerpt, _) => Some(excerpt.get(place)?.payload.bytes.len()),
            Content::Listed(publications) => Some(publications.get(place)?.payload.bytes.len()),
        };
        (0..self.len()).filter_map(bytes).sum()
    }

    /// Returns the publications at these places, in the order that was asked for.
    pub fn publications(&self, places: Range<usize>) -> impl Iterator<Item = Publication> {
        places.map_while(|place| {
            let place = match self.is_reverse {
                false => place,
                true => self.len().checked_sub(place + 1)?,
            };
            match &self.content {
                Content::Excerpt(excerpt, lowest) => {
                    let record = excerpt.get(place)?;
                    let mut position = self.position;
                    position.offset = lowest + place as u64;
                    Some(record.publication(position))
                }
                Content::Listed(publications) => publications.get(place).cloned(),
            }
        })
    }

    /// Returns all publications, in the order that was asked for.
    pub fn iter(&self) -> impl Iterator<Item = Publication> {
        self.publications(0..self.len())
    }
}

impl Record {
    pub(crate) fn publication(&self, position: Position) -> Publication {
        Publication {
            payload: self.payload.clone(),
            position: Some(position),
            at_ms: self.at_ms,
            event: FeedEvent::Published,
            info: self.info.clone(),
        }
    }
}
