//! What is decided on a command, and how it is said.

use veche_frontends::hooks::{
    HookDecision, HookGrant, HookKind, HookRequest, HookSubscription, json,
};

use crate::channels::{CHANNELS, TOKEN_CHANNELS};

/// The code of a command that is denied.
const DENIED: u32 = 1001;

/// The code with which a client is closed; it may come back.
const ENDED: u16 = 4001;

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookOutcome {
    /// It holds for so many seconds; 0: for ever.
    Granted(u32),
    Denied(u32),
    Ended(u16),
    /// Of refreshes: the time is over.
    Over,
    /// The decider could not say, or was too late.
    Failed,
}

/// A question, and what was decided if that happened in the call.
pub(crate) type AppRequest = (HookRequest, Option<HookOutcome>);

/// What was decided on a command, or on time.
#[derive(Clone, Debug)]
pub(crate) struct CommandDecision {
    pub(crate) kind: HookKind,
    pub(crate) channel: Box<str>,
    /// Of a publication or an RPC.
    pub(crate) number: u64,
    pub(crate) fate: HookOutcome,
}

impl HookOutcome {
    pub(crate) fn new(salt: u32, kind: HookKind) -> Self {
        let is_refresh = matches!(kind, HookKind::Refresh | HookKind::SubRefresh);
        match salt % 16 {
            0 => Self::Failed,
            1 => Self::Ended(ENDED),
            2 | 3 if is_refresh => Self::Over,
            2 | 3 => Self::Denied(DENIED + salt / 16 % 3),
            4..=6 => Self::Granted(4 + salt / 16 % 20),
            _ => Self::Granted(0),
        }
    }

    /// Says it of a question, at that time since 1970.
    pub(crate) fn verdict(self, question: &HookRequest, now_s: u64) -> HookDecision {
        let for_s = match self {
            Self::Failed => return HookDecision::Failed,
            Self::Denied(code) => {
                return HookDecision::Error {
                    code,
                    message: "no".into(),
                    is_temporary: false,
                };
            }
            Self::Ended(code) => {
                return HookDecision::Disconnect {
                    code,
                    reason: "enough".into(),
                };
            }
            Self::Over => 0,
            Self::Granted(for_s) => for_s,
        };
        let mut grant = HookGrant {
            expires_at_s: (for_s > 0).then(|| now_s + u64::from(for_s)),
            is_expired: self == Self::Over,
            ..HookGrant::default()
        };
        match question.kind {
            HookKind::Connect => {
                grant.user = question.token.0.clone();
                grant.channels = CHANNELS[TOKEN_CHANNELS]
                    .iter()
                    .map(|one| HookSubscription {
                        channel: one.name.into(),
                        ..HookSubscription::default()
                    })
                    .collect();
            }
            HookKind::Rpc => {
                let data = question.data.as_ref();
                grant.data = data.and_then(|data| json(&String::from_utf8_lossy(&data.bytes)));
            }
            _ => {}
        }
        HookDecision::Granted(Box::new(grant))
    }
}

/// What an application decides in the call: every other RPC, and all that nothing comes of.
pub(crate) fn at_once(question: &HookRequest) -> Option<(HookOutcome, HookDecision)> {
    let is_at_once = match question.kind {
        HookKind::Disconnect => true,
        HookKind::Rpc => question.id.0.is_multiple_of(2),
        _ => false,
    };
    let fate = HookOutcome::Granted(0);
    is_at_once.then(|| (fate, fate.verdict(question, 0)))
}
