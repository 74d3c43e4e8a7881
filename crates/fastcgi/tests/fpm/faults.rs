//! Tests with servers that are unreachable or do not speak FastCGI.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;
use veche_fastcgi::{Client, ClientLimits, Error, Params, record};

use crate::support::{KEPT, LIMITS};

fn params() -> Params {
    let mut params = Params::default();
    params.push("A", b"1").expect("a short one");
    params
}

/// Starts a server that answers the first bytes of each connection with the next entry of `answers`, and then closes
/// the connection.
async fn server(answers: Vec<Vec<u8>>) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut buffer = [0; 1024];
            let _ = stream.read(&mut buffer).await;
            let _ = stream.write_all(&answer).await;
        }
    });
    Client::new(address.parse().expect("an address"), KEPT)
}

fn answer(records: &[(record::RecordKind, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, content) in records {
        record::put(&mut bytes, *kind, content);
    }
    bytes
}

#[tokio::test]
async fn no_server_listens() {
    let client = Client::new(
        "unix:/nowhere/fpm.sock".parse().expect("an address"),
        LIMITS,
    );
    let result = client.request(params(), b"").await;
    assert!(
        matches!(&result, Err(Error::Unreachable(error)) if error.kind() == io::ErrorKind::NotFound),
        "{result:?}"
    );
    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port")
        .local_addr()
        .expect("an address");
    let client = Client::new(closed.to_string().parse().expect("an address"), LIMITS);
    let result = client.request(params(), b"").await;
    assert!(matches!(result, Err(Error::Unreachable(_))), "{result:?}");
}

#[tokio::test]
async fn invalid_responses_fail() {
    use record::RecordKind::{EndRequest, Params as OfParams, Stdout};
    let head: &[u8] = b"Content-Type: text/plain\r\n\r\nhello";
    let complete: &[u8] = &[0; 8];
    let cut_off = answer(&[(Stdout, head)]);
    let rows: [(Vec<u8>, &str); 9] = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "version 72"),
        (answer(&[(OfParams, b"x")]), "type 4"),
        (
            answer(&[(Stdout, head), (EndRequest, &[0, 0, 0])]),
            "truncated",
        ),
        (
            answer(&[(Stdout, head), (EndRequest, &[0, 0, 0, 0, 1, 0, 0, 0])]),
            "status 1",
        ),
        (
            answer(&[(Stdout, head), (EndRequest, &[0, 0, 0, 0, 2, 0, 0, 0])]),
            "busy",
        ),
        (
            answer(&[(Stdout, b"hello"), (EndRequest, complete)]),
            "do not end with an empty line",
        ),
        (
            answer(&[(EndRequest, complete)]),
            "do not end with an empty line",
        ),
        (cut_off[..cut_off.len() - 1].to_vec(), "ended before"),
        (Vec::new(), "ended before"),
    ];
    let (answers, words): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    let client = server(answers).await;
    for expected in words {
        let error = client.request(params(), b"").await.expect_err(expected);
        assert!(
            error.to_string().contains(expected),
            "{error} instead of {expected}"
        );
        assert_eq!(client.idle_connections(), 0, "{expected}");
    }
}

#[tokio::test]
async fn a_kept_connection_that_has_more_to_say_is_not_used_again() {
    use record::RecordKind::{EndRequest, Stdout};
    let one = answer(&[(Stdout, b"\r\nfirst"), (EndRequest, &[0; 8])]);
    let behind = answer(&[(Stdout, b"\r\nrubbish"), (EndRequest, &[0; 8])]);
    let two = answer(&[(Stdout, b"\r\nsecond"), (EndRequest, &[0; 8])]);
    let client = server(vec![[one, behind].concat(), two]).await;
    for expected in ["first", "second"] {
        let response = client.request(params(), b"").await.expect(expected);
        assert_eq!(response.body, expected.as_bytes());
    }
}

#[tokio::test]
async fn a_server_that_is_silent_is_waited_for_as_long_as_the_caller_likes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let limits = ClientLimits {
        connect_timeout: Duration::from_millis(100),
        ..LIMITS
    };
    let client = Client::new(address.parse().expect("an address"), limits);
    let asked = timeout(Duration::from_millis(300), client.request(params(), b"")).await;
    assert!(asked.is_err(), "{asked:?}");
}
