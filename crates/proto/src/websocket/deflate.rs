//! permessage-deflate (RFC 7692): its parameters and their negotiation, as client and as server.
//!
//! Handles header values only. [`Codecs`](super::Codecs) contains the codecs, and [`context`](super::context) the
//! compression contexts that connections keep between messages.

use super::Role;
use super::extensions::{self, Extension};

/// The extension's registered name.
const NAME: &str = "permessage-deflate";
/// Smallest window that can be agreed on, in bits: 2⁸ bytes.
pub const WINDOW_BITS_MIN: u8 = 8;
/// Largest window in bits, which is also the default: 2¹⁵ bytes.
pub const WINDOW_BITS_MAX: u8 = 15;
/// Smallest window that the library supports, in bits.
pub(super) const LIBRARY_WINDOW_BITS_MIN: u8 = 9;
/// Largest window kept for sending, in bits, even if both ends have agreed on a larger one: a sender may refer back
/// less far than permitted. With 15 bits, messages of 70 to 750 bytes would be a tenth smaller, but a window would take
/// eight times the memory, and the search in it up to 20 us per message.
pub const KEPT_WINDOW_BITS_MAX: u8 = 12;

const SERVER_NO_CONTEXT: u8 = 1;
const CLIENT_NO_CONTEXT: u8 = 2;
/// The flag for an offer that limits the server's window. The response must then limit it too, even if to 15 bits
/// (RFC 7692 section 7.1.2.1).
const SERVER_WINDOW_ASKED: u8 = 4;

/// The parameters that this end accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeflatePolicy {
    /// Whether contexts are kept between messages, in either direction. Small messages then compress
    /// better, but both windows take memory. If false, `server_no_context_takeover` and
    /// `client_no_context_takeover` are required; a server may require them even if the client did
    /// not offer them (RFC 7692 section 7.1.1.2).
    pub takeover: bool,
    /// Largest window for messages of the server, 8 to 15 bits.
    pub server_window_bits: u8,
    /// Largest window for messages of the client, 8 to 15 bits. A server can only require less than 15 if the client's
    /// offer permits it; otherwise a kept context has the full window.
    pub client_window_bits: u8,
}

impl Default for DeflatePolicy {
    /// Returns a policy without context takeover and with windows of full size.
    fn default() -> Self {
        Self {
            takeover: false,
            server_window_bits: WINDOW_BITS_MAX,
            client_window_bits: WINDOW_BITS_MAX,
        }
    }
}

/// The negotiated parameters of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeflateParams {
    flags: u8,
    server_window_bits: u8,
    client_window_bits: u8,
}

// The size matters because each connection with compression has two of these values.
const _: () = assert!(size_of::<Option<DeflateParams>>() <= 4);

impl DeflateParams {
    /// Returns whether the server drops its context after each message.
    #[must_use]
    pub fn server_no_context_takeover(self) -> bool {
        self.flags & SERVER_NO_CONTEXT != 0
    }

    /// Returns whether the client drops its context after each message.
    #[must_use]
    pub fn client_no_context_takeover(self) -> bool {
        self.flags & CLIENT_NO_CONTEXT != 0
    }

    /// Returns the window bits of the server's messages, 8 to 15.
    #[must_use]
    pub fn server_window_bits(self) -> u8 {
        self.server_window_bits
    }

    /// Returns the window bits of the client's messages, 8 to 15.
    #[must_use]
    pub fn client_window_bits(self) -> u8 {
        self.client_window_bits
    }

    /// Returns a key for the compressed bytes of messages from `sender`: connections with equal keys can receive the
    /// same bytes. `None` if each connection has its own context.
    #[must_use]
    pub fn sharing_key(self, sender: Role) -> Option<u8> {
        // The library's output for a 9-bit window is also valid for an 8-bit window, so connections with either window
        // share a key.
        (!self.keeps_context(sender))
            .then(|| self.window_bits_of(sender).max(LIBRARY_WINDOW_BITS_MIN))
    }

    /// Appends the value of the response's `Sec-WebSocket-Extensions`.
    pub fn write_response(self, out: &mut Vec<u8>) {
        out.extend_from_slice(NAME.as_bytes());
        if self.server_no_context_takeover() {
            out.extend_from_slice(b"; server_no_context_takeover");
        }
        if self.client_no_context_takeover() {
            out.extend_from_slice(b"; client_no_context_takeover");
        }
        if self.server_window_bits < WINDOW_BITS_MAX || self.flags & SERVER_WINDOW_ASKED != 0 {
            out.extend_from_slice(b"; server_max_window_bits=");
            write_bits(out, self.server_window_bits);
        }
        // The window is below 15 bits only if the client's offer permitted it.
        if self.client_window_bits < WINDOW_BITS_MAX {
            out.extend_from_slice(b"; client_max_window_bits=");
            write_bits(out, self.client_window_bits);
        }
    }

    pub(super) fn keeps_context(self, sender: Role) -> bool {
        match sender {
            Role::Server => !self.server_no_context_takeover(),
            Role::Client => !self.client_no_context_takeover(),
        }
    }

    pub(super) fn peer_keeps_context(self, receiver: Role) -> bool {
        self.keeps_context(receiver.peer())
    }

    pub(super) fn window_bits_of(self, sender: Role) -> u8 {
        match sender {
            Role::Server => self.server_window_bits,
            Role::Client => self.client_window_bits,
        }
    }

    /// Returns the length of the context kept for messages sent by this end, whose role is
    /// `sender`.
    pub(super) fn own_window_bytes(self, sender: Role) -> usize {
        window_bytes(self.window_bits_of(sender).min(KEPT_WINDOW_BITS_MAX))
    }

    /// Returns how many bytes back the messages of `receiver`'s peer may refer.
    pub(super) fn peer_window_bytes(self, receiver: Role) -> usize {
        window_bytes(self.window_bits_of(receiver.peer()))
    }

    /// Returns the parameters with `client_no_context_takeover` added. A server may require it even
    /// if the client did not offer it (RFC 7692 section 7.1.1.2).
    pub(super) fn without_client_context(self) -> Self {
        Self {
            flags: self.flags | CLIENT_NO_CONTEXT,
            ..self
        }
    }
}

pub(super) fn window_bytes(bits: u8) -> usize {
    1 << bits
}

impl Role {
    pub(super) fn peer(self) -> Self {
        match self {
            Self::Server => Self::Client,
            Self::Client => Self::Server,
        }
    }
}

/// Returns the server's selection: the first acceptable offer among the values of `Sec-WebSocket-Extensions`, in the
/// client's order of preference. Offers with unknown, duplicate or malformed parameters are skipped (RFC 7692 section
/// 7).
pub fn negotiate<'h>(
    offers: impl Iterator<Item = &'h str>,
    policy: &DeflatePolicy,
) -> Option<DeflateParams> {
    offers
        .flat_map(extensions::parse)
        .filter(|offer| offer.name.eq_ignore_ascii_case(NAME))
        .find_map(|offer| OfferedParams::read(offer).map(|offered| accept(&offered, policy)))
}

fn accept(offered: &OfferedParams, policy: &DeflatePolicy) -> DeflateParams {
    let mut flags = 0;
    if offered.server_no_context_takeover || !policy.takeover {
        flags |= SERVER_NO_CONTEXT;
    }
    if offered.client_no_context_takeover || !policy.takeover {
        flags |= CLIENT_NO_CONTEXT;
    }
    let mut server_window_bits = clamp(policy.server_window_bits);
    // An offer of `server_max_window_bits` without a value is invalid: `OfferedParams::read` has
    // refused it.
    if let Some(Some(bits)) = offered.server_max_window_bits {
        flags |= SERVER_WINDOW_ASKED;
        server_window_bits = server_window_bits.min(bits);
    }
    let client_window_bits = match offered.client_max_window_bits {
        Some(hint) => clamp(policy.client_window_bits).min(hint.unwrap_or(WINDOW_BITS_MAX)),
        None => WINDOW_BITS_MAX,
    };
    DeflateParams {
        flags,
        server_window_bits,
        client_window_bits,
    }
}

/// Appends the value of a client's `Sec-WebSocket-Extensions`.
pub fn write_offer(out: &mut Vec<u8>, policy: &DeflatePolicy) {
    out.extend_from_slice(NAME.as_bytes());
    if !policy.takeover {
        out.extend_from_slice(b"; server_no_context_takeover; client_no_context_takeover");
    }
    if clamp(policy.server_window_bits) < WINDOW_BITS_MAX {
        out.extend_from_slice(b"; server_max_window_bits=");
        write_bits(out, clamp(policy.server_window_bits));
    }
    out.extend_from_slice(b"; client_max_window_bits");
    if clamp(policy.client_window_bits) < WINDOW_BITS_MAX {
        out.push(b'=');
        write_bits(out, clamp(policy.client_window_bits));
    }
}

/// Evaluates the `Sec-WebSocket-Extensions` of a response. `policy` must be the one with which [`write_offer`] wrote
/// the offer. `Ok(None)`: the server does not compress.
///
/// # Errors
/// The response does not match the offer; the connection must be failed (RFC 6455 section 4.1, RFC 7692 section 7.1).
pub fn read_response<'h>(
    values: impl Iterator<Item = &'h str>,
    policy: Option<&DeflatePolicy>,
) -> Result<Option<DeflateParams>, &'static str> {
    let mut extensions = values.flat_map(extensions::parse);
    let Some(extension) = extensions.next() else {
        return Ok(None);
    };
    let Some(policy) = policy else {
        return Err("the server chose an extension that was not offered");
    };
    if extensions.next().is_some() || !extension.name.eq_ignore_ascii_case(NAME) {
        return Err("the server chose an extension that was not offered");
    }
    let answer = OfferedParams::read(extension).ok_or("malformed permessage-deflate parameters")?;
    if !policy.takeover && !answer.server_no_context_takeover {
        return Err("the server did not accept server_no_context_takeover");
    }
    let server_window_bits = answer.server_max_window_bits.flatten();
    if server_window_bits.unwrap_or(WINDOW_BITS_MAX) > clamp(policy.server_window_bits) {
        return Err("server_max_window_bits is greater than the offered value");
    }
    let client_window_bits = match answer.client_max_window_bits {
        Some(None) => return Err("client_max_window_bits has no value"),
        Some(Some(bits)) => bits.min(clamp(policy.client_window_bits)),
        None => clamp(policy.client_window_bits),
    };
    let mut flags = 0;
    if answer.server_no_context_takeover {
        flags |= SERVER_NO_CONTEXT;
    }
    if answer.client_no_context_takeover || !policy.takeover {
        flags |= CLIENT_NO_CONTEXT;
    }
    Ok(Some(DeflateParams {
        flags,
        server_window_bits: server_window_bits.unwrap_or(WINDOW_BITS_MAX),
        client_window_bits,
    }))
}

/// The parameters of one offer or response. The outer `Option` says whether a parameter is present, and the inner one
/// is its value, if it has one.
#[derive(Default)]
struct OfferedParams {
    server_no_context_takeover: bool,
    client_no_context_takeover: bool,
    server_max_window_bits: Option<Option<u8>>,
    client_max_window_bits: Option<Option<u8>>,
}

impl OfferedParams {
    /// Returns `None` if a parameter is unknown, duplicate or malformed.
    fn read(extension: Extension<'_>) -> Option<Self> {
        let mut read = Self::default();
        for (name, value) in extension.parameters() {
            match (name, value) {
                ("server_no_context_takeover", None) if !read.server_no_context_takeover => {
                    read.server_no_context_takeover = true;
                }
                ("client_no_context_takeover", None) if !read.client_no_context_takeover => {
                    read.client_no_context_takeover = true;
                }
                ("server_max_window_bits", Some(value))
                    if read.server_max_window_bits.is_none() =>
                {
                    read.server_max_window_bits = Some(Some(parse_bits(value)?));
                }
                ("client_max_window_bits", value) if read.client_max_window_bits.is_none() => {
                    read.client_max_window_bits =
                        Some(value.map_or(Some(None), |value| parse_bits(value).map(Some))?);
                }
                _ => return None,
            }
        }
        Some(read)
    }
}

/// Parses a decimal integer from 8 to 15 without leading zeros (RFC 7692 section 7.1.2.1).
fn parse_bits(value: &str) -> Option<u8> {
    match value.as_bytes() {
        [digit @ b'8'..=b'9'] => Some(digit - b'0'),
        [b'1', digit @ b'0'..=b'5'] => Some(10 + digit - b'0'),
        _ => None,
    }
}

fn write_bits(out: &mut Vec<u8>, bits: u8) {
    if bits >= 10 {
        out.push(b'1');
    }
    out.push(b'0' + bits % 10);
}

fn clamp(bits: u8) -> u8 {
    bits.clamp(WINDOW_BITS_MIN, WINDOW_BITS_MAX)
}
