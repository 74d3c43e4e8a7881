//! Mocked Redis servers and subscriptions.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use veche_calls::redis::{RedisAction, RedisCommand, RedisMessage, RedisReply, RedisValue};
use veche_calls::{CallError, CallErrorKind, Lease, RedisCall};
use veche_script::Plain;

use super::stub::{StubAnswer, StubCall, StubKind};

/// The maximum number of queued messages of one subscription.
const QUEUE_MAX: usize = 10_000;

/// Returns the commands of a call, for comparison with the stubs. Receiving from a subscription is not a command.
pub(super) fn stub_calls(redis: &RedisCall) -> Vec<StubCall> {
    match &redis.action {
        RedisAction::Run(command) | RedisAction::Block(command) => {
            vec![stub_call(command.parts().map(<[u8]>::to_vec))]
        }
        RedisAction::Pipeline { commands, .. } => {
            let commands = commands.iter().map(RedisCommand::parts);
            commands
                .map(|parts| stub_call(parts.map(<[u8]>::to_vec)))
                .collect()
        }
        RedisAction::Subscribe {
            names,
            are_patterns,
        } => {
            let command = if *are_patterns {
                "PSUBSCRIBE"
            } else {
                "SUBSCRIBE"
            };
            let name = [command.as_bytes().to_vec()].into_iter();
            vec![stub_call(name.chain(names.iter().cloned()))]
        }
        RedisAction::Receive { .. } => Vec::new(),
    }
}

fn stub_call(parts: impl Iterator<Item = Vec<u8>>) -> StubCall {
    let mut parts: Vec<Vec<u8>> = parts.collect();
    if let Some(name) = parts.first_mut() {
        name.make_ascii_uppercase();
    }
    let words = parts.iter().map(|part| String::from_utf8_lossy(part));
    StubCall {
        kind: StubKind::Redis,
        method: String::new(),
        target: words.collect::<Vec<_>>().join(" "),
        arguments: Plain::List(parts.into_iter().map(Plain::Bytes).collect()),
    }
}

/// Builds the reply from stubs' answers, one for each command. In a pipeline, an answer with an error of the Redis server
/// becomes the value of its command. Any other error, and any error of a single command, fails the whole call.
pub(super) fn reply(redis: &RedisCall, answers: Vec<StubAnswer>) -> Result<RedisReply, CallError> {
    let mut answers = answers.into_iter();
    match &redis.action {
        RedisAction::Pipeline { .. } => {
            let values: Result<Vec<RedisValue>, CallError> = answers
                .map(|answer| match answer {
                    Ok(value) => Ok(value_of(value)),
                    Err(fault) if fault.kind == CallErrorKind::Refused => {
                        let words = fault.words.trim_start_matches("redis: ");
                        Ok(RedisValue::Error(words.to_owned()))
                    }
                    Err(fault) => Err(fault),
                })
                .collect();
            Ok(RedisReply::Values(Some(values?)))
        }
        _ => {
            let value = answers.next().unwrap_or(Ok(Plain::Nil))?;
            Ok(RedisReply::Value(value_of(value)))
        }
    }
}

fn value_of(value: Plain) -> RedisValue {
    match value {
        Plain::Nil | Plain::Null => RedisValue::Nil,
        Plain::Boolean(value) => RedisValue::Boolean(value),
        Plain::Number(number) => RedisValue::Number(number),
        Plain::Bytes(bytes) => RedisValue::Bytes(bytes),
        Plain::List(items) => RedisValue::List(items.into_iter().map(value_of).collect()),
        Plain::Map(pairs) if pairs.is_empty() => RedisValue::List(Vec::new()),
        Plain::Map(pairs) => {
            let pairs = pairs.into_iter();
            let pairs = pairs.map(|(key, value)| (RedisValue::Bytes(key.into()), value_of(value)));
            RedisValue::Map(pairs.collect())
        }
    }
}

/// The subscriptions of all applications.
#[derive(Default)]
pub(super) struct MockSubscriptions(Vec<MockSubscription>);

struct MockSubscription {
    /// The number of the subscription; the application's lease keeps it alive, so it expires when the application drops the
    /// subscription.
    number: Weak<u64>,
    names: Vec<Vec<u8>>,
    are_patterns: bool,
    queue: VecDeque<RedisMessage>,
}

impl MockSubscriptions {
    /// Adds a subscription with a unique number.
    pub(super) fn add(&mut self, number: u64, names: &[Vec<u8>], are_patterns: bool) -> Lease {
        let number = Arc::new(number);
        self.0.push(MockSubscription {
            number: Arc::downgrade(&number),
            names: names.to_vec(),
            are_patterns,
            queue: VecDeque::new(),
        });
        Lease::new(number)
    }

    /// Returns the number that identifies the subscription of a lease; `None` for a lease of something else.
    pub(super) fn number(lease: &Lease) -> Option<u64> {
        lease.of::<Arc<u64>>().map(|number| **number)
    }

    /// Delivers a message to each matching subscription; returns their number.
    pub(super) fn publish(&mut self, channel: &[u8], data: &[u8]) -> usize {
        self.0.retain(|one| one.number.strong_count() > 0);
        let mut count = 0;
        for one in &mut self.0 {
            for name in &one.names {
                let is_its = match one.are_patterns {
                    true => is_like(channel, name),
                    false => name == channel,
                };
                if is_its && one.queue.len() < QUEUE_MAX {
                    count += 1;
                    one.queue.push_back(RedisMessage {
                        channel: channel.to_vec(),
                        pattern: one.are_patterns.then(|| name.clone()),
                        data: data.to_vec(),
                    });
                }
            }
        }
        count
    }

    /// Removes and returns the next message of a subscription.
    pub(super) fn receive(&mut self, number: u64) -> Option<RedisMessage> {
        let is_it =
            |one: &&mut MockSubscription| one.number.upgrade().is_some_and(|n| *n == number);
        self.0.iter_mut().find(is_it)?.queue.pop_front()
    }
}

/// Matches a Redis pattern: `*`, `?`, `[…]` with ranges and `^`, and `\` before literal characters.
fn is_like(text: &[u8], pattern: &[u8]) -> bool {
    let Some((&first, rest)) = pattern.split_first() else {
        return text.is_empty();
    };
    match (first, text.split_first()) {
        (b'*', _) => (0..=text.len()).any(|from| is_like(&text[from..], rest)),
        (_, None) => false,
        (b'?', Some((_, text))) => is_like(text, rest),
        (b'[', Some((&byte, text))) => {
            let end = rest
                .iter()
                .position(|byte| *byte == b']')
                .unwrap_or(rest.len());
            let (set, rest) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());
            let (is_not, set) = match set.split_first() {
                Some((b'^', set)) => (true, set),
                _ => (false, set),
            };
            is_in(byte, set) != is_not && is_like(text, rest)
        }
        (b'\\', Some((byte, text))) if !rest.is_empty() => {
            *byte == rest[0] && is_like(text, &rest[1..])
        }
        (first, Some((byte, text))) => *byte == first && is_like(text, rest),
    }
}

fn is_in(byte: u8, mut set: &[u8]) -> bool {
    loop {
        match set {
            [from, b'-', to, rest @ ..] => {
                if (*from.min(to)..=*from.max(to)).contains(&byte) {
                    return true;
                }
                set = rest;
            }
            [one, rest @ ..] => {
                if *one == byte {
                    return true;
                }
                set = rest;
            }
            [] => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_like;

    #[test]
    fn patterns_are_those_of_redis() {
        for (pattern, text, fits) in [
            ("news", "news", true),
            ("news", "newsx", false),
            ("news.*", "news.tea", true),
            ("news.*", "news", false),
            ("*", "", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]*o", "hbllo", true),
            ("h[a-c]llo", "hdllo", false),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("*a*b*", "xxaxxbxx", true),
        ] {
            assert_eq!(
                is_like(text.as_bytes(), pattern.as_bytes()),
                fits,
                "{pattern} {text}"
            );
        }
    }
}
