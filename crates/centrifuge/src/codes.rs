//! The numbers by which the protocol says why: errors of commands, the ends of subscriptions and of connections.

use crate::CommandError;

/// Declares an enum of codes, each with the words that are sent with it.
macro_rules! codes {
    ($(#[$about:meta])* $name:ident: $number:ty {
        $($(#[$doc:meta])* $variant:ident = $code:literal $words:literal,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr($number)]
        pub enum $name {
            $($(#[$doc])* $variant = $code,)*
        }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The number that is sent.
            #[must_use]
            pub const fn code(self) -> $number {
                self as $number
            }

            /// The words that are sent with it, for people.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self {
                    $(Self::$variant => $words,)*
                }
            }
        }
    };
}

codes! {
    /// Why a command failed. An application's own errors have numbers from 400 to 1999.
    ErrorCode: u32 {
        /// The server's fault; worth another try.
        Internal = 100 "internal server error",
        /// The command needs a user, or another one.
        Unauthorized = 101 "unauthorized",
        /// No such channel, or its namespace is unknown.
        UnknownChannel = 102 "unknown channel",
        /// This user may not.
        PermissionDenied = 103 "permission denied",
        /// No such method.
        MethodNotFound = 104 "method not found",
        /// This connection is subscribed to the channel.
        AlreadySubscribed = 105 "already subscribed",
        /// More than a limit allows.
        LimitExceeded = 106 "limit exceeded",
        /// The command itself is wrong: another try is of no use.
        BadRequest = 107 "bad request",
        /// Not enabled for this channel or this server.
        NotAvailable = 108 "not available",
        /// The token is too old: SDKs ask for a new one and try again.
        TokenExpired = 109 "token expired",
        /// The connection's time is over, and no token can change it.
        Expired = 110 "expired",
        /// Too fast; worth another try.
        TooManyRequests = 111 "too many requests",
        /// The stream does not hold what was asked for any more.
        UnrecoverablePosition = 112 "unrecoverable position",
        /// Another page of the same channel is on its way; worth another try.
        ConcurrentPagination = 113 "concurrent pagination",
    }
}

codes! {
    /// Why the server ended a subscription.
    UnsubscribeCode: u32 {
        /// The server wanted it so, for good.
        Server = 2000 "server unsubscribe",
        /// The client may have missed something: it subscribes again and recovers.
        InsufficientState = 2500 "insufficient state",
        /// The subscription's time is over: the client asks for a new token and subscribes again.
        Expired = 2501 "subscription expired",
        /// What the client keeps and its token hold no more: it forgets both and subscribes again.
        StateInvalidated = 2502 "state invalidated",
    }
}

codes! {
    /// Why the server closes a connection: the code and the reason of the close frame, or of a [`Disconnect`] push.
    ///
    /// [`Disconnect`]: crate::PushBody::Disconnect
    DisconnectCode: u16 {
        /// Closed without advice.
        ConnectionClosed = 3000 "connection closed",
        /// The server ends.
        Shutdown = 3001 "shutdown",
        /// The server's fault.
        Internal = 3004 "internal server error",
        /// The connection's time is over.
        Expired = 3005 "connection expired",
        /// A subscription's time is over.
        SubscriptionExpired = 3006 "subscription expired",
        /// The client reads too slowly.
        Slow = 3008 "slow",
        /// Writing to the client failed.
        WriteError = 3009 "write error",
        /// The client may have missed something: it connects again and recovers.
        InsufficientState = 3010 "insufficient state",
        /// The server wanted it so, and the client to come back.
        ForceReconnect = 3011 "force reconnect",
        /// No answer to a ping in time.
        NoPong = 3012 "no pong",
        /// Too many commands.
        TooManyRequests = 3013 "too many requests",
        /// What the client keeps and its token hold no more: it forgets both and connects again.
        StateInvalidated = 3014 "state invalidated",
        /// The token does not hold.
        InvalidToken = 3500 "invalid token",
        /// What came was not the protocol: every [`Malformed`](crate::Malformed) ends so.
        BadRequest = 3501 "bad request",
        /// No connect command in time.
        Stale = 3502 "stale",
        /// The server wanted it so, for good.
        ForceNoReconnect = 3503 "force disconnect",
        /// More connections than allowed.
        ConnectionLimit = 3504 "connection limit",
        /// More channels than allowed.
        ChannelLimit = 3505 "channel limit",
        /// Binary data for a client that speaks JSON. The original closes with it; this crate writes base64 instead.
        InappropriateProtocol = 3506 "inappropriate protocol",
        /// This user may not.
        PermissionDenied = 3507 "permission denied",
        /// What was sent is not enabled here.
        NotAvailable = 3508 "not available",
        /// Too many commands that failed.
        TooManyErrors = 3509 "too many errors",
    }
}

impl ErrorCode {
    /// Whether the same command may succeed later: SDKs try such again by themselves.
    #[must_use]
    pub const fn is_temporary(self) -> bool {
        matches!(
            self,
            Self::Internal | Self::TooManyRequests | Self::ConcurrentPagination
        )
    }
}

impl From<ErrorCode> for CommandError<'static> {
    fn from(code: ErrorCode) -> Self {
        Self {
            code: code.code(),
            message: code.words(),
            is_temporary: code.is_temporary(),
        }
    }
}

impl UnsubscribeCode {
    /// Whether the client subscribes again by itself: [`resubscribes`].
    #[must_use]
    pub const fn resubscribes(self) -> bool {
        resubscribes(self.code())
    }
}

impl DisconnectCode {
    /// Whether the client connects again by itself: [`reconnects`].
    #[must_use]
    pub const fn reconnects(self) -> bool {
        reconnects(self.code())
    }
}

/// Whether a client subscribes again by itself after an unsubscribe with that code, an application's own included.
#[must_use]
pub const fn resubscribes(code: u32) -> bool {
    code >= 2500
}

/// Whether a client connects again by itself after a close with that code, an application's own (4000 to 4999)
/// included. Codes under 3000 are the transport's, and what SDKs make of them differs by transport.
#[must_use]
pub const fn reconnects(code: u16) -> bool {
    !matches!(code, 3500..=3999 | 4500..=4999)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_s_disconnects_say_by_their_number_whether_clients_come_back() {
        for code in DisconnectCode::ALL {
            assert_eq!(code.reconnects(), code.code() < 3500, "{code:?}");
            // A close frame has room for 123 bytes (RFC 6455 section 5.5).
            assert!(code.words().len() <= 123);
        }
    }

    #[test]
    fn applications_choose_by_the_number_too() {
        for (code, comes_back) in [
            (1000, true),
            (3000, true),
            (3499, true),
            (3500, false),
            (3999, false),
            (4000, true),
            (4499, true),
            (4500, false),
            (4999, false),
            (5000, true),
        ] {
            assert_eq!(reconnects(code), comes_back, "{code}");
        }
    }

    #[test]
    fn only_subscriptions_that_the_server_ended_for_good_stay_ended() {
        for code in UnsubscribeCode::ALL {
            assert_eq!(code.resubscribes(), *code != UnsubscribeCode::Server);
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
}
