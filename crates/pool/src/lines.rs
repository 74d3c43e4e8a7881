//! Reads the output of a process line by line, for the log.

use std::io::{ErrorKind, Read};

use rustix::fd::AsFd;

/// Maximum length of a line in bytes; the rest is dropped.
const LINE_BYTES_MAX: usize = 16 << 10;

/// One output of a process, read without blocking.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    pipe: Option<R>,
    line: Vec<u8>,
}

impl<R: Read + AsFd> Lines<R> {
    pub(crate) fn new(pipe: Option<R>) -> Self {
        let pipe = pipe.filter(|pipe| rustix::io::ioctl_fionbio(pipe, true).is_ok());
        Self {
            pipe,
            line: Vec::new(),
        }
    }

    pub(crate) fn pipe(&self) -> Option<&R> {
        self.pipe.as_ref()
    }

    /// Reads the available bytes and passes on each line.
    pub(crate) fn read(&mut self, mut line: impl FnMut(&str)) {
        let mut buffer = [0; 8192];
        // The number of reads is limited, so that a process with endless output does not delay others.
        for _ in 0..16 {
            let Some(pipe) = &mut self.pipe else { return };
            match pipe.read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(count) => {
                    for byte in &buffer[..count] {
                        if *byte == b'\n' {
                            self.flush(&mut line);
                        } else if self.line.len() < LINE_BYTES_MAX {
                            self.line.push(*byte);
                        }
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.pipe = None,
            }
        }
    }

    /// Passes on an unterminated line.
    pub(crate) fn flush(&mut self, mut line: impl FnMut(&str)) {
        let text = String::from_utf8_lossy(&self.line);
        let text = text.trim_end();
        if !text.is_empty() {
            line(text);
        }
        self.line.clear();
    }
}
