//! Tests that exchanging a message allocates nothing in the steady state.
//!
//! This is the only test of its binary, because it counts all allocations of the process.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use veche_net::{Buffer, Driver, DriverEvent, Epoll, ListenOptions, Options, Uring, bind};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[expect(unsafe_code, reason = "a global allocator is unsafe to implement")]
// SAFETY: every call is forwarded to the system allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn an_echo_allocates_nothing() {
    echo_without_allocations(Epoll::new(Options::default()).expect("descriptors"));
    if common::has_uring() {
        let uring = Uring::new(Options::default());
        echo_without_allocations(uring.expect("a kernel that allows io_uring"));
    }
}

fn echo_without_allocations<D: Driver>(mut driver: D) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let socket = bind(any, &ListenOptions::default()).expect("a free port");
    let addr = socket2::SockRef::from(&socket)
        .local_addr()
        .expect("bound")
        .as_socket();
    driver.listen(socket).expect("the listener registers");
    let connect = || TcpStream::connect(addr.expect("an internet address")).expect("listening");
    let mut peers: Vec<_> = (0..50).map(|_| connect()).collect();
    let mut spare: Vec<Vec<u8>> = Vec::new();
    let mut got = [0; 100];
    let mut echoes = |rounds: usize| {
        for round in 0..rounds {
            for peer in &mut peers {
                peer.write_all(&[round as u8; 100]).expect("open");
            }
            let mut left = peers.len() * 100;
            let mut is_last = false;
            // After the last expected bytes, another turn is run, because a part of the last echo
            // may still be queued.
            while !is_last {
                is_last = left == 0;
                let timeout_ms = is_last.then_some(0);
                let mut sink = |driver: &mut D, event: DriverEvent<'_>| match event {
                    DriverEvent::Received { id, bytes } => {
                        left -= bytes.len();
                        // The echo is sent in two parts, the first of them with `more`, so that the
                        // queue for such sends is used.
                        let (first, second) = bytes.split_at(bytes.len() / 2);
                        for (part, more) in [(first, true), (second, false)] {
                            let mut out = spare.pop().unwrap_or_default();
                            out.extend_from_slice(part);
                            let back = driver.send(id, Buffer::Owned(out), more);
                            spare.extend(back.and_then(Buffer::reclaim));
                        }
                        driver.set_timer(id, driver.now_ms() + 30_000);
                    }
                    DriverEvent::Sent { buffer, .. } => spare.extend(buffer.reclaim()),
                    _ => {}
                };
                driver.turn(timeout_ms, &mut sink).expect("the wait works");
            }
            for peer in &mut peers {
                peer.read_exact(&mut got).expect("an echo");
                assert_eq!(got, [round as u8; 100]);
            }
        }
        ALLOCATIONS.with(Cell::get)
    };
    let warm = echoes(100);
    assert_eq!(echoes(400) - warm, 0, "allocations in 20,000 messages");
}
