//! Channel names. They are checked once, when they enter the server. [`ChannelName`] is the type of
//! checked names.

use std::fmt;

/// Maximum length of a channel name in bytes. For a user name it is one byte less, because of the
/// `#` of the personal channel.
pub const NAME_BYTES_MAX: usize = 255;

/// A channel name: 1 to [`NAME_BYTES_MAX`] bytes without control characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChannelName<'a>(&'a str);

impl<'a> ChannelName<'a> {
    /// Checks the length and the characters of a name.
    pub fn new(name: &'a str) -> Result<Self, NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(NameError::Long);
        }
        // There is no early exit, so that the compiler can vectorise the loop.
        let is_ascii_text = name
            .bytes()
            .fold(true, |is_text, byte| is_text & matches!(byte, 0x20..=0x7e));
        if !is_ascii_text && name.chars().any(char::is_control) {
            return Err(NameError::Control);
        }
        Ok(Self(name))
    }

    /// Returns the name of the personal channel of `user`. The name is written to `buffer`, which callers reuse to
    /// avoid allocations.
    pub fn of_user(user: &str, buffer: &'a mut String) -> Result<Self, NameError> {
        if user.is_empty() {
            return Err(NameError::Empty);
        }
        if user.len() >= NAME_BYTES_MAX {
            return Err(NameError::Long);
        }
        buffer.clear();
        buffer.push('#');
        buffer.push_str(user);
        Self::new(buffer)
    }

    /// Returns the name as text.
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// Returns the user if this is a personal channel, otherwise `None`.
    pub fn user(self) -> Option<&'a str> {
        self.0.strip_prefix('#')
    }
}

impl fmt::Display for ChannelName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The reason why a text is not a valid channel or user name. The peer is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is empty.
    #[error("the name is empty")]
    Empty,
    /// The name has more than [`NAME_BYTES_MAX`] bytes; for a personal channel the `#` counts.
    #[error("the name is longer than {NAME_BYTES_MAX} bytes")]
    Long,
    /// The text contains a control character such as a line break or NUL.
    #[error("the name contains a control character")]
    Control,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let longest = "x".repeat(NAME_BYTES_MAX);
        let longer = "x".repeat(NAME_BYTES_MAX + 1);
        let rows: [(&str, Option<NameError>); 9] = [
            ("news", None),
            ("chat:42", None),
            ("#вече", None),
            (&longest, None),
            ("", Some(NameError::Empty)),
            (&longer, Some(NameError::Long)),
            ("a\nb", Some(NameError::Control)),
            ("\u{7f}", Some(NameError::Control)),
            ("é\u{85}", Some(NameError::Control)),
        ];
        for (name, expected) in rows {
            assert_eq!(ChannelName::new(name).err(), expected, "{name:?}");
        }
    }

    #[test]
    fn personal_names() {
        let mut buffer = String::from("left over");
        let name = ChannelName::of_user("tester01", &mut buffer).expect("a valid user");
        assert_eq!(name.as_str(), "#tester01");
        assert_eq!(name.user(), Some("tester01"));
        let rows = [
            ("", Some(NameError::Empty)),
            ("a\0", Some(NameError::Control)),
            (&"x".repeat(NAME_BYTES_MAX)[..], Some(NameError::Long)),
            (&"x".repeat(NAME_BYTES_MAX - 1)[..], None),
        ];
        for (user, expected) in rows {
            assert_eq!(
                ChannelName::of_user(user, &mut buffer).err(),
                expected,
                "{user:?}"
            );
        }
    }
}
