//! A query string: `name=value&…`, percent-encoded, with `+` for a space.

use std::borrow::Cow;

/// A raw query string. Each lookup scans it in linear time without tables, so colliding keys cost nothing.
#[derive(Clone, Copy, Debug)]
pub struct Query<'b>(&'b str);

impl<'b> Query<'b> {
    /// Takes `query` without the `?`. Bodies of type `application/x-www-form-urlencoded` have the same format.
    #[must_use]
    pub const fn new(query: &'b str) -> Self {
        Self(query)
    }

    /// Returns the first decoded value with this name. `None` also if it is not UTF-8: a value with replacement
    /// characters could pass for another one.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Cow<'b, str>> {
        self.raw()
            .find(|(raw_name, _)| decoded_equals(raw_name, name))
            .and_then(|(_, value)| decode(value))
    }

    /// Returns all decoded values with this name in order, without those that are not UTF-8.
    pub fn find_all<'n>(&self, name: &'n str) -> impl Iterator<Item = Cow<'b, str>> + use<'b, 'n> {
        self.raw()
            .filter(move |(raw_name, _)| decoded_equals(raw_name, name))
            .filter_map(|(_, value)| decode(value))
    }

    /// Returns all decoded names and values in order, without those that are not UTF-8.
    pub fn iter(&self) -> impl Iterator<Item = (Cow<'b, str>, Cow<'b, str>)> + use<'b> {
        self.raw()
            .filter_map(|(name, value)| Some((decode(name)?, decode(value)?)))
    }

    fn raw(&self) -> impl Iterator<Item = (&'b str, &'b str)> + use<'b> {
        self.0
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }
}

fn decode(raw: &str) -> Option<Cow<'_, str>> {
    if memchr::memchr2(b'%', b'+', raw.as_bytes()).is_none() {
        return Some(Cow::Borrowed(raw));
    }
    String::from_utf8(decoded_bytes(raw).collect())
        .ok()
        .map(Cow::Owned)
}

fn decoded_equals(raw: &str, name: &str) -> bool {
    // Decoding never makes a name longer.
    raw.len() >= name.len() && decoded_bytes(raw).eq(name.bytes())
}

fn decoded_bytes(raw: &str) -> impl Iterator<Item = u8> {
    raw.split('+').enumerate().flat_map(|(index, part)| {
        (index > 0)
            .then_some(b' ')
            .into_iter()
            .chain(percent_encoding::percent_decode_str(part))
    })
}
