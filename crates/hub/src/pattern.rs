//! Patterns of channel names: `/users/:user/orders` matches `/users/ann/orders` with `user` = `ann`.

use std::fmt;

/// The name of the parameter whose value is the owner of the channel.
pub(crate) const USER: &str = "user";

/// A pattern of slash-separated segments. A segment is a literal, or a `:` and the name of a parameter, which matches
/// any non-empty text without a slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern(Box<[Segment]>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Text(Box<str>),
    Parameter(Box<str>),
}

/// The reason why a text is not a valid pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The pattern does not begin with a slash.
    #[error("a pattern must begin with a slash")]
    Start,
    /// The pattern has a double or a trailing slash.
    #[error("a segment is empty")]
    Empty,
    /// The name of a parameter is empty, begins with a digit, or contains characters other than ASCII letters, digits and `_`.
    #[error(
        "a parameter name must consist of letters, digits and _, and must not begin with a digit"
    )]
    Name,
    /// Two parameters have the same name.
    #[error("two parameters have the same name")]
    DuplicateParameter,
    /// A literal segment contains a character that has a special meaning in channel names.
    #[error("a literal segment can't contain : # $ or *")]
    Reserved,
}

impl PathPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// The text is not a valid pattern.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        let rest = text.strip_prefix('/').ok_or(PatternError::Start)?;
        let mut segments: Vec<Segment> = Vec::new();
        for segment in rest.split('/') {
            let segment = match segment.strip_prefix(':') {
                _ if segment.is_empty() => return Err(PatternError::Empty),
                Some(name) if is_name(name) => Segment::Parameter(name.into()),
                Some(_) => return Err(PatternError::Name),
                None if segment.contains([':', '#', '$', '*']) => {
                    return Err(PatternError::Reserved);
                }
                None => Segment::Text(segment.into()),
            };
            if matches!(segment, Segment::Parameter(_)) && segments.contains(&segment) {
                return Err(PatternError::DuplicateParameter);
            }
            segments.push(segment);
        }
        Ok(Self(segments.into()))
    }

    /// Returns whether a channel name matches the pattern.
    #[must_use]
    pub fn matches(&self, channel: &str) -> bool {
        let Some(rest) = channel.strip_prefix('/') else {
            return false;
        };
        let mut given = rest.split('/');
        let fit = self.0.iter().all(|segment| match (segment, given.next()) {
            (Segment::Text(text), Some(given)) => **text == *given,
            (Segment::Parameter(_), Some(given)) => !given.is_empty(),
            (_, None) => false,
        });
        fit && given.next().is_none()
    }

    /// Iterates over the parameters in a matching channel name: their names and values.
    pub fn parameters<'a>(&'a self, channel: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let given = channel.strip_prefix('/').unwrap_or(channel).split('/');
        let all = self.0.iter().zip(given);
        all.filter_map(|(segment, given)| match segment {
            Segment::Parameter(name) => Some((&**name, given)),
            Segment::Text(_) => None,
        })
    }

    /// Returns whether this pattern has precedence over `other` if both match: at the first segment where only one of
    /// the two patterns has a literal, this pattern has the literal.
    pub(crate) fn precedes(&self, other: &Self) -> bool {
        self.parameter_flags().lt(other.parameter_flags())
    }

    /// Iterates over the segments and returns for each whether it is a parameter.
    fn parameter_flags(&self) -> impl Iterator<Item = bool> {
        let all = self.0.iter();
        all.map(|one| matches!(one, Segment::Parameter(_)))
    }

    /// Returns whether both patterns match the same names.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let pairs = || self.0.iter().zip(&other.0);
        self.0.len() == other.0.len()
            && pairs().all(|pair| match pair {
                (Segment::Text(one), Segment::Text(other)) => one == other,
                (Segment::Parameter(_), Segment::Parameter(_)) => true,
                _ => false,
            })
    }
}

fn is_name(text: &str) -> bool {
    let is_start = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    text.as_bytes().first().is_some_and(is_start)
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|segment| match segment {
            Segment::Text(text) => write!(f, "/{text}"),
            Segment::Parameter(name) => write!(f, "/:{name}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_segment_by_segment() {
        let pattern = PathPattern::new("/users/:user/:kind").expect("a pattern");
        for (channel, fits) in [
            ("/users/ann/orders", true),
            ("/users/a:b/#x", true),
            ("/users/ann", false),
            ("/users/ann/", false),
            ("/users//orders", false),
            ("/users/ann/orders/7", false),
            ("users/ann/orders", false),
            ("/Users/ann/orders", false),
            ("/", false),
            ("", false),
        ] {
            assert_eq!(pattern.matches(channel), fits, "{channel}");
        }
        let parameters: Vec<_> = pattern.parameters("/users/ann/orders").collect();
        assert_eq!(parameters, [("user", "ann"), ("kind", "orders")]);
        assert_eq!(pattern.to_string(), "/users/:user/:kind");
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for (text, why) in [
            ("", PatternError::Start),
            ("users/:user", PatternError::Start),
            ("/", PatternError::Empty),
            ("/users/", PatternError::Empty),
            ("/users//x", PatternError::Empty),
            ("/users/:", PatternError::Name),
            ("/users/:7", PatternError::Name),
            ("/users/:a-b", PatternError::Name),
            ("/:a/:a", PatternError::DuplicateParameter),
            ("/users/x*", PatternError::Reserved),
            ("/users/x#", PatternError::Reserved),
        ] {
            assert_eq!(PathPattern::new(text), Err(why), "{text}");
        }
        assert!(PathPattern::new("/a/a/:b").is_ok());
    }

    #[test]
    fn literals_precede_parameters() {
        let pattern = |text| PathPattern::new(text).expect("a pattern");
        assert!(pattern("/users/me").precedes(&pattern("/users/:user")));
        assert!(pattern("/users/:user").precedes(&pattern("/:kind/ann")));
        assert!(!pattern("/a/:x").precedes(&pattern("/b/:y")));
        assert!(pattern("/a/:x").is_same(&pattern("/a/:y")));
        assert!(!pattern("/a/:x").is_same(&pattern("/a/x")));
    }
}
