//! Status codes and their reason phrases (RFC 9110 section 15).

/// A status code, 100 to 599.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Status(pub u16);

macro_rules! statuses {
    ($($code:literal $name:ident $phrase:literal,)*) => {
        #[expect(missing_docs, reason = "the name of each status is its phrase in RFC 9110")]
        impl Status {
            $(pub const $name: Self = Self($code);)*

            /// Returns the reason phrase. It is empty for a code that has no registered phrase, as RFC 9112 section 4
            /// permits.
            #[must_use]
            pub const fn phrase(self) -> &'static str {
                match self.0 {
                    $($code => $phrase,)*
                    _ => "",
                }
            }
        }
    };
}

statuses! {
    100 CONTINUE "Continue",
    101 SWITCHING_PROTOCOLS "Switching Protocols",
    200 OK "OK",
    201 CREATED "Created",
    202 ACCEPTED "Accepted",
    204 NO_CONTENT "No Content",
    206 PARTIAL_CONTENT "Partial Content",
    301 MOVED_PERMANENTLY "Moved Permanently",
    302 FOUND "Found",
    303 SEE_OTHER "See Other",
    304 NOT_MODIFIED "Not Modified",
    307 TEMPORARY_REDIRECT "Temporary Redirect",
    308 PERMANENT_REDIRECT "Permanent Redirect",
    400 BAD_REQUEST "Bad Request",
    401 UNAUTHORIZED "Unauthorized",
    402 PAYMENT_REQUIRED "Payment Required",
    403 FORBIDDEN "Forbidden",
    404 NOT_FOUND "Not Found",
    405 METHOD_NOT_ALLOWED "Method Not Allowed",
    406 NOT_ACCEPTABLE "Not Acceptable",
    408 REQUEST_TIMEOUT "Request Timeout",
    409 CONFLICT "Conflict",
    410 GONE "Gone",
    411 LENGTH_REQUIRED "Length Required",
    412 PRECONDITION_FAILED "Precondition Failed",
    413 CONTENT_TOO_LARGE "Content Too Large",
    414 URI_TOO_LONG "URI Too Long",
    415 UNSUPPORTED_MEDIA_TYPE "Unsupported Media Type",
    416 RANGE_NOT_SATISFIABLE "Range Not Satisfiable",
    417 EXPECTATION_FAILED "Expectation Failed",
    421 MISDIRECTED_REQUEST "Misdirected Request",
    422 UNPROCESSABLE_CONTENT "Unprocessable Content",
    426 UPGRADE_REQUIRED "Upgrade Required",
    429 TOO_MANY_REQUESTS "Too Many Requests",
    431 HEADERS_TOO_LARGE "Request Header Fields Too Large",
    500 INTERNAL_SERVER_ERROR "Internal Server Error",
    501 NOT_IMPLEMENTED "Not Implemented",
    502 BAD_GATEWAY "Bad Gateway",
    503 SERVICE_UNAVAILABLE "Service Unavailable",
    504 GATEWAY_TIMEOUT "Gateway Timeout",
    505 VERSION_NOT_SUPPORTED "HTTP Version Not Supported",
}

impl Status {
    /// Returns whether a response with this status may have a body (RFC 9112 section 6.3 rule 1).
    #[must_use]
    pub const fn has_body(self) -> bool {
        self.0 >= 200 && self.0 != 204 && self.0 != 304
    }

    /// Returns the three ASCII digits.
    pub(super) const fn digits(self) -> [u8; 3] {
        let code = self.0;
        [
            b'0' + (code / 100 % 10) as u8,
            b'0' + (code / 10 % 10) as u8,
            b'0' + (code % 10) as u8,
        ]
    }
}
