//! The grammar of `Sec-WebSocket-Extensions` (RFC 6455 section 9.1): `name; parameter; parameter=value, name …`, with
//! values as tokens or quoted strings. The parser accepts any extension name. Its time is linear in the header's
//! length for any content.

/// One element of the list: the extension's name and its unparsed parameters.
pub(super) struct Extension<'h> {
    pub(super) name: &'h str,
    parameters: Split<'h>,
}

/// Returns the elements of a header value; empty ones are skipped (RFC 9110 section 5.6.1.2).
pub(super) fn parse(value: &str) -> impl Iterator<Item = Extension<'_>> {
    Split {
        rest: Some(value),
        delimiter: b',',
    }
    .filter(|element| !element.is_empty())
    .map(|element| {
        let mut parameters = Split {
            rest: Some(element),
            delimiter: b';',
        };
        let name = parameters.next().unwrap_or_default();
        Extension { name, parameters }
    })
}

impl<'h> Extension<'h> {
    /// Returns names and unquoted values in order. Escapes in values are kept, since no supported
    /// parameter accepts them.
    pub(super) fn parameters(self) -> impl Iterator<Item = (&'h str, Option<&'h str>)> {
        self.parameters
            .map(|parameter| match parameter.split_once('=') {
                Some((name, value)) => {
                    let value = trim(value);
                    let unquoted = value
                        .strip_prefix('"')
                        .and_then(|value| value.strip_suffix('"'));
                    (trim(name), Some(unquoted.unwrap_or(value)))
                }
                None => (parameter, None),
            })
    }
}

/// Splits at a delimiter outside of quoted strings; an unclosed quote extends to the end.
struct Split<'h> {
    rest: Option<&'h str>,
    delimiter: u8,
}

impl<'h> Iterator for Split<'h> {
    type Item = &'h str;

    fn next(&mut self) -> Option<&'h str> {
        let rest = self.rest?;
        let mut quoted = false;
        let mut escaped = false;
        let end = rest.bytes().position(|byte| {
            if escaped {
                escaped = false;
            } else if quoted && byte == b'\\' {
                escaped = true;
            } else if byte == b'"' {
                quoted = !quoted;
            } else {
                return !quoted && byte == self.delimiter;
            }
            false
        });
        // The delimiter is ASCII, so both sides of it are on character boundaries.
        let part = match end {
            Some(end) => {
                self.rest = Some(&rest[end + 1..]);
                &rest[..end]
            }
            None => {
                self.rest = None;
                rest
            }
        };
        Some(trim(part))
    }
}

/// Trims the white space that HTTP permits around a part.
pub(super) fn trim(part: &str) -> &str {
    part.trim_matches([' ', '\t'])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns one line per extension, with its parameters in brackets.
    fn read(value: &str) -> String {
        parse(value)
            .map(|extension| {
                let name = extension.name;
                format!("{name} {:?}\n", extension.parameters().collect::<Vec<_>>())
            })
            .collect()
    }

    #[test]
    fn lists_parameters_and_quotes() {
        assert_eq!(read(""), "");
        assert_eq!(read(" , foo ,,\tbar"), "foo []\nbar []\n");
        assert_eq!(
            read("foo; a ; b = 1;c=\"x,y;z\", bar;d=\"\\\",\""),
            "foo [(\"a\", None), (\"b\", Some(\"1\")), (\"c\", Some(\"x,y;z\"))]\n\
             bar [(\"d\", Some(\"\\\\\\\",\"))]\n"
        );
        assert_eq!(read("foo;"), "foo [(\"\", None)]\n");
    }

    #[test]
    fn an_open_quote_swallows_the_rest() {
        assert_eq!(
            read("a; b=\"\\c\\c, permessage-deflate"),
            "a [(\"b\", Some(\"\\\"\\\\c\\\\c, permessage-deflate\"))]\n"
        );
    }
}
