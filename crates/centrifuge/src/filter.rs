//! Tag filters: a subscriber receives only publications with matching tags. A filter is a tree of comparisons that the
//! client sends with its subscription; `read/filter.rs` parses it.

use std::cmp::Ordering;

use crate::PublicationData;
use crate::read::filter::{self, WireNode};

/// Maximum encoded length in bytes.
pub const FILTER_BYTES_MAX: usize = 2048;

/// Maximum number of nodes of a filter. `VALUES_MAX` limits the values in all its lists together.
pub const FILTER_NODES_MAX: usize = 64;
const VALUES_MAX: usize = 128;

/// Maximum nesting depth of a filter.
pub const FILTER_DEPTH_MAX: usize = 8;

/// The error for a filter that is invalid or exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid or oversized tags filter")]
pub struct FilterError;

/// A filter of publications by their tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagsFilter {
    root: Node,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Leaf { key: Box<str>, test: TagTest },
    And(Box<[Self]>),
    Or(Box<[Self]>),
    Not(Box<Self>),
}

/// A condition on one tag of a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TagTest {
    Equals(Box<str>),
    EqualsNot(Box<str>),
    In(Box<[Box<str>]>),
    NotIn(Box<[Box<str>]>),
    Exists,
    NotExists,
    StartsWith(Box<str>),
    EndsWith(Box<str>),
    Contains(Box<str>),
    /// Matches if the tag and the value (the first field) are decimal numbers, and a comparison of the tag with the
    /// value has one of the results in the second field.
    Number(Box<str>, &'static [Ordering]),
}

impl TagsFilter {
    /// Parses the filter of a [`SubscribeRequest`](crate::SubscribeRequest). Binary data is decoded
    /// as Protobuf, other data as JSON.
    ///
    /// # Errors
    /// The filter is invalid or exceeds a limit.
    pub fn read(data: PublicationData<'_>) -> Result<Self, FilterError> {
        if data.bytes().len() > FILTER_BYTES_MAX {
            return Err(FilterError);
        }
        let wire = filter::read(data)?;
        let (mut nodes, mut values) = (0, 0);
        let root = node(&wire, &mut nodes, &mut values)?;
        Ok(Self { root })
    }

    /// Returns whether a publication matches. `tag` returns the value of the publication's tag with a given name.
    pub fn matches<'t>(&self, tag: impl Fn(&str) -> Option<&'t str>) -> bool {
        passes(&self.root, &tag)
    }
}

fn node(wire: &WireNode<'_>, nodes: &mut usize, values: &mut usize) -> Result<Node, FilterError> {
    *nodes += 1;
    *values += wire.vals.len();
    if *nodes > FILTER_NODES_MAX || *values > VALUES_MAX {
        return Err(FilterError);
    }
    let mut inner = || {
        let read = |one| node(one, &mut *nodes, &mut *values);
        let all: Result<Box<[_]>, _> = wire.nodes.iter().map(read).collect();
        all.and_then(|all| (!all.is_empty()).then_some(all).ok_or(FilterError))
    };
    Ok(match &*wire.op {
        "" => leaf(wire)?,
        "and" => Node::And(inner()?),
        "or" => Node::Or(inner()?),
        "not" => match <[Node; 1]>::try_from(inner()?.into_vec()) {
            Ok([one]) => Node::Not(Box::new(one)),
            Err(_) => return Err(FilterError),
        },
        _ => return Err(FilterError),
    })
}

fn leaf(wire: &WireNode<'_>) -> Result<Node, FilterError> {
    use Ordering::{Equal, Greater, Less};
    let value = || match wire.val.is_empty() || !wire.vals.is_empty() {
        true => Err(FilterError),
        false => Ok(Box::from(&*wire.val)),
    };
    let values = || match wire.vals.is_empty() || !wire.val.is_empty() {
        true => Err(FilterError),
        false => Ok(wire.vals.iter().map(|one| Box::from(&**one)).collect()),
    };
    let number = |ways: &'static [Ordering]| value().map(|value| TagTest::Number(value, ways));
    let test = match &*wire.cmp {
        "eq" => TagTest::Equals(value()?),
        "neq" => TagTest::EqualsNot(value()?),
        "in" => TagTest::In(values()?),
        "nin" => TagTest::NotIn(values()?),
        "ex" | "nex" if !wire.val.is_empty() || !wire.vals.is_empty() => return Err(FilterError),
        "ex" => TagTest::Exists,
        "nex" => TagTest::NotExists,
        "sw" => TagTest::StartsWith(value()?),
        "ew" => TagTest::EndsWith(value()?),
        "ct" => TagTest::Contains(value()?),
        "lt" => number(&[Less])?,
        "lte" => number(&[Less, Equal])?,
        "gt" => number(&[Greater])?,
        "gte" => number(&[Greater, Equal])?,
        _ => return Err(FilterError),
    };
    if wire.key.is_empty() && !matches!(test, TagTest::Exists | TagTest::NotExists) {
        return Err(FilterError);
    }
    let key = Box::from(&*wire.key);
    Ok(Node::Leaf { key, test })
}

fn passes<'t>(node: &Node, tag: &impl Fn(&str) -> Option<&'t str>) -> bool {
    match node {
        Node::And(nodes) => nodes.iter().all(|node| passes(node, tag)),
        Node::Or(nodes) => nodes.iter().any(|node| passes(node, tag)),
        Node::Not(node) => !passes(node, tag),
        Node::Leaf { key, test } => test.passes(tag(key)),
    }
}

impl TagTest {
    fn passes(&self, tag: Option<&str>) -> bool {
        // In a comparison with a list of values, a missing tag counts as an empty one.
        let is_among =
            |values: &[Box<str>]| values.iter().any(|one| **one == *tag.unwrap_or_default());
        match self {
            Self::Equals(value) => tag == Some(value),
            Self::EqualsNot(value) => tag != Some(value),
            Self::In(values) => is_among(values),
            Self::NotIn(values) => !is_among(values),
            Self::Exists => tag.is_some(),
            Self::NotExists => tag.is_none(),
            Self::StartsWith(value) => tag.is_some_and(|tag| tag.starts_with(&**value)),
            Self::EndsWith(value) => tag.is_some_and(|tag| tag.ends_with(&**value)),
            Self::Contains(value) => tag.is_some_and(|tag| tag.contains(&**value)),
            Self::Number(value, ways) => {
                let numbers = tag.and_then(Number::of).zip(Number::of(value));
                numbers.is_some_and(|(tag, value)| ways.contains(&tag.compare(&value)))
            }
        }
    }
}

/// A decimal number, such as `-1.50`; without an exponent.
#[derive(Debug)]
struct Number<'a> {
    is_negative: bool,
    /// Digits before the point, without leading zeros.
    whole: &'a str,
    /// Digits after the point, without trailing zeros.
    fraction: &'a str,
}

impl<'a> Number<'a> {
    /// Returns `None` if `text` is not a decimal number or exceeds a limit. The limits are those of
    /// Centrifugo wherever a client could notice a difference.
    fn of(text: &'a str) -> Option<Self> {
        const BYTES_MAX: usize = 200;
        const FRACTION_MAX: usize = 19;
        if text.len() > BYTES_MAX {
            return None;
        }
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let is_digits =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits(whole) || !is_digits(fraction) || fraction.len() > FRACTION_MAX {
            return None;
        }
        let (whole, fraction) = (
            whole.trim_start_matches('0'),
            fraction.trim_end_matches('0'),
        );
        let is_zero = whole.is_empty() && fraction.is_empty();
        Some(Self {
            is_negative: text.starts_with('-') && !is_zero,
            whole,
            fraction,
        })
    }

    fn compare(&self, other: &Self) -> Ordering {
        let size = |one: &Self| (one.whole.len(), one.whole, one.fraction);
        match (self.is_negative, other.is_negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => size(self).cmp(&size(other)),
            (true, true) => size(other).cmp(&size(self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_as_numbers() {
        let ordered = [
            "-100",
            "-20.5",
            "-20.25",
            "-3",
            "-0.001",
            "0",
            "0.001",
            "0.01",
            "1",
            "1.05",
            "1.5",
            "2",
            "10",
            "18446744073709551616",
            "18446744073709551617.1",
        ];
        for (place, one) in ordered.iter().enumerate() {
            for (other_place, other) in ordered.iter().enumerate() {
                let (one, other) = (Number::of(one).unwrap(), Number::of(other).unwrap());
                assert_eq!(
                    one.compare(&other),
                    place.cmp(&other_place),
                    "{one:?} {other:?}"
                );
            }
        }
        for (one, other) in [
            ("0", "-0.0"),
            ("1", "+1.00"),
            ("007", "7"),
            ("-1.50", "-1.5"),
        ] {
            let (one, other) = (Number::of(one).unwrap(), Number::of(other).unwrap());
            assert_eq!(one.compare(&other), Ordering::Equal, "{one:?} {other:?}");
        }
        let long = "1".repeat(201);
        for none in [
            "",
            "+",
            "-",
            ".",
            ".5",
            "5.",
            "-.5",
            "1e5",
            "1.2.3",
            "0x1",
            " 1",
            "1 ",
            "+-1",
            "٣",
            "1.00000000000000000000",
            &long,
        ] {
            assert!(Number::of(none).is_none(), "{none}");
        }
    }
}
