//! Lists in answers. They may be long, so they are encoded element by element.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use veche_hub::{ClientInfo, ConnectionInfo, HistoryPage, Publication, PublicationInfo};

use crate::outbox::{write_data, write_value};

/// A list of results from the hub.
pub(super) enum AnswerList<'a> {
    History(&'a HistoryPage),
    Presence(&'a [Arc<ClientInfo>]),
    Channels(&'a [(Arc<str>, u32)]),
    Connections(&'a [ConnectionInfo]),
}

impl AnswerList<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::History(page) => page.len(),
            Self::Presence(clients) => clients.len(),
            Self::Channels(channels) => channels.len(),
            Self::Connections(connections) => connections.len(),
        }
    }

    /// Writes the JSON text before the first element.
    pub(super) fn open(&self, text: &mut String) {
        text.push_str(match self {
            Self::History(_) => "{\"publications\":[",
            Self::Presence(_) => "{\"presence\":{",
            Self::Channels(_) => "{\"channels\":{",
            Self::Connections(_) => "{\"connections\":{",
        });
    }

    /// Writes the element at this index, with a comma before it unless it is the first.
    pub(super) fn write(&self, place: usize, text: &mut String) {
        if place > 0 {
            text.push(',');
        }
        // Writing to a string can't fail.
        match self {
            Self::History(page) => {
                for publication in page.publications(place..place + 1) {
                    write_publication(text, &publication);
                }
            }
            Self::Presence(clients) => {
                let client = &clients[place];
                let _ = write!(text, "{}:", Value::from(&*client.client));
                write_client(text, client);
            }
            Self::Channels(channels) => {
                let (name, clients) = &channels[place];
                let name = Value::from(&**name);
                let _ = write!(text, "{name}:{{\"num_clients\":{clients}}}");
            }
            Self::Connections(connections) => write_connection(text, &connections[place]),
        }
    }

    /// Writes the JSON text after the last element.
    pub(super) fn close(&self, text: &mut String) {
        match self {
            Self::History(page) => {
                let (offset, epoch) = (page.position.offset, page.position.epoch);
                let _ = write!(text, "],\"offset\":{offset},\"epoch\":\"{epoch}\"}}");
            }
            Self::Presence(_) | Self::Channels(_) | Self::Connections(_) => text.push_str("}}"),
        }
    }
}

fn write_connection(text: &mut String, one: &ConnectionInfo) {
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
    let client = Value::from(one.client.to_string());
    let _ = write!(text, "{client}:{described}");
}

/// Writes the public data of a channel's member.
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

fn write_info(text: &mut String, info: &PublicationInfo) {
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

fn write_publication(text: &mut String, publication: &Publication) {
    let Publication {
        payload,
        position,
        at_ms,
        info,
        ..
    } = publication;
    let offset = position.map_or(0, |position| position.offset);
    let _ = write!(text, "{{\"offset\":{offset},\"time\":{at_ms}");
    write_data(text, payload.borrow());
    if let Some(info) = info {
        write_info(text, info);
    }
    text.push('}');
}
