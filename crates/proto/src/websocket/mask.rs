//! The masking of RFC 6455 section 5.3: payload XOR a repeated key of four bytes. Masking twice restores the payload.

/// Bytes per iteration: two vector registers on any x86-64 or ARMv8, so that the compiler vectorises the loop.
const CHUNK: usize = 32;

/// Masks or unmasks `data`; the first byte of `key` applies to the first byte of `data`.
#[inline]
pub(super) fn apply(data: &mut [u8], key: [u8; 4]) {
    if key == [0; 4] {
        return;
    }
    let word = u64::from(u32::from_ne_bytes(key)) * 0x1_0000_0001;
    let (chunks, rest) = data.as_chunks_mut::<CHUNK>();
    for chunk in chunks {
        for part in chunk.as_chunks_mut::<8>().0 {
            *part = (u64::from_ne_bytes(*part) ^ word).to_ne_bytes();
        }
    }
    let (words, tail) = rest.as_chunks_mut::<8>();
    for part in words {
        *part = (u64::from_ne_bytes(*part) ^ word).to_ne_bytes();
    }
    for (byte, key) in tail.iter_mut().zip(word.to_ne_bytes()) {
        *byte ^= key;
    }
}

/// Returns the key rotated by `count` bytes.
#[inline]
pub(super) fn advance(key: [u8; 4], count: usize) -> [u8; 4] {
    let bits = 8 * (count % 4) as u32;
    u32::from_be_bytes(key).rotate_left(bits).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_split_equals_the_definition() {
        let key = [0x37, 0xfa, 0x21, 0x3d];
        let plain: Vec<u8> = (0..150).map(|n| (n * 7) as u8).collect();
        for length in 0..plain.len() {
            let expected: Vec<u8> = plain[..length]
                .iter()
                .enumerate()
                .map(|(i, byte)| byte ^ key[i % 4])
                .collect();
            for split in [0, 1, 2, 3, 7, length / 2, length] {
                let split = split.min(length);
                let mut masked = plain[..length].to_vec();
                apply(&mut masked[..split], key);
                apply(&mut masked[split..], advance(key, split));
                assert_eq!(masked, expected, "length {length}, split {split}");
            }
        }
    }
}
