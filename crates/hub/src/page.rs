//! Requests for a page of a channel's history, and the page itself.

use std::ops::Range;

use crate::records::StreamExcerpt;
use crate::{Position, Publication, Since};

/// Default maximum size of the publications of a page, in bytes. A page with a single publication may be larger.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// Selects a part of a channel's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Selects publications after this position, or before it in reverse order; `None` for no restriction.
    pub since: Option<Since>,
    /// Maximum number of publications.
    pub limit: usize,
    /// Whether the latest publications come first.
    pub is_reverse: bool,
    /// Maximum number of bytes. At least one publication is returned even if it is larger.
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

/// A part of a channel's history. It shares the memory of the stored data, but does not change with the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryPage {
    /// The position of the latest publication of the channel.
    pub position: Position,
    content: Content,
    is_reverse: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    /// Publications stored in this process, with the offset of the first one. The offsets have no gaps.
    Excerpt(StreamExcerpt, u64),
    Listed(Box<[Publication]>),
}

impl HistoryPage {
    pub(crate) fn new(
        position: Position,
        excerpt: StreamExcerpt,
        lowest: u64,
        is_reverse: bool,
    ) -> Self {
        Self {
            position,
            content: Content::Excerpt(excerpt, lowest),
            is_reverse,
        }
    }

    /// Returns a page of the given publications, which must be in the requested order.
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

    /// Returns whether the page has no publications.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the total payload bytes of the publications.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        let bytes = |place| match &self.content {
            Content::Excerpt(excerpt, _) => Some(excerpt.get(place)?.payload.bytes.len()),
            Content::Listed(publications) => Some(publications.get(place)?.payload.bytes.len()),
        };
        (0..self.len()).filter_map(bytes).sum()
    }

    /// Iterates over the publications at these indices, in the requested order.
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

    /// Iterates over all publications in the requested order.
    pub fn iter(&self) -> impl Iterator<Item = Publication> {
        self.publications(0..self.len())
    }
}
