//! A question of the back end and its answer: how it adds up, and how it is written.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use veche_hub::{
    Answer, ClientInfo, Connected, Connections, HistoryError, Info, Listing, Page, PresenceError,
    Publication, Published, UserStatus,
};

use crate::outbox::{write_data, write_value};

/// Error code for what is a fault of ours.
pub(super) const INTERNAL: u32 = 100;
/// Error code for what is too large to be answered.
pub(super) const LIMIT_EXCEEDED: u32 = 106;
/// Error code for a request that can't be understood or carried out as written.
pub const BAD_REQUEST: u32 = 107;
/// Error code for a caller without a key.
pub const UNAUTHORIZED: u32 = 101;
/// Error code for what the caller may not do.
pub const PERMISSION_DENIED: u32 = 103;
/// Error code for a method that does not exist.
pub const METHOD_NOT_FOUND: u32 = 104;
/// Error code for what the channel's namespace does not have.
const NOT_AVAILABLE: u32 = 108;
/// Error code for a position that is none of the channel's.
const UNRECOVERABLE: u32 = 112;

/// In [`Exchange::open`] until the user's home has said how many answers to an instruction come: those that come before are
/// taken from it, and it never reaches 0.
pub(super) const UNCOUNTED: u32 = 1 << 31;

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
    /// Answers of other workers that are still to come, and one more while a job is unfinished.
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
    Instructed,
    Channels(Listing),
    Connections(Connections),
    /// A result as it is.
    Written(String),
    /// Nothing until the home has answered.
    Asked(Option<Answer>),
    /// Whether a user is there, and whether he is not let in.
    UserStatus(Option<UserStatus>, bool),
    /// Its code, and what it says.
    Refused(u32, String),
}

impl Exchange {
    /// Writes the answer as one JSON object.
    pub(super) fn write(&self, out: &mut Vec<u8>, key: &str) {
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
                let _ = write!(text, "\"{key}\":{{\"handed\":{handed}");
                if let [only] = targets[..] {
                    write_position(&mut text, &only);
                }
                text.push('}');
            }
            Content::Published(Shape::Each, targets) => {
                let _ = write!(text, "\"{key}\":{{\"responses\":[");
                for (index, one) in targets.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    let _ = write!(text, "{comma}{{\"result\":{{\"handed\":{}", one.handed);
                    write_position(&mut text, one);
                    text.push_str("}}");
                }
                text.push_str("]}");
            }
            Content::Disconnected(count) => {
                let _ = write!(text, "\"{key}\":{{\"disconnected\":{count}}}");
            }
            Content::Instructed | Content::Asked(None) | Content::UserStatus(None, _) => {
                let _ = write!(text, "\"{key}\":{{}}");
            }
            Content::Written(result) => {
                let _ = write!(text, "\"{key}\":{result}");
            }
            Content::Channels(listing) => write_listing(&mut text, key, listing),
            Content::Connections(all) => write_connections(&mut text, key, all),
            // Answers are written when they are complete.
            Content::UserStatus(Some(status), is_blocked) => {
                write_status(&mut text, key, *status, *is_blocked);
            }
            Content::Asked(Some(answer)) => write_asked(&mut text, key, answer),
        }
        text.push('}');
        out.extend_from_slice(text.as_bytes());
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

fn write_position(text: &mut String, published: &Published) {
    if let Some(position) = published.position {
        let (offset, epoch) = (position.offset, position.epoch);
        let _ = write!(text, ",\"offset\":{offset},\"epoch\":\"{epoch}\"");
    }
}

/// `"result":{…}` or `"error":{…}`.
fn write_asked(text: &mut String, key: &str, answer: &Answer) {
    match answer {
        Answer::History(Ok(page)) => {
            let _ = write!(text, "\"{key}\":");
            write_page(text, page);
        }
        Answer::HistoryRemoved(Ok(())) => {
            let _ = write!(text, "\"{key}\":{{}}");
        }
        Answer::Presence(Ok(clients)) => {
            let _ = write!(text, "\"{key}\":{{\"presence\":{{");
            for (place, client) in clients.iter().enumerate() {
                let comma = if place == 0 { "" } else { "," };
                let id = Value::from(&*client.client);
                let _ = write!(text, "{comma}{id}:");
                write_client(text, client);
            }
            text.push_str("}}");
        }
        Answer::PresenceStats(Ok(stats)) => {
            let (clients, users) = (stats.clients, stats.users);
            let _ = write!(
                text,
                "\"{key}\":{{\"num_clients\":{clients},\"num_users\":{users}}}"
            );
        }
        Answer::History(Err(error)) | Answer::HistoryRemoved(Err(error)) => {
            let code = match error {
                HistoryError::Off => NOT_AVAILABLE,
                HistoryError::Unrecoverable => UNRECOVERABLE,
                HistoryError::TooMany(_) => LIMIT_EXCEEDED,
                HistoryError::Busy => INTERNAL,
            };
            write_error(text, code, &error.to_string());
        }
        Answer::Presence(Err(error)) | Answer::PresenceStats(Err(error)) => {
            let code = match error {
                PresenceError::Off => NOT_AVAILABLE,
                PresenceError::TooMany => LIMIT_EXCEEDED,
            };
            write_error(text, code, &error.to_string());
        }
        // Nobody asks for these by an inquiry.
        Answer::Subscribed(_)
        | Answer::Published(_)
        | Answer::Instructed(_)
        | Answer::Settled
        | Answer::Channels(_)
        | Answer::Connections(_)
        | Answer::UserStatus(_) => {
            write_error(text, INTERNAL, "internal error");
        }
    }
}

fn write_listing(text: &mut String, key: &str, listing: &Listing) {
    let Some(channels) = listing.channels() else {
        let why = "too many channels: ask for some of them by a pattern";
        return write_error(text, LIMIT_EXCEEDED, why);
    };
    let _ = write!(text, "\"{key}\":{{\"channels\":{{");
    for (place, (name, clients)) in channels.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let name = Value::from(&**name);
        let _ = write!(text, "{comma}{name}:{{\"num_clients\":{clients}}}");
    }
    text.push_str("}}");
}

fn write_connections(text: &mut String, key: &str, connections: &Connections) {
    let Some(all) = connections.all() else {
        let why = "too many connections: ask for those of a user, or by the name of the client";
        return write_error(text, LIMIT_EXCEEDED, why);
    };
    let described = |one: &Connected| {
        let channels = one
            .channels
            .iter()
            .map(|name| (name.to_string(), json!({})));
        let described = json!({
            "user": one.user,
            "handler": one.handler,
            "transport": one.transport,
            "protocol": one.protocol,
            "route": one.route,
            "address": one.address,
            "app_name": one.name,
            "app_version": one.version,
            "state": {"channels": channels.collect::<Map<_, _>>()},
        });
        (one.client.to_string(), described)
    };
    let all: Map<_, _> = all.iter().map(described).collect();
    let _ = write!(text, "\"{key}\":{{\"connections\":{}}}", Value::from(all));
}

/// A client as others see it.
fn write_client(text: &mut String, client: &ClientInfo) {
    let user = Value::from(&*client.user);
    let id = Value::from(&*client.client);
    let _ = write!(text, "{{\"user\":{user},\"client\":{id}");
    let infos = [
        ("conn_info", &client.conn_info),
        ("chan_info", &client.chan_info),
    ];
    for (name, info) in infos {
        if let Some(info) = info {
            let _ = write!(text, ",\"{name}\":");
            write_value(text, info.borrow());
        }
    }
    text.push('}');
}

fn write_info(text: &mut String, info: &Info) {
    if let Some(client) = &info.client {
        text.push_str(",\"info\":");
        write_client(text, client);
    }
    for (place, (name, value)) in info.tags.iter().enumerate() {
        let before = if place == 0 { ",\"tags\":{" } else { "," };
        let (name, value) = (Value::from(&**name), Value::from(&**value));
        let _ = write!(text, "{before}{name}:{value}");
    }
    if !info.tags.is_empty() {
        text.push('}');
    }
}

fn write_page(text: &mut String, page: &Page) {
    text.push_str("{\"publications\":[");
    for (place, publication) in page.iter().enumerate() {
        let Publication {
            payload,
            position,
            at_ms,
            info,
            ..
        } = publication;
        let comma = if place == 0 { "" } else { "," };
        let offset = position.map_or(0, |position| position.offset);
        let _ = write!(text, "{comma}{{\"offset\":{offset},\"time\":{at_ms}");
        write_data(text, payload.borrow());
        if let Some(info) = &info {
            write_info(text, info);
        }
        text.push('}');
    }
    let (offset, epoch) = (page.position.offset, page.position.epoch);
    let _ = write!(text, "],\"offset\":{offset},\"epoch\":\"{epoch}\"}}");
}

/// `"error":{…}`, without the braces around.
pub fn write_error(text: &mut String, code: u32, message: &str) {
    let message = Value::from(message);
    let _ = write!(text, "\"error\":{{\"code\":{code},\"message\":{message}}}");
}
