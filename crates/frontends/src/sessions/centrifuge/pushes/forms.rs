//! Publications and clients in the protocol's types.

use std::borrow::Cow;

use veche_centrifuge as wire;
use veche_centrifuge::{Encoding, PublicationData, TagsFilter};
use veche_hub::{ClientInfo, PayloadKind, PayloadRef, Position, PublicationInfo};

use crate::outbox::PublicationFilter;

/// Converts a payload for clients. Bytes that are JSON are sent as JSON, since some publishers can only send it as
/// base64.
pub(crate) fn data(payload: PayloadRef<'_>) -> PublicationData<'_> {
    match (payload.kind, str::from_utf8(payload.bytes)) {
        (PayloadKind::Json, Ok(json)) => PublicationData::Json(json),
        (PayloadKind::Text, Ok(text)) => PublicationData::Text(text),
        _ => PublicationData::of_bytes(payload.bytes),
    }
}

/// Returns whether a delta from or to this payload can be sent in this encoding: JSON clients get binary data as
/// base64.
pub(crate) fn has_deltas(payload: PayloadRef<'_>, encoding: Encoding) -> bool {
    encoding == Encoding::Protobuf || !matches!(data(payload), PublicationData::Binary(_))
}

/// Returns a text as the JSON string that JSON clients get, also for Protobuf clients: bytes have no kind, and a reader
/// of JSON should not depend on how a publication was published.
pub(crate) fn quoted(payload: PayloadRef<'_>, encoding: Encoding) -> Option<String> {
    if payload.kind != PayloadKind::Text || encoding != Encoding::Protobuf {
        return None;
    }
    let text = str::from_utf8(payload.bytes).ok()?;
    Some(serde_json::Value::from(text).to_string())
}

/// Returns the data of a publication between which deltas are computed: the same in both encodings, with texts as by
/// [`quoted`].
pub(crate) fn whole(payload: PayloadRef<'_>) -> Cow<'_, [u8]> {
    match quoted(payload, Encoding::Protobuf) {
        Some(text) => Cow::Owned(text.into_bytes()),
        None => Cow::Borrowed(payload.bytes),
    }
}

/// Converts a delta for clients: to text if it is UTF-8, as deltas between texts are.
pub(crate) fn patch(bytes: &[u8]) -> PublicationData<'_> {
    match str::from_utf8(bytes) {
        Ok(text) => PublicationData::Text(text),
        Err(_) => PublicationData::Binary(bytes),
    }
}

pub(crate) fn as_json(text: &str) -> PayloadRef<'_> {
    PayloadRef {
        kind: PayloadKind::Json,
        bytes: text.as_bytes(),
    }
}

/// Converts a client's public data.
pub(crate) fn client(info: &ClientInfo) -> wire::ClientInfo<'_> {
    wire::ClientInfo {
        user: &info.user,
        client: &info.client,
        conn_info: info.conn_info.as_ref().map(|info| data(info.borrow())),
        chan_info: info.chan_info.as_ref().map(|info| data(info.borrow())),
    }
}

/// The tag with the channel's name for wildcard subscribers, since not all SDKs expose the protocol's field.
const CHANNEL_TAG: &str = "channel";

/// Borrows the tags of a publication.
pub(crate) fn tags(info: Option<&PublicationInfo>) -> Vec<(&str, &str)> {
    let tags = info.map_or(&[][..], |info| &info.tags);
    let mut tags: Vec<_> = tags.iter().map(|(name, tag)| (&**name, &**tag)).collect();
    if let Some(channel) = info.and_then(|info| info.channel.as_deref())
        && !tags.iter().any(|(name, _)| *name == CHANNEL_TAG)
    {
        tags.push((CHANNEL_TAG, channel));
    }
    tags
}

/// Filters by the tags that clients see.
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

pub(crate) fn publication<'a>(
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

#[cfg(test)]
mod tests {
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
}
