//! A back end's command with its answer: how partial results are combined, and how the answer is encoded.

use std::fmt::Write as _;

use veche_hub::{
    ChannelList, ConnectionList, HistoryError, HubReply, PresenceError, PublishOutcome, UserStatus,
};
use veche_types::codes::ErrorCode;

use super::list::AnswerList;
use crate::http::api_error::write_error;

/// The error message for a publication whose result is unknown, because the hub gave no answer.
const UNANSWERED: &str = "internal server error: the publication may or may not have been made; it can be repeated with its idempotency key";

/// Added to [`Exchange::open`] until the user's home worker reports how many answers to a user command will follow.
/// Answers that arrive earlier are subtracted from `open`, and can't reduce it to 0 because this number is large.
pub(super) const UNCOUNTED: u32 = 1 << 31;

/// How the results of a publication are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerShape {
    /// `{"handed":N}`: the number of receiving connections, summed over all targets. For a single target, also its
    /// position if it has history, and whether the publication was skipped.
    Sum,
    /// `{"responses":[…]}` with one result per target.
    Each,
}

/// A command and its answer. Parts of the answer may still be outstanding.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(super) id: Option<Box<str>>,
    /// Number of outstanding answers of other workers, plus one while publications of the command wait for credit.
    pub(super) open: u32,
    pub(super) content: ExchangeState,
    /// If some nodes did not answer: the number of nodes that did, and the number of all known nodes.
    pub(super) partial: Option<(u32, u32)>,
}

/// The kind of command and its results so far.
#[derive(Debug)]
pub(super) enum ExchangeState {
    /// A publication. The fields are how the results are combined, the `note` for the answer if the publication reached
    /// no connection, and the result of each target (`None` if unknown).
    Published(
        AnswerShape,
        Option<&'static str>,
        Vec<Option<PublishOutcome>>,
    ),
    /// The number of connections that were disconnected.
    Disconnected(u32),
    Commanded,
    Channels(ChannelList),
    Connections(ConnectionList),
    Written(String),
    /// The answer of the channel's home worker; `None` until it has arrived.
    Queried(Option<HubReply>),
    /// The user's status (`None` until it has arrived), and whether the user is banned.
    UserStatus(Option<UserStatus>, bool),
    /// The error code and the message of a command that failed.
    Refused(ErrorCode, String),
}

impl Exchange {
    /// Writes the answer as one JSON object.
    pub(crate) fn write(&self, out: &mut Vec<u8>, key: &str) {
        self.write_part(out, key, &mut None, usize::MAX);
    }

    /// Appends the next part of the answer to `out`, until `out` has about `bytes_max` bytes. `next` is the index of
    /// the next list element, `None` before the first part. Returns whether this was the last part.
    pub(crate) fn write_part(
        &self,
        out: &mut Vec<u8>,
        key: &str,
        next: &mut Option<usize>,
        bytes_max: usize,
    ) -> bool {
        let mut text = String::with_capacity(64);
        if next.is_none() {
            text.push('{');
            // Writing to a string can't fail.
            if let Some(id) = &self.id {
                let _ = write!(text, "\"id\":{id},");
            }
        }
        let is_whole = match self.list() {
            None => {
                self.write_content(&mut text, key);
                true
            }
            Some(list) => {
                let mut place = next.unwrap_or_else(|| {
                    let _ = write!(text, "\"{key}\":");
                    list.open(&mut text);
                    0
                });
                while place < list.len() && out.len() + text.len() < bytes_max {
                    list.write(place, &mut text);
                    place += 1;
                }
                *next = Some(place);
                let is_whole = place == list.len();
                if is_whole {
                    list.close(&mut text);
                }
                is_whole
            }
        };
        if is_whole {
            self.write_partial(&mut text);
            text.push('}');
        }
        out.extend_from_slice(text.as_bytes());
        is_whole
    }

    /// If some nodes did not answer, adds `"partial":"2 of 3"` to the result: the number of nodes that answered, and
    /// the number of all known nodes.
    fn write_partial(&self, text: &mut String) {
        let Some((answered, known)) = self.partial else {
            return;
        };
        if text.ends_with('}') {
            text.pop();
            separate(text);
            let _ = write!(text, "\"partial\":\"{answered} of {known}\"}}");
        }
    }

    /// Returns whether the answer has a list, which may be long.
    pub(crate) fn is_list(&self) -> bool {
        self.list().is_some()
    }

    /// Returns the list that the answer contains, if any.
    fn list(&self) -> Option<AnswerList<'_>> {
        match &self.content {
            ExchangeState::Queried(Some(HubReply::History(Ok(page)))) => {
                Some(AnswerList::History(page))
            }
            ExchangeState::Queried(Some(HubReply::Presence(Ok(clients)))) => {
                Some(AnswerList::Presence(clients))
            }
            ExchangeState::Channels(listing) => listing.channels().map(AnswerList::Channels),
            ExchangeState::Connections(all) => all.all().map(AnswerList::Connections),
            _ => None,
        }
    }

    fn write_content(&self, text: &mut String, key: &str) {
        match &self.content {
            ExchangeState::Refused(code, error) => write_error(text, *code, error),
            ExchangeState::Published(AnswerShape::Sum, absence, targets) => {
                if targets.contains(&None) {
                    return write_error(text, ErrorCode::Internal, UNANSWERED);
                }
                let targets = || targets.iter().flatten();
                let handed: Option<u64> = targets().map(|one| one.receivers.map(u64::from)).sum();
                let _ = write!(text, "\"{key}\":{{");
                write_delivered(text, handed);
                if let (Some(only), None) = (targets().next(), targets().nth(1)) {
                    write_outcome(text, only);
                }
                let was_skipped = targets().any(|one| one.is_skipped);
                if let Some(absence) = absence.filter(|_| handed == Some(0) && !was_skipped) {
                    let _ = write!(text, ",\"note\":\"{absence}\"");
                }
                text.push('}');
            }
            ExchangeState::Published(AnswerShape::Each, _, targets) => {
                let _ = write!(text, "\"{key}\":{{\"responses\":[");
                for (index, one) in targets.iter().enumerate() {
                    text.push_str(if index == 0 { "{" } else { ",{" });
                    match one {
                        Some(one) => {
                            text.push_str("\"result\":{");
                            write_delivered(text, one.receivers.map(u64::from));
                            write_outcome(text, one);
                            text.push('}');
                        }
                        None => write_error(text, ErrorCode::Internal, UNANSWERED),
                    }
                    text.push('}');
                }
                text.push_str("]}");
            }
            ExchangeState::Disconnected(count) => {
                let _ = write!(text, "\"{key}\":{{\"disconnected\":{count}}}");
            }
            ExchangeState::Commanded
            | ExchangeState::Queried(None)
            | ExchangeState::UserStatus(None, _) => {
                let _ = write!(text, "\"{key}\":{{}}");
            }
            ExchangeState::Written(result) => {
                let _ = write!(text, "\"{key}\":{result}");
            }
            // Lists of channels and connections are written by `write_part`. They reach this function only if they
            // have too many elements; the answer is then an error.
            ExchangeState::Channels(_) => {
                let why = "too many channels: filter by a pattern";
                write_error(text, ErrorCode::LimitExceeded, why);
            }
            ExchangeState::Connections(_) => {
                let why = "too many connections: filter by user or client name";
                write_error(text, ErrorCode::LimitExceeded, why);
            }
            // An answer is written only when it is complete; the status or the queried result has arrived by then.
            ExchangeState::UserStatus(Some(status), is_blocked) => {
                write_status(text, key, *status, *is_blocked);
            }
            ExchangeState::Queried(Some(answer)) => write_query_answer(text, key, answer),
        }
    }
}

fn write_status(text: &mut String, key: &str, status: UserStatus, is_blocked: bool) {
    let connections = status.connections;
    let online = connections > 0;
    let _ = write!(
        text,
        "\"{key}\":{{\"online\":{online},\"connections\":{connections}"
    );
    if let Some(seen_ms) = status.last_seen_ms {
        let _ = write!(text, ",\"last_seen\":{seen_ms}");
    }
    text.push_str(if is_blocked {
        ",\"blocked\":true}"
    } else {
        "}"
    });
}

/// Writes the number of connections that a publication was passed to, if it is known.
fn write_delivered(text: &mut String, handed: Option<u64>) {
    if let Some(handed) = handed {
        let _ = write!(text, "\"handed\":{handed}");
    }
}

/// Writes `nodes`, `offset`, `epoch` and `taken`, as far as they apply to a publication.
fn write_outcome(text: &mut String, published: &PublishOutcome) {
    if let Some(nodes) = published.nodes {
        separate(text);
        let _ = write!(text, "\"nodes\":{nodes}");
    }
    if let Some(position) = published.position {
        separate(text);
        let (offset, epoch) = (position.offset, position.epoch);
        let _ = write!(text, "\"offset\":{offset},\"epoch\":\"{epoch}\"");
    }
    if published.is_skipped {
        separate(text);
        text.push_str("\"taken\":false");
    }
}

/// Writes a comma unless the object that is being written is still empty.
fn separate(text: &mut String) {
    if !text.ends_with('{') {
        text.push(',');
    }
}

/// Writes an answer that is not a list: `"result":{…}`, with `key` in place of `result`, or `"error":{…}`.
fn write_query_answer(text: &mut String, key: &str, answer: &HubReply) {
    match answer {
        HubReply::HistoryRemoved(Ok(())) => {
            let _ = write!(text, "\"{key}\":{{}}");
        }
        HubReply::PresenceStats(Ok(stats)) => {
            let (clients, users) = (stats.clients, stats.users);
            let _ = write!(
                text,
                "\"{key}\":{{\"num_clients\":{clients},\"num_users\":{users}}}"
            );
        }
        HubReply::History(Err(error)) | HubReply::HistoryRemoved(Err(error)) => {
            let code = match error {
                HistoryError::Off => ErrorCode::NotAvailable,
                HistoryError::Unrecoverable => ErrorCode::UnrecoverablePosition,
                HistoryError::TooMany(_) => ErrorCode::LimitExceeded,
                HistoryError::Busy | HistoryError::Unavailable => ErrorCode::Internal,
            };
            write_error(text, code, &error.to_string());
        }
        HubReply::Presence(Err(error)) | HubReply::PresenceStats(Err(error)) => {
            let code = match error {
                PresenceError::Off => ErrorCode::NotAvailable,
                PresenceError::TooMany => ErrorCode::LimitExceeded,
                PresenceError::Unavailable => ErrorCode::Internal,
            };
            write_error(text, code, &error.to_string());
        }
        // `write_part` writes the lists of histories and presences. The other replies never answer a query.
        HubReply::History(Ok(_))
        | HubReply::Presence(Ok(_))
        | HubReply::Subscribed(_)
        | HubReply::Published(_)
        | HubReply::Failed
        | HubReply::CommandDispatched(_)
        | HubReply::CommandAcknowledged
        | HubReply::Channels(_)
        | HubReply::Connections(_)
        | HubReply::UserStatus(_)
        | HubReply::Partial { .. } => {
            write_error(text, ErrorCode::Internal, "internal error");
        }
    }
}
