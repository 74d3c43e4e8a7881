//! The io_uring calls: a ring, the buffers into which it receives, and its sends.
//!
//! The [`Ring`] owns all memory whose address the kernel knows, so that the memory does not move. A
//! part of the memory is handed out only after the kernel has finished with that part. Sends use
//! `MSG_DONTWAIT`, so they are complete when the call that submits them returns, and none is in
//! flight while other code runs.
//! The operations that stay in flight are receives and polls. They access no memory of this process
//! except the buffers.

mod buffers;

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue};
use rustix::io::Errno;

use crate::queue::SendQueue;
use crate::{ConnectionId, Options};

use buffers::{Buffers, GROUP};

pub(crate) use buffers::FilledBuffer;

/// Size of the submission queue, which limits the number of operations per system call. A full
/// queue is submitted early.
const ENTRIES: u32 = 512;
/// Maximum total number of slices in flight for sends with several slices.
const SLICES_MAX: usize = 4096;
/// The flag `IORING_ENTER_GETEVENTS` of io_uring_enter(2).
const GET_EVENTS: u32 = 1;

/// The operation to which a completion belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum OperationKind {
    Accept,
    Receive,
    Readable,
    Send,
    Writable,
    Change,
    Wake,
    Cancel,
}

impl OperationKind {
    const ALL: [Self; 8] = [
        Self::Accept,
        Self::Receive,
        Self::Readable,
        Self::Send,
        Self::Writable,
        Self::Change,
        Self::Wake,
        Self::Cancel,
    ];
}

fn tag(kind: OperationKind, index: u32) -> u64 {
    (kind as u64) << 32 | u64::from(index)
}

/// Returns the tag of a cancellation. The kind of the cancelled operation is in the upper bits.
fn cancel_tag(kind: OperationKind, index: u32) -> u64 {
    (kind as u64) << 40 | tag(OperationKind::Cancel, index)
}

/// Returns the operation kind at a bit offset of a tag.
fn kind_of(tag: u64, shift: u32) -> Option<OperationKind> {
    OperationKind::ALL
        .get(usize::from((tag >> shift) as u8))
        .copied()
}

/// A completion. A `u32` field is the index of the listener or transport.
#[derive(Debug)]
pub(crate) enum Completion {
    /// Connections are waiting at a listener.
    Acceptable(u32),
    /// The received bytes in a buffer, or `None` after the peer's FIN. The flag states whether the
    /// receive continues.
    Received(u32, Result<Option<FilledBuffer>, Errno>, bool),
    /// The socket is readable, has ended or is broken, or the poll was cancelled.
    Readable(u32),
    /// The number of bytes of the queue that the kernel accepted, and the queue itself.
    Sent(ConnectionId, Result<usize, Errno>, Box<SendQueue>),
    /// The socket is writable or broken.
    Writable(u32),
    /// The socket has received FIN or failed. The flag states whether the poll continues.
    Changed(u32, bool),
    /// The eventfd was written to. The flag states whether the poll continues.
    Woken(bool),
    /// A cancellation did not find its operation: the operation has completed, or the kernel is
    /// processing it. If the operation's last completion has not arrived, the operation must be
    /// cancelled again.
    Missed(OperationKind, u32),
}

/// A send that was pushed to the submission queue and has not completed.
#[derive(Debug)]
struct InFlightSend {
    id: ConnectionId,
    queue: Box<SendQueue>,
}

/// An io_uring instance with the memory it uses.
pub(crate) struct Ring {
    ring: IoUring,
    buffers: Buffers,
    in_flight: Vec<Option<InFlightSend>>,
    /// Unused indices of `in_flight`.
    free_in_flight: Vec<u32>,
    /// The memory to which submitted sends of several slices point. The lists must not move until
    /// they are cleared.
    messages: Vec<libc::msghdr>,
    slices: Vec<libc::iovec>,
}

impl Ring {
    /// Creates a ring. Only the thread that creates it may use it.
    ///
    /// # Errors
    /// The kernel has no io_uring, lacks a required feature (6.1 has all of them), or does not
    /// permit its use.
    pub(crate) fn new(options: &Options) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_clamp()
            .setup_cqsize(options.ring_completions.max(ENTRIES))
            .build(ENTRIES)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::RecvMulti::CODE,
            opcode::Send::CODE,
            opcode::SendMsg::CODE,
            opcode::PollAdd::CODE,
            opcode::AsyncCancel::CODE,
        ];
        let has_all = needed.iter().all(|code| probe.is_supported(*code));
        if !has_all
            || !ring.params().is_feature_nodrop()
            || !ring.params().is_feature_ext_arg()
            || !ring.params().is_feature_skip_cqe_on_success()
        {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        let buffers = Buffers::new(&ring, options)?;
        Ok(Self {
            ring,
            buffers,
            in_flight: Vec::new(),
            free_in_flight: Vec::new(),
            messages: Vec::with_capacity(ENTRIES as usize),
            slices: Vec::with_capacity(SLICES_MAX),
        })
    }

    #[expect(
        unsafe_code,
        reason = "the data to which a queue entry refers must live until it completes"
    )]
    fn push(&mut self, entry: &squeue::Entry) {
        while self.ring.submission().is_full() {
            // The submission makes room in the queue. It fails if the kernel is short of memory.
            // There is no alternative, so the submission is repeated.
            let _ = self.submit();
        }
        // SAFETY: a send points to memory that `in_flight`, `messages` and `slices` keep until it
        // is complete. Other operations access only the buffers, which live as long as the ring.
        let pushed = unsafe { self.ring.submission().push(entry) };
        debug_assert!(pushed.is_ok(), "there is room");
    }

    /// Submits the pushed operations without waiting.
    fn submit(&mut self) -> io::Result<()> {
        self.ring.submitter().submit()?;
        if self.ring.submission().is_empty() {
            self.clear_sent();
        }
        Ok(())
    }

    /// Clears the lists of submitted sends, which the kernel no longer needs.
    fn clear_sent(&mut self) {
        self.messages.clear();
        self.slices.clear();
    }

    /// Starts a poll that completes once, when connections are waiting or the listener is broken.
    pub(crate) fn poll_acceptable(&mut self, index: u32, socket: &OwnedFd) {
        let entry = opcode::PollAdd::new(Fd(socket.as_raw_fd()), libc::POLLIN as u32).build();
        self.push(&entry.user_data(tag(OperationKind::Accept, index)));
    }

    /// Starts a receive that continues until it is cancelled or fails, the peer ends the connection, or no buffer is
    /// left.
    pub(crate) fn receive(&mut self, index: u32, socket: &OwnedFd) {
        let entry = opcode::RecvMulti::new(Fd(socket.as_raw_fd()), GROUP).build();
        self.push(&entry.user_data(tag(OperationKind::Receive, index)));
    }

    /// Starts a poll that completes once, when the socket is readable, has ended or is broken. Unlike
    /// [`receive`](Self::receive), the poll needs no buffer.
    pub(crate) fn poll_readable(&mut self, index: u32, socket: &OwnedFd) {
        let entry = opcode::PollAdd::new(Fd(socket.as_raw_fd()), libc::POLLIN as u32).build();
        self.push(&entry.user_data(tag(OperationKind::Readable, index)));
    }

    /// Starts a poll that completes once, when the socket is writable or broken.
    pub(crate) fn poll_writable(&mut self, index: u32, socket: &OwnedFd) {
        let entry = opcode::PollAdd::new(Fd(socket.as_raw_fd()), libc::POLLOUT as u32).build();
        self.push(&entry.user_data(tag(OperationKind::Writable, index)));
    }

    /// Starts a poll for errors of the socket and for the end of either direction. The kernel reports these even though
    /// the poll requests no events.
    pub(crate) fn poll_changes(&mut self, index: u32, socket: &OwnedFd) {
        let entry = opcode::PollAdd::new(Fd(socket.as_raw_fd()), 0)
            .multi(true)
            .build();
        self.push(&entry.user_data(tag(OperationKind::Change, index)));
    }

    /// Starts a poll that reports each write to an eventfd.
    pub(crate) fn poll_wake(&mut self, eventfd: &OwnedFd) {
        let entry = opcode::PollAdd::new(Fd(eventfd.as_raw_fd()), libc::POLLIN as u32)
            .multi(true)
            .build();
        self.push(&entry.user_data(tag(OperationKind::Wake, 0)));
    }

    /// Cancels an operation. Either the operation's last completion follows, or
    /// [`Completion::Missed`].
    pub(crate) fn cancel(&mut self, kind: OperationKind, index: u32) {
        let entry = opcode::AsyncCancel::new(tag(kind, index)).build();
        let entry = entry.flags(squeue::Flags::SKIP_SUCCESS);
        self.push(&entry.user_data(cancel_tag(kind, index)));
    }

    /// Sends as much of a queue as the socket accepts immediately. The completion returns the
    /// queue. The completion is available after [`wait`](Self::wait) has returned and
    /// [`has_in_flight`](Self::has_in_flight) is `false`.
    pub(crate) fn send(&mut self, id: ConnectionId, socket: &OwnedFd, queue: Box<SendQueue>) {
        const FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let fd = Fd(socket.as_raw_fd());
        let pieces = queue.slices().count();
        // Entries point into these lists, so the lists must not move and therefore never grow.
        let is_full = |ring: &Self| {
            ring.slices.len() + pieces > SLICES_MAX
                || ring.messages.len() == ring.messages.capacity()
        };
        if is_full(self) {
            let _ = self.submit();
        }
        let entry = match queue.slices().next() {
            Some(first) if pieces == 1 || is_full(self) => {
                // A single slice needs no list. If the lists are still full, only the first slice is
                // sent, and the rest follows as after any short send.
                let length = u32::try_from(first.len()).unwrap_or(u32::MAX);
                opcode::Send::new(fd, first.as_ptr(), length)
                    .flags(FLAGS)
                    .build()
            }
            _ => {
                let begin = self.slices.len();
                self.slices.extend(queue.slices().map(|piece| libc::iovec {
                    iov_base: piece.as_ptr().cast_mut().cast(),
                    iov_len: piece.len(),
                }));
                let message = libc::msghdr {
                    msg_name: std::ptr::null_mut(),
                    msg_namelen: 0,
                    msg_iov: self.slices[begin..].as_mut_ptr(),
                    msg_iovlen: pieces,
                    msg_control: std::ptr::null_mut(),
                    msg_controllen: 0,
                    msg_flags: 0,
                };
                self.messages.push(message);
                let message: *const libc::msghdr =
                    &raw const self.messages[self.messages.len() - 1];
                opcode::SendMsg::new(fd, message)
                    .flags(FLAGS as u32)
                    .build()
            }
        };
        let flight = Some(InFlightSend { id, queue });
        let place = match self.free_in_flight.pop() {
            Some(place) => {
                self.in_flight[place as usize] = flight;
                place
            }
            None => {
                self.in_flight.push(flight);
                self.in_flight.len() as u32 - 1
            }
        };
        self.push(&entry.user_data(tag(OperationKind::Send, place)));
    }

    /// Submits the pushed operations and waits for a completion, but no longer than `timeout`.
    ///
    /// # Errors
    /// The call itself failed. `EBADR` means that the kernel had no memory for a completion;
    /// received data can then no longer be assigned to its transport.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> Result<(), Errno> {
        let has_some = !self.ring.completion().is_empty();
        let submitter = self.ring.submitter();
        let result = match timeout {
            Some(Duration::ZERO) => self.enter_at_once(),
            _ if has_some => self.enter_at_once(),
            Some(timeout) => {
                let time = Timespec::from(timeout);
                submitter.submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
            None => submitter.submit_and_wait(1),
        };
        if self.ring.submission().is_empty() {
            self.clear_sent();
        }
        // A lost completion is fatal, since the location of bytes in the buffers depends on every
        // earlier completion.
        if self.ring.completion().overflow() != 0 {
            return Err(Errno::BADR);
        }
        match result {
            Ok(_) => Ok(()),
            Err(error) => match Errno::from_io_error(&error) {
                // The wait timed out or was interrupted by a signal, or the kernel requires that
                // completions are taken first.
                Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN) => Ok(()),
                Some(errno) => Err(errno),
                None => Err(Errno::IO),
            },
        }
    }

    #[expect(
        unsafe_code,
        reason = "the arguments of this system call refer to no memory"
    )]
    fn enter_at_once(&mut self) -> io::Result<usize> {
        let count = self.ring.submission().len() as u32;
        // SAFETY: the call has no argument, and the entries are sound (see `push`).
        unsafe {
            self.ring
                .submitter()
                .enter::<()>(count, 0, GET_EVENTS, None)
        }
    }

    /// Returns whether submitted sends have completions that were not taken yet. This happens if
    /// the completion queue is full or the kernel is short of memory.
    pub(crate) fn has_in_flight(&self) -> bool {
        self.in_flight.len() > self.free_in_flight.len()
    }

    /// Returns the next completion.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Completion> {
        loop {
            let entry = self.ring.completion().next()?;
            if let Some(done) = self.read(&entry) {
                return Some(done);
            }
        }
    }

    #[inline]
    fn read(&mut self, entry: &cqueue::Entry) -> Option<Completion> {
        let index = entry.user_data() as u32;
        let kind = kind_of(entry.user_data(), 32)?;
        let result = match entry.result() {
            error @ ..0 => Err(Errno::from_raw_os_error(-error)),
            count => Ok(count as u32),
        };
        let has_more = cqueue::more(entry.flags());
        Some(match kind {
            OperationKind::Accept => Completion::Acceptable(index),
            OperationKind::Receive => {
                // Some kernels select a buffer even for the end of a stream.
                let filled = result.map(|length| {
                    let buffer = cqueue::buffer_select(entry.flags())?;
                    let has_more = cqueue::buffer_more(entry.flags());
                    self.buffers.take(buffer, length as usize, has_more)
                });
                Completion::Received(index, filled, has_more)
            }
            OperationKind::Send => {
                let flight = self.in_flight[index as usize].take()?;
                self.free_in_flight.push(index);
                let sent = result.map(|count| count as usize);
                Completion::Sent(flight.id, sent, flight.queue)
            }
            OperationKind::Readable => Completion::Readable(index),
            OperationKind::Writable => Completion::Writable(index),
            OperationKind::Change => Completion::Changed(index, has_more),
            OperationKind::Wake => Completion::Woken(has_more),
            OperationKind::Cancel => match (result, kind_of(entry.user_data(), 40)) {
                (Err(_), Some(kind)) => Completion::Missed(kind, index),
                _ => return None,
            },
        })
    }

    /// Returns the buffer of a [`Completion::Received`] to the kernel.
    #[inline]
    pub(crate) fn give_back(&mut self, filled: FilledBuffer) {
        self.buffers.give_back(filled);
    }

    /// Returns whether several receives may share a buffer.
    pub(crate) fn shares_buffers(&self) -> bool {
        self.buffers.is_incremental()
    }

    /// Returns whether the kernel has a free buffer for received bytes.
    pub(crate) fn has_room(&self) -> bool {
        self.buffers.room() > 0
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // After this call, the kernel writes to no buffer. If the call fails, the memory is leaked,
        // so that memory to which the kernel may still write is not reused.
        let cancelled = self
            .ring
            .submitter()
            .register_sync_cancel(None, CancelBuilder::any());
        let is_idle = cancelled.is_ok()
            || cancelled.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if !is_idle {
            self.buffers.leak();
        }
    }
}
