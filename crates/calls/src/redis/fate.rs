//! Determines whether a Redis command can use the connection that all calls share.

use super::RedisCommand;

/// How a command can be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The command is sent over the shared connection.
    Shared,
    /// The command waits in the server, so it needs its own connection.
    Blocking,
    /// The command is refused, because it would change the connection for all calls that share it. The text names
    /// an alternative.
    Refused(&'static str),
}

use Fate::{Blocking, Refused, Shared};

/// Longest name of a command that is not [`Shared`].
const NAME_BYTES_MAX: usize = 16;

impl RedisCommand {
    /// Returns how the command can be executed. The case of the command's name does not matter.
    #[must_use]
    pub fn fate(&self) -> Fate {
        let name = self.parts().next().unwrap_or_default();
        let mut buffer = [0; NAME_BYTES_MAX];
        let Some(capitals) = buffer.get_mut(..name.len()) else {
            return Shared;
        };
        capitals.copy_from_slice(name);
        capitals.make_ascii_uppercase();
        match &*capitals {
            b"BLPOP" | b"BRPOP" | b"BLMOVE" | b"BRPOPLPUSH" | b"BLMPOP" | b"BZPOPMIN"
            | b"BZPOPMAX" | b"BZMPOP" => Blocking,
            b"XREAD" | b"XREADGROUP" => {
                let waits = |part: &[u8]| part.eq_ignore_ascii_case(b"BLOCK");
                if self.parts().any(waits) {
                    Blocking
                } else {
                    Shared
                }
            }
            b"SUBSCRIBE" | b"PSUBSCRIBE" | b"SSUBSCRIBE" | b"UNSUBSCRIBE" | b"PUNSUBSCRIBE"
            | b"SUNSUBSCRIBE" => Refused("use redis:subscribe or redis:psubscribe"),
            b"MULTI" | b"EXEC" | b"DISCARD" => Refused("use redis:transaction"),
            b"WATCH" | b"UNWATCH" => Refused(
                "not possible on a connection that all coroutines share; use a Redis script (EVAL) for atomicity",
            ),
            b"SELECT" => Refused("choose the database with an option of redis.connect"),
            b"AUTH" | b"HELLO" => {
                Refused("set the user and the password with options of redis.connect")
            }
            b"MONITOR" | b"SYNC" | b"PSYNC" | b"QUIT" | b"RESET" | b"WAIT" | b"WAITAOF"
            | b"READONLY" | b"READWRITE" | b"ASKING" => {
                Refused("not possible on a connection that all coroutines share")
            }
            b"CLIENT" => {
                let what = self.parts().nth(1).map(<[u8]>::to_ascii_uppercase);
                match what.as_deref() {
                    Some(b"REPLY" | b"TRACKING" | b"CACHING" | b"SETNAME" | b"NO-TOUCH") => {
                        Refused("not possible on a connection that all coroutines share")
                    }
                    _ => Shared,
                }
            }
            _ => Shared,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_known_in_any_case() {
        for (words, fate) in [
            ("get k", "shared"),
            ("blpop k 0", "blocking"),
            ("BZMPOP 1 1 k", "blocking"),
            ("xread COUNT 1 streams s 0", "shared"),
            ("xread block 5 streams s 0", "blocking"),
            ("Subscribe a", "refused"),
            ("client list", "shared"),
            ("client reply off", "refused"),
            ("a_name_that_is_longer_than_any x", "shared"),
            ("", "shared"),
        ] {
            let mut command = RedisCommand::default();
            words
                .split(' ')
                .for_each(|word| command.push(word.as_bytes()));
            let found = match command.fate() {
                Shared => "shared",
                Blocking => "blocking",
                Refused(_) => "refused",
            };
            assert_eq!(found, fate, "{words}");
        }
        assert_eq!(RedisCommand::default().fate(), Shared);
    }
}
