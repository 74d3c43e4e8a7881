//! Tests the client with idle connections, and with php-fpm processes that are all busy.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use veche_fastcgi::{Client, ClientLimits, Error};

use crate::fpm::Fpm;
use crate::now::now;
use crate::support::{CHILDREN, KEPT, LIMITS, start};

/// Occupies all processes with concurrent requests, one per process, that take `ms` milliseconds each.
async fn all_busy(fpm: &Fpm, client: &Client, ms: &str) {
    let requests = (0..CHILDREN).map(|_| fpm.ask(client, "sleep", ms.as_bytes()));
    let mut requests: Vec<_> = requests.map(Box::pin).collect();
    for request in &mut requests {
        // Both requests are in progress before the first has ended.
        assert!(
            timeout(Duration::from_millis(100), request.as_mut())
                .await
                .is_err()
        );
    }
    for request in requests {
        request.await.expect("an answer");
    }
}

#[tokio::test]
async fn kept_connections_are_used_again_and_no_more_than_there_were_requests() {
    let Some(fpm) = start("kept", "") else {
        return;
    };
    let client = fpm.client(KEPT);
    let mut processes = Vec::new();
    for _ in 0..20 {
        processes.push(fpm.text(&client, "pid", b"").await);
    }
    processes.dedup();
    assert_eq!(processes.len(), 1, "one connection is one process");
    assert_eq!(client.idle_connections(), 1);
    all_busy(&fpm, &client, "1000").await;
    assert_eq!(client.idle_connections(), CHILDREN);
}

#[tokio::test]
async fn a_kept_connection_occupies_a_process_until_its_time_is_over() {
    let Some(fpm) = start("occupied", "") else {
        return;
    };
    let limits = ClientLimits {
        idle_timeout: Duration::from_secs(3),
        ..LIMITS
    };
    let pool_client = fpm.client(limits);
    all_busy(&fpm, &pool_client, "1000").await;
    assert_eq!(pool_client.idle_connections(), CHILDREN);
    // Another client gets no process: its connection waits in the backlog.
    let other = fpm.client(LIMITS);
    let mut asked = Box::pin(fpm.text(&other, "echo", b"a"));
    assert!(
        timeout(Duration::from_millis(200), asked.as_mut())
            .await
            .is_err()
    );
    assert_eq!(asked.await, "a");
    while pool_client.idle_connections() > 0 {
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn without_keeping_every_process_is_free_between_requests() {
    let Some(fpm) = start("unkept", "") else {
        return;
    };
    let client = fpm.client(LIMITS);
    all_busy(&fpm, &client, "1000").await;
    assert_eq!(client.idle_connections(), 0);
    let other = fpm.client(LIMITS);
    let answered = timeout(Duration::from_secs(5), fpm.text(&other, "echo", b"a")).await;
    assert_eq!(answered.expect("a process is free"), "a");
}

#[tokio::test]
async fn processes_with_max_requests_lose_no_event() {
    let Some(fpm) = start("max-requests", "pm.max_requests = 3") else {
        return;
    };
    let client = fpm.client(LIMITS);
    let mut processes = Vec::new();
    for _ in 0..60 {
        processes.push(fpm.text(&client, "pid", b"").await);
    }
    processes.sort();
    processes.dedup();
    assert!(
        processes.len() >= 20,
        "{} processes served 60 requests",
        processes.len()
    );
}

#[tokio::test]
async fn a_process_that_leaves_while_its_connection_is_kept_may_cost_one_request_and_no_more() {
    let Some(fpm) = start("max-requests-kept", "pm.max_requests = 3") else {
        return;
    };
    let client = fpm.client(KEPT);
    let mut answered = 0;
    for number in 0..200 {
        let body = number.to_string();
        match fpm.ask(&client, "echo", body.as_bytes()).await {
            Ok(response) => {
                assert_eq!(
                    response.body,
                    body.as_bytes(),
                    "no answer of another request"
                );
                answered += 1;
            }
            // The process closes the connection some time after the end of its last response.
            Err(Error::Lost(_)) => assert_eq!(client.idle_connections(), 0),
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(answered >= 200 * 2 / 3, "{answered} of 200");
}

#[tokio::test]
async fn a_full_backlog_is_overload() {
    let Some(fpm) = start("backlog", "") else {
        return;
    };
    let client = fpm.client(LIMITS);
    let asked: Vec<_> = (0..12)
        .map(|_| {
            let client = client.clone();
            let params = crate::support::params(&fpm.folder.join("app.php"), "sleep", b"700");
            tokio::spawn(async move { client.request(params, b"700").await })
        })
        .collect();
    let (mut answered, mut overloaded) = (0, 0);
    for one in asked {
        match one.await.expect("no panic") {
            Ok(response) => {
                assert_eq!(response.body, b"slept");
                answered += 1;
            }
            Err(Error::Overloaded) => overloaded += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(
        answered >= CHILDREN && overloaded > 0,
        "{answered} answered, {overloaded} refused"
    );
    assert_eq!(
        fpm.text(&client, "echo", b"a").await,
        "a",
        "and then it goes on"
    );
}

#[tokio::test]
async fn a_request_that_is_dropped_is_aborted() {
    let Some(fpm) = start("dropped", "") else {
        return;
    };
    let client = fpm.client(KEPT);
    assert!(
        timeout(
            Duration::from_millis(50),
            fpm.ask(&client, "sleep", b"2000")
        )
        .await
        .is_err()
    );
    assert_eq!(
        client.idle_connections(),
        0,
        "its connection is closed, and not kept"
    );
    assert_eq!(fpm.text(&client, "echo", b"next").await, "next");
}

#[tokio::test]
async fn a_script_that_works_on_after_its_answer_holds_the_next_request_of_its_connection() {
    let Some(fpm) = start("finish", "") else {
        return;
    };
    let client = fpm.client(KEPT);
    let started = now();
    assert_eq!(fpm.text(&client, "finish", b"").await, "early");
    assert!(started.elapsed() < Duration::from_millis(2500));
    assert_eq!(fpm.text(&client, "echo", b"a").await, "a");
}
