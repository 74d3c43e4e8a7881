//! Tests requests to php-fpm and their responses.

use veche_fastcgi::Error;

use crate::support::{KEPT, LIMITS, cgi, start};

#[tokio::test]
async fn bodies_travel_as_they_are() {
    let Some(fpm) = start("bodies", "php_admin_value[post_max_size] = 64M") else {
        return;
    };
    for limits in [LIMITS, KEPT] {
        let client = fpm.client(limits);
        for bytes in [0, 1, 8_000, 65_535, 65_536, 1 << 20, 16 << 20] {
            let body: Vec<u8> = (0..bytes)
                .map(|at: usize| (at * 7 + at / 251) as u8)
                .collect();
            let response = fpm.ask(&client, "echo", &body).await.expect("an answer");
            assert_eq!(response.status, 200);
            assert!(response.body == body, "{bytes} bytes came back changed");
        }
    }
}

#[tokio::test]
async fn the_script_sees_what_web_servers_say() {
    let Some(fpm) = start("server", "") else {
        return;
    };
    let client = fpm.client(LIMITS);
    let script = fpm.folder.join("app.php");
    let headers = [
        ("host", "example.com:8443"),
        ("cookie", "a=1"),
        ("proxy", "http://evil.example"),
        ("x-a-b", "é"),
    ];
    let mut params = cgi(script.to_str().expect("text"), b"body")
        .params(headers)
        .expect("short ones");
    params.push("X_DO", b"server").expect("a short one");
    let response = client.request(params, b"body").await.expect("an answer");
    let seen = String::from_utf8(response.body)
        .expect("text")
        .replace(r"\/", "/")
        .replace(r"\u00e9", "é");
    for expected in [
        r#""REQUEST_METHOD":"POST""#,
        r#""REQUEST_URI":"/chat?a=1&b=%20""#,
        r#""QUERY_STRING":"a=1&b=%20""#,
        r#""CONTENT_LENGTH":"4""#,
        r#""REMOTE_ADDR":"203.0.113.9""#,
        r#""SERVER_NAME":"example.com""#,
        r#""SERVER_PORT":"8443""#,
        r#""HTTPS":"on""#,
        r#""HTTP_HOST":"example.com:8443""#,
        r#""HTTP_COOKIE":"a=1""#,
        r#""HTTP_X_A_B":"é""#,
    ] {
        assert!(seen.contains(expected), "{expected} is missing in {seen}");
    }
    assert!(!seen.contains("HTTP_PROXY"), "{seen}");
}

#[tokio::test]
async fn parameters_that_fill_records_arrive() {
    let Some(fpm) = start("params", "") else {
        return;
    };
    let client = fpm.client(LIMITS);
    let script = fpm.folder.join("app.php");
    let mut params = cgi(script.to_str().expect("text"), b"")
        .params([])
        .expect("short ones");
    params.push("X_DO", b"server").expect("a short one");
    // The pairs take 260 KB in total, which is more than a record can contain, so they are sent in
    // several records.
    let lengths = [40_000, 40_000, 65_500, 127, 128, 50_000, 65_516];
    for (number, length) in lengths.into_iter().enumerate() {
        params
            .push(
                &format!("X_LONG_{number}"),
                &vec![b'a' + number as u8; length],
            )
            .expect("it fits");
    }
    let response = client.request(params, b"").await.expect("an answer");
    let seen = String::from_utf8(response.body).expect("text");
    for (number, length) in lengths.into_iter().enumerate() {
        let value = char::from(b'a' + number as u8).to_string().repeat(length);
        assert!(
            seen.contains(&format!(r#""X_LONG_{number}":"{value}""#)),
            "parameter {number}"
        );
    }
}

#[tokio::test]
async fn status_and_headers_are_returned() {
    let Some(fpm) = start("status", "") else {
        return;
    };
    let response = fpm
        .ask(&fpm.client(LIMITS), "status", b"")
        .await
        .expect("an answer");
    assert_eq!(
        (response.status, response.body.as_slice()),
        (404, &b"no"[..])
    );
    let two: Vec<&str> = response
        .headers
        .iter()
        .filter(|(name, _)| name == "X-Two")
        .map(|(_, value)| &**value)
        .collect();
    assert_eq!(two, ["1", "2"]);
}

#[tokio::test]
async fn a_flood_on_stderr_stops_no_script() {
    let Some(fpm) = start("stderr", "") else {
        return;
    };
    for limits in [LIMITS, KEPT] {
        let response = fpm
            .ask(&fpm.client(limits), "stderr", b"")
            .await
            .expect("an answer");
        assert_eq!(response.body, b"logged");
        assert_eq!(response.log.len(), limits.log_bytes_max);
        assert!(
            response.log_lost_bytes > 300_000,
            "{} bytes are lost",
            response.log_lost_bytes
        );
        assert!(
            response.log.starts_with(b"PHP message: eee"),
            "{:?}",
            &response.log[..20]
        );
    }
}

#[tokio::test]
async fn output_before_the_body_is_read_stops_nothing() {
    let Some(fpm) = start("eager", "php_admin_value[post_max_size] = 64M") else {
        return;
    };
    let client = fpm.client(LIMITS);
    let body = vec![b'b'; 8 << 20];
    let params = crate::support::params(&fpm.folder.join("eager.php"), "", &body);
    let response = client.request(params, &body).await.expect("an answer");
    assert_eq!(response.body.len(), (4 << 20) + "8388608".len());
}

#[tokio::test]
async fn a_response_beyond_the_limit_ends_the_request() {
    let Some(fpm) = start("flood", "") else {
        return;
    };
    let client = fpm.client(KEPT);
    let result = fpm.ask(&client, "flood", b"60000000").await;
    assert!(
        matches!(result, Err(Error::TooLong(bytes)) if bytes == KEPT.response_bytes_max),
        "{result:?}"
    );
    assert_eq!(client.idle_connections(), 0);
    assert_eq!(fpm.text(&client, "flood", b"3").await, "xxx");
}

#[tokio::test]
async fn a_missing_script_is_reported() {
    let Some(fpm) = start("missing", "") else {
        return;
    };
    let params = crate::support::params(&fpm.folder.join("missing.php"), "", b"");
    let response = fpm
        .client(LIMITS)
        .request(params, b"")
        .await
        .expect("an answer");
    assert_eq!(response.status, 404);
    assert!(
        response.log.starts_with(b"Primary script unknown"),
        "{:?}",
        response.log
    );
}

#[tokio::test]
async fn a_fatal_error_is_a_status_and_a_line() {
    let Some(fpm) = start("fatal", "") else {
        return;
    };
    let response = fpm
        .ask(&fpm.client(LIMITS), "fatal", b"")
        .await
        .expect("an answer");
    assert_eq!(response.status, 500);
    let log = String::from_utf8_lossy(&response.log);
    assert!(
        log.contains("Fatal error") && log.contains("app.php"),
        "{log}"
    );
}

#[tokio::test]
async fn a_process_that_dies_fails_its_request_alone() {
    let Some(fpm) = start("kill", "") else {
        return;
    };
    for limits in [LIMITS, KEPT] {
        let client = fpm.client(limits);
        assert_eq!(fpm.text(&client, "echo", b"a").await, "a");
        let result = fpm.ask(&client, "kill", b"").await;
        assert!(matches!(result, Err(Error::Lost(_))), "{result:?}");
        assert_eq!(fpm.text(&client, "echo", b"b").await, "b");
    }
}
