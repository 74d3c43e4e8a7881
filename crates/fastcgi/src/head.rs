//! The head of a script's output, as in CGI: header lines, an empty line, and then the body.

/// Maximum length of a response's head in bytes.
const HEAD_BYTES_MAX: usize = 65_536;

/// A parsed head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgiHead {
    /// The status from the header `Status`; 200 without one.
    pub status: u16,
    /// Headers with their names as written; without `Status`.
    pub headers: Vec<(String, String)>,
    /// The offset at which the body begins.
    pub body_at: usize,
}

/// Why the output does not begin with a valid head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// The empty line at the end of the head is missing.
    #[error("the headers of the response do not end with an empty line")]
    Endless,
    /// A line has no colon.
    #[error("the response has a header without a colon")]
    NoColon,
    /// The status is not a number from 100 to 599.
    #[error("the response has an invalid status")]
    NoStatus,
}

impl CgiHead {
    /// Parses the head of a complete output.
    ///
    /// # Errors
    /// The output does not begin with a head.
    pub fn read(output: &[u8]) -> Result<Self, HeadError> {
        let mut head = Self {
            status: 200,
            headers: Vec::new(),
            body_at: 0,
        };
        loop {
            let left = &output[head.body_at..];
            let end = left.iter().position(|&byte| byte == b'\n');
            let end = end.ok_or(HeadError::Endless)?;
            let line = left[..end].strip_suffix(b"\r").unwrap_or(&left[..end]);
            head.body_at += end + 1;
            if line.is_empty() {
                return Ok(head);
            }
            if head.body_at > HEAD_BYTES_MAX {
                return Err(HeadError::Endless);
            }
            head.line(line)?;
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), HeadError> {
        let line = String::from_utf8_lossy(line);
        let (name, value) = line.split_once(':').ok_or(HeadError::NoColon)?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("status") {
            let code = value.split(' ').next().and_then(|code| code.parse().ok());
            self.status = code
                .filter(|code| (100..=599).contains(code))
                .ok_or(HeadError::NoStatus)?;
        } else {
            self.headers.push((name.to_owned(), value.to_owned()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_end_with_an_empty_line_of_either_kind() {
        for (output, status, headers, body) in [
            (
                "Content-type: text/html; charset=UTF-8\r\n\r\nbody\r\n\r\n",
                200,
                1,
                "body\r\n\r\n",
            ),
            (
                "Status: 404 Not Found\r\nX-A:1\r\nX-A: 2\r\n\r\n",
                404,
                2,
                "",
            ),
            ("status: 503\n\nbody", 503, 0, "body"),
            ("\r\nbody", 200, 0, "body"),
        ] {
            let head = CgiHead::read(output.as_bytes()).expect(output);
            assert_eq!(
                (head.status, head.headers.len()),
                (status, headers),
                "{output}"
            );
            assert_eq!(&output[head.body_at..], body);
        }
        let head = CgiHead::read(b"X-Empty:\r\nX-Spaces:  a b \r\n\r\n").expect("a head");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(head.headers, [pair("X-Empty", ""), pair("X-Spaces", "a b")]);
    }

    #[test]
    fn invalid_heads_are_rejected() {
        for (output, error) in [
            ("", HeadError::Endless),
            ("Content-Type: text/html\r\n", HeadError::Endless),
            ("Fatal error\r\n\r\n", HeadError::NoColon),
            ("Status: fine\r\n\r\n", HeadError::NoStatus),
            ("Status: 600\r\n\r\n", HeadError::NoStatus),
            ("Status: 99\r\n\r\n", HeadError::NoStatus),
        ] {
            assert_eq!(CgiHead::read(output.as_bytes()), Err(error), "{output}");
        }
        let long = "X-A: b\r\n".repeat(HEAD_BYTES_MAX) + "\r\n";
        assert_eq!(CgiHead::read(long.as_bytes()), Err(HeadError::Endless));
    }
}
