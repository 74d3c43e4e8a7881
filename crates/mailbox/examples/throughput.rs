//! Measures the time per message between two threads in nanoseconds, wake-ups included.
//!
//! `cargo run --release -p veche-mailbox --example throughput`. The receiver sleeps whenever it has no message, like a
//! worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Instant;

use veche_mailbox::{Class, Mailbox, Options, Wake};

struct Unpark(Thread, Arc<AtomicU64>);

impl Wake for Unpark {
    fn wake(&self) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.unpark();
    }
}

fn main() {
    const MAIL: u64 = 8 << 20;
    for batch in [1, 16, 256] {
        let mut ends = Mailbox::<[u64; 4]>::mesh(2, &Options::default());
        let (mut receiver, mut sender) = (ends.remove(0), ends.remove(0));
        let wakes = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&wakes);
        let receives = thread::spawn(move || {
            receiver.attach(Unpark(thread::current(), counted));
            let mut left = MAIL;
            while left > 0 {
                while let Some((from, _)) = receiver.pop() {
                    receiver.done(from);
                    left -= 1;
                }
                if left > 0 && receiver.sleep() {
                    thread::park();
                    receiver.awake();
                }
            }
        });
        #[expect(
            clippy::disallowed_methods,
            reason = "a benchmark has to read the clock"
        )]
        let start = Instant::now();
        let mut sent = 0;
        while sent < MAIL {
            for _ in 0..batch {
                while !sender.has_credit(0) {
                    sender.flush();
                    thread::yield_now();
                }
                sender
                    .post(0, Class::Data, [sent; 4])
                    .expect("a credit must be available");
                sent += 1;
            }
            sender.flush();
        }
        receives.join().expect("the receiver must not panic");
        println!(
            "batches of {batch:3} messages: {:5.1} ns per message, {} wakes for {MAIL} messages",
            start.elapsed().as_nanos() as f64 / MAIL as f64,
            wakes.load(Ordering::Relaxed),
        );
    }
}
