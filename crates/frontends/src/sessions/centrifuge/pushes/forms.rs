//! Publications and clients in the protocol's words.

use std::borrow::Cow;

use veche_centrifuge as wire;
use veche_centrifuge::{Encoding, PublicationData, TagsFilter};
use veche_hub::{ClientInfo, PayloadKind, PayloadRef, Position, PublicationInfo};

use crate::outbox::PublicationFilter;

/// As what a payload goes to clients. Bytes that are JSON go as JSON: publishers that have no other way to send some encode
/// it as base64.
pub(crate) fn data(payload: PayloadRef<'_>) -> PublicationData<'_> {
    match (payload.kind, str::from_utf8(payload.bytes)) {
        (PayloadKind::Json, Ok(json)) => PublicationData::Json(json),
        (PayloadKind::Text, Ok(text)) => PublicationData::Text(text),
        _ => PublicationData::of_bytes(payload.bytes),
    }
}

/// Whether a delta from or to this payload can be sent in this encoding: JSON clients have base64 of binary data.
pub(crate) fn has_deltas(payload: PayloadRef<'_>, encoding: Encoding) -> bool {
    encoding == Encoding::Protobuf || !matches!(data(payload), PublicationData::Binary(_))
}

/// The JSON string that clients of JSON get of a text, for those of Protobuf too: bytes don't say what they are, and
/// whoever reads JSON out of them shall not have to know who published it, and how.
pub(crate) fn quoted(payload: PayloadRef<'_>, encoding: Encoding) -> Option<String> {
    if payload.kind != PayloadKind::Text || encoding != Encoding::Protobuf {
        return None;
    }
    let text = str::from_utf8(payload.bytes).ok()?;
    Some(serde_json::Value::from(text).to_string())
}

/// What a client that takes deltas has of a publication: from one of these to the next they go. In both encodings the
/// same, and text looks as [`quoted`].
pub(crate) fn whole(payload: PayloadRef<'_>) -> Cow<'_, [u8]> {
    match quoted(payload, Encoding::Protobuf) {
        Some(text) => Cow::Owned(text.into_bytes()),
        None => Cow::Borrowed(payload.bytes),
    }
}

/// As what a delta goes to clients: as text, if it is some. Deltas between texts are.
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

/// A client as others see it.
pub(crate) fn client(info: &ClientInfo) -> wire::ClientInfo<'_> {
    wire::ClientInfo {
        user: &info.user,
        client: &info.client,
        conn_info: info.conn_info.as_ref().map(|info| data(info.borrow())),
        chan_info: info.chan_info.as_ref().map(|info| data(info.borrow())),
    }
}

/// The tag that names the channel for those who hear it among others: not all SDKs show what the protocol has for it.
const CHANNEL_TAG: &str = "channel";

/// The tags of what was published, lent.
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

/// It sees the tags that clients see.
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

/// What was published.
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
}
