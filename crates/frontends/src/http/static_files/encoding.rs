//! Content codings of precompressed files, and their negotiation by `Accept-Encoding` (RFC 9110 section 12.5.3).

use std::cmp::Reverse;

use veche_proto::http::{Head, list_members};

use super::ContentCoding;

/// The offered codings that a client accepts, and whether it accepts the unencoded file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AcceptedCodings {
    variants: [Option<ContentCoding>; ContentCoding::ALL.len()],
    /// Whether the unencoded file is accepted.
    pub(super) takes_identity: bool,
}

impl AcceptedCodings {
    /// Evaluates `Accept-Encoding`. Codings with equal weights are preferred in the order of
    /// `offered`.
    pub(super) fn of(head: &Head<'_>, offered: &[ContentCoding]) -> Self {
        Weights::read(head.header_all("accept-encoding")).accepted(offered)
    }

    /// Returns the codings for which a variant is to be looked up, in order of preference.
    pub(super) fn variants(&self) -> impl Iterator<Item = ContentCoding> {
        self.variants.into_iter().flatten()
    }
}

/// A weight in thousandths.
type Weight = u16;

/// The weights in an `Accept-Encoding` header; `None` for a coding that the header does not name.
#[derive(Default)]
struct Weights {
    variants: [Option<Weight>; ContentCoding::ALL.len()],
    identity: Option<Weight>,
    /// The weight of `*`, which applies to all codings that the header does not name.
    others: Option<Weight>,
}

impl Weights {
    /// Parses the members of all header lines. Invalid members are ignored. If a coding is named twice, its higher
    /// weight counts.
    fn read<'h>(lists: impl Iterator<Item = &'h str>) -> Self {
        let mut weights = Self::default();
        for (coding, weight) in lists.flat_map(list_members).filter_map(member) {
            let place = if coding == "*" {
                &mut weights.others
            } else if coding.eq_ignore_ascii_case("identity") {
                &mut weights.identity
            } else if let Some(at) = ContentCoding::ALL.iter().position(|e| e.is_called(coding)) {
                &mut weights.variants[at]
            } else {
                continue;
            };
            *place = (*place).max(Some(weight));
        }
        weights
    }

    fn of(&self, encoding: ContentCoding) -> Weight {
        let named = ContentCoding::ALL
            .iter()
            .zip(self.variants)
            .find_map(|(&other, weight)| weight.filter(|_| other == encoding));
        named.or(self.others).unwrap_or(0)
    }

    /// Returns the accepted codings. The unencoded file is accepted unless the header excludes it.
    /// Codings with a lower weight than the unencoded file are omitted.
    fn accepted(&self, offered: &[ContentCoding]) -> AcceptedCodings {
        let identity = self.identity.or(self.others);
        let weight_min = identity.unwrap_or(0).max(1);
        let mut found = [(0, None); ContentCoding::ALL.len()];
        for (place, &encoding) in found.iter_mut().zip(offered) {
            let weight = self.of(encoding);
            *place = (weight, Some(encoding).filter(|_| weight >= weight_min));
        }
        found.sort_by_key(|&(weight, _)| Reverse(weight));
        AcceptedCodings {
            variants: found.map(|(_, encoding)| encoding),
            takes_identity: identity != Some(0),
        }
    }
}

/// Parses a member, `codings [ weight ]` in the grammar of RFC 9110.
fn member(member: &str) -> Option<(&str, Weight)> {
    let Some((coding, weight)) = member.split_once(';') else {
        return Some((member, WHOLE));
    };
    let weight = weight.trim_matches(OWS);
    let (name, value) = weight.split_at_checked(2)?;
    if !name.eq_ignore_ascii_case("q=") {
        return None;
    }
    Some((coding.trim_matches(OWS), thousandths(value)?))
}

const OWS: [char; 2] = [' ', '\t'];

/// The weight of a coding that the header names without a weight.
const WHOLE: Weight = 1_000;

/// Parses a `qvalue` (RFC 9110 section 12.4.2): `0`, `0.5`, `1.000`; at most three decimals.
fn thousandths(text: &str) -> Option<Weight> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > 3 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = part.bytes().chain(std::iter::repeat(b'0')).take(3);
    let part = digits.fold(0, |sum, digit| sum * 10 + Weight::from(digit - b'0'));
    match (whole, part) {
        ("0", part) => Some(part),
        ("1", 0) => Some(WHOLE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ContentCoding::{Brotli, Gzip};

    fn accepted(lists: &[&str], offered: &[ContentCoding]) -> (Vec<ContentCoding>, bool) {
        let accepted = Weights::read(lists.iter().copied()).accepted(offered);
        (accepted.variants().collect(), accepted.takes_identity)
    }

    #[test]
    fn what_is_accepted() {
        let rows: &[(&[&str], &[ContentCoding], bool)] = &[
            (&[], &[], true),
            (&[""], &[], true),
            (&["gzip"], &[Gzip], true),
            (&["br"], &[Brotli], true),
            (&["gzip, deflate, br, zstd"], &[Brotli, Gzip], true),
            (&["gzip", "br"], &[Brotli, Gzip], true),
            (&["GZip;Q=1.0"], &[Gzip], true),
            (&["x-gzip"], &[Gzip], true),
            (&["deflate, zstd"], &[], true),
            (&["brotli, gz, gzipped, bro"], &[], true),
            // Each row consists of the header lines, the accepted codings in order, and whether the unencoded file is
            // accepted. The next rows have codings with weights.
            (&["gzip;q=1, br;q=0.9"], &[Gzip, Brotli], true),
            (&["gzip;q=0.8, br;q=0.801"], &[Brotli, Gzip], true),
            (&["br;q=0, gzip"], &[Gzip], true),
            (&["br;q=0.0, gzip;q=0.000"], &[], true),
            (&["br;q=0.001"], &[Brotli], true),
            (&["gzip \t; \tq=0.5 "], &[Gzip], true),
            (&["gzip;q=0, gzip"], &[Gzip], true),
            // Weights of the unencoded file.
            (&["identity"], &[], true),
            (&["identity, gzip, br"], &[Brotli, Gzip], true),
            (&["identity;q=1, gzip;q=0.5"], &[], true),
            (&["identity;q=0.5, gzip;q=0.5"], &[Gzip], true),
            (&["identity;q=0"], &[], false),
            (&["identity;q=0, gzip"], &[Gzip], false),
            (&["identity;q=0", "br;q=0.1"], &[Brotli], false),
            // Weights of the wildcard. Browsers send the header of the next row when they request parts of a video.
            (&["identity;q=1, *;q=0"], &[], true),
            (&["*"], &[Brotli, Gzip], true),
            (&["*;q=0"], &[], false),
            (&["*;q=0, gzip"], &[Gzip], false),
            (&["*;q=0, identity;q=0.1"], &[], true),
            (&["gzip;q=0.5, *;q=0.1"], &[Gzip, Brotli], true),
            (&["gzip;q=0.5, *"], &[Brotli], true),
            (&["gzip;q=0, *"], &[Brotli], true),
            // Invalid members, which are ignored.
            (&["gzip;q=2, br;q=1.001, gzip;q=0.1234, br;q=-1"], &[], true),
            (
                &["gzip;q=.5, br;q=, gzip;, br;q, gzip;x=1, br;q=1;x"],
                &[],
                true,
            ),
            (&["identity;q=0x0, *;q=zero"], &[], true),
            (&[";q=1, ,,;, =, gzip br, \"gzip\", br;q=1 .0"], &[], true),
            (&["gzip;q=\u{e9}, br;\u{e9}\u{e9}, \u{e9}"], &[], true),
        ];
        for (lists, variants, takes_identity) in rows {
            let expected = (variants.to_vec(), *takes_identity);
            assert_eq!(accepted(lists, &ContentCoding::ALL), expected, "{lists:?}");
        }
    }

    #[test]
    fn the_order_of_what_is_offered_decides_between_equals() {
        let rows: &[(&str, &[ContentCoding], &[ContentCoding])] = &[
            ("gzip, br", &[Gzip, Brotli], &[Gzip, Brotli]),
            ("br, gzip", &[Gzip, Brotli], &[Gzip, Brotli]),
            ("gzip, br;q=0.9", &[Brotli, Gzip], &[Gzip, Brotli]),
            ("gzip, br", &[Gzip], &[Gzip]),
            ("br", &[Gzip], &[]),
            ("*", &[Brotli], &[Brotli]),
        ];
        for (list, offered, variants) in rows {
            assert_eq!(accepted(&[list], offered).0, *variants, "{list}");
        }
    }

    /// Checks random sequences of valid and almost valid tokens: nothing panics, only codings that are both offered
    /// and named are accepted, and distributing the members over several header lines changes nothing.
    #[test]
    fn whatever_the_header_says() {
        const PIECES: [&str; 20] = [
            "gzip", "br", "identity", "*", "x-gzip", ";q=", ";q=0", ";q=1", ";", "=", "0", "1",
            ".", "0.5", "1.000", ",", ", ", " ", "\t", "\u{e9}",
        ];
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        let (mut found, mut refused) = (0, 0);
        for _ in 0..50_000 {
            let count = next(24);
            let text: String = (0..count).map(|_| PIECES[next(PIECES.len())]).collect();
            let whole = accepted(&[&text], &ContentCoding::ALL);
            for encoding in &whole.0 {
                let is_named = text.contains('*') || text.contains(encoding.name());
                assert!(is_named, "{encoding:?} of {text:?}");
            }
            assert!(whole.1 || text.contains('0'), "{text:?}");
            let lines: Vec<&str> = text.split(',').collect();
            assert_eq!(accepted(&lines, &ContentCoding::ALL), whole, "{text:?}");
            found += usize::from(!whole.0.is_empty());
            refused += usize::from(!whole.1);
        }
        assert!(found > 1_000 && refused > 20, "{found} {refused}");
    }

    #[test]
    fn a_weight_is_read_exactly() {
        for thousandth in 0..=1_000 {
            let text = format!("{}.{:03}", thousandth / 1_000, thousandth % 1_000);
            assert_eq!(thousandths(&text), Some(thousandth), "{text}");
        }
        for (text, weight) in [
            ("0", Some(0)),
            ("0.", Some(0)),
            ("0.7", Some(700)),
            ("0.07", Some(70)),
            ("1", Some(1_000)),
            ("1.", Some(1_000)),
            ("1.0", Some(1_000)),
            ("", None),
            (".", None),
            (".5", None),
            ("00", None),
            ("01", None),
            ("1.001", None),
            ("0.0000", None),
            ("+1", None),
            ("0,5", None),
            ("0.5 ", None),
        ] {
            assert_eq!(thousandths(text), weight, "{text}");
        }
    }
}
