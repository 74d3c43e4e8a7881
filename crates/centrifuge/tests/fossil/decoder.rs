//! A decoder of Fossil's format for tests, as in clients.

/// Applies a delta as the format's description requires, but rejects more invalid deltas than
/// clients do.
pub(crate) fn applied(old: &[u8], delta: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut rest = delta;
    let size = number(&mut rest)?;
    if byte(&mut rest)? != b'\n' {
        return Err("no line break");
    }
    let mut new = Vec::new();
    loop {
        let count = number(&mut rest)?;
        match byte(&mut rest)? {
            b'@' => {
                let source = number(&mut rest)?;
                if byte(&mut rest)? != b',' {
                    return Err("no comma");
                }
                let end = source.checked_add(count).ok_or("too far")?;
                new.extend_from_slice(old.get(source..end).ok_or("not of the old data")?);
            }
            b':' => {
                let (bytes, behind) = rest.split_at_checked(count).ok_or("too few bytes")?;
                new.extend_from_slice(bytes);
                rest = behind;
            }
            b';' => {
                let mut sum = 0_u32;
                for (place, byte) in new.iter().enumerate() {
                    sum = sum.wrapping_add(u32::from(*byte) << (24 - 8 * (place % 4)));
                }
                return match (sum as usize == count, new.len() == size, rest) {
                    (true, true, []) => Ok(new),
                    _ => Err("checksum, size or end"),
                };
            }
            _ => return Err("no such piece"),
        }
        if count == 0 {
            return Err("a piece of nothing");
        }
    }
}

fn byte(rest: &mut &[u8]) -> Result<u8, &'static str> {
    let (first, behind) = rest.split_first().ok_or("cut off")?;
    *rest = behind;
    Ok(*first)
}

fn number(rest: &mut &[u8]) -> Result<usize, &'static str> {
    const DIGITS: &str = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~";
    let mut number = None;
    while let Some(digit) = rest.first().and_then(|byte| DIGITS.find(*byte as char)) {
        number = Some(number.unwrap_or(0) << 6 | digit);
        *rest = &rest[1..];
    }
    number.ok_or("no number")
}
