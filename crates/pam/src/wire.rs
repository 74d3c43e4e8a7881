//! The protocol between the server and a helper: length-prefixed frames of length-prefixed fields.
//!
//! All lengths are 32-bit little-endian. Both sides are the same program, so the format may change with any version.
//! Buffers that have held a password are wiped.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use zeroize::Zeroizing;

use crate::service::PamService;

/// Maximum length of a frame in bytes.
const FRAME_BYTES_MAX: usize = 16 << 10;

/// A user name and password to check.
pub struct PamRequest {
    /// The PAM service whose rules apply.
    pub service: PamService,
    /// The user name, without NUL.
    pub user: String,
    /// The password, without NUL.
    pub password: Zeroizing<Vec<u8>>,
    /// The client's address, which modules get as `PAM_RHOST`.
    pub client: String,
}

impl fmt::Debug for PamRequest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("PamRequest");
        shown.field("service", &self.service);
        shown.field("client", &self.client).finish_non_exhaustive()
    }
}

/// A message of a helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PamReply {
    /// Sent at the start: the helper has loaded libpam.
    Ready,
    /// Sent at the start: the reason why the helper could not load libpam. The helper then ends.
    Unusable(String),
    /// The password is correct and the account is valid. Contains the user name that PAM
    /// determined.
    Accepted(String),
    /// PAM refused the user, or asked for something other than a password. Contains PAM's reason.
    Refused(String),
    /// PAM could not decide.
    Failed(String),
}

impl PamRequest {
    /// Sends the request.
    ///
    /// # Errors
    /// The socket failed, or the request is too long.
    pub fn write(&self, socket: &mut impl Write) -> io::Result<()> {
        let folder = self.service.folder();
        write_frame(
            socket,
            &[
                self.service.name().as_bytes(),
                folder.map_or(&[][..], |folder| folder.as_os_str().as_bytes()),
                self.user.as_bytes(),
                &self.password,
                self.client.as_bytes(),
            ],
        )
    }

    /// Waits for a request; `None` if the other side has gone.
    ///
    /// # Errors
    /// The socket failed, or the frame is invalid.
    pub fn read(socket: &mut impl Read) -> io::Result<Option<Self>> {
        let Some(frame) = read_frame(socket)? else {
            return Ok(None);
        };
        let [name, folder, user, password, client] = fields(&frame)?;
        let name = text(name)?;
        let service = match folder {
            [] => name,
            folder => {
                let folder = PathBuf::from(text(folder)?);
                folder.join(name).to_string_lossy().into_owned()
            }
        };
        Ok(Some(Self {
            service: PamService::parse(&service).map_err(invalid)?,
            user: text(user)?,
            password: Zeroizing::new(password.to_vec()),
            client: text(client)?,
        }))
    }
}

impl PamReply {
    /// Sends the reply.
    ///
    /// # Errors
    /// The socket failed.
    pub fn write(&self, socket: &mut impl Write) -> io::Result<()> {
        let (kind, words) = match self {
            Self::Ready => (b"ready".as_slice(), ""),
            Self::Unusable(why) => (b"unusable".as_slice(), why.as_str()),
            Self::Accepted(user) => (b"named".as_slice(), user.as_str()),
            Self::Refused(why) => (b"refused".as_slice(), why.as_str()),
            Self::Failed(why) => (b"failed".as_slice(), why.as_str()),
        };
        write_frame(socket, &[kind, words.as_bytes()])
    }

    /// Waits for a reply; `None` if the helper has gone.
    ///
    /// # Errors
    /// The socket failed, or the frame is invalid.
    pub fn read(socket: &mut impl Read) -> io::Result<Option<Self>> {
        let Some(frame) = read_frame(socket)? else {
            return Ok(None);
        };
        let [kind, words] = fields(&frame)?;
        let words = text(words)?;
        Ok(Some(match kind {
            b"ready" => Self::Ready,
            b"unusable" => Self::Unusable(words),
            b"named" => Self::Accepted(words),
            b"refused" => Self::Refused(words),
            b"failed" => Self::Failed(words),
            _ => return Err(invalid("unknown kind of reply")),
        }))
    }
}

fn write_frame(socket: &mut impl Write, fields: &[&[u8]]) -> io::Result<()> {
    let length: usize = fields.iter().map(|field| 4 + field.len()).sum();
    if length > FRAME_BYTES_MAX {
        return Err(invalid("the message is longer than 16 KiB"));
    }
    // The buffer has its final size from the start. A growing one would leave copies of the password in memory.
    let mut frame = Zeroizing::new(Vec::with_capacity(4 + length));
    frame.extend_from_slice(&number(length));
    for field in fields {
        frame.extend_from_slice(&number(field.len()));
        frame.extend_from_slice(field);
    }
    socket.write_all(&frame)
}

/// Reads a frame. Returns `None` if the stream ends before the frame begins.
fn read_frame(socket: &mut impl Read) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let mut length = [0; 4];
    let first = loop {
        match socket.read(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other?,
        }
    };
    if first == 0 {
        return Ok(None);
    }
    socket.read_exact(&mut length[first..])?;
    let length = u32::from_le_bytes(length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(invalid("the message is longer than 16 KiB"));
    }
    let mut frame = Zeroizing::new(vec![0; length]);
    socket.read_exact(&mut frame)?;
    Ok(Some(frame))
}

/// Splits a frame into exactly `COUNT` fields.
fn fields<const COUNT: usize>(mut frame: &[u8]) -> io::Result<[&[u8]; COUNT]> {
    let mut fields = [&[][..]; COUNT];
    for field in &mut fields {
        let (length, rest) = frame
            .split_first_chunk()
            .ok_or_else(|| invalid("a field is missing"))?;
        let length = u32::from_le_bytes(*length) as usize;
        (*field, frame) = rest
            .split_at_checked(length)
            .ok_or_else(|| invalid("a field is truncated"))?;
    }
    match frame {
        [] => Ok(fields),
        _ => Err(invalid("trailing bytes after the last field")),
    }
}

fn number(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}

fn text(field: &[u8]) -> io::Result<String> {
    let text = std::str::from_utf8(field);
    text.map(str::to_owned).map_err(|_| invalid("no UTF-8"))
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(service: &str, password: &[u8]) -> PamRequest {
        PamRequest {
            service: PamService::parse(service).expect("a service"),
            user: "änn".to_owned(),
            password: Zeroizing::new(password.to_vec()),
            client: "192.0.2.1".to_owned(),
        }
    }

    #[test]
    fn messages_are_read_as_written() {
        for service in ["veche", "/srv/pam/veche"] {
            let mut sent = Vec::new();
            let asked = request(service, b"\xff:secret");
            asked.write(&mut sent).expect("written");
            let mut rest = sent.as_slice();
            let read = PamRequest::read(&mut rest).expect("read").expect("one");
            assert_eq!(read.service, asked.service);
            assert_eq!((read.user, read.client), (asked.user, asked.client));
            assert_eq!(*read.password, b"\xff:secret");
            assert!(PamRequest::read(&mut rest).expect("the end").is_none());
        }
        for answer in [
            PamReply::Ready,
            PamReply::Unusable("no library".to_owned()),
            PamReply::Accepted("ann".to_owned()),
            PamReply::Refused("no".to_owned()),
            PamReply::Failed(String::new()),
        ] {
            let mut sent = Vec::new();
            answer.write(&mut sent).expect("written");
            let read = PamReply::read(&mut sent.as_slice()).expect("read");
            assert_eq!(read, Some(answer));
        }
    }

    #[test]
    fn truncated_and_oversized_frames_are_errors() {
        let mut sent = Vec::new();
        request("veche", b"secret")
            .write(&mut sent)
            .expect("written");
        for end in 1..sent.len() {
            assert!(PamRequest::read(&mut &sent[..end]).is_err(), "{end}");
        }
        assert!(PamReply::read(&mut sent.as_slice()).is_err());
        assert!(PamReply::read(&mut [0xff; 8].as_slice()).is_err());
        let long = request("veche", &[b'a'; FRAME_BYTES_MAX]);
        assert!(long.write(&mut Vec::new()).is_err());
    }

    #[test]
    fn a_password_is_not_shown() {
        let shown = format!("{:?}", request("veche", b"secret"));
        assert!(
            !shown.contains("secret") && !shown.contains("änn"),
            "{shown}"
        );
    }
}
