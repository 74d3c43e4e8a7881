//! Passes descriptors between processes (`SCM_RIGHTS`).

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Maximum number of descriptors in one message; the kernel's limit is 253 (`SCM_MAX_FD`). If a
/// message contains more, the kernel closes the excess descriptors.
pub const DESCRIPTORS_MAX: usize = 64;

/// Sends bytes, with descriptors attached to the first byte. Returns the number of bytes sent.
pub fn send(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fits = ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    debug_assert!(
        fits,
        "a message carries at most {DESCRIPTORS_MAX} descriptors"
    );
    sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )
}

/// Receives bytes and descriptors. Passes the descriptors to `keep` one by one; returns the number of
/// bytes.
pub fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
    keep: impl FnMut(OwnedFd),
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(bytes)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let messages = ancillary.drain();
    let descriptors = messages.filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(some) => Some(some),
        _ => None,
    });
    descriptors.flatten().for_each(keep);
    Ok(received.bytes)
}
