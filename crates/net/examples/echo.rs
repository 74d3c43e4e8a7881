//! Raw echo on the epoll back end, no protocol: what the loop itself costs.
//!
//! `cargo run --release --example echo -- [ADDRESS] [RECEIVE_KIB]`, then drive
//! it with anything that sends and reads back; every ten seconds it says how
//! many messages a second of its CPU time carried.

use std::net::SocketAddr;

use rustix::time::{ClockId, clock_gettime};
use veche_net::{Buffer, BufferPool, Driver, Epoll, Event, ListenOptions, Options, bind};

fn cpu_seconds() -> f64 {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let addr: SocketAddr = arguments
        .next()
        .as_deref()
        .unwrap_or("127.0.0.1:7777")
        .parse()?;
    let mut options = Options::default();
    if let Some(kib) = arguments.next() {
        options.receive_bytes = kib.parse::<usize>()? * 1024;
    }
    let mut driver = Epoll::new(options)?;
    driver.listen(bind(addr, &ListenOptions::default())?)?;
    let mut pool = BufferPool::new();
    let (mut messages, mut turns, mut open) = (0_u64, 0_u64, 0_u64);
    let mut report_at_ms = driver.now_ms() + 10_000;
    let mut cpu_before = cpu_seconds();
    loop {
        let wait_ms = report_at_ms.saturating_sub(driver.now_ms());
        driver.turn(
            Some(wait_ms),
            &mut |driver: &mut Epoll, event| match event {
                Event::Accepted { .. } => open += 1,
                Event::Received { id, bytes } => {
                    messages += 1;
                    let mut out = pool.take();
                    out.extend_from_slice(bytes);
                    if let Some(buffer) = driver.send(id, Buffer::Owned(out), false) {
                        pool.give_buffer(buffer);
                    }
                    // A peer that does not read gets no more until it does.
                    if driver.unsent(id) > driver.options().low_water_bytes {
                        driver.pause(id);
                    }
                }
                Event::Drained { id } => driver.resume(id),
                Event::Sent { buffer, .. } => pool.give_buffer(buffer),
                Event::Ended { id } => driver.close(id),
                Event::Closed { .. } => open -= 1,
                _ => {}
            },
        )?;
        turns += 1;
        if driver.now_ms() >= report_at_ms {
            report_at_ms = driver.now_ms() + 10_000;
            let cpu = cpu_seconds() - cpu_before;
            cpu_before += cpu;
            if messages > 0 {
                println!(
                    "{open} open, {messages} messages in {turns} turns, {cpu:.2} s CPU, {:.3} µs each",
                    cpu * 1e6 / messages as f64
                );
            }
            (messages, turns) = (0, 0);
        }
    }
}
