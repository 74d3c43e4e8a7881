//! Tests of static files from a root in memory, with tables of paths, conditions and ranges.

use std::collections::HashMap;

use veche_proto::http::{HeadLimits, ResponseBody, ResponseHead, parse_head};

use bytes::Bytes;

use super::*;

/// The files of the root by relative path. A request for an unsafe path fails the test.
struct Memory(HashMap<&'static str, &'static str>);

const MODIFIED_UNIX_S: u64 = 784_111_777;

/// Variants whose modification time differs from that of their file.
const VARIANTS_MODIFIED: [(&str, u64); 2] = [
    ("old.css.br", MODIFIED_UNIX_S - 1),
    ("new.css.br", MODIFIED_UNIX_S + 60),
];

impl Files for Memory {
    fn open(&mut self, root: &Path, relative: &str, _now_ms: u64) -> Result<OpenResult, OpenError> {
        assert_eq!(root, Path::new("/srv"));
        assert!(
            !relative.contains(['\\', '\0']) && !relative.starts_with('/'),
            "{relative:?}"
        );
        assert!(
            relative.is_empty()
                || relative
                    .split('/')
                    .all(|name| !matches!(name, "" | "." | "..")),
            "{relative:?}"
        );
        if relative.is_empty()
            || self
                .0
                .keys()
                .any(|name| name.starts_with(&format!("{relative}/")))
        {
            return Ok(OpenResult::Folder);
        }
        if relative == "secret" {
            return Err(OpenError::Denied);
        }
        let text = self.0.get(relative).ok_or(OpenError::NotFound)?;
        let description = FileMetadata::of_file(relative, text.len() as u64, MODIFIED_UNIX_S, 5);
        let content = FileContent::InMemory(Bytes::from_static(text.as_bytes()));
        Ok(OpenResult::File(File {
            metadata: Arc::new(description),
            content,
        }))
    }

    fn open_variant(
        &mut self,
        root: &Path,
        relative: &str,
        encoding: ContentCoding,
        _now_ms: u64,
    ) -> Result<Option<File>, OpenError> {
        assert_eq!(root, Path::new("/srv"));
        let name = format!("{relative}.{}", encoding.extension());
        if name == "denied.css.br" {
            return Err(OpenError::Denied);
        }
        let Some(text) = self.0.get(&*name) else {
            return Ok(None);
        };
        let modified = VARIANTS_MODIFIED
            .iter()
            .find(|(variant, _)| *variant == name);
        let modified_unix_s = modified.map_or(MODIFIED_UNIX_S, |(_, time)| *time);
        // The modification time of a variant has no fraction of a second, as if a tool had rounded it.
        let description = FileMetadata::of_file(relative, text.len() as u64, modified_unix_s, 0);
        Ok(Some(File {
            metadata: Arc::new(description.encoded(encoding)),
            content: FileContent::InMemory(Bytes::from_static(text.as_bytes())),
        }))
    }
}

fn memory() -> Memory {
    Memory(HashMap::from([
        ("index.html", "<h1>"),
        ("a.txt", "0123456789"),
        ("empty.bin", ""),
        ("b/index.html", "b"),
        ("b c/é.css", "x"),
        ("100%.txt", "%"),
        (".well-known/acme", "acme"),
        (".htpasswd", "never"),
        ("b/.git", "never"),
        ("app.js", "js"),
        ("c/x.json", "{}"),
        ("both.css", "both {}"),
        ("both.css.br", "<br both>"),
        ("both.css.gz", "<gz>"),
        ("zipped.css", "zipped {}"),
        ("zipped.css.gz", "<gz zipped>"),
        ("old.css", "old {}"),
        ("old.css.br", "<br old>"),
        ("old.css.gz", "<gz old>"),
        ("new.css", "new {}"),
        ("new.css.br", "<br new>"),
        ("denied.css", "denied {}"),
        ("d/index.html", "<h2>"),
        ("d/index.html.br", "<br d>"),
        ("alone.css.br", "<br alone>"),
    ]))
}

/// Returns the status, head and body of the response to a request.
fn get(method: &str, target: &str, headers: &str) -> (u16, String, String) {
    let (status, head, body, _) = get_of(&[], method, target, headers);
    (status, head, body)
}

/// Returns the result of [`get`] on a route that offers these variants, and the number of variants that were looked up.
fn get_of(
    variants: &[ContentCoding],
    method: &str,
    target: &str,
    headers: &str,
) -> (u16, String, String, u32) {
    let wire = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
    let limits = HeadLimits::default();
    let head = match parse_head(wire.as_bytes(), &limits) {
        Ok(head) => head,
        Err(error) => return (error.status.0, String::new(), String::new(), 0),
    };
    let place = FileLocation {
        root: Path::new("/srv"),
        relative: &head.path,
        variants,
    };
    let (answer, error) = answer(&mut memory(), place, &head, 0);
    if answer.has_file()
        && let Some(error) = error
    {
        let expected = "the br variant of the file: permission denied";
        assert_eq!(error.to_string(), expected, "{target}");
    }
    let mut out = Vec::new();
    let response = ResponseHead::to(
        &head,
        answer.status,
        ResponseBody::Sized(answer.len_bytes()),
    );
    let mut writer = response.start(&mut out, b"Sun, 06 Nov 1994 08:49:37 GMT");
    answer.write_headers(&mut writer, |_| false).unwrap();
    writer.finish();
    let body = match answer.body {
        FileBody::Bytes(text) => text.to_owned(),
        FileBody::Part(FileContent::InMemory(bytes), part) => {
            String::from_utf8(bytes[part.start as usize..part.end as usize].to_vec()).unwrap()
        }
        FileBody::Part(FileContent::OnDisk(_), _) => unreachable!("all is in memory"),
    };
    let head = String::from_utf8(out).unwrap();
    (answer.status.0, head, body, answer.variants_tried)
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[test]
fn paths_stay_inside() {
    let rows: &[(&str, u16, &str)] = &[
        ("/", 200, "<h1>"),
        ("/?x=/../", 200, "<h1>"),
        ("/index.html", 200, "<h1>"),
        ("/a.txt", 200, "0123456789"),
        ("/%61.txt", 200, "0123456789"),
        ("/b/", 200, "b"),
        ("/b%20c/%C3%A9.css", 200, "x"),
        ("/b%20c/\u{e9}.css", 200, "x"),
        ("/100%25.txt", 200, "%"),
        ("/100%.txt", 400, ""),
        ("/.well-known/acme", 200, "acme"),
        ("http://a/a.txt", 200, "0123456789"),
        ("/b", 301, ""),
        ("/c/", 404, "not found\n"),
        ("/a.txt/", 404, "not found\n"),
        ("/none", 404, "not found\n"),
        ("/secret", 403, "forbidden\n"),
        ("/.htpasswd", 404, "not found\n"),
        ("/b/.git", 404, "not found\n"),
        ("/b/.well-known", 404, "not found\n"),
        ("/%2ehtpasswd", 404, "not found\n"),
        ("/..", 200, "<h1>"),
        ("/../a.txt", 200, "0123456789"),
        ("/b/../a.txt", 200, "0123456789"),
        ("/./a.txt", 200, "0123456789"),
        ("/..%2fa.txt", 404, "not found\n"),
        ("/%2e%2e/a.txt", 200, "0123456789"),
        ("/%2e%2e%2fa.txt", 404, "not found\n"),
        ("/.%2e/a.txt", 200, "0123456789"),
        ("/b%2findex.html", 404, "not found\n"),
        ("/..\\a.txt", 400, ""),
        ("/..%5ca.txt", 400, ""),
        ("/b\\index.html", 400, ""),
        ("/a.txt%00.html", 400, ""),
        ("/a.txt%0a", 404, "not found\n"),
        ("/%252e%252e/a.txt", 404, "not found\n"),
        ("/%c0%ae%c0%ae/a.txt", 400, ""),
        ("/%ff", 400, ""),
        ("//a.txt", 200, "0123456789"),
        ("//etc/passwd", 404, "not found\n"),
        ("/b//index.html", 200, "b"),
        ("/a.txt//", 404, "not found\n"),
        ("/file:///etc/passwd", 404, "not found\n"),
        ("/C:/windows/win.ini", 404, "not found\n"),
    ];
    for (target, status, body) in rows {
        let (found_status, _, found_body) = get("GET", target, "");
        assert_eq!((found_status, &*found_body), (*status, *body), "{target}");
    }
    let deep = format!("/{}", "x/".repeat(4000));
    assert_eq!(get("GET", &deep, "").0, 404);
}

#[test]
fn folders_are_sent_to_their_slash() {
    assert_eq!(header(&get("GET", "/b", "").1, "Location"), Some("./b/"));
    assert_eq!(
        header(&get("GET", "/b?user=%0d%0aX:y", "").1, "Location"),
        Some("./b/?user=%0d%0aX:y")
    );
    assert_eq!(
        header(&get("GET", "/b%20c", "").1, "Location"),
        Some("./b%20c/")
    );
    assert_eq!(path::with_slash("/evil.example/b", ""), "./b/");
    assert_eq!(path::with_slash("/a\r\nb: c", "d"), "./a%0D%0Ab:%20c/?d");
    assert_eq!(path::with_slash("/javascript:x", ""), "./javascript:x/");
}

#[test]
fn types_and_methods() {
    let rows = [
        ("/", "text/html; charset=utf-8"),
        ("/a.txt", "text/plain; charset=utf-8"),
        ("/b%20c/%C3%A9.css", "text/css; charset=utf-8"),
        ("/app.js", "text/javascript; charset=utf-8"),
        ("/c/x.json", "application/json"),
        ("/empty.bin", "application/octet-stream"),
        ("/.well-known/acme", "application/octet-stream"),
    ];
    for (target, content_type) in rows {
        let (_, head, _) = get("GET", target, "");
        assert_eq!(
            header(&head, "Content-Type"),
            Some(content_type),
            "{target}"
        );
        assert_eq!(header(&head, "X-Content-Type-Options"), Some("nosniff"));
    }
    let (status, head, _) = get("HEAD", "/a.txt", "Range: bytes=0-1\r\n");
    assert_eq!((status, header(&head, "Content-Length")), (200, Some("10")));
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get"] {
        let (status, head, _) = get(method, "/a.txt", "");
        assert_eq!(
            (status, header(&head, "Allow")),
            (405, Some("GET, HEAD")),
            "{method}"
        );
    }
}

const ETAG: &str = "\"2ebc98a1.5-a\"";

#[test]
fn conditions_in_their_order() {
    let (_, head, _) = get("GET", "/a.txt", "");
    assert_eq!(header(&head, "ETag"), Some(ETAG));
    assert_eq!(
        header(&head, "Last-Modified"),
        Some("Sun, 06 Nov 1994 08:49:37 GMT")
    );
    let before = "Sun, 06 Nov 1994 08:49:36 GMT";
    let same = "Sun, 06 Nov 1994 08:49:37 GMT";
    let same_rfc850 = "Sunday, 06-Nov-94 08:49:37 GMT";
    let after = "Mon, 07 Nov 1994 08:49:37 GMT";
    let rows = [
        (format!("If-None-Match: {ETAG}"), 304),
        (format!("If-None-Match: W/{ETAG}"), 304),
        (format!("If-None-Match: \"x\", {ETAG}"), 304),
        (
            format!("If-None-Match: \"x\"\r\nIf-None-Match: {ETAG}"),
            304,
        ),
        ("If-None-Match: *".into(), 304),
        ("If-None-Match: \"x\"".into(), 200),
        (
            format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {after}"),
            200,
        ),
        (format!("If-Modified-Since: {same}"), 304),
        (format!("If-Modified-Since: {same_rfc850}"), 304),
        (format!("If-Modified-Since: {after}"), 304),
        (format!("If-Modified-Since: {before}"), 200),
        ("If-Modified-Since: yesterday".into(), 200),
        (format!("If-Match: {ETAG}"), 200),
        ("If-Match: *".into(), 200),
        ("If-Match: \"x\"".into(), 412),
        (format!("If-Match: W/{ETAG}"), 412),
        (format!("If-Match: \"x\"\r\nIf-None-Match: {ETAG}"), 412),
        (
            format!("If-Match: {ETAG}\r\nIf-Unmodified-Since: {before}"),
            200,
        ),
        (format!("If-Unmodified-Since: {before}"), 412),
        (format!("If-Unmodified-Since: {same}"), 200),
    ];
    for (headers, expected) in rows {
        let (status, head, body) = get("GET", "/a.txt", &format!("{headers}\r\n"));
        assert_eq!(status, expected, "{headers}");
        assert_eq!(header(&head, "ETag"), Some(ETAG), "{headers}");
        assert_eq!(body.is_empty(), expected != 200, "{headers}");
    }
}

#[test]
fn ranges() {
    let rows: &[(&str, u16, &str, Option<&str>)] = &[
        ("bytes=0-0", 206, "0", Some("bytes 0-0/10")),
        ("bytes=2-4", 206, "234", Some("bytes 2-4/10")),
        ("BYTES= 2-4 ", 206, "234", Some("bytes 2-4/10")),
        ("bytes=5-", 206, "56789", Some("bytes 5-9/10")),
        ("bytes=-3", 206, "789", Some("bytes 7-9/10")),
        ("bytes=-30", 206, "0123456789", Some("bytes 0-9/10")),
        ("bytes=5-100", 206, "56789", Some("bytes 5-9/10")),
        (
            "bytes=0-99999999999999999999999",
            206,
            "0123456789",
            Some("bytes 0-9/10"),
        ),
        (
            "bytes=0-18446744073709551615",
            206,
            "0123456789",
            Some("bytes 0-9/10"),
        ),
        ("bytes=10-", 416, "", Some("bytes */10")),
        ("bytes=99999999999999999999-", 416, "", Some("bytes */10")),
        ("bytes=-0", 416, "", Some("bytes */10")),
        ("bytes=4-2", 200, "0123456789", None),
        ("bytes=0-0,2-2", 200, "0123456789", None),
        ("bytes=", 200, "0123456789", None),
        ("bytes=-", 200, "0123456789", None),
        ("bytes=a-b", 200, "0123456789", None),
        ("bytes=+1-2", 200, "0123456789", None),
        ("bytes=1--2", 200, "0123456789", None),
        ("lines=1-2", 200, "0123456789", None),
        ("1-2", 200, "0123456789", None),
    ];
    for (range, status, body, content_range) in rows {
        let (found_status, head, found_body) = get("GET", "/a.txt", &format!("Range: {range}\r\n"));
        assert_eq!((found_status, &*found_body), (*status, *body), "{range}");
        assert_eq!(header(&head, "Content-Range"), *content_range, "{range}");
        assert_eq!(
            header(&head, "Content-Length").unwrap(),
            body.len().to_string(),
            "{range}"
        );
    }
    let many = format!("Range: bytes={}\r\n", vec!["0-"; 1000].join(","));
    assert_eq!(get("GET", "/a.txt", &many).0, 200);
    assert_eq!(get("GET", "/empty.bin", "Range: bytes=0-\r\n").0, 416);
    assert_eq!(get("GET", "/empty.bin", "Range: bytes=-1\r\n").0, 416);
    for (of, status) in [
        (ETAG, 206),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 206),
        ("\"x\"", 200),
        ("W/\"x\"", 200),
    ] {
        let headers = format!("Range: bytes=0-0\r\nIf-Range: {of}\r\n");
        assert_eq!(get("GET", "/a.txt", &headers).0, status, "{of}");
    }
}

#[test]
fn variants_by_what_the_client_accepts() {
    let rows: &[(&str, &str, &str, Option<&str>, u32)] = &[
        // Columns: target, `Accept-Encoding`, expected body, expected `Content-Encoding`, expected number of variants
        // looked up.
        ("/both.css", "gzip, deflate, br", "<br both>", Some("br"), 1),
        ("/both.css", "gzip", "<gz>", Some("gzip"), 1),
        ("/both.css", "br;q=0.5, gzip", "<gz>", Some("gzip"), 1),
        ("/both.css", "*;q=0, gzip", "<gz>", Some("gzip"), 1),
        ("/both.css", "identity", "both {}", None, 0),
        ("/both.css", "", "both {}", None, 0),
        ("/both.css", "zstd", "both {}", None, 0),
        ("/zipped.css", "gzip, br", "<gz zipped>", Some("gzip"), 2),
        ("/zipped.css", "br", "zipped {}", None, 1),
        (
            "/zipped.css",
            "br, identity;q=0, gzip",
            "<gz zipped>",
            Some("gzip"),
            2,
        ),
        // A variant that is older than its file is not served.
        ("/old.css", "gzip, br", "<gz old>", Some("gzip"), 2),
        ("/old.css", "br", "old {}", None, 1),
        ("/new.css", "br", "<br new>", Some("br"), 1),
        ("/d/", "br", "<br d>", Some("br"), 1),
        ("/denied.css", "br", "denied {}", None, 1),
        ("/app.js", "br, gzip", "js", None, 2),
        // A variant that is requested under its own name is served as an ordinary file.
        ("/both.css.gz", "gzip, br", "<gz>", None, 2),
        ("/both.css.br", "identity", "<br both>", None, 0),
    ];
    for (target, accepted, body, encoding, tried) in rows {
        for method in ["GET", "HEAD"] {
            let headers = format!("Accept-Encoding: {accepted}\r\n");
            let (status, head, found, looked_for) =
                get_of(&ContentCoding::ALL, method, target, &headers);
            let what = format!("{method} {target} {accepted}");
            assert_eq!((status, &*found), (200, *body), "{what}");
            assert_eq!(header(&head, "Content-Encoding"), *encoding, "{what}");
            assert_eq!(header(&head, "Vary"), Some("Accept-Encoding"), "{what}");
            let length = body.len().to_string();
            assert_eq!(header(&head, "Content-Length"), Some(&*length), "{what}");
            assert_eq!(looked_for, *tried, "{what}");
        }
    }
    for (target, content_type) in [
        ("/both.css", "text/css; charset=utf-8"),
        ("/both.css.gz", "application/gzip"),
        ("/d/", "text/html; charset=utf-8"),
    ] {
        let (_, head, _, _) = get_of(
            &ContentCoding::ALL,
            "GET",
            target,
            "Accept-Encoding: br\r\n",
        );
        assert_eq!(
            header(&head, "Content-Type"),
            Some(content_type),
            "{target}"
        );
    }
    // Of two codings with equal weights, the order of the route's `variants` decides.
    let order = [ContentCoding::Gzip, ContentCoding::Brotli];
    let (_, _, body, _) = get_of(&order, "GET", "/both.css", "Accept-Encoding: br, gzip\r\n");
    assert_eq!(body, "<gz>");
}

#[test]
fn answers_without_a_file_do_not_vary() {
    for (target, status) in [
        ("/none", 404),
        ("/alone.css", 404),
        ("/d", 301),
        ("/secret", 403),
    ] {
        let (found, head, _, tried) = get_of(
            &ContentCoding::ALL,
            "GET",
            target,
            "Accept-Encoding: br\r\n",
        );
        assert_eq!(
            (found, header(&head, "Vary"), tried),
            (status, None, 0),
            "{target}"
        );
    }
    // A route without variants ignores `Accept-Encoding`.
    for accepted in ["gzip, br", "identity;q=0", "*;q=0"] {
        let headers = format!("Accept-Encoding: {accepted}\r\n");
        let (status, head, body) = get("GET", "/both.css", &headers);
        assert_eq!((status, &*body), (200, "both {}"), "{accepted}");
        assert_eq!(header(&head, "Vary"), None, "{accepted}");
    }
}

#[test]
fn a_client_that_accepts_nothing_that_is_there() {
    for (target, accepted) in [
        ("/zipped.css", "br, identity;q=0"),
        ("/app.js", "*;q=0, gzip"),
        ("/both.css", "*;q=0"),
    ] {
        let headers = format!("Accept-Encoding: {accepted}\r\n");
        let (status, head, body, _) = get_of(&ContentCoding::ALL, "GET", target, &headers);
        assert_eq!(status, 406, "{target} {accepted}");
        assert!(body.contains("encoding"), "{body}");
        assert_eq!(header(&head, "Vary"), Some("Accept-Encoding"));
        assert_eq!(header(&head, "ETag"), None);
    }
}

#[test]
fn each_representation_has_a_tag_of_its_own() {
    // The entity tags differ even if the variants have the same length and modification time as the file.
    let of = || FileMetadata::of_file("a.css", 7, MODIFIED_UNIX_S, 5);
    let tags = [
        of().etag,
        of().encoded(ContentCoding::Brotli).etag,
        of().encoded(ContentCoding::Gzip).etag,
    ];
    let expected = [
        "\"2ebc98a1.5-7\"",
        "\"2ebc98a1.5-7-br\"",
        "\"2ebc98a1.5-7-gzip\"",
    ];
    assert_eq!(tags.each_ref().map(|tag| &**tag), expected);
}

#[test]
fn conditions_and_ranges_are_of_the_variant() {
    let asked = |accepted: &str, headers: &str| {
        let headers = format!("Accept-Encoding: {accepted}\r\n{headers}");
        get_of(&ContentCoding::ALL, "GET", "/both.css", &headers)
    };
    let tags = ["br", "gzip", "identity"].map(|accepted| {
        let (_, head, _, _) = asked(accepted, "");
        (accepted, header(&head, "ETag").unwrap().to_owned())
    });
    for (accepted, _) in &tags {
        for (of, tag) in &tags {
            let status = if of == accepted { 304 } else { 200 };
            let (found, head, _, _) = asked(accepted, &format!("If-None-Match: {tag}\r\n"));
            assert_eq!(found, status, "{accepted}, {tag} of {of}");
            assert_eq!(header(&head, "Vary"), Some("Accept-Encoding"));
            let encoding = header(&head, "Content-Encoding");
            assert!(encoding.is_none() || status == 200, "{accepted}, of {of}");
            let headers = format!("Range: bytes=1-2\r\nIf-Range: {tag}\r\n");
            let (found, _, _, _) = asked(accepted, &headers);
            assert_eq!(found == 206, of == accepted, "{accepted}, {tag} of {of}");
        }
    }
    let (status, head, body, _) = asked("br", "Range: bytes=1-2\r\n");
    assert_eq!((status, &*body), (206, "br"));
    assert_eq!(header(&head, "Content-Range"), Some("bytes 1-2/9"));
    assert_eq!(header(&head, "Content-Encoding"), Some("br"));
    let (status, head, _, _) = asked("gzip", "Range: bytes=4-\r\n");
    assert_eq!(status, 416);
    assert_eq!(header(&head, "Content-Range"), Some("bytes */4"));
    assert_eq!(header(&head, "Vary"), Some("Accept-Encoding"));
}
