//! Calls and outcomes through a port, performed on another thread.

use std::net::IpAddr;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use veche_calls::{Call, CallErrorKind, CallId, CallOutcome, CallReply, ResolveCall};
use veche_outbound::{CALLS_MAX, Outbound, Port};

const LONG: Duration = Duration::from_secs(20);

struct Bench {
    outbound: Outbound,
    port: Port,
    woken: Receiver<()>,
}

impl Bench {
    fn new() -> Self {
        let (wake, woken) = channel();
        let outbound = Outbound::default();
        // The receiver no longer exists once the test has ended.
        let port = outbound.port(move || _ = wake.send(()));
        Self {
            outbound,
            port,
            woken,
        }
    }

    fn resolve(&mut self, token: u64, host: &str) {
        let call = Call::Resolve(ResolveCall {
            host: host.to_owned(),
            timeout: LONG,
        });
        self.port.submit(CallId { app: 7, token }, call);
    }

    fn outcomes(&mut self, count: usize) -> Vec<(CallId, CallOutcome)> {
        let mut outcomes = Vec::new();
        while outcomes.len() < count {
            self.woken.recv_timeout(LONG).expect("a wake");
            assert!(self.port.has_outcomes());
            self.port.take(&mut outcomes);
        }
        outcomes.sort_by_key(|(id, _)| *id);
        outcomes
    }
}

#[test]
fn names_have_addresses() {
    let mut bench = Bench::new();
    bench.resolve(1, "127.0.0.1");
    bench.resolve(2, "localhost");
    bench.resolve(3, "::1");
    bench.resolve(4, "no such name");
    bench.port.flush();
    let outcomes = bench.outcomes(4);
    let tokens: Vec<u64> = outcomes.iter().map(|(id, _)| id.token).collect();
    assert_eq!(tokens, [1, 2, 3, 4]);
    let of = |index: usize| match &outcomes[index].1 {
        Ok(CallReply::Addresses(addresses)) => addresses.clone(),
        other => panic!("{other:?}"),
    };
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    assert_eq!(of(0), [ip("127.0.0.1")]);
    assert!(of(1).iter().all(IpAddr::is_loopback));
    assert_eq!(of(2), [ip("::1")]);
    let fault = outcomes[3].1.as_ref().expect_err("no such name");
    assert_eq!(fault.kind, CallErrorKind::Unreachable);
    assert!(fault.words.contains("\"no such name\""), "{fault:?}");
}

#[test]
fn each_batch_wakes_at_most_once_until_it_is_taken() {
    let mut bench = Bench::new();
    for token in 0..1000 {
        bench.resolve(token, "127.0.0.1");
    }
    bench.port.flush();
    bench.woken.recv_timeout(LONG).expect("a wake");
    std::thread::sleep(Duration::from_millis(200));
    assert!(bench.woken.try_recv().is_err(), "woken twice");
    let mut outcomes = Vec::new();
    bench.port.take(&mut outcomes);
    assert!(!bench.port.has_outcomes());
    let missing = 1000 - outcomes.len();
    outcomes.append(&mut bench.outcomes(missing));
    assert_eq!(outcomes.len(), 1000);
}

#[test]
fn a_port_that_is_gone_holds_up_no_other() {
    let mut bench = Bench::new();
    let (wake, woken) = channel();
    let mut other = bench
        .outbound
        .port(move || wake.send(()).expect("the test receives"));
    for token in 0..100 {
        bench.resolve(token, "localhost");
    }
    bench.port.flush();
    // The port is dropped while its calls are in progress, so their outcomes are dropped.
    drop(std::mem::replace(
        &mut bench.port,
        bench.outbound.port(|| {}),
    ));
    let call = Call::Resolve(ResolveCall {
        host: "127.0.0.1".to_owned(),
        timeout: LONG,
    });
    let id = CallId { app: 8, token: 1 };
    other.submit(id, call);
    other.flush();
    woken.recv_timeout(LONG).expect("a wake");
    let mut outcomes = Vec::new();
    other.take(&mut outcomes);
    assert_eq!(outcomes.len(), 1);
    assert!(outcomes[0].0 == id && outcomes[0].1.is_ok(), "{outcomes:?}");
}

#[test]
fn calls_beyond_the_limit_are_refused_and_nothing_else_is() {
    let mut bench = Bench::new();
    let most = CALLS_MAX as u64;
    for token in 0..most + 2 {
        bench.resolve(token, "127.0.0.1");
    }
    bench.port.flush();
    let outcomes = bench.outcomes(CALLS_MAX + 2);
    let refused: Vec<u64> = outcomes
        .iter()
        .filter(|(_, outcome)| {
            let fault = outcome.as_ref().err();
            fault.is_some_and(|fault| fault.kind == CallErrorKind::PoolFull)
        })
        .map(|(id, _)| id.token)
        .collect();
    assert_eq!(refused, [most, most + 1]);
    // The port accepts calls again once earlier calls are complete or cancelled.
    for token in 0..most {
        bench.resolve(token, "127.0.0.1");
        bench.port.cancel(CallId { app: 7, token });
    }
    bench.port.flush();
    let pause = Duration::from_millis(20);
    let mut attempts = 0;
    loop {
        bench.resolve(most + attempts, "127.0.0.1");
        bench.port.flush();
        std::thread::sleep(pause);
        let mut outcomes = Vec::new();
        bench.port.take(&mut outcomes);
        let last = outcomes.iter().find(|(id, _)| id.token >= most);
        if last.is_some_and(|(_, outcome)| outcome.is_ok()) {
            break;
        }
        attempts += 1;
        assert!(attempts < 500, "there is never room again");
    }
}
