//! Application heartbeats: messages of the server that a client has to answer to stay connected.

use serde::{Deserialize, Serialize};

/// The wildcard, which matches any text. A pattern contains at most one.
const ANY: char = '*';

/// A heartbeat message with its answer.
///
/// One `*` in the message matches any text, including an empty one; in the answer it stands for the same text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    before: String,
    /// The text after the `*`; `None` for a constant message.
    after: Option<String>,
    answer: String,
}

impl Heartbeat {
    /// Creates a heartbeat: messages that match `received` are answered with `answer`.
    ///
    /// # Errors
    /// `received` has no text besides `*`, either text has more than one `*`, or only `answer` has
    /// one.
    pub fn new(received: &str, answer: &str) -> Result<Self, &'static str> {
        if received.trim_matches(ANY).is_empty() {
            return Err("the received text must not be empty or only a *");
        }
        if received.matches(ANY).count() > 1 || answer.matches(ANY).count() > 1 {
            return Err(
                "expected at most one * in the received text and at most one in its answer",
            );
        }
        if answer.contains(ANY) && !received.contains(ANY) {
            return Err("the answer has a * but the received text has none");
        }
        let (before, after) = match received.split_once(ANY) {
            Some((before, after)) => (before, Some(after.to_owned())),
            None => (received, None),
        };
        Ok(Self {
            before: before.to_owned(),
            after,
            answer: answer.to_owned(),
        })
    }

    /// Returns the answer to `message` if it matches this heartbeat.
    pub(crate) fn answer(&self, message: &[u8]) -> Option<Vec<u8>> {
        let Some(after) = &self.after else {
            return (message == self.before.as_bytes()).then(|| self.answer.clone().into_bytes());
        };
        let rest = message.strip_prefix(self.before.as_bytes())?;
        let any = std::str::from_utf8(rest.strip_suffix(after.as_bytes())?).ok()?;
        Some(self.answer.replacen(ANY, any, 1).into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let plain = Heartbeat::new("2", "3").unwrap();
        assert_eq!(plain.answer(b"2").as_deref(), Some(&b"3"[..]));
        assert_eq!(plain.answer(b"2probe"), None);
        let ping =
            Heartbeat::new(r#"{"type":"ping","id":*}"#, r#"{"type":"pong","id":*}"#).unwrap();
        let answer = ping.answer(br#"{"type":"ping","id":17}"#);
        assert_eq!(answer.as_deref(), Some(&br#"{"type":"pong","id":17}"#[..]));
        assert_eq!(ping.answer(br#"{"type":"ping"}"#), None);
        // The prefix and the suffix of the pattern must not overlap in the message.
        let short = Heartbeat::new("aba*ba", "x").unwrap();
        assert_eq!(short.answer(b"aba"), None);
        for (received, answer) in [("", "x"), ("*", "*"), ("a**", "x"), ("a", "*")] {
            assert!(Heartbeat::new(received, answer).is_err(), "{received:?}");
        }
    }
}
