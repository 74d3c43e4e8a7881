//! The configured address of a FastCGI server.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The address of a FastCGI server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// A host and a port.
    Tcp(String),
}

/// The error of a text that is not a valid address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected unix:/PATH or HOST:PORT")]
pub struct AddressError;

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') {
                true => Ok(Self::Unix(path.into())),
                false => Err(AddressError),
            };
        }
        match text.rsplit_once(':') {
            Some((host, port))
                if !host.is_empty() && port.parse::<u16>().is_ok_and(|one| one > 0) =>
            {
                Ok(Self::Tcp(text.into()))
            }
            _ => Err(AddressError),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        for text in [
            "unix:/run/php/php8.2-fpm.sock",
            "127.0.0.1:9000",
            "[::1]:9000",
            "fpm:9000",
        ] {
            let address: Address = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
        }
        assert!(matches!("unix:/a".parse(), Ok(Address::Unix(_))));
        for text in [
            "",
            "unix:",
            "unix:a",
            "/run/a.sock",
            "127.0.0.1",
            ":9000",
            "fpm:",
            "fpm:0",
            "fpm:65536",
        ] {
            assert_eq!(text.parse::<Address>(), Err(AddressError), "{text}");
        }
    }
}
