//! Distribution of connections among the sockets that listen at one address.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use libc::{c_void, sock_filter, sock_fprog, socklen_t};

/// Makes the kernel assign each connection at random to one of the `count` sockets of the group
/// that began to listen first. The group consists of all sockets with `SO_REUSEPORT` at the address
/// of `socket`, which may be any member. Replaces an earlier setting, or the kernel's default,
/// which is a hash over all sockets.
///
/// # Errors
/// The socket is not part of a group, or the kernel does not support this (before Linux 4.5).
#[expect(
    unsafe_code,
    reason = "no crate has a safe function for this socket option"
)]
pub(crate) fn spread_among(socket: &OwnedFd, count: u32) -> io::Result<()> {
    let step = |code, k| sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let random = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, random),
        // `count` must not be 0, since the kernel refuses a division by 0.
        step(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, count),
        step(libc::BPF_RET | libc::BPF_A, 0),
    ];
    let program = sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    let address: *const c_void = (&raw const program).cast();
    let length = size_of::<sock_fprog>() as socklen_t;
    // SAFETY: the call reads the program and its steps, which live until it returns, and copies them.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            address,
            length,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
