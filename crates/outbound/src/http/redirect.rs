//! Redirects: the rules of the Fetch standard, section 4.4 (HTTP-redirect fetch).

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LOCATION, CONTENT_TYPE, COOKIE,
    HOST, LOCATION, PROXY_AUTHORIZATION,
};
use http::{HeaderMap, Method, StatusCode};
use veche_calls::{CallError, CallErrorKind, masked};

use super::exchange::Hop;
use super::fault;

/// Returns the next request; `None` if the response is not a redirect.
///
/// # Errors
/// The target is not an `http` or `https` URL.
pub(super) fn next(
    hop: &Hop,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Option<Hop>, CallError> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = headers.get(LOCATION) else {
        return Ok(None);
    };
    let location = String::from_utf8_lossy(location.as_bytes());
    let bad = |why: &dyn std::fmt::Display| {
        let words = format!("refused a redirect to {:?}: {why}", masked(&location));
        fault(CallErrorKind::Broken, words)
    };
    let mut url = hop.url.join(&location).map_err(|error| bad(&error))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad(&"the URL begins with neither http:// nor https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad(&"the URL contains a name or a password"));
    }
    url.set_fragment(None);
    let mut next = Hop { url, ..hop.clone() };
    let becomes_get = match status.as_u16() {
        301 | 302 => hop.method == Method::POST,
        303 => !matches!(hop.method, Method::GET | Method::HEAD),
        _ => false,
    };
    if becomes_get {
        next.method = Method::GET;
        next.body = Bytes::new();
        for name in [
            CONTENT_ENCODING,
            CONTENT_LANGUAGE,
            CONTENT_LOCATION,
            CONTENT_TYPE,
        ] {
            next.headers.remove(name);
        }
    }
    if next.url.origin() != hop.url.origin() {
        // Credentials for one server are not sent to another.
        for name in [AUTHORIZATION, COOKIE, HOST, PROXY_AUTHORIZATION] {
            next.headers.remove(name);
        }
    }
    Ok(Some(next))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn hop(method: Method) -> Hop {
        let mut headers = HeaderMap::new();
        for name in [AUTHORIZATION, COOKIE, CONTENT_TYPE, HOST] {
            headers.insert(name, HeaderValue::from_static("x"));
        }
        headers.insert("x-own", HeaderValue::from_static("x"));
        Hop {
            method,
            url: "http://a.test/one/two?q".parse().expect("a URL"),
            headers,
            body: "body".into(),
        }
    }

    fn follow(method: Method, status: u16, location: &str) -> Result<Option<Hop>, CallError> {
        let mut headers = HeaderMap::new();
        let location = HeaderValue::from_bytes(location.as_bytes()).expect("a value");
        headers.insert(LOCATION, location);
        let status = StatusCode::from_u16(status).expect("a status");
        next(&hop(method), status, &headers)
    }

    #[test]
    fn methods_and_bodies() {
        for (method, status, becomes) in [
            (Method::POST, 301, Method::GET),
            (Method::POST, 302, Method::GET),
            (Method::POST, 303, Method::GET),
            (Method::PUT, 303, Method::GET),
            (Method::HEAD, 303, Method::HEAD),
            (Method::POST, 307, Method::POST),
            (Method::POST, 308, Method::POST),
            (Method::PUT, 301, Method::PUT),
            (Method::DELETE, 302, Method::DELETE),
            (Method::GET, 302, Method::GET),
        ] {
            let next = follow(method.clone(), status, "/x")
                .expect("good")
                .expect("one");
            assert_eq!(next.method, becomes, "{method} {status}");
            let keeps = method == becomes;
            assert_eq!(next.body.is_empty(), !keeps, "{method} {status}");
            assert_eq!(next.headers.contains_key(CONTENT_TYPE), keeps);
        }
        for status in [200, 300, 304, 305, 404] {
            assert!(follow(Method::GET, status, "/x").expect("good").is_none());
        }
        let nowhere = next(&hop(Method::GET), StatusCode::FOUND, &HeaderMap::new());
        assert!(nowhere.expect("good").is_none());
    }

    #[test]
    fn places_and_secrets() {
        for (location, url, keeps) in [
            ("/x", "http://a.test/x", true),
            ("x?y#z", "http://a.test/one/x?y", true),
            ("//a.test:80/", "http://a.test/", true),
            ("https://a.test/", "https://a.test/", false),
            ("http://a.test:81/", "http://a.test:81/", false),
            ("http://b.test/", "http://b.test/", false),
        ] {
            let next = follow(Method::GET, 302, location)
                .expect("good")
                .expect("one");
            assert_eq!(next.url.as_str(), url);
            for name in [AUTHORIZATION, COOKIE, HOST] {
                assert_eq!(next.headers.contains_key(name), keeps, "{location}");
            }
            assert!(next.headers.contains_key("x-own"));
        }
        for location in [
            "ftp://a.test/",
            "javascript:1",
            "http://u:p@b.test/",
            "http://[/",
        ] {
            let fault = follow(Method::GET, 302, location).expect_err(location);
            assert_eq!(fault.kind, CallErrorKind::Broken);
            assert!(fault.words.contains(&masked(location)), "{fault:?}");
            assert!(!fault.words.contains("u:p"), "{fault:?}");
        }
    }
}
