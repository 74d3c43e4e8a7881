//! Decoder of Fossil's delta format, independent of the server's encoder
//! (<https://fossil-scm.org/home/doc/trunk/www/delta_format.wiki>).

use crate::Failure;
use crate::failure::promise;

const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~";

/// Applies a delta to the preceding data.
pub(crate) fn apply(base: &[u8], delta: &[u8]) -> Result<Vec<u8>, Failure> {
    let made = Parts { rest: delta }.apply(base);
    promise!(
        made.is_some(),
        "deltas reproduce the publication",
        "{} of {}",
        String::from_utf8_lossy(delta),
        String::from_utf8_lossy(base)
    );
    Ok(made.unwrap_or_default())
}

struct Parts<'a> {
    rest: &'a [u8],
}

impl<'a> Parts<'a> {
    fn apply(mut self, base: &[u8]) -> Option<Vec<u8>> {
        let size = self.number()?;
        self.expect(b'\n')?;
        let mut made = Vec::with_capacity(size);
        loop {
            let count = self.number()?;
            match self.byte()? {
                b'@' => {
                    let from = self.number()?;
                    self.expect(b',')?;
                    made.extend_from_slice(base.get(from..from.checked_add(count)?)?);
                }
                b':' => made.extend_from_slice(self.bytes(count)?),
                b';' => {
                    let is_same = made.len() == size && checksum(&made) == count as u32;
                    return (is_same && self.rest.is_empty()).then_some(made);
                }
                _ => return None,
            }
        }
    }

    fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(bytes)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.byte()? == byte).then_some(())
    }

    fn number(&mut self) -> Option<usize> {
        let mut number = 0_usize;
        let mut count = 0;
        while let Some(first) = self.rest.first()
            && let Some(digit) = DIGITS.iter().position(|digit| digit == first)
        {
            number = number.checked_mul(64)?.checked_add(digit)?;
            count += 1;
            self.rest = &self.rest[1..];
        }
        (count > 0).then_some(number)
    }
}

/// Returns the sum of the big-endian 32-bit words of the data, the last one padded with zeros.
fn checksum(data: &[u8]) -> u32 {
    data.chunks(4).fold(0, |sum: u32, bytes| {
        let mut word = [0; 4];
        word[..bytes.len()].copy_from_slice(bytes);
        sum.wrapping_add(u32::from_be_bytes(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_is_followed_to_its_end_and_no_further() {
        let made = apply(b"abcdef", b"5\n3@2,2:xy1h~13t;");
        // The checksum of "cdexy": 0x63646578 + 0x79000000.
        let sum: u32 = 0x6364_6578_u32.wrapping_add(0x7900_0000);
        let mut digits = Vec::new();
        let mut left = sum;
        while left > 0 {
            digits.insert(0, DIGITS[(left % 64) as usize]);
            left /= 64;
        }
        assert!(made.is_err(), "a wrong checksum");
        let digits = String::from_utf8(digits).unwrap_or_default();
        let good = format!("5\n3@2,2:xy{digits};");
        assert_eq!(apply(b"abcdef", good.as_bytes()), Ok(b"cdexy".to_vec()));
        for wrong in [
            format!("6\n3@2,2:xy{digits};"),
            format!("5\n3@9,2:xy{digits};"),
            format!("5\n3@2,2:xy{digits};;"),
            format!("5\n3@2,2:xz{digits};"),
            "5\n3@2,2:xy".to_owned(),
        ] {
            assert!(apply(b"abcdef", wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }
}
