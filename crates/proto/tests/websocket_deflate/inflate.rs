//! A minimal decompressor (RFC 1951) that reports how far back a stream refers, which no library does. It is for
//! tests only: it does not validate its input.

/// Decompresses a message and appends its bytes to `history`; returns the largest distance of a reference.
pub(crate) fn message(payload: &[u8], history: &mut Vec<u8>) -> usize {
    let mut bits = Bits {
        bytes: [payload, &[0, 0, 0xff, 0xff]].concat(),
        at: 0,
    };
    let mut farthest = 0;
    while bits.at < bits.bytes.len() * 8 {
        let _last = bits.take(1);
        match bits.take(2) {
            0 => {
                bits.at = bits.at.next_multiple_of(8);
                let length = bits.take(16);
                let check = bits.take(16);
                assert_eq!(length, !check & 0xffff);
                for _ in 0..length {
                    history.push(bits.take(8) as u8);
                }
            }
            1 => {
                let lengths: Vec<u8> = (0..288)
                    .map(|symbol| match symbol {
                        0..=143 => 8,
                        144..=255 => 9,
                        256..=279 => 7,
                        _ => 8,
                    })
                    .collect();
                let (literals, distances) = (Codes::new(&lengths), Codes::new(&[5; 30]));
                block(&mut bits, &literals, &distances, history, &mut farthest);
            }
            2 => {
                let (literals, distances) = dynamic(&mut bits);
                block(&mut bits, &literals, &distances, history, &mut farthest);
            }
            _ => panic!("reserved block type"),
        }
    }
    farthest
}

fn block(
    bits: &mut Bits,
    literals: &Codes,
    distances: &Codes,
    out: &mut Vec<u8>,
    farthest: &mut usize,
) {
    loop {
        match literals.read(bits) {
            256 => return,
            literal @ 0..=255 => out.push(literal as u8),
            symbol => {
                let length = match symbol - 257 {
                    code @ 0..=7 => 3 + code,
                    28 => 258,
                    code => {
                        let extra = code / 4 - 1;
                        3 + ((4 + code % 4) << extra) + bits.take(extra)
                    }
                };
                let distance = match distances.read(bits) {
                    code @ 0..=3 => 1 + code,
                    code => {
                        let extra = code / 2 - 1;
                        1 + ((2 + code % 2) << extra) + bits.take(extra)
                    }
                };
                *farthest = distance.max(*farthest);
                for _ in 0..length {
                    out.push(out[out.len() - distance]);
                }
            }
        }
    }
}

fn dynamic(bits: &mut Bits) -> (Codes, Codes) {
    const ORDER: [usize; 19] = [
        16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15,
    ];
    let (literals, distances, count) = (257 + bits.take(5), 1 + bits.take(5), 4 + bits.take(4));
    let mut of_lengths = [0; 19];
    for &symbol in &ORDER[..count] {
        of_lengths[symbol] = bits.take(3) as u8;
    }
    let codes = Codes::new(&of_lengths);
    let mut lengths = Vec::new();
    while lengths.len() < literals + distances {
        let (value, times) = match codes.read(bits) {
            16 => (*lengths.last().unwrap(), 3 + bits.take(2)),
            17 => (0, 3 + bits.take(3)),
            18 => (0, 11 + bits.take(7)),
            length => (length as u8, 1),
        };
        lengths.resize(lengths.len() + times, value);
    }
    let (literals, distances) = lengths.split_at(literals);
    (Codes::new(literals), Codes::new(distances))
}

struct Bits {
    bytes: Vec<u8>,
    at: usize,
}

impl Bits {
    fn take(&mut self, count: usize) -> usize {
        (0..count).fold(0, |value, index| {
            let bit = self.bytes[self.at / 8] >> (self.at % 8) & 1;
            self.at += 1;
            value | usize::from(bit) << index
        })
    }
}

/// A canonical Huffman code: the number of codes of each length, and the symbols in the order of their codes.
struct Codes {
    counts: [usize; 16],
    symbols: Vec<usize>,
}

impl Codes {
    fn new(lengths: &[u8]) -> Self {
        let mut counts = [0; 16];
        let mut symbols = Vec::new();
        for length in 1..16 {
            let these = (0..lengths.len()).filter(|&symbol| lengths[symbol] == length);
            let before = symbols.len();
            symbols.extend(these);
            counts[usize::from(length)] = symbols.len() - before;
        }
        Self { counts, symbols }
    }

    fn read(&self, bits: &mut Bits) -> usize {
        let (mut code, mut first, mut index) = (0, 0, 0);
        for length in 1..16 {
            code |= bits.take(1);
            let count = self.counts[length];
            if code < first + count {
                return self.symbols[index + code - first];
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        panic!("no such code");
    }
}
