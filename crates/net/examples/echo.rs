//! Echo on the epoll back end without a protocol: measures the cost of the event loop itself.
//!
//! Start the server with `cargo run --release --example echo -- [ADDRESS] [RECEIVE_KIB]` and
//! connect any client that sends and reads. Every two seconds, the server prints the CPU time per
//! receive and per KiB. The time includes that of the send.

use std::net::SocketAddr;

use rustix::time::{ClockId, clock_gettime};
use veche_net::{Buffer, Driver, DriverEvent, Epoll, ListenOptions, Options, bind};

const REPORT_MS: u64 = 2_000;

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
    let mut spare: Vec<Vec<u8>> = Vec::new();
    let (mut receives, mut received_bytes, mut turns, mut open) = (0_u64, 0, 0_u64, 0_u64);
    let mut report_at_ms = driver.now_ms() + REPORT_MS;
    let mut cpu_before = cpu_seconds();
    loop {
        let wait_ms = report_at_ms.saturating_sub(driver.now_ms());
        driver.turn(
            Some(wait_ms),
            &mut |driver: &mut Epoll, event| match event {
                DriverEvent::Accepted { .. } => open += 1,
                DriverEvent::Received { id, bytes } => {
                    receives += 1;
                    received_bytes += bytes.len();
                    let mut out = spare.pop().unwrap_or_default();
                    out.extend_from_slice(bytes);
                    if let Some(buffer) = driver.send(id, Buffer::Owned(out), false) {
                        spare.extend(buffer.reclaim());
                    }
                    // If a peer does not read its echoes, nothing more is received from it until it
                    // does.
                    if driver.unsent(id) > driver.options().low_water_bytes {
                        driver.pause(id);
                    }
                }
                DriverEvent::Drained { id } => driver.resume(id),
                DriverEvent::Sent { buffer, .. } => spare.extend(buffer.reclaim()),
                DriverEvent::Ended { id } => driver.close(id),
                DriverEvent::Closed { .. } => open -= 1,
                _ => {}
            },
        )?;
        turns += 1;
        if driver.now_ms() >= report_at_ms {
            report_at_ms = driver.now_ms() + REPORT_MS;
            let cpu = cpu_seconds() - cpu_before;
            cpu_before += cpu;
            if receives > 0 {
                println!(
                    "{open} connections open, {receives} receives in {turns} turns, {cpu:.2} s CPU: {:.3} µs per receive, {:.1} ns per KiB",
                    cpu * 1e6 / receives as f64,
                    cpu * 1e9 * 1024.0 / received_bytes as f64,
                );
            }
            (receives, received_bytes, turns) = (0, 0, 0);
        }
    }
}
