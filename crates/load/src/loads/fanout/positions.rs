//! The last position that a receiver got in each of its channels. The receiver sends these positions when it reconnects,
//! to get the messages that it missed. Only a route with `positions = true` has positions.
//!
//! The tester does not interpret positions.

use std::borrow::Cow;

use serde::Deserialize;

/// The position in a server message that confirms a subscription or carries a publication.
#[derive(Debug, Deserialize)]
pub(super) struct MessagePosition<'a> {
    #[serde(borrow)]
    pub(super) subscribed: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) channel: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) position: Option<Cow<'a, str>>,
    pub(super) recovered: Option<bool>,
}

impl<'a> MessagePosition<'a> {
    /// Parses a server message; `None` if `data` is not JSON with the fields of a
    /// [`MessagePosition`].
    pub(super) fn find(data: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }
}

/// A receiver's channels with the last position of each.
#[derive(Clone, Debug, Default)]
pub(super) struct ChannelPositions(Vec<(Box<str>, String)>);

impl ChannelPositions {
    /// Returns whether no channel has a position.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the channel has a position.
    pub(super) fn knows(&self, channel: &str) -> bool {
        self.0.iter().any(|(known, _)| **known == *channel)
    }

    /// Sets a channel's position.
    pub(super) fn set(&mut self, channel: &str, position: &str) {
        match self.0.iter_mut().find(|(known, _)| **known == *channel) {
            Some((_, known)) => {
                known.clear();
                known.push_str(position);
            }
            None => self.0.push((channel.into(), position.to_owned())),
        }
    }

    /// Removes a channel that no longer has history.
    pub(super) fn forget(&mut self, channel: &str) {
        self.0.retain(|(known, _)| **known != *channel);
    }

    /// Appends the positions to a request target as `since=…`.
    pub(super) fn write(&self, path: &mut String) {
        for (_, position) in &self.0 {
            path.push(if path.contains('?') { '&' } else { '?' });
            path.push_str("since=");
            for byte in position.bytes() {
                // These characters need no encoding in a query (RFC 3986 section 3.4).
                if byte.is_ascii_alphanumeric() || b":-._~".contains(&byte) {
                    path.push(char::from(byte));
                } else {
                    path.push_str(&format!("%{byte:02X}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_handed_in_as_they_came() {
        let mut places = ChannelPositions::default();
        for text in [
            r#"{"subscribed":"news","position":"9x3kd07f:16"}"#,
            r#"{"channel":"news","position":"9x3kd07f:17","data":{"position":"x:1"}}"#,
            r##"{"subscribed":"#\"a","position":"a&b c:3","recovered":true}"##,
            r#"{"channel":"none","data":"{\"position\":\"y:1\"}"}"#,
        ] {
            let found = MessagePosition::find(text.as_bytes()).unwrap();
            let channel = found.subscribed.or(found.channel).unwrap();
            if let Some(position) = found.position {
                places.set(&channel, &position);
            }
        }
        let written = |places: &ChannelPositions, before: &str| {
            let mut path = before.to_owned();
            places.write(&mut path);
            path
        };
        let all = "since=9x3kd07f:17&since=a%26b%20c:3";
        assert_eq!(written(&places, "/ws?user=a"), format!("/ws?user=a&{all}"));
        assert_eq!(written(&places, "/ws"), format!("/ws?{all}"));
        assert!(places.knows("#\"a") && !places.knows("none"));
        places.forget("news");
        assert_eq!(written(&places, "/ws"), "/ws?since=a%26b%20c:3");
        for other in ["hello", "[1]", "7", r#"{"position":7}"#] {
            assert!(MessagePosition::find(other.as_bytes()).is_none(), "{other}");
        }
    }
}
