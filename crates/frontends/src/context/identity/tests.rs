//! Tests of identities that a back end or PAM determines.

use veche_jwt::TokenError;

use super::*;

#[derive(Debug)]
struct Asleep;

impl PasswordVerifier for Asleep {
    fn verify(
        &self,
        _: basic::Credentials,
        _: IpAddr,
        _: ConnectionId,
        _: &Arc<dyn CompletionSink>,
        _: Now,
    ) -> MaybeDeferred<IdentityResult> {
        unreachable!("nothing is judged here")
    }

    fn realm(&self) -> &str {
        "veche"
    }
}

#[test]
fn each_reason_has_its_status_and_says_whether_another_try_may_do() {
    let revoked = AuthError::InvalidToken(TokenError::Expired);
    for (why, status, is_ours, wait_s) in [
        (AuthError::NoUser, 401, false, None),
        (AuthError::MalformedUser, 400, false, None),
        (AuthError::NoToken, 401, false, None),
        (revoked, 401, false, None),
        (AuthError::Revoked, 401, false, None),
        (AuthError::Blocked, 403, false, None),
        (AuthError::Disconnected, 401, false, None),
        (AuthError::Expired, 401, false, None),
        (AuthError::ChannelToken, 401, false, None),
        (AuthError::KeysUnavailable, 503, true, None),
        (AuthError::RejectedByHook, 401, false, None),
        (AuthError::ForbiddenByHook, 403, false, None),
        (AuthError::HookUnavailable, 503, true, None),
        (AuthError::NoCredentials, 401, false, None),
        (AuthError::MalformedCredentials, 401, false, None),
        (AuthError::WrongCredentials, 401, false, None),
        (AuthError::VerifierUnavailable, 503, true, Some(1)),
        (AuthError::VerifierBusy, 503, true, Some(1)),
        (
            AuthError::TooManyAttempts { retry_after_s: 7 },
            429,
            false,
            Some(7),
        ),
    ] {
        let got = (why.status().0, why.is_server_fault(), why.retry_after_s());
        assert_eq!(got, (status, is_ours, wait_s), "{why:?}");
    }
}

#[test]
fn the_401_challenge_matches_the_route() {
    let basic = Identity::Basic(Arc::new(Asleep));
    let query = Identity::Query("user".into());
    let password = Some("Basic realm=\"veche\", charset=\"UTF-8\"");
    let bearer = Some("Bearer");
    let invalid = Some("Bearer error=\"invalid_token\"");
    for (identity, why, expected) in [
        (&basic, AuthError::NoCredentials, password),
        (&basic, AuthError::WrongCredentials, password),
        (&query, AuthError::NoToken, bearer),
        (
            &query,
            AuthError::InvalidToken(TokenError::Expired),
            invalid,
        ),
        (&query, AuthError::ChannelToken, invalid),
        (&query, AuthError::Revoked, invalid),
        (&query, AuthError::NoUser, None),
        (&query, AuthError::RejectedByHook, None),
    ] {
        assert_eq!(identity.challenge(why).as_deref(), expected, "{why:?}");
    }
    assert!(basic.is_for_requests() && basic.has_password());
    for other in [&query, &Identity::None] {
        assert!(!other.is_for_requests() && !other.has_password());
        assert!(!other.is_token("bearer.x"));
    }
}

#[test]
fn an_expiry_is_reported_in_whole_seconds() {
    let now = |wall_ms| Now {
        mono_ms: 7,
        wall_ms,
    };
    let term = Validity::until_s(Some(1_000));
    for (wall_ms, is_over, ttl_s) in [
        (0, false, 1_000),
        (1, false, 1_000),
        (998_999, false, 2),
        (999_000, false, 1),
        (999_999, false, 1),
        (1_000_000, true, 1),
        (u64::MAX, true, 1),
    ] {
        let got = (term.is_over(now(wall_ms)), term.ttl_s(now(wall_ms)));
        assert_eq!(got, (is_over, Some(ttl_s)), "{wall_ms}");
    }
    let lenient = Validity {
        leeway_ms: 10_000,
        ..term
    };
    assert_eq!(lenient.ttl_s(now(0)), Some(990));
    assert_eq!(lenient.ttl_s(now(995_000)), Some(1));
    let endless = Validity::until_s(None);
    assert_eq!(
        (endless.is_over(now(u64::MAX)), endless.ttl_s(now(0))),
        (false, None)
    );
    assert_eq!(
        Validity::until_s(Some(u64::MAX)).ttl_s(now(0)),
        Some(u32::MAX)
    );
}

#[test]
fn a_certificate_names_by_the_field_that_is_asked_for() {
    let certificate_names = CertificateNames {
        common_name: Some("cn".into()),
        email: Some("e@a".into()),
        name: Some("n.a".into()),
        uri: Some("u:a".into()),
    };
    for (field, expected) in [
        (CertificateField::CommonName, "cn"),
        (CertificateField::Email, "e@a"),
        (CertificateField::Name, "n.a"),
        (CertificateField::Uri, "u:a"),
        (CertificateField::Any, "cn"),
    ] {
        assert_eq!(
            certificate_names.field(field).map(String::as_str),
            Some(expected)
        );
    }
    let only_uri = CertificateNames {
        uri: Some("u:a".into()),
        ..CertificateNames::default()
    };
    assert_eq!(
        only_uri.field(CertificateField::Any).map(String::as_str),
        Some("u:a")
    );
    assert_eq!(only_uri.field(CertificateField::Email), None);
    assert_eq!(
        CertificateNames::default().field(CertificateField::Any),
        None
    );
}
