//! Checks settings of routes about responses: precompressed encodings and additional headers.

use veche_frontends::route::RouteHeaders;
use veche_frontends::static_files::ContentCoding;

use super::Checker;
use crate::raw::RawTable;
use crate::value::DirectiveValue;

/// Maximum number of headers that a route can add.
const HEADERS_MAX: usize = 32;

/// Maximum total length in bytes of the names and values of the headers that a route adds, since
/// every response contains them.
const HEADERS_BYTES_MAX: usize = 16 << 10;

impl Checker<'_> {
    pub(super) fn precompressed(&mut self, table: &RawTable) -> Option<Vec<ContentCoding>> {
        let name = "precompressed";
        let encodings = self.each(table, name, encoding)?;
        for (item, encoding) in encodings.iter().enumerate() {
            if encodings[..item].contains(encoding) {
                let message = format!("{name}: {:?} is listed twice", encoding.name());
                self.problems.add(table.item_at(name, item), message);
                return None;
            }
        }
        Some(encodings)
    }

    /// Reads `headers`; they are optional.
    pub(super) fn answer_headers(&mut self, table: &RawTable) -> Option<Option<RouteHeaders>> {
        let Some(DirectiveValue::Pairs { pairs, .. }) = table.value("headers") else {
            return table.is_sound("headers").then_some(None);
        };
        let mut is_sound = true;
        for (item, (name, value)) in pairs.iter().enumerate() {
            let is_twin = |(other, _): &(String, String)| other.eq_ignore_ascii_case(name);
            let why = match RouteHeaders::check(name, value) {
                Err(bad) => bad.to_string(),
                Ok(()) if pairs[..item].iter().any(is_twin) => {
                    "is listed twice; header names are case-insensitive".to_owned()
                }
                Ok(()) => continue,
            };
            let at = table.item_at("headers", item);
            self.problems.add(at, format!("headers: {name:?}: {why}"));
            is_sound = false;
        }
        let bytes: usize = pairs
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        let too_many = match (pairs.len(), bytes) {
            (count, _) if count > HEADERS_MAX => Some(format!(
                "expected at most {HEADERS_MAX} headers, found {count}"
            )),
            (_, bytes) if bytes > HEADERS_BYTES_MAX => Some(format!(
                "expected at most {HEADERS_BYTES_MAX} bytes of header names and values together, found {bytes}"
            )),
            _ => None,
        };
        if let Some(why) = too_many {
            self.problems
                .add(table.value_at("headers"), format!("headers: {why}"));
            return None;
        }
        is_sound.then(|| Some(RouteHeaders::new(pairs).expect("each was checked")))
    }
}

fn encoding(word: &str) -> Result<ContentCoding, String> {
    let known = ContentCoding::ALL.into_iter();
    let mut named = known.filter(|encoding| encoding.name() == word);
    named.next().ok_or_else(|| {
        let names = ContentCoding::ALL.map(ContentCoding::name);
        let expected: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
        format!("expected {}", expected.join(" or "))
    })
}
