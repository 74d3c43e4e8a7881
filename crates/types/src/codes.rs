//! The numbered table of codes: closes of WebSockets, ends and errors of Centrifugo's protocol, errors of the back
//! end's API, and exit codes of commands. Nothing else defines a code; `docs/reference/codes.md` is written from it.
//!
//! It does not know when a code is used: that is up to the code that refers to it.

use std::ops::RangeInclusive;
use std::process::ExitCode;

/// Close codes that applications and back ends may choose. SDKs of Centrifugo's protocol connect again after any code
/// but 3500 to 3999 and 4500 to 4999.
pub const CHOSEN: RangeInclusive<u16> = 3000..=4999;

/// Longest reason that fits a Close frame beside its code, in bytes (RFC 6455, section 5.5).
pub const REASON_BYTES_MAX: usize = 123;

/// Where a code appears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The Close frame of a WebSocket.
    WebSocket,
    /// The close of a connection that speaks Centrifugo's protocol.
    CentrifugeDisconnect,
    /// The end of a subscription of Centrifugo's protocol.
    CentrifugeUnsubscribe,
    /// The reply to a command of Centrifugo's protocol.
    CentrifugeError,
    /// An answer of the back end's API.
    Api,
    /// The exit code of a command.
    Exit,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// The number that is sent.
    pub number: u32,
    /// The name in the sources.
    pub name: &'static str,
    /// The text that is sent with it; empty where each case has its own.
    pub text: &'static str,
    /// The meaning, in parts that follow each other.
    pub meaning: &'static [&'static str],
    /// Whether a client connects, subscribes or sends its command again by itself; `None` where no client is concerned.
    pub is_retried: Option<bool>,
    /// Where it is used.
    pub places: &'static [Place],
}

/// Declares an enum of codes. A row has a number, a text and whether clients try again; its comment is the meaning.
macro_rules! codes {
    (@retry again) => { Some(true) };
    (@retry for_good) => { Some(false) };
    (@retry no_client) => { None };
    (@places [$($group:ident)+]) => { &[$(Place::$group),+] };
    (@places [$($group:ident)+] $($place:ident)+) => { &[$(Place::$place),+] };
    ($(#[$about:meta])* $name:ident: $number:ty, $places:tt {
        $($(#[doc = $meaning:literal])* $variant:ident = $code:literal $text:literal $retry:ident $($place:ident)*,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[doc = $meaning])* $variant,)*
        }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the number that is sent.
            #[must_use]
            pub const fn code(self) -> $number {
                match self {
                    $(Self::$variant => $code,)*
                }
            }

            /// Returns the text that is sent with it.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }

            /// Returns its row of the table.
            #[must_use]
            pub const fn row(self) -> Code {
                match self {
                    $(Self::$variant => Code {
                        number: $code,
                        name: stringify!($variant),
                        text: $text,
                        meaning: &[$($meaning),*],
                        is_retried: codes!(@retry $retry),
                        places: codes!(@places $places $($place)*),
                    },)*
                }
            }
        }
    };
}

codes! {
    /// Closes of WebSockets. Numbers below 3000 are defined by RFC 6455 and IANA's registry; 3000 to 3999 are those
    /// that clients of Centrifugo's protocol know.
    CloseCode: u16, [WebSocket] {
        /// Normal closure: nothing is left to do.
        Normal = 1000 "" for_good,
        /// The server is stopping.
        GoingAway = 1001 "server is going away" again,
        /// No message in either direction within the route's idle timeout.
        Idle = 1001 "idle for too long" again,
        /// A reload removed the application that served the connection.
        ApplicationGone = 1001 "the application is gone" again,
        /// On a connection opened by a script: the code that opened it ended, or the server is stopping.
        DialerGone = 1001 "going away" no_client,
        /// The peer violated the protocol; the text says how.
        ProtocolError = 1002 "" for_good,
        /// The peer sent a Close frame without a code; never sent by Veche.
        NoCode = 1005 "" for_good,
        /// The connection ended without a Close frame; never sent by Veche.
        Abnormal = 1006 "" again,
        /// A text message is not UTF-8, or compressed data can't be inflated; the text says which.
        InvalidData = 1007 "" for_good,
        /// The client exceeded the message rate or byte rate of its route.
        TooFast = 1008 "rate limit exceeded" again,
        /// A message exceeds a size limit of the route; the text says which.
        TooBig = 1009 "" for_good,
        /// A handler of the application raised an error.
        Failed = 1011 "internal error" again,
        /// On a connection opened by a script: the application is at its memory limit.
        OutOfMemory = 1011 "not enough memory" no_client,
        /// Another server process has taken over; a client that reconnects reaches it.
        Restarting = 1012 "server is restarting" again,
        /// The client reads too slowly: its queue is full.
        SlowConsumer = 1013 "too slow: try again later" again,
        /// The client's address has reached its connection limit.
        TooMany = 1013 "too many connections of this address" again,
        /// The session's channels can't be subscribed to at the moment.
        Unavailable = 1013 "channels are not available: try again later" again,
        /// The client's credentials expired and were not renewed.
        Expired = 3005 "connection expired" again,
        /// Publications of a channel may be missing and can't be recovered; a client that reconnects loads the state.
        InsufficientState = 3010 "insufficient state" again,
        /// The back end disconnected the client.
        Disconnected = 3503 "disconnected by the back end" for_good,
        /// The back end has banned the user.
        Blocked = 3507 "permission denied" for_good,
    }
}

codes! {
    /// Errors of commands. An application's own errors have numbers from 400 to 1999.
    ErrorCode: u32, [CentrifugeError] {
        /// Internal server error; a retry may succeed.
        Internal = 100 "internal server error" again CentrifugeError Api,
        /// The command needs an authenticated or a different user; an API call needs a key.
        Unauthorized = 101 "unauthorized" for_good CentrifugeError Api,
        /// The channel does not exist, or its namespace is not configured.
        UnknownChannel = 102 "unknown channel" for_good CentrifugeError Api,
        /// The user or the API key has no permission.
        PermissionDenied = 103 "permission denied" for_good CentrifugeError Api,
        /// The method does not exist.
        MethodNotFound = 104 "method not found" for_good CentrifugeError Api,
        /// The connection is already subscribed to the channel.
        AlreadySubscribed = 105 "already subscribed" for_good,
        /// The command exceeds a limit.
        LimitExceeded = 106 "limit exceeded" for_good CentrifugeError Api,
        /// The command is invalid; a retry fails too.
        BadRequest = 107 "bad request" for_good CentrifugeError Api,
        /// The feature is not enabled for this channel or server.
        NotAvailable = 108 "not available" for_good CentrifugeError Api,
        /// The token has expired: SDKs request a new one and try again.
        TokenExpired = 109 "token expired" for_good,
        /// The connection has expired and can't be renewed with a token.
        Expired = 110 "expired" for_good,
        /// Too many requests; a later retry may succeed.
        TooManyRequests = 111 "too many requests" again CentrifugeError Api,
        /// The history no longer contains the requested position.
        UnrecoverablePosition = 112 "unrecoverable position" for_good CentrifugeError Api,
        /// Another page of the same channel is being read; a retry may succeed.
        ConcurrentPagination = 113 "concurrent pagination" again,
    }
}

codes! {
    /// Ends of subscriptions by the server.
    UnsubscribeCode: u32, [CentrifugeUnsubscribe] {
        /// The server or the back end ended the subscription.
        Server = 2000 "server unsubscribe" for_good,
        /// The client may have missed publications: it subscribes again and recovers.
        InsufficientState = 2500 "insufficient state" again,
        /// The subscription has expired: the client requests a new token and subscribes again.
        Expired = 2501 "subscription expired" again,
        /// The client's saved state and its token are no longer valid: it discards both and subscribes again.
        StateInvalidated = 2502 "state invalidated" again,
    }
}

codes! {
    /// Closes by the server of connections that speak Centrifugo's protocol: in the Close frame, or in a push.
    DisconnectCode: u16, [CentrifugeDisconnect] {
        /// Closed without a specific reason.
        ConnectionClosed = 3000 "connection closed" again,
        /// The server is shutting down.
        Shutdown = 3001 "shutdown" again,
        /// Internal server error.
        Internal = 3004 "internal server error" again,
        /// The connection has expired.
        Expired = 3005 "connection expired" again,
        /// A subscription has expired.
        SubscriptionExpired = 3006 "subscription expired" again,
        /// The client reads too slowly.
        Slow = 3008 "slow" again,
        /// Writing to the client failed.
        WriteError = 3009 "write error" again,
        /// The client may have missed publications: it reconnects and recovers.
        InsufficientState = 3010 "insufficient state" again,
        /// The server or the back end disconnected the client, which is to reconnect.
        ForceReconnect = 3011 "force reconnect" again,
        /// No answer to a ping in time.
        NoPong = 3012 "no pong" again,
        /// The client sends commands too fast.
        TooManyRequests = 3013 "too many requests" again,
        /// The client's saved state and its token are no longer valid: it discards both and reconnects.
        StateInvalidated = 3014 "state invalidated" again,
        /// The token is invalid.
        InvalidToken = 3500 "invalid token" for_good,
        /// The client sent data that is not valid in the protocol.
        BadRequest = 3501 "bad request" for_good,
        /// No connect command arrived in time.
        Stale = 3502 "stale" for_good,
        /// The server or the back end disconnected the client for good.
        ForceNoReconnect = 3503 "force disconnect" for_good,
        /// The connection limit is reached.
        ConnectionLimit = 3504 "connection limit" for_good,
        /// The channel limit is reached.
        ChannelLimit = 3505 "channel limit" for_good,
        /// Binary data for a client that uses JSON: Centrifugo closes with this code, Veche sends base64 instead.
        InappropriateProtocol = 3506 "inappropriate protocol" for_good,
        /// The user has no permission.
        PermissionDenied = 3507 "permission denied" for_good,
        /// The requested feature is not enabled.
        NotAvailable = 3508 "not available" for_good,
        /// Too many commands failed.
        TooManyErrors = 3509 "too many errors" for_good,
    }
}

codes! {
    /// Exit codes of commands, which scripts rely on.
    Exit: u8, [Exit] {
        /// The command succeeded.
        Ok = 0 "done" no_client,
        /// The configuration has errors, or a test failed.
        Config = 1 "the configuration has errors or cannot be read; test: a test has failed" no_client,
        /// The command line is invalid.
        Usage = 2 "the command line is invalid" no_client,
        /// No server answers.
        NoServer = 3 "no server answers" no_client,
        /// The server answered with an error.
        Refused = 4 "the server answered with an error, for one push at least if there were several" no_client,
        /// A system call failed.
        Failed = 5 "a system error: an address in use, a full disk, a missing permission" no_client,
        /// The server was still running after the wait.
        TimedOut = 6 "the server was still running after the wait" no_client,
        /// The server was killed before its drain was done.
        Killed = 7 "serve: the server was killed before its drain was done (a second signal, stop --now, the end of drain_time), so connections may have been cut" no_client,
        /// A load test ended with errors.
        Errors = 8 "bench: the report has errors, or a scenario broke a promise" no_client,
        /// A load test was interrupted.
        Interrupted = 130 "bench: a signal ended the run; the report covers the time until then" no_client,
    }
}

/// Returns all rows, by what they end or answer and then by number.
pub fn all() -> impl Iterator<Item = Code> {
    let closes = CloseCode::ALL.iter().map(|code| code.row());
    let disconnects = DisconnectCode::ALL.iter().map(|code| code.row());
    let unsubscribes = UnsubscribeCode::ALL.iter().map(|code| code.row());
    let errors = ErrorCode::ALL.iter().map(|code| code.row());
    let exits = Exit::ALL.iter().map(|code| code.row());
    closes
        .chain(disconnects)
        .chain(unsubscribes)
        .chain(errors)
        .chain(exits)
}

impl CloseCode {
    /// Returns the number and the text, as a Close frame has them.
    #[must_use]
    pub const fn parts(self) -> (u16, &'static str) {
        (self.code(), self.words())
    }

    /// Returns the close that has this number and this text.
    #[must_use]
    pub fn with_parts(code: u16, text: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|close| close.parts() == (code, text))
    }
}

impl ErrorCode {
    /// Returns the error with this number.
    #[must_use]
    pub fn with_number(number: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.code() == number)
    }

    /// Whether the same command may succeed later: SDKs try such again by themselves.
    #[must_use]
    pub const fn is_temporary(self) -> bool {
        matches!(self.row().is_retried, Some(true))
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Whether a Close frame may have that code (RFC 6455, section 7.4). 1004, 1005, 1006 and 1015 are for reporting only,
/// 1016 to 2999 are reserved, below 1000 and from 5000 on there are no codes.
#[must_use]
pub const fn is_sendable(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether SDKs subscribe again after an unsubscribe with that code.
    fn resubscribes(code: u32) -> bool {
        code >= 2500
    }

    /// Whether SDKs connect again after a close with that code.
    fn reconnects(code: u16) -> bool {
        !matches!(code, 3500..=3999 | 4500..=4999)
    }

    #[test]
    fn the_table_agrees_with_the_rules_by_number() {
        for code in DisconnectCode::ALL {
            assert_eq!(code.row().is_retried, Some(reconnects(code.code())));
        }
        for code in UnsubscribeCode::ALL {
            assert_eq!(code.row().is_retried, Some(resubscribes(code.code())));
        }
        for code in CloseCode::ALL.iter().filter(|code| code.code() >= 3000) {
            assert_eq!(code.row().is_retried, Some(reconnects(code.code())));
        }
    }

    #[test]
    fn three_errors_are_temporary() {
        let temporary: Vec<u32> = ErrorCode::ALL
            .iter()
            .filter(|code| code.is_temporary())
            .map(|code| code.code())
            .collect();
        assert_eq!(temporary, [100, 111, 113]);
        assert_eq!(ErrorCode::ALL.len(), 14);
    }

    #[test]
    fn rows_are_in_order_differ_and_fit_a_close_frame() {
        let rows: Vec<Code> = all().collect();
        for pair in rows.windows(2) {
            let is_same_kind = pair[0].places[0] == pair[1].places[0];
            assert!(!is_same_kind || pair[0].number <= pair[1].number);
            assert_ne!(
                (pair[0].places[0], pair[0].number, pair[0].text),
                (pair[1].places[0], pair[1].number, pair[1].text)
            );
        }
        for row in &rows {
            let is_exit = row.places == [Place::Exit];
            assert!(
                is_exit || row.text.len() <= REASON_BYTES_MAX,
                "{}",
                row.name
            );
            assert!(!row.meaning.is_empty(), "{}", row.name);
            // A text without a code that may be sent would never be read.
            let is_close = row.places[0] == Place::WebSocket;
            let may_be_sent = is_sendable(u16::try_from(row.number).expect("16 bits"));
            assert!(!is_close || row.text.is_empty() || may_be_sent);
        }
    }
}
