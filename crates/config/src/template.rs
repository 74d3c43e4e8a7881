//! Formats entries of the access log: by a template with fields, or as JSON objects.
//!
//! Data from clients can't forge a line or control a terminal: in text, every byte except visible ASCII is escaped in
//! the form `\x0A`, as in nginx; in JSON, with JSON's escapes. Queries are not logged; see
//! [`AccessLogBuffer`](veche_frontends::AccessLogBuffer).

use std::io::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Map, Value};
use veche_frontends::access_log_buffer::{AccessLogEntry, SessionSummary};
use veche_proto::http::encoded_path;

/// The template of `format = "text"`.
const TEXT: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $bytes_sent \"$http_referer\" \
                    \"$http_user_agent\" $request_time $close_code $messages_received $messages_sent";

/// A field: its name, description and source.
pub(crate) struct TemplateField {
    pub name: &'static str,
    #[cfg_attr(
        not(test),
        expect(
            dead_code,
            reason = "only the test that generates the reference uses this"
        )
    )]
    pub doc: &'static str,
    read: fn(&AccessLogEntry) -> FieldSource,
}

/// The value of a field.
enum FieldSource {
    Nothing,
    /// Text that the server generated, which needs no escaping.
    Own(String),
    /// A value from outside the server, which is escaped.
    Text(String),
    Number(u64),
    /// Milliseconds, written as seconds.
    Seconds(u64),
}

impl<T: AsRef<str>> From<Option<T>> for FieldSource {
    fn from(text: Option<T>) -> Self {
        match text {
            Some(text) if !text.as_ref().is_empty() => Self::Text(text.as_ref().to_owned()),
            _ => Self::Nothing,
        }
    }
}

const fn field(
    name: &'static str,
    doc: &'static str,
    read: fn(&AccessLogEntry) -> FieldSource,
) -> TemplateField {
    TemplateField { name, doc, read }
}

/// All fields in the order of the JSON format.
pub(crate) static FIELDS: &[TemplateField] = &[
    field(
        "time_iso8601",
        "the time when the request or session ended, in UTC: `2026-03-01T12:00:00.123Z`",
        |e| FieldSource::Own(humantime::format_rfc3339_millis(ended(e)).to_string()),
    ),
    field(
        "time_local",
        "the time when the request or session ended, in the format of nginx and Apache and in UTC: `01/Mar/2026:12:00:00 +0000`",
        |e| FieldSource::Own(common_time(e)),
    ),
    field(
        "remote_addr",
        "the client's address; behind a trusted proxy the address that the proxy reports",
        |e| FieldSource::from(e.client.map(|client| client.to_string())),
    ),
    field(
        "remote_user",
        "the user, where the route has an `identity`",
        |e| FieldSource::from(e.user.as_deref()),
    ),
    field(
        "request",
        "method, path in URL encoding, and version: `GET /chat HTTP/1.1`",
        |e| {
            let version = if e.is_http10 { "1.0" } else { "1.1" };
            match e.method.is_empty() {
                true => FieldSource::Nothing,
                false => {
                    let path = encoded_path(&e.path);
                    FieldSource::Text(format!("{} {path} HTTP/{version}", e.method))
                }
            }
        },
    ),
    field("request_method", "the method", |e| {
        FieldSource::from(Some(&e.method))
    }),
    field(
        "uri",
        "the path by which the request was routed, decoded, without the query",
        |e| FieldSource::from(Some(&e.path)),
    ),
    field("host", "the `Host` that the client requested", |e| {
        FieldSource::from(Some(&e.host))
    }),
    field(
        "route",
        "the `path` of the route that served the request",
        |e| FieldSource::from(e.route.as_deref()),
    ),
    field(
        "status",
        "the status of the response; 101 for a WebSocket, 499 for a client that disconnected before the response",
        |e| FieldSource::Number(u64::from(e.status)),
    ),
    field(
        "request_time",
        "the duration in seconds, until the response was written or the session ended",
        |e| FieldSource::Seconds(e.duration_ms),
    ),
    field(
        "bytes_received",
        "bytes of the request; for a session, of the messages received",
        |e| FieldSource::Number(e.bytes_in),
    ),
    field(
        "bytes_sent",
        "bytes of the response including its head; for a session, of the messages sent",
        |e| FieldSource::Number(e.bytes_out),
    ),
    field(
        "messages_received",
        "the number of messages received from the client in a session",
        |e| of_session(e, |session| session.messages_in),
    ),
    field(
        "messages_sent",
        "the number of messages sent to the client in a session",
        |e| of_session(e, |session| session.messages_out),
    ),
    field(
        "close_code",
        "the close code of the session; 1006 without a Close frame, 1005 for a Close frame without a code",
        |e| of_session(e, |session| session.close_code.map_or(0, u64::from)),
    ),
    field("http_referer", "`Referer`, without its query", |e| {
        FieldSource::from(Some(&e.referer))
    }),
    field("http_user_agent", "`User-Agent`", |e| {
        FieldSource::from(Some(&e.user_agent))
    }),
];

fn of_session(entry: &AccessLogEntry, read: fn(&SessionSummary) -> u64) -> FieldSource {
    entry
        .session
        .as_ref()
        .map_or(FieldSource::Nothing, |session| {
            FieldSource::Number(read(session))
        })
}

fn ended(entry: &AccessLogEntry) -> std::time::SystemTime {
    UNIX_EPOCH + Duration::from_millis(entry.ended_ms)
}

/// Formats the time for the common log format, such as `06/Nov/1994:08:49:37 +0000`.
fn common_time(entry: &AccessLogEntry) -> String {
    let date = httpdate::fmt_http_date(ended(entry));
    let part = |from: usize, to: usize| date.get(from..to).unwrap_or_default();
    format!(
        "{}/{}/{}:{} +0000",
        part(5, 7),
        part(8, 11),
        part(12, 16),
        part(17, 25)
    )
}

/// The format of the access log's lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Template {
    /// A JSON object with every field that has a value.
    Json,
    /// Literals and fields in the order of the template.
    Text(Vec<TemplatePart>),
}

/// A part of a text template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePart {
    Words(String),
    /// A field: its index in [`FIELDS`], and whether it is inside quotation marks.
    Field(usize, bool),
}

impl Template {
    /// Parses `format`: `text`, `json`, or a text with `$fields`. The error names what is expected.
    pub fn parse(format: &str) -> Result<Self, String> {
        match format {
            "json" => Ok(Self::Json),
            "text" => Self::pieces(TEXT),
            // A template without fields would make all lines identical.
            format if !format.contains('$') => {
                Err("expected \"text\", \"json\" or a template with $fields".to_owned())
            }
            format => Self::pieces(format),
        }
    }

    fn pieces(format: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = format;
        let mut is_quoted = false;
        while let Some(at) = rest.find('$') {
            let (words, after) = (&rest[..at], &rest[at + 1..]);
            is_quoted ^= words.matches('"').count() % 2 == 1;
            if !words.is_empty() {
                pieces.push(TemplatePart::Words(words.to_owned()));
            }
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
            let name = &after[..end];
            let known = || FIELDS.iter().map(|field| field.name);
            let Some(index) = known().position(|known| known == name) else {
                let near = hint(name, known());
                return Err(format!("unknown field ${name}{near}"));
            };
            pieces.push(TemplatePart::Field(index, is_quoted));
            rest = &after[end..];
        }
        if !rest.is_empty() {
            pieces.push(TemplatePart::Words(rest.to_owned()));
        }
        Ok(Self::Text(pieces))
    }

    /// Writes an entry without a newline.
    pub fn write(&self, entry: &AccessLogEntry, out: &mut Vec<u8>) {
        match self {
            Self::Json => write_json(entry, out),
            Self::Text(pieces) => {
                for piece in pieces {
                    match piece {
                        TemplatePart::Words(words) => out.extend_from_slice(words.as_bytes()),
                        TemplatePart::Field(index, is_quoted) => {
                            let found = (FIELDS[*index].read)(entry);
                            write_text(&found, *is_quoted, out);
                        }
                    }
                }
            }
        }
    }
}

fn hint(name: &str, known: impl Iterator<Item = &'static str>) -> String {
    match veche_types::nearest(name, known) {
        Some(near) => veche_terminal::did_you_mean(&format!("${near}")),
        None => String::new(),
    }
}

fn write_text(found: &FieldSource, is_quoted: bool, out: &mut Vec<u8>) {
    // Writing to a vector can't fail.
    let _ = match found {
        FieldSource::Nothing => out.write_all(b"-"),
        FieldSource::Own(text) => out.write_all(text.as_bytes()),
        FieldSource::Number(number) => write!(out, "{number}"),
        FieldSource::Seconds(ms) => write!(out, "{}.{:03}", ms / 1000, ms % 1000),
        FieldSource::Text(text) => {
            for &byte in text.as_bytes() {
                match byte {
                    // Inside quotation marks a space is not a separator, so it is not escaped.
                    b' ' if is_quoted => out.push(byte),
                    b'"' | b'\\' => escape(byte, out),
                    0x21..=0x7e => out.push(byte),
                    _ => escape(byte, out),
                }
            }
            Ok(())
        }
    };
}

fn escape(byte: u8, out: &mut Vec<u8>) {
    let _ = write!(out, "\\x{byte:02X}");
}

fn write_json(entry: &AccessLogEntry, out: &mut Vec<u8>) {
    let mut object = Map::new();
    for field in FIELDS {
        let value = match (field.read)(entry) {
            FieldSource::Nothing => continue,
            FieldSource::Own(text) | FieldSource::Text(text) => Value::String(text),
            FieldSource::Number(number) => Value::from(number),
            FieldSource::Seconds(ms) => Value::from(ms as f64 / 1000.0),
        };
        object.insert(field.name.to_owned(), value);
    }
    // JSON omits `request` and `time_local`, because they repeat other fields.
    object.remove("request");
    object.remove("time_local");
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, Ascii);
    if object.serialize(&mut serializer).is_err() {
        unreachable!("writes to a Vec never fail, and all keys are text");
    }
}

/// A JSON formatter that escapes everything except visible ASCII, since C1 control characters affect terminals too.
struct Ascii;

impl serde_json::ser::Formatter for Ascii {
    fn write_string_fragment<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> std::io::Result<()> {
        let mut units = [0; 2];
        for c in fragment.chars() {
            if (' '..='~').contains(&c) {
                writer.write_all(&[c as u8])?;
            } else {
                for unit in c.encode_utf16(&mut units) {
                    write!(writer, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(format: &str, entry: &AccessLogEntry) -> String {
        let mut out = Vec::new();
        Template::parse(format)
            .expect("a template")
            .write(entry, &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    fn request() -> AccessLogEntry {
        let mut entry = AccessLogEntry::default();
        entry.client = Some([192, 0, 2, 7].into());
        entry.ended_ms = 1_772_366_400_123;
        entry.duration_ms = 1_042;
        entry.path = "/a".into();
        entry.method = "GET".into();
        entry.status = 200;
        entry.bytes_in = 30;
        entry.bytes_out = 120;
        entry
    }

    fn session() -> AccessLogEntry {
        let mut entry = request();
        entry.status = 101;
        entry.user = Some("ann".into());
        entry.session = Some(SessionSummary {
            messages_in: 2,
            messages_out: 3,
            close_code: Some(1001),
        });
        entry
    }

    #[test]
    fn text_by_default() {
        assert_eq!(
            line("text", &request()),
            "192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] \"GET /a HTTP/1.1\" 200 120 \"-\" \"-\" 1.042 - - -"
        );
        assert_eq!(
            line("text", &session()),
            "192.0.2.7 - ann [01/Mar/2026:12:00:00 +0000] \"GET /a HTTP/1.1\" 101 120 \"-\" \"-\" 1.042 1001 2 3"
        );
        assert!(line("text", &AccessLogEntry::default()).starts_with("- - - ["));
    }

    #[test]
    fn json_has_what_there_is() {
        let value: Value = serde_json::from_str(&line("json", &session())).expect("JSON");
        let expected = serde_json::json!({
            "time_iso8601": "2026-03-01T12:00:00.123Z", "remote_addr": "192.0.2.7", "remote_user": "ann",
            "request_method": "GET", "uri": "/a", "status": 101, "request_time": 1.042, "bytes_received": 30,
            "bytes_sent": 120, "messages_received": 2, "messages_sent": 3, "close_code": 1001,
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn a_template_of_ones_own() {
        let of = |format| line(format, &session());
        assert_eq!(of("$status"), "101");
        assert_eq!(of("$remote_user:$close_code;"), "ann:1001;");
        assert_eq!(of("[$route] $host"), "[-] -");
    }

    #[test]
    fn what_clients_send_forges_nothing() {
        let mut entry = session();
        let bad = "a\n\"b\" \\ \u{1b}[2J\u{9b}31m é\u{202e}";
        entry.user = Some(bad.into());
        entry.path = bad.into();
        entry.user_agent = bad.into();
        for format in ["text", "json", "$uri $http_user_agent"] {
            let line = line(format, &entry);
            assert!(
                line.bytes().all(|byte| (0x20..0x7f).contains(&byte)),
                "{line}"
            );
        }
        assert_eq!(
            line("$remote_user", &entry),
            r"a\x0A\x22b\x22\x20\x5C\x20\x1B[2J\xC2\x9B31m\x20\xC3\xA9\xE2\x80\xAE"
        );
        // Spaces separate unquoted fields, so a space within an unquoted field is escaped.
        assert_eq!(line("$uri", &entry).split(' ').count(), 1);
        let value: Value = serde_json::from_str(&line("json", &entry)).expect("JSON");
        assert_eq!(value["remote_user"], bad);
    }

    #[test]
    fn unknown_fields_are_reported_with_the_nearest_name() {
        let error = |format| Template::parse(format).expect_err("no template");
        assert_eq!(
            error("$remote_adr $status"),
            "unknown field $remote_adr; did you mean \"$remote_addr\"?"
        );
        assert!(error("$query_string").starts_with("unknown field $query_string"));
        assert!(error("combined").contains("\"json\""));
        assert!(error("costs 5 $").starts_with("unknown field $"));
    }

    /// Checks that the reference page of the fields is the one generated from [`FIELDS`].
    #[test]
    fn the_reference_lists_every_field() {
        let mut page = String::from(
            "# Fields of the access log\n\n`format` of `[access_log]` can use these fields, each with a `$` before it; JSON \
             has them without it. An absent value is `-`, and omitted from JSON. See [Operations](../guide/operate.md).\n\n\
             A test generates this page; `VECHE_BLESS=1 cargo test -p veche-config fields` updates it.\n\n\
             | field | meaning |\n|---|---|\n",
        );
        for TemplateField { name, doc, .. } in FIELDS {
            page.push_str(&format!("| `${name}` | {doc} |\n"));
        }
        page.push_str(&format!(
            "\n`format = \"text\"` is\n\n```text\n{TEXT}\n```\n"
        ));
        crate::generated_page::assert_page_is_current("access-log.md", &page);
    }
}
