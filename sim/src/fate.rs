//! Hook decisions and their encoding.

use veche_frontends::hooks::{Given, Grant, Kind, Question, Verdict, json};

use crate::channels::{CHANNELS, GIVEN};

/// The error code of a denied command.
const DENIED: u32 = 1001;

/// The code with which a client is closed; it may reconnect.
const ENDED: u16 = 4001;

/// The outcome of a hook request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Granted for this many seconds; 0: permanently.
    Granted(u32),
    Denied(u32),
    Ended(u16),
    /// A refresh is refused: the time is over.
    Over,
    /// The hook failed or was too late.
    Failed,
}

/// A request, with its outcome if it was answered within the call.
pub(crate) type Asked = (Question, Option<Fate>);

/// A decision on a command or on an expiry.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    pub(crate) kind: Kind,
    pub(crate) channel: Box<str>,
    /// The number of a publication or RPC.
    pub(crate) number: u64,
    pub(crate) fate: Fate,
}

impl Fate {
    pub(crate) fn new(salt: u32, kind: Kind) -> Self {
        let is_refresh = matches!(kind, Kind::Refresh | Kind::SubRefresh);
        match salt % 16 {
            0 => Self::Failed,
            1 => Self::Ended(ENDED),
            2 | 3 if is_refresh => Self::Over,
            2 | 3 => Self::Denied(DENIED + salt / 16 % 3),
            4..=6 => Self::Granted(4 + salt / 16 % 20),
            _ => Self::Granted(0),
        }
    }

    /// Encodes the outcome as the answer to a request, at the given Unix time.
    pub(crate) fn verdict(self, question: &Question, now_s: u64) -> Verdict {
        let for_s = match self {
            Self::Failed => return Verdict::Failed,
            Self::Denied(code) => {
                return Verdict::Error {
                    code,
                    message: "no".into(),
                    is_temporary: false,
                };
            }
            Self::Ended(code) => {
                return Verdict::Disconnect {
                    code,
                    reason: "enough".into(),
                };
            }
            Self::Over => 0,
            Self::Granted(for_s) => for_s,
        };
        let mut grant = Grant {
            expires_at_s: (for_s > 0).then(|| now_s + u64::from(for_s)),
            is_expired: self == Self::Over,
            ..Grant::default()
        };
        match question.kind {
            Kind::Connect => {
                grant.user = question.token.0.clone();
                grant.channels = CHANNELS[GIVEN]
                    .iter()
                    .map(|one| Given {
                        channel: one.name.into(),
                        ..Given::default()
                    })
                    .collect();
            }
            Kind::Rpc => {
                let data = question.data.as_ref();
                grant.data = data.and_then(|data| json(&String::from_utf8_lossy(&data.bytes)));
            }
            _ => {}
        }
        Verdict::Granted(Box::new(grant))
    }
}

/// Returns the answer that an application gives within the call: to every other RPC, and to all requests without an
/// effect.
pub(crate) fn at_once(question: &Question) -> Option<(Fate, Verdict)> {
    let is_at_once = match question.kind {
        Kind::Disconnect => true,
        Kind::Rpc => question.id.0.is_multiple_of(2),
        _ => false,
    };
    let fate = Fate::Granted(0);
    is_at_once.then(|| (fate, fate.verdict(question, 0)))
}
