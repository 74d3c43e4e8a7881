//! Tests the settings of routes for responses: encodings of files, and headers.

use veche_frontends::route::RouteHeaders;
use veche_frontends::static_files::ContentCoding;

use super::bad::says_after_listen;
use super::*;

const FILES: &str = "[[route]]\npath = \"/\"\nhandler = \"static\"\nroot = \"/srv/www\"\n";

#[test]
fn what_files_are_sent_with() {
    let text = format!(
        "{LISTEN}{FILES}precompressed = [\"gzip\", \"br\"]\n\
         headers = {{ X-Frame-Options = \"DENY\", Cache-Control = \"no-store\" }}\n\
         [[route]]\npath = \"/sub\"\nhandler = \"lua\"\nscript = \"api.lua\"\n\
         [route.headers]\n\
         \"Content-Security-Policy\" = \"default-src 'self' https://cdn.example/?a=b\"\n\
         [[route]]\npath = \"/plain\"\nhandler = \"static\"\nroot = \"/srv/www\"\n\
         headers = {{}}\n"
    );
    let config = checked(&text).expect("it is fine");
    let headers = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter();
        let pairs = pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Some(RouteHeaders::new(pairs).expect("they can be added"))
    };
    let [files, sub, plain] = &config.routes[..] else {
        panic!("three routes")
    };
    let RouteHandler::Static { precompressed, .. } = &files.handler else {
        panic!("files")
    };
    assert_eq!(
        precompressed[..],
        [ContentCoding::Gzip, ContentCoding::Brotli]
    );
    let both = headers(&[("Cache-Control", "no-store"), ("X-Frame-Options", "DENY")]);
    assert_eq!(files.headers, both);
    let policy = "default-src 'self' https://cdn.example/?a=b";
    assert_eq!(sub.headers, headers(&[("Content-Security-Policy", policy)]));
    assert_eq!(plain.headers, headers(&[]));

    // The printed configuration has the configured values; none of them is masked.
    let printed = config.effective.to_string();
    for line in [
        "precompressed = [\"gzip\", \"br\"]",
        "headers = { Cache-Control = \"no-store\", X-Frame-Options = \"DENY\" }",
        &format!("headers = {{ Content-Security-Policy = \"{policy}\" }}"),
    ] {
        assert!(printed.contains(line), "{line}\n{printed}");
    }
    let again = checked(&printed).expect("it is a configuration");
    for (route, other) in config.routes.iter().zip(&again.routes) {
        assert_eq!(
            (&route.headers, &route.handler),
            (&other.headers, &other.handler)
        );
    }
}

#[test]
fn invalid_settings_are_reported() {
    says_after_listen(
        &format!("{FILES}precompressed = [\"gz\", \"br\", \"br\"]\n"),
        &["7:18: precompressed: expected \"br\" or \"gzip\", found \"gz\""],
    );
    says_after_listen(
        &format!("{FILES}precompressed = [\"br\", \"gzip\", \"br\"]\n"),
        &["7:32: precompressed: \"br\" is listed twice"],
    );
    says_after_listen(
        &format!("{FILES}precompressed = true\nheaders = [\"X: y\"]\n"),
        &[
            "7:17: precompressed: expected a list of encodings such as [\"br\", \"gzip\"], found true",
            "8:11: headers: expected a table such as { X-Frame-Options = \"DENY\" }, found a list of strings",
        ],
    );
    says_after_listen(
        &format!("{FILES}headers = {{ X-A = \"a\", X-B = 3 }}\n"),
        &["7:11: headers: X-B: expected a string, found 3"],
    );
    says_after_listen(
        &format!(
            "{FILES}[route.headers]\n\
             Content-Length = \"0\"\n\
             Vary = \"Cookie\"\n\
             Location = \"/\"\n\
             \"X Y\" = \"a\"\n\
             X-Split = \"a\\r\\nSet-Cookie: b\"\n\
             X-Empty = \"\"\n\
             X-Twin = \"a\"\n\
             x-twin = \"b\"\n\
             X-Fine = \"a\"\n"
        ),
        &[
            "8:1: headers: \"Content-Length\": the server sets this header itself: it describes the connection, not the response",
            "9:1: headers: \"Vary\": the server or the script sets this header on each response: it describes the body",
            "10:1: headers: \"Location\": the server or the script sets this header on the responses that need it",
            "11:1: headers: \"X Y\": a header name may contain only letters, digits and !#$%&'*+-.^_`|~",
            "12:1: headers: \"X-Split\": a header value must not contain line breaks or control characters",
            "13:1: headers: \"X-Empty\": the value is empty",
            "15:1: headers: \"x-twin\": is listed twice; header names are case-insensitive",
        ],
    );
    let many: Vec<String> = (0..33).map(|n| format!("X-{n} = \"a\"")).collect();
    says_after_listen(
        &format!("{FILES}headers = {{ {} }}\n", many.join(", ")),
        &["7:11: headers: expected at most 32 headers, found 33"],
    );
    let long = "a".repeat(16 << 10);
    says_after_listen(
        &format!("{FILES}headers = {{ X-A = \"{long}\" }}\n"),
        &[
            "7:11: headers: expected at most 16384 bytes of header names and values together, found 16387",
        ],
    );
    // Setting headers or encodings is an error for a handler to which they do not apply.
    says_after_listen(
        "[[route]]\npath = \"/ws\"\nhandler = \"echo\"\nheaders = { X-A = \"a\" }\nprecompressed = [\"br\"]\n",
        &[
            "6:1: headers: has no effect with handler \"echo\", only with \"static\", \"lua\", \"app\"",
            "7:1: precompressed: has no effect with handler \"echo\", only with \"static\"",
        ],
    );
}
