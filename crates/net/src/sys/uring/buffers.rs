//! The memory that the kernel receives into, before anybody has asked.
//!
//! A buffer is filled from its beginning on, by one receive after the other (`IOU_PBUF_RING_INC`, Linux 6.12), so that
//! twenty bytes take twenty, and a bulk transfer has a long one to itself. An older kernel takes a whole buffer for each
//! receive. It chooses by itself, and tells only which buffer: where in it the bytes lie follows from the order of the
//! completions, which is that of the receives.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::{BufRingEntry, IOU_PBUF_RING_INC};

use crate::Options;

/// The one group of buffers.
pub(super) const GROUP: u16 = 0;
/// A receive takes of a buffer what it fills.
const INCREMENTAL: u16 = IOU_PBUF_RING_INC as u16;

/// With room to split each.
const BUFFERS_MAX: u16 = 4096;
/// Where a receive takes a whole buffer, so many are made of one.
const SPLIT: u16 = 8;

/// Bytes in one of the ring's buffers, which nobody else has. To be given back to the ring that they are of.
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

    /// The bytes.
    #[expect(unsafe_code, reason = "memory that the kernel has filled")]
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the kernel is done with this part of its memory, each part is given out once, and the memory is never
        // freed while one is outside.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

/// Zeroed memory at the beginning of a page.
struct Memory {
    start: NonNull<u8>,
    /// Of nothing: it is left where it is for ever.
    layout: Layout,
}

impl Memory {
    /// `bytes` is not 0.
    #[expect(unsafe_code, reason = "memory that the kernel shares")]
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
    #[expect(unsafe_code, reason = "memory that the kernel shares")]
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: it was allocated with that layout, and nobody else uses it any more.
            unsafe { dealloc(self.start.as_ptr(), self.layout) }
        }
    }
}

/// How far a buffer is.
#[derive(Clone, Copy, Default)]
struct BufferProgress {
    /// Bytes that the kernel has filled, from the beginning on.
    filled: usize,
    /// Parts that were told and not given back.
    lent_parts: u32,
}

/// Buffers that the kernel chooses from when something arrives.
pub(super) struct Buffers {
    /// The list that is shared with the kernel.
    entries: Memory,
    bytes: Memory,
    /// Of each buffer.
    size: usize,
    mask: u16,
    tail: u16,
    /// The kernel fills each bit by bit.
    is_incremental: bool,
    progress: Vec<BufferProgress>,
    /// Parts outside of all.
    lent: usize,
    /// Bytes that the kernel may still fill.
    room: usize,
}

impl Buffers {
    #[expect(unsafe_code, reason = "memory that the kernel shares")]
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
        // SAFETY: it lives as long as the ring, or longer: see the drop of `Ring`.
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

    /// The part of a buffer that a completion with so many bytes is about; `None` if there are none. `has_more` as the
    /// kernel says it: it goes on with the same buffer.
    #[inline]
    #[expect(unsafe_code, reason = "memory that the kernel shares")]
    pub(super) fn take(
        &mut self,
        buffer: u16,
        length: usize,
        has_more: bool,
    ) -> Option<FilledBuffer> {
        let progress = &mut self.progress[usize::from(buffer)];
        let begin = progress.filled;
        assert!(length <= self.size - begin, "the kernel fills what is free");
        // Of one that is filled bit by bit an end takes nothing.
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
        // Else the bytes would be another connection's.
        assert_eq!(
            has_more,
            progress.filled < self.size,
            "the kernel counts as we do"
        );
        progress.lent_parts += 1;
        self.lent += 1;
        // SAFETY: it lies within the buffer, and that within the memory.
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

    /// Takes a part back; the bytes are nobody's any more. One of another ring, whose place this one has taken, is left
    /// alone: its memory is not freed while a part is outside, so the address says whose it is.
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

    /// Lets the kernel fill a buffer again, if it is full and all of it was read.
    #[inline]
    fn settle(&mut self, buffer: u16) {
        let progress = self.progress[usize::from(buffer)];
        if progress.filled == self.size && progress.lent_parts == 0 {
            self.hand_over(buffer);
        }
    }

    /// Leaves all of it where it is for ever.
    pub(super) fn leak(&mut self) {
        self.entries.leak();
        self.bytes.leak();
    }

    pub(super) fn is_incremental(&self) -> bool {
        self.is_incremental
    }

    /// Bytes that the kernel may fill before something is given back.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Lets the kernel fill a buffer.
    #[expect(unsafe_code, reason = "memory that the kernel shares")]
    fn hand_over(&mut self, buffer: u16) {
        self.progress[usize::from(buffer)] = BufferProgress::default();
        self.room += self.size;
        let place = usize::from(self.tail & self.mask);
        let entries = self.entries.start.cast::<BufRingEntry>();
        // SAFETY: the place is one of the list.
        let entry = unsafe { entries.add(place) };
        // SAFETY: the kernel reads none behind the tail, and nobody else has a reference.
        let entry = unsafe { &mut *entry.as_ptr() };
        let start = self.bytes.start.as_ptr() as usize + usize::from(buffer) * self.size;
        entry.set_addr(start as u64);
        entry.set_len(self.size as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the list begins there, and is initialized.
        let tail = unsafe { BufRingEntry::tail(entries.as_ptr()) };
        // SAFETY: it lives as long as the list; everybody uses it as an atomic from the registration on.
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
