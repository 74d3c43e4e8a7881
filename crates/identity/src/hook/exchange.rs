//! Encodes the identity hook's request and parses its response.

use std::time::Duration;

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use veche_calls::CallError;
use veche_frontends::identity::hook::IdentityRequest;
use veche_frontends::identity::{AuthError, IdentityResult, VerifiedUser};
use veche_proto::http::{Head, encoded_path};
use veche_webhooks::{BackendResult, FetchResponse, HOOK, Object};

use crate::cache::AnswerDigest;

/// The response header with the user; a JSON body may contain `user` instead.
pub(super) const USER_HEADER: &str = "x-veche-user";

/// The response header with the user's expiry in seconds since 1970; a JSON body may contain
/// `expire_at` instead.
const EXPIRE_HEADER: &str = "x-veche-expire-at";

/// The maximum time for which a response is cached, regardless of its `Cache-Control`.
const KEPT_MAX: Duration = Duration::from_secs(3600);

/// Returns the headers of the hook's request: those selected from the client's request, and headers with that request's
/// method, URI, host and client address.
pub(super) fn forwarded_headers(
    request: &IdentityRequest<'_>,
    chosen: &[String],
) -> Vec<(String, Vec<u8>)> {
    let head = request.head;
    let mut passed = Vec::new();
    for (name, value) in head.headers() {
        let name = name.to_ascii_lowercase();
        if chosen.contains(&name) {
            passed.push((name, value.to_vec()));
        }
    }
    let client = request.client.to_canonical().to_string();
    for (name, value) in [
        ("x-original-method", head.method.as_str()),
        ("x-original-uri", &original_uri(head)),
        ("x-original-host", head.host),
        ("x-real-ip", &client),
        (HOOK, "identity"),
    ] {
        passed.push((name.to_owned(), value.as_bytes().to_vec()));
    }
    passed
}

/// Returns the path and query of the original request. The path is the normalised path that was routed, so that the back end
/// sees the same path as the router.
fn original_uri(head: &Head<'_>) -> String {
    let path = encoded_path(&head.path);
    match head.query {
        "" => path.into_owned(),
        query => format!("{path}?{query}"),
    }
}

/// Returns the cache key, a digest of the forwarded headers. Lengths are included, so that different headers never give
/// the same input.
pub(super) fn digest(passed: &[(String, Vec<u8>)]) -> AnswerDigest {
    let mut digest = Sha256::new();
    for (name, value) in passed {
        for part in [name.as_bytes(), value] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
    }
    digest.finalize().into()
}

/// A parsed response of the identity hook.
pub(super) struct HookAnswer {
    pub(super) identity_result: IdentityResult,
    /// How long the answer may be cached; `None` if it may not.
    pub(super) kept: Option<Duration>,
    /// The outcome for the circuit breaker; `None` if the response does not count.
    pub(super) ending: Option<BackendResult>,
    /// A description of a problem for the log, if there is one.
    pub(super) problem: Option<String>,
}

impl HookAnswer {
    /// Returns how long the response may be cached, which is never beyond the user's expiry; `None` if it may not be
    /// cached. `now_ms` is the current time in milliseconds since 1970.
    pub(super) fn cache_time(&self, now_ms: u64) -> Option<Duration> {
        let until_s = match &self.identity_result {
            IdentityResult::Verified(word) => word.until_s,
            _ => None,
        };
        let left_ms = until_s.map(|until_s| until_s.saturating_mul(1000).saturating_sub(now_ms));
        let left = left_ms.map_or(Duration::MAX, Duration::from_millis);
        self.kept
            .map(|kept| kept.min(left))
            .filter(|kept| !kept.is_zero())
    }
}

/// Parses a response. `cache_time` applies to responses that name a user but contain no cache
/// lifetime.
pub(super) fn read(
    answer: Result<FetchResponse, CallError>,
    cache_time: Option<Duration>,
) -> HookAnswer {
    let failed = |ending, problem: String| HookAnswer {
        identity_result: IdentityResult::Failed(AuthError::HookUnavailable),
        kept: None,
        ending,
        problem: Some(problem),
    };
    let answer = match answer {
        Err(fault) => return failed(BackendResult::of_fault(&fault), fault.words),
        Ok(answer) => answer,
    };
    let unknown = |unknown| (IdentityResult::Failed(unknown), None);
    let (identity_result, kept) = match answer.status {
        200..=299 => match user_answer(&answer) {
            Ok(word) => (IdentityResult::Verified(word), cache_time),
            Err(why) => {
                return failed(
                    Some(BackendResult::Answered),
                    format!("{}: {why}", answer.status),
                );
            }
        },
        401 => unknown(AuthError::RejectedByHook),
        403 => unknown(AuthError::ForbiddenByHook),
        status => {
            return failed(
                Some(BackendResult::of_status(status)),
                format!("the server responded with status {status}"),
            );
        }
    };
    HookAnswer {
        identity_result,
        kept: kept_for(answer.header("cache-control"), kept),
        ending: Some(BackendResult::Answered),
        problem: None,
    }
}

fn user_answer(answer: &FetchResponse) -> Result<VerifiedUser, String> {
    #[derive(Deserialize)]
    struct UserBody {
        user: String,
        #[serde(default)]
        expire_at: u64,
    }
    let (user, mut until_s) = match answer.header(USER_HEADER) {
        Some(user) => (user.to_owned(), body_expiry(&answer.body)?),
        None => match serde_json::from_slice::<Object<UserBody>>(&answer.body) {
            Ok(Object(named)) => (named.user, named.expire_at),
            Err(error) => {
                return Err(format!(
                    "the response has no header {USER_HEADER}, and its body has no \"user\": {error}"
                ));
            }
        },
    };
    if user.is_empty() {
        return Err("the user in the response is empty".to_owned());
    }
    if answer.has(EXPIRE_HEADER) {
        let seconds = answer.header(EXPIRE_HEADER).map(str::trim);
        let seconds = seconds.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        until_s = seconds.and_then(|text| text.parse().ok()).ok_or(format!(
            "{EXPIRE_HEADER} is not a whole number of seconds since 1970"
        ))?;
    }
    Ok(VerifiedUser {
        user,
        // 0 means no expiry.
        until_s: Some(until_s).filter(|until_s| *until_s > 0),
        ..VerifiedUser::default()
    })
}

/// Returns `expire_at` from a body that accompanies the user header; 0 if the body is not a JSON object or does not
/// contain it. Fails if the value is not a valid time.
fn body_expiry(body: &[u8]) -> Result<u64, String> {
    #[derive(Deserialize)]
    struct ExpiryBody {
        #[serde(default)]
        expire_at: u64,
    }
    if serde_json::from_slice::<serde_json::Map<_, _>>(body).is_err() {
        return Ok(0);
    }
    serde_json::from_slice::<ExpiryBody>(body)
        .map(|timed| timed.expire_at)
        .map_err(|error| error.to_string())
}

/// Returns the lifetime that `Cache-Control` (RFC 9111, section 5.2.2) gives to a private cache, or
/// `otherwise` if it gives none.
fn kept_for(header: Option<&str>, otherwise: Option<Duration>) -> Option<Duration> {
    let Some(header) = header else {
        return otherwise;
    };
    let mut age = None;
    for directive in header.split(',') {
        let directive = directive.trim().to_ascii_lowercase();
        match directive.split_once('=') {
            None if directive == "no-store" || directive == "no-cache" => return None,
            Some(("max-age", seconds)) => age = seconds.trim_matches('"').parse().ok(),
            _ => {}
        }
    }
    let kept = match age {
        Some(seconds) => Some(Duration::from_secs(seconds)),
        None => otherwise,
    };
    kept.map(|kept| kept.min(KEPT_MAX))
        .filter(|kept| !kept.is_zero())
}

#[cfg(test)]
mod tests {
    use veche_calls::CallErrorKind;

    use super::*;

    fn answer(
        status: u16,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<FetchResponse, CallError> {
        let headers = headers.iter();
        Ok(FetchResponse {
            status,
            headers: headers
                .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
                .collect(),
            body: body.as_bytes().to_vec(),
        })
    }

    #[test]
    fn an_answer_names_a_user_or_says_why_not() {
        let word = |name: &str, until_s| {
            IdentityResult::Verified(VerifiedUser {
                user: name.to_owned(),
                until_s,
                ..VerifiedUser::default()
            })
        };
        let named = |name: &str| word(name, None);
        let expiry = |value| ("x-veche-expire-at", value);
        let unknown = IdentityResult::Failed;
        let user = ("x-veche-user", "ann");
        let (answered, unavailable) = (
            Some(BackendResult::Answered),
            Some(BackendResult::Unavailable),
        );
        for (given, identity_result, ending) in [
            (answer(200, &[user], ""), named("ann"), answered),
            (answer(204, &[user], ""), named("ann"), answered),
            (
                answer(200, &[user], r#"{"user":"bob"}"#),
                named("ann"),
                answered,
            ),
            (
                answer(200, &[], r#"{"user":"bob","x":1}"#),
                named("bob"),
                answered,
            ),
            (
                answer(200, &[], r#"{"user":42}"#),
                unknown(AuthError::HookUnavailable),
                answered,
            ),
            (
                answer(200, &[], r#"["ann"]"#),
                unknown(AuthError::HookUnavailable),
                answered,
            ),
            (
                answer(200, &[], "[]"),
                unknown(AuthError::HookUnavailable),
                answered,
            ),
            (
                answer(200, &[], r#"{"user":""}"#),
                unknown(AuthError::HookUnavailable),
                answered,
            ),
            (
                answer(200, &[], r#"{"user":"bob","expire_at":1900000000}"#),
                word("bob", Some(1_900_000_000)),
                answered,
            ),
            (
                answer(200, &[], r#"{"user":"bob","expire_at":0}"#),
                named("bob"),
                answered,
            ),
            (
                answer(200, &[user], r#"{"expire_at":1900000000}"#),
                word("ann", Some(1_900_000_000)),
                answered,
            ),
            (
                answer(200, &[user], r#"{"expire_at":-1}"#),
                unknown(AuthError::HookUnavailable),
                answered,
            ),
            (answer(200, &[user], "<p>hello"), named("ann"), answered),
            (
                answer(204, &[user, expiry("1900000000")], ""),
                word("ann", Some(1_900_000_000)),
                answered,
            ),
            (
                answer(204, &[user, expiry("-1")], ""),
                unknown(AuthError::HookUnavailable),
                answered,
            ),
            (
                answer(204, &[user, expiry("soon")], ""),
                unknown(AuthError::HookUnavailable),
                answered,
            ),
            (
                answer(204, &[user, expiry("+1")], ""),
                unknown(AuthError::HookUnavailable),
                answered,
            ),
            (
                answer(200, &[], r#"{"user":"bob","expire_at":-1}"#),
                unknown(AuthError::HookUnavailable),
                answered,
            ),
            (
                answer(200, &[], r#"{"user":"bob","expire_at":1.5}"#),
                unknown(AuthError::HookUnavailable),
                answered,
            ),
            (
                answer(200, &[], "ok"),
                unknown(AuthError::HookUnavailable),
                answered,
            ),
            (
                answer(302, &[user], ""),
                unknown(AuthError::HookUnavailable),
                answered,
            ),
            (
                answer(401, &[user], ""),
                unknown(AuthError::RejectedByHook),
                answered,
            ),
            (
                answer(403, &[], ""),
                unknown(AuthError::ForbiddenByHook),
                answered,
            ),
            (
                answer(404, &[], ""),
                unknown(AuthError::HookUnavailable),
                answered,
            ),
            (
                answer(500, &[], ""),
                unknown(AuthError::HookUnavailable),
                answered,
            ),
            (
                answer(503, &[], ""),
                unknown(AuthError::HookUnavailable),
                unavailable,
            ),
            (
                Err(CallError::new(CallErrorKind::Timeout, "late")),
                unknown(AuthError::HookUnavailable),
                Some(BackendResult::TimedOut),
            ),
            (
                Err(CallError::new(CallErrorKind::Invalid, "no")),
                unknown(AuthError::HookUnavailable),
                None,
            ),
        ] {
            let parsed = read(given, None);
            assert_eq!(
                (parsed.identity_result, parsed.ending),
                (identity_result, ending)
            );
        }
    }

    #[test]
    fn no_answer_is_kept_for_longer_than_it_holds() {
        let cache_time = |expire_at: &str| {
            let headers = [("x-veche-user", "ann"), ("x-veche-expire-at", expire_at)];
            let parsed = read(answer(204, &headers, ""), Some(Duration::from_secs(60)));
            parsed.cache_time(1_800_000_000_500)
        };
        assert_eq!(cache_time("1800000010"), Some(Duration::from_millis(9_500)));
        assert_eq!(cache_time("1800000100"), Some(Duration::from_secs(60)));
        assert_eq!(cache_time("1800000000"), None);
        assert_eq!(cache_time("0"), Some(Duration::from_secs(60)));
    }

    #[test]
    fn answers_say_how_long_they_hold() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (header, otherwise, expected) in [
            (None, None, None),
            (None, seconds(5), seconds(5)),
            (Some("max-age=7"), seconds(5), seconds(7)),
            (Some("private, Max-Age=7"), None, seconds(7)),
            (Some("private"), seconds(5), seconds(5)),
            (Some("max-age=0"), seconds(5), None),
            (Some("max-age=7, no-store"), seconds(5), None),
            (Some("no-cache"), seconds(5), None),
            (Some("max-age=99999999"), None, Some(KEPT_MAX)),
            (Some("max-age=soon"), seconds(5), seconds(5)),
        ] {
            assert_eq!(kept_for(header, otherwise), expected, "{header:?}");
        }
    }

    #[test]
    fn nothing_moves_from_one_header_to_the_next() {
        let of = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            let passed: Vec<_> = pairs
                .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
                .collect();
            digest(&passed)
        };
        assert_ne!(of(&[("a", "bc")]), of(&[("ab", "c")]));
        assert_ne!(of(&[("a", "b"), ("c", "d")]), of(&[("a", "bc"), ("", "d")]));
        assert_eq!(of(&[("a", "b")]), of(&[("a", "b")]));
    }
}
