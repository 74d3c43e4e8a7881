//! A question of the back end and its answer: how it adds up, and how it is written.

use std::fmt::Write as _;

use veche_hub::{HistoryError, Page, Publication, Published};

use crate::outbox::write_data;

/// Error code for a request that can't be understood or carried out as written.
pub const BAD_REQUEST: u32 = 107;
/// Error code for a caller without a key.
pub const UNAUTHORIZED: u32 = 101;
/// Error code for a method that does not exist.
pub const METHOD_NOT_FOUND: u32 = 104;
/// Error code for what the channel's namespace does not have.
pub(super) const NOT_AVAILABLE: u32 = 108;
/// Error code for a position that is none of the channel's.
pub(super) const UNRECOVERABLE: u32 = 112;

/// How the answer to a publication adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `{"handed":N}`, all targets together; of an only one that remembers also its place.
    Sum,
    /// `{"responses":[…]}`, one for each target.
    Each,
}

/// One command that is to be answered.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) id: Option<Box<str>>,
    /// Answers of homes on other workers that are still to come, and one more while a job is unfinished.
    pub(super) open: u32,
    pub(super) content: Content,
}

/// What has become of it so far.
#[derive(Debug)]
pub(super) enum Content {
    /// By target.
    Published(Shape, Vec<Published>),
    /// So many connections.
    Disconnected(u32),
    /// Nothing until it is read.
    History(Result<Option<Box<Page>>, HistoryError>),
    HistoryRemoved(Result<(), HistoryError>),
    /// Its code, and what it says.
    Refused(u32, String),
}

impl Exchange {
    /// Writes the answer as one JSON object.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut text = String::with_capacity(64);
        text.push('{');
        // Writing into a string can't fail.
        if let Some(id) = &self.id {
            let _ = write!(text, "\"id\":{id},");
        }
        match &self.content {
            Content::Refused(code, error) => write_error(&mut text, *code, error),
            Content::Published(Shape::Sum, targets) => {
                let handed: u64 = targets.iter().map(|one| u64::from(one.handed)).sum();
                let _ = write!(text, "\"result\":{{\"handed\":{handed}");
                if let [only] = targets[..] {
                    write_position(&mut text, &only);
                }
                text.push('}');
            }
            Content::Published(Shape::Each, targets) => {
                text.push_str("\"result\":{\"responses\":[");
                for (index, one) in targets.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    let _ = write!(text, "{comma}{{\"result\":{{\"handed\":{}", one.handed);
                    write_position(&mut text, one);
                    text.push_str("}}");
                }
                text.push_str("]}");
            }
            Content::Disconnected(count) => {
                let _ = write!(text, "\"result\":{{\"disconnected\":{count}}}");
            }
            Content::History(Ok(page)) => {
                text.push_str("\"result\":");
                // Answers are written when they are complete.
                match page {
                    Some(page) => write_page(&mut text, page),
                    None => text.push_str("{}"),
                }
            }
            Content::HistoryRemoved(Ok(())) => text.push_str("\"result\":{}"),
            Content::History(Err(error)) | Content::HistoryRemoved(Err(error)) => {
                let code = match error {
                    HistoryError::Off => NOT_AVAILABLE,
                    HistoryError::Unrecoverable => UNRECOVERABLE,
                };
                write_error(&mut text, code, &error.to_string());
            }
        }
        text.push('}');
        out.extend_from_slice(text.as_bytes());
    }
}

fn write_position(text: &mut String, published: &Published) {
    if let Some(position) = published.position {
        let (offset, epoch) = (position.offset, position.epoch);
        let _ = write!(text, ",\"offset\":{offset},\"epoch\":\"{epoch}\"");
    }
}

fn write_page(text: &mut String, page: &Page) {
    text.push_str("{\"publications\":[");
    for (place, publication) in page.publications.iter().enumerate() {
        let Publication {
            payload,
            position,
            at_ms,
            ..
        } = publication;
        let comma = if place == 0 { "" } else { "," };
        let offset = position.map_or(0, |position| position.offset);
        let _ = write!(text, "{comma}{{\"offset\":{offset},\"time\":{at_ms}");
        write_data(text, payload.borrow());
        text.push('}');
    }
    let (offset, epoch) = (page.position.offset, page.position.epoch);
    let _ = write!(text, "],\"offset\":{offset},\"epoch\":\"{epoch}\"}}");
}

/// `"error":{…}`, without the braces around.
pub fn write_error(text: &mut String, code: u32, message: &str) {
    let message = serde_json::Value::from(message);
    let _ = write!(text, "\"error\":{{\"code\":{code},\"message\":{message}}}");
}
