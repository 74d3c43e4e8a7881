//! The buffers into which the kernel receives without a system call for each receive.
//!
//! Consecutive receives fill a buffer from its beginning (`IOU_PBUF_RING_INC`, Linux 6.12): a
//! receive of twenty bytes uses only twenty bytes of a buffer, and a bulk transfer can fill a whole
//! buffer. An older kernel uses a whole buffer for each receive. The kernel reports only which
//! buffer it has chosen. The location of the bytes in the buffer follows from the order of
//! completions, which equals the order of receives.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::{BufRingEntry, IOU_PBUF_RING_INC};

use crate::Options;

/// The only buffer group.
pub(super) const GROUP: u16 = 0;
/// The flag that makes receives use only the part of a buffer that they fill.
const INCREMENTAL: u16 = IOU_PBUF_RING_INC as u16;

/// Maximum number of buffers. The kernel permits 32,768, so each buffer can still be split into
/// [`SPLIT`] parts.
const BUFFERS_MAX: u16 = 4096;
/// Number of smaller buffers that replace each buffer if every receive uses a whole buffer.
const SPLIT: u16 = 8;

/// Exclusive access to received bytes in one of the ring's buffers. Must be returned to the ring
/// that created it.
#[derive(Debug)]
pub(crate) struct FilledBuffer {
    buffer: u16,
    start: NonNull<u8>,
    length: usize,
}

impl FilledBuffer {
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns the part that the kernel has filled.
    #[expect(unsafe_code, reason = "this reads memory that the kernel has filled")]
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the kernel no longer writes to this part, each part is handed out once, and the
        // memory is not freed while a part is outstanding.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

/// Zeroed, page-aligned memory that the kernel may write to.
struct Memory {
    start: NonNull<u8>,
    /// The layout of the memory; empty if the memory is leaked.
    layout: Layout,
}

impl Memory {
    /// Allocates the memory. `bytes` must not be 0.
    #[expect(
        unsafe_code,
        reason = "this accesses memory that is shared with the kernel"
    )]
    fn new(bytes: usize) -> io::Result<Self> {
        let layout =
            Layout::from_size_align(bytes, rustix::param::page_size()).map_err(io::Error::other)?;
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Ok(Self { start, layout }),
            None => handle_alloc_error(layout),
        }
    }

    fn leak(&mut self) {
        self.layout = Layout::new::<()>();
    }
}

impl Drop for Memory {
    #[expect(
        unsafe_code,
        reason = "this accesses memory that is shared with the kernel"
    )]
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: the memory was allocated with `self.layout`, and is no longer in use.
            unsafe { dealloc(self.start.as_ptr(), self.layout) }
        }
    }
}

/// The fill state of a buffer.
#[derive(Clone, Copy, Default)]
struct BufferProgress {
    /// Number of bytes that the kernel has filled, from the beginning.
    filled: usize,
    /// Number of parts that were handed out but not returned.
    lent_parts: u32,
}

/// The buffers, from which the kernel chooses one for received data.
pub(super) struct Buffers {
    /// The list of available buffers, shared with the kernel.
    entries: Memory,
    bytes: Memory,
    /// The size of each buffer in bytes.
    size: usize,
    mask: u16,
    tail: u16,
    /// Whether the kernel fills buffers incrementally.
    is_incremental: bool,
    progress: Vec<BufferProgress>,
    /// Number of outstanding parts of all buffers.
    lent: usize,
    /// Number of bytes that the kernel may still fill.
    room: usize,
}

impl Buffers {
    #[expect(
        unsafe_code,
        reason = "this accesses memory that is shared with the kernel"
    )]
    pub(super) fn new(ring: &IoUring, options: &Options) -> io::Result<Self> {
        let mut count = options.ring_buffers.clamp(1, BUFFERS_MAX);
        count = count.next_power_of_two();
        let mut size = options.ring_buffer_bytes.max(1);
        let split_size = size.div_ceil(usize::from(SPLIT));
        let split_count = usize::from(count * SPLIT);
        let entries = Memory::new(split_count * size_of::<BufRingEntry>())?;
        let too_large = || io::Error::from(io::ErrorKind::InvalidInput);
        let all = split_count.checked_mul(split_size);
        let bytes = Memory::new(all.ok_or_else(too_large)?)?;
        u32::try_from(size).map_err(|_| too_large())?;
        let address = entries.start.as_ptr() as u64;
        // SAFETY: the memory lives at least as long as the ring (see `Drop` of `Ring`).
        let register = |count, flags| unsafe {
            let submitter = ring.submitter();
            submitter.register_buf_ring_with_flags(address, count, GROUP, flags)
        };
        let is_incremental = options.ring_shares_buffers && register(count, INCREMENTAL).is_ok();
        if !is_incremental {
            (count, size) = (count * SPLIT, split_size);
            register(count, 0)?;
        }
        let mut buffers = Self {
            entries,
            bytes,
            size,
            mask: count - 1,
            tail: 0,
            is_incremental,
            progress: vec![BufferProgress::default(); usize::from(count)],
            lent: 0,
            room: 0,
        };
        (0..count).for_each(|buffer| buffers.hand_over(buffer));
        Ok(buffers)
    }

    /// Returns the part of a buffer to which a completion with `length` bytes refers; `None` if the
    /// length is 0. `has_more` is the kernel's flag that it continues to fill the same buffer.
    #[inline]
    #[expect(
        unsafe_code,
        reason = "this accesses memory that is shared with the kernel"
    )]
    pub(super) fn take(
        &mut self,
        buffer: u16,
        length: usize,
        has_more: bool,
    ) -> Option<FilledBuffer> {
        let progress = &mut self.progress[usize::from(buffer)];
        let begin = progress.filled;
        assert!(
            length <= self.size - begin,
            "the kernel must not write past the end of a buffer"
        );
        // The end of a stream uses no bytes of an incrementally filled buffer.
        let taken = match self.is_incremental {
            true => length,
            false => self.size - begin,
        };
        progress.filled += taken;
        self.room -= taken;
        if length == 0 {
            self.settle(buffer);
            return None;
        }
        // If the kernel and this process disagreed about the end of the buffer, later bytes would
        // be delivered to the wrong connection.
        assert_eq!(
            has_more,
            progress.filled < self.size,
            "the kernel and the server must agree on whether the buffer is full"
        );
        progress.lent_parts += 1;
        self.lent += 1;
        // SAFETY: the offset is within the buffer, and the buffer is within the memory.
        let start = unsafe {
            self.bytes
                .start
                .add(usize::from(buffer) * self.size + begin)
        };
        Some(FilledBuffer {
            buffer,
            start,
            length,
        })
    }

    /// Takes a part back. Ignores a part of an earlier ring that this ring has replaced. The
    /// address identifies the ring, because the memory of a ring is not freed while a part is
    /// outstanding.
    #[inline]
    pub(super) fn give_back(&mut self, filled: FilledBuffer) {
        let FilledBuffer { buffer, start, .. } = filled;
        let all = self.bytes.start.addr().get();
        if !(all..all + self.bytes.layout.size()).contains(&start.addr().get()) {
            return;
        }
        self.progress[usize::from(buffer)].lent_parts -= 1;
        self.lent -= 1;
        self.settle(buffer);
    }

    /// Returns a buffer to the kernel if it is full and all its parts were returned.
    #[inline]
    fn settle(&mut self, buffer: u16) {
        let progress = self.progress[usize::from(buffer)];
        if progress.filled == self.size && progress.lent_parts == 0 {
            self.hand_over(buffer);
        }
    }

    /// Leaks all memory, since the kernel may still write to it.
    pub(super) fn leak(&mut self) {
        self.entries.leak();
        self.bytes.leak();
    }

    pub(super) fn is_incremental(&self) -> bool {
        self.is_incremental
    }

    /// Returns the number of bytes that the kernel may fill before another part is returned.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Gives a buffer to the kernel.
    #[expect(
        unsafe_code,
        reason = "this accesses memory that is shared with the kernel"
    )]
    fn hand_over(&mut self, buffer: u16) {
        self.progress[usize::from(buffer)] = BufferProgress::default();
        self.room += self.size;
        let place = usize::from(self.tail & self.mask);
        let entries = self.entries.start.cast::<BufRingEntry>();
        // SAFETY: the index is within the list.
        let entry = unsafe { entries.add(place) };
        // SAFETY: the kernel reads no entry after the tail, and there is no other reference.
        let entry = unsafe { &mut *entry.as_ptr() };
        let start = self.bytes.start.as_ptr() as usize + usize::from(buffer) * self.size;
        entry.set_addr(start as u64);
        entry.set_len(self.size as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the list begins at this address and is initialised.
        let tail = unsafe { BufRingEntry::tail(entries.as_ptr()) };
        // SAFETY: the tail lives as long as the list. Once the list is registered, the tail is accessed
        // only as an atomic.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if self.lent > 0 {
            self.bytes.leak();
        }
    }
}
