//! Passes arbitrary bytes to the decoder of PROXY headers. It must not panic, must return the same result however the
//! bytes are split, and must not wait for more bytes than a header can have.

use veche_proto::proxy::{ProxyHeader, ProxyHeaderError, V2_BYTES_MAX, read};

/// Decodes an input as a header; panics on a finding.
pub fn run(data: &[u8]) {
    let whole = read_in_steps(data, data.len().max(1));
    for step in [1, 2, 7, 16] {
        assert_eq!(
            read_in_steps(data, step),
            whole,
            "splitting changes the answer"
        );
    }
    match whole {
        None => assert!(
            data.len() < V2_BYTES_MAX,
            "more is waited for than there can be"
        ),
        Some(Ok(header)) => {
            assert!((8..=V2_BYTES_MAX).contains(&header.length));
            assert!(header.length <= data.len());
            // Bytes after the header do not affect it.
            assert_eq!(read(&data[..header.length]), Ok(Some(header)));
            assert_eq!(read(&data[..header.length - 1]), Ok(None));
        }
        Some(Err(_)) => {}
    }
}

fn read_in_steps(data: &[u8], step: usize) -> Option<Result<ProxyHeader, ProxyHeaderError>> {
    let mut end = 0;
    loop {
        end = (end + step).min(data.len());
        if let Some(read) = read(&data[..end]).transpose() {
            return Some(read);
        }
        if end == data.len() {
            return None;
        }
    }
}
