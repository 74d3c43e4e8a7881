//! Nanoseconds per parsed request and written response: `cargo run --release --example http_ns`.

use std::hint::black_box;
use std::time::Instant;

use veche_proto::http::{
    BodyDecoder, DateHeader, Framing, HeadLimits, HeadScan, HttpVersion, ResponseBody,
    ResponseHead, Status, parse_head, read_head,
};

/// Number of rounds in a run. Runs are short, so that some of them are not interrupted.
const ROUNDS: u32 = 2_000;
const RUNS: usize = 300;
const DATE: &DateHeader = b"Sun, 06 Nov 1994 08:49:37 GMT";

const WRK: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";

const AB: &[u8] = b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\nHost: 127.0.0.1:8080\r\n\
User-Agent: ApacheBench/2.3\r\nAccept: */*\r\n\r\n";

const BROWSER: &[u8] = b"GET /demo/index.html?user=tester01 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\
Connection: keep-alive\r\nCache-Control: max-age=0\r\n\
sec-ch-ua: \"Chromium\";v=\"142\", \"Not_A Brand\";v=\"99\"\r\nsec-ch-ua-mobile: ?0\r\n\
sec-ch-ua-platform: \"Linux\"\r\nUpgrade-Insecure-Requests: 1\r\n\
User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36\r\n\
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\r\n\
Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-GB,en;q=0.9\r\n\
Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\r\n";

fn main() {
    let limits = HeadLimits::default();
    for (name, wire) in [("wrk", WRK), ("ab -k", AB), ("browser", BROWSER)] {
        report(&format!("read, {name}, {} B", wire.len()), || {
            let wire = black_box(wire);
            let (head, end) = read_head(&mut HeadScan::default(), wire, &limits)
                .unwrap()
                .unwrap();
            black_box((head.keep_alive, end));
        });
        report(&format!("  in two pieces, {name}"), || {
            let wire = black_box(wire);
            let mut scan = HeadScan::default();
            assert!(
                read_head(&mut scan, &wire[..wire.len() - 2], &limits)
                    .unwrap()
                    .is_none()
            );
            let (head, end) = read_head(&mut scan, wire, &limits).unwrap().unwrap();
            black_box((head.keep_alive, end));
        });
        report(&format!("  scan alone, {name}"), || {
            black_box(HeadScan::default().find(black_box(wire), &limits).unwrap());
        });
    }
    let end = HeadScan::default().find(BROWSER, &limits).unwrap().unwrap();
    let head = parse_head(&BROWSER[..end], &limits).unwrap();
    report("header lookup, last of 16", || {
        black_box(head.header(black_box("cookie")));
    });
    report("query lookup", || {
        black_box(head.query(black_box("user")));
    });
    report("cookie lookup, second", || {
        black_box(head.cookie(black_box("theme")));
    });
    let chunked = b"400\r\n"
        .iter()
        .chain([b'x'; 1024].iter())
        .chain(b"\r\n0\r\n\r\n");
    let chunked: Vec<u8> = chunked.copied().collect();
    report("chunked body of 1 KiB", || {
        let mut decoder = BodyDecoder::new(Framing::Chunked, &limits);
        let mut at = 0;
        while !decoder.is_end() {
            at += black_box(decoder.decode(&black_box(&chunked)[at..]).unwrap()).consumed;
        }
    });
    let mut out = Vec::with_capacity(1024);
    for (name, version) in [("1.1", HttpVersion::Http11), ("1.0", HttpVersion::Http10)] {
        report(&format!("response head to HTTP/{name}, one header"), || {
            out.clear();
            let head = ResponseHead {
                status: Status::OK,
                version: black_box(version),
                keep_alive: true,
                body: ResponseBody::Sized(black_box(13)),
            };
            let mut writer = head.start(&mut out, DATE);
            writer
                .header("Content-Type", "text/plain; charset=utf-8")
                .unwrap();
            writer.finish();
            black_box(&out);
        });
    }
}

/// Prints the time of the fastest run, since other load on the machine can only make a run slower.
#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark has to read the clock"
)]
fn report(what: &str, mut work: impl FnMut()) {
    let run = |work: &mut dyn FnMut(u32)| {
        let start = Instant::now();
        work(ROUNDS);
        start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
    };
    let mut rounds = |count| (0..count).for_each(|_| work());
    let best = (0..RUNS)
        .map(|_| run(&mut rounds))
        .fold(f64::INFINITY, f64::min);
    println!("{best:8.1} ns  {what}");
}
