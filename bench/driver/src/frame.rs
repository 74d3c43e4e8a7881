//! The two frames the driver needs: a masked one to send, and what the server must answer. Whole messages only,
//! never fragmented; a server that answers in another shape fails the comparison, which is the point.

/// Opcode of a text message.
pub const TEXT: u8 = 1;
/// Opcode of a binary message.
pub const BINARY: u8 = 2;

/// Appends a client's frame, masked with a key that is the same for every frame: the cost of unmasking does not
/// depend on it, and the driver prepares its bytes once.
fn masked(out: &mut Vec<u8>, opcode: u8, data: &[u8]) {
    const KEY: [u8; 4] = [0x5a, 0xc3, 0x96, 0x1f];
    head(out, opcode, data.len(), 0x80);
    out.extend_from_slice(&KEY);
    out.extend(
        data.iter()
            .zip(KEY.iter().cycle())
            .map(|(byte, key)| byte ^ key),
    );
}

/// Appends a server's frame.
pub fn plain(out: &mut Vec<u8>, opcode: u8, data: &[u8]) {
    head(out, opcode, data.len(), 0);
    out.extend_from_slice(data);
}

/// Appends a client's frame to `request`, and to `answer` how an echo must come back.
pub fn echo(request: &mut Vec<u8>, answer: &mut Vec<u8>, opcode: u8, data: &[u8]) {
    masked(request, opcode, data);
    plain(answer, opcode, data);
}

fn head(out: &mut Vec<u8>, opcode: u8, length: usize, mask_bit: u8) {
    out.push(0x80 | opcode);
    match length {
        0..=125 => out.push(mask_bit | length as u8),
        126..=0xffff => {
            out.push(mask_bit | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            out.push(mask_bit | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}

/// A payload of `size` printable bytes that starts with a name of its sender, so that an answer that went to the
/// wrong connection cannot pass.
pub fn payload(name: &str, size: usize) -> Vec<u8> {
    let filler = b"abcdefghijklmnopqrstuvwxyz".iter().cycle();
    name.bytes().chain(filler.copied()).take(size).collect()
}
