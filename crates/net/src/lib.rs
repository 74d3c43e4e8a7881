//! A worker's sockets: the seam, its back ends, timers and buffers.
