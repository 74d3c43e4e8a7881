//! The table of all numbered codes: WebSocket close codes, disconnect, unsubscribe and error codes of Centrifugo's
//! protocol, error codes of the server API, and exit codes of commands. No other module defines a code, and
//! `docs/reference/codes.md` is generated from this one.
//!
//! The modules that refer to a code determine when it is sent.

use std::ops::RangeInclusive;
use std::process::ExitCode;

/// Close codes that applications and back ends may choose. SDKs of Centrifugo's protocol reconnect after every code
/// except 3500 to 3999 and 4500 to 4999.
pub const APPLICATION_CODES: RangeInclusive<u16> = 3000..=4999;

/// Longest reason that fits into a Close frame next to its code, in bytes (RFC 6455, section 5.5).
pub const REASON_BYTES_MAX: usize = 123;

/// Where a code appears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeContext {
    /// The Close frame of a WebSocket.
    WebSocket,
    /// A disconnect of Centrifugo's protocol.
    CentrifugeDisconnect,
    /// An unsubscribe push of Centrifugo's protocol.
    CentrifugeUnsubscribe,
    /// An error reply to a command of Centrifugo's protocol.
    CentrifugeError,
    /// An error response of the server API.
    Api,
    /// The exit code of a `veche` command.
    Exit,
}

/// One row of the table of codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeRow {
    /// The number on the wire, or the exit code.
    pub number: u32,
    /// The name of the enum variant, as shown in `docs/reference/codes.md`.
    pub name: &'static str,
    /// The reason or message sent with the number; empty where each case has its own text.
    pub text: &'static str,
    /// The meaning, as consecutive parts of one text.
    pub meaning: &'static [&'static str],
    /// Whether clients retry on their own (reconnect, resubscribe, resend the command); `None` if no client is involved.
    pub is_retried: Option<bool>,
    /// The contexts in which the code appears.
    pub contexts: &'static [CodeContext],
}

/// Declares an enum of codes. Each row gives the number, the text and whether clients retry; the doc comment is the
/// meaning.
macro_rules! codes {
    (@retry again) => { Some(true) };
    (@retry for_good) => { Some(false) };
    (@retry no_client) => { None };
    (@places [$($group:ident)+]) => { &[$(CodeContext::$group),+] };
    (@places [$($group:ident)+] $($place:ident)+) => { &[$(CodeContext::$place),+] };
    ($(#[$about:meta])* $name:ident: $number:ty, $places:tt {
        $($(#[doc = $meaning:literal])* $variant:ident = $code:literal $text:literal $retry:ident $($place:ident)*,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[doc = $meaning])* $variant,)*
        }

        impl $name {
            /// All codes of this kind, ordered by number.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the number on the wire.
            #[must_use]
            pub const fn code(self) -> $number {
                match self {
                    $(Self::$variant => $code,)*
                }
            }

            /// Returns the reason or message sent with the number.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }

            /// Returns the code's row of the table.
            #[must_use]
            pub const fn row(self) -> CodeRow {
                match self {
                    $(Self::$variant => CodeRow {
                        number: $code,
                        name: stringify!($variant),
                        text: $text,
                        meaning: &[$($meaning),*],
                        is_retried: codes!(@retry $retry),
                        contexts: codes!(@places $places $($place)*),
                    },)*
                }
            }
        }
    };
}

codes! {
    /// WebSocket close codes. Numbers below 3000 are defined by RFC 6455 and the IANA registry; 3000 to 3999 are those
    /// of Centrifugo's protocol.
    CloseCode: u16, [WebSocket] {
        /// The normal end of a connection.
        Normal = 1000 "" for_good,
        /// The server is shutting down.
        GoingAway = 1001 "server is going away" again,
        /// No message was sent or received within the route's idle timeout.
        Idle = 1001 "idle for too long" again,
        /// A configuration reload removed the application.
        ApplicationGone = 1001 "the application is gone" again,
        /// The code of the script that opened the outgoing connection was replaced, or the server is shutting down.
        DialerGone = 1001 "going away" no_client,
        /// The peer violated the protocol; the reason names the violation.
        ProtocolError = 1002 "" for_good,
        /// The peer's Close frame had no code. Never sent.
        NoCode = 1005 "" for_good,
        /// The connection ended without a Close frame. Never sent.
        Abnormal = 1006 "" again,
        /// The peer sent text that isn't valid UTF-8, or corrupt compressed data. The reason says which.
        InvalidData = 1007 "" for_good,
        /// The client exceeded the route's message or byte rate.
        TooFast = 1008 "rate limit exceeded" again,
        /// A message exceeded a limit of the route; the reason names the limit.
        TooBig = 1009 "" for_good,
        /// A handler of the application failed or exceeded its CPU budget.
        Failed = 1011 "internal error" again,
        /// A script's outgoing connection is closed because the application has reached its memory limit.
        OutOfMemory = 1011 "not enough memory" no_client,
        /// A new server process has taken over; a client that reconnects reaches it.
        Restarting = 1012 "server is restarting" again,
        /// The client reads more slowly than data is sent to it.
        SlowConsumer = 1013 "too slow: try again later" again,
        /// The client's IP address has reached its connection limit.
        TooMany = 1013 "too many connections of this address" again,
        /// All processes of the application were busy for longer than a message may wait.
        AppBusy = 1013 "the application is too busy: try again later" again,
        /// A channel of the session can't be subscribed to at the moment.
        Unavailable = 1013 "channels are not available: try again later" again,
        /// The client's credentials expired and were not refreshed.
        Expired = 3005 "connection expired" again,
        /// Publications may be missing and can't be recovered; after reconnecting, the client has to reload its state.
        InsufficientState = 3010 "insufficient state" again,
        /// The back end called `disconnect`.
        Disconnected = 3503 "disconnected by the back end" for_good,
        /// The back end called `block_user`.
        Blocked = 3507 "permission denied" for_good,
    }
}

codes! {
    /// Error codes of commands and of the server API. Applications use 400 to 1999 for their own errors.
    ErrorCode: u32, [CentrifugeError] {
        /// An internal error of the server; a retry may succeed.
        Internal = 100 "internal server error" again CentrifugeError Api,
        /// The command requires an authenticated user; an API call requires a valid key.
        Unauthorized = 101 "unauthorized" for_good CentrifugeError Api,
        /// The channel or its namespace doesn't exist.
        UnknownChannel = 102 "unknown channel" for_good CentrifugeError Api,
        /// The user or the API key lacks the permission.
        PermissionDenied = 103 "permission denied" for_good CentrifugeError Api,
        /// The method doesn't exist.
        MethodNotFound = 104 "method not found" for_good CentrifugeError Api,
        /// The connection is already subscribed to the channel.
        AlreadySubscribed = 105 "already subscribed" for_good,
        /// A limit of the configuration was exceeded.
        LimitExceeded = 106 "limit exceeded" for_good CentrifugeError Api,
        /// The command is malformed; a retry can't succeed.
        BadRequest = 107 "bad request" for_good CentrifugeError Api,
        /// The feature isn't enabled for the channel or the server.
        NotAvailable = 108 "not available" for_good CentrifugeError Api,
        /// The token has expired; SDKs request a new one and retry.
        TokenExpired = 109 "token expired" for_good,
        /// The connection has expired and can't be refreshed.
        Expired = 110 "expired" for_good,
        /// A rate limit was exceeded; a later retry may succeed.
        TooManyRequests = 111 "too many requests" again CentrifugeError Api,
        /// The history no longer contains the requested position.
        UnrecoverablePosition = 112 "unrecoverable position" for_good CentrifugeError Api,
        /// Another page of the same channel is being loaded; a retry may succeed.
        ConcurrentPagination = 113 "concurrent pagination" again,
    }
}

codes! {
    /// Unsubscribe codes of Centrifugo's protocol: the server ended a subscription.
    UnsubscribeCode: u32, [CentrifugeUnsubscribe] {
        /// The server ended the subscription permanently.
        Server = 2000 "server unsubscribe" for_good,
        /// Publications may have been missed; the client resubscribes and recovers.
        InsufficientState = 2500 "insufficient state" again,
        /// The subscription expired; the client requests a new token and resubscribes.
        Expired = 2501 "subscription expired" again,
        /// The client's state and token are invalid; it discards both and resubscribes.
        StateInvalidated = 2502 "state invalidated" again,
    }
}

codes! {
    /// Disconnect codes of Centrifugo's protocol, sent in the Close frame or in a disconnect push.
    DisconnectCode: u16, [CentrifugeDisconnect] {
        /// The connection closed for no specific reason.
        ConnectionClosed = 3000 "connection closed" again,
        /// The server is shutting down or has been replaced.
        Shutdown = 3001 "shutdown" again,
        /// An internal error of the server.
        Internal = 3004 "internal server error" again,
        /// The connection's credentials expired.
        Expired = 3005 "connection expired" again,
        /// A subscription's credentials expired.
        SubscriptionExpired = 3006 "subscription expired" again,
        /// The client reads more slowly than data is sent to it.
        Slow = 3008 "slow" again,
        /// Writing to the client failed.
        WriteError = 3009 "write error" again,
        /// Publications may have been missed; the client reconnects and recovers.
        InsufficientState = 3010 "insufficient state" again,
        /// The server disconnected the client and expects it to reconnect.
        ForceReconnect = 3011 "force reconnect" again,
        /// The client didn't answer a ping in time.
        NoPong = 3012 "no pong" again,
        /// The client exceeded a command rate limit.
        TooManyRequests = 3013 "too many requests" again,
        /// The client's state and token are invalid; it discards both and reconnects.
        StateInvalidated = 3014 "state invalidated" again,
        /// The token is invalid.
        InvalidToken = 3500 "invalid token" for_good,
        /// The client sent a malformed frame or command.
        BadRequest = 3501 "bad request" for_good,
        /// The client sent no connect command in time.
        Stale = 3502 "stale" for_good,
        /// The server disconnected the client permanently.
        ForceNoReconnect = 3503 "force disconnect" for_good,
        /// The user has reached the limit of connections per user.
        ConnectionLimit = 3504 "connection limit" for_good,
        /// The limit of channels per connection was exceeded.
        ChannelLimit = 3505 "channel limit" for_good,
        /// Binary data for a client that uses JSON. Centrifugo disconnects such clients; Veche sends base64 instead.
        InappropriateProtocol = 3506 "inappropriate protocol" for_good,
        /// The user isn't allowed to connect.
        PermissionDenied = 3507 "permission denied" for_good,
        /// The client used a feature that isn't enabled.
        NotAvailable = 3508 "not available" for_good,
        /// The client caused too many errors.
        TooManyErrors = 3509 "too many errors" for_good,
    }
}

codes! {
    /// Exit codes of `veche` commands; shell scripts rely on them.
    Exit: u8, [Exit] {
        /// The command did what its arguments request; warnings do not change the code.
        Ok = 0 "done" no_client,
        /// The configuration has errors, or a test failed.
        Config = 1 "the configuration has errors or cannot be read; test: a test has failed" no_client,
        /// The command line is invalid.
        Usage = 2 "the command line is invalid" no_client,
        /// No running server answered.
        NoServer = 3 "no server answers" no_client,
        /// The server answered with an error.
        Refused = 4 "the server answered with an error, for one push at least if there were several" no_client,
        /// A system call failed.
        Failed = 5 "a system error: an address in use, a full disk, a missing permission" no_client,
        /// The server didn't stop within the time that the command waits.
        TimedOut = 6 "the server was still running after the wait" no_client,
        /// The server was killed before it had drained.
        Killed = 7 "serve: the server was killed before its drain was done (a second signal, stop --now, the end of drain_time), so connections may have been cut" no_client,
        /// A load test reported errors or missed an objective.
        Errors = 8 "bench: the report has errors, or a scenario broke a promise" no_client,
        /// A load test was interrupted.
        Interrupted = 130 "bench: a signal ended the run; the report covers the time until then" no_client,
    }
}

/// Returns all rows, grouped by kind and ordered by number.
pub fn all() -> impl Iterator<Item = CodeRow> {
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
    /// Returns the code and the reason of the Close frame.
    #[must_use]
    pub const fn parts(self) -> (u16, &'static str) {
        (self.code(), self.text())
    }

    /// Returns the close code with this number and this reason.
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

    /// Returns whether a retry of the same command may succeed; SDKs retry such errors on their own.
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

/// Returns whether a Close frame may carry a code (RFC 6455, section 7.4). 1004, 1005, 1006 and 1015 are never sent,
/// 1016 to 2999 are reserved, and codes below 1000 or from 5000 on are undefined.
#[must_use]
pub const fn is_sendable(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether SDKs resubscribe after an unsubscribe with a code.
    fn resubscribes(code: u32) -> bool {
        code >= 2500
    }

    /// Returns whether SDKs reconnect after a close with a code.
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
        let rows: Vec<CodeRow> = all().collect();
        for pair in rows.windows(2) {
            let is_same_kind = pair[0].contexts[0] == pair[1].contexts[0];
            assert!(!is_same_kind || pair[0].number <= pair[1].number);
            assert_ne!(
                (pair[0].contexts[0], pair[0].number, pair[0].text),
                (pair[1].contexts[0], pair[1].number, pair[1].text)
            );
        }
        for row in &rows {
            let is_exit = row.contexts == [CodeContext::Exit];
            assert!(
                is_exit || row.text.len() <= REASON_BYTES_MAX,
                "{}",
                row.name
            );
            assert!(!row.meaning.is_empty(), "{}", row.name);
            // The text of a close code that can't be sent would never reach a peer.
            let is_close = row.contexts[0] == CodeContext::WebSocket;
            let may_be_sent = is_sendable(u16::try_from(row.number).expect("16 bits"));
            assert!(!is_close || row.text.is_empty() || may_be_sent);
        }
    }
}
