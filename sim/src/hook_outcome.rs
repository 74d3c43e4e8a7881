//! Hook decisions and their encoding.

use veche_frontends::hooks::{
    HookDecision, HookGrant, HookKind, HookRequest, HookSubscription, json,
};

use crate::channels::{CHANNELS, TOKEN_CHANNELS};

/// The error code of a denied command.
const DENIED: u32 = 1001;

/// The close code of a client that the hook disconnects. The client may reconnect.
const ENDED: u16 = 4001;

/// The outcome of a hook request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookOutcome {
    /// The request is granted for this many seconds; 0: permanently.
    Granted(u32),
    Denied(u32),
    Ended(u16),
    /// A refresh is refused, because the connection or subscription has expired.
    Over,
    /// The hook failed or was too late.
    Failed,
}

/// A request, with its outcome if it was answered within the call.
pub(crate) type AppRequest = (HookRequest, Option<HookOutcome>);

/// A decision on a command or on an expiry.
#[derive(Clone, Debug)]
pub(crate) struct CommandDecision {
    pub(crate) kind: HookKind,
    pub(crate) channel: Box<str>,
    /// The number of a publication or RPC.
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

    /// Encodes the outcome as the answer to a request, at the given Unix time.
    pub(crate) fn decision(self, request: &HookRequest, now_s: u64) -> HookDecision {
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
        match request.kind {
            HookKind::Connect => {
                grant.user = request.token.0.clone();
                grant.channels = CHANNELS[TOKEN_CHANNELS]
                    .iter()
                    .map(|one| HookSubscription {
                        channel: one.name.into(),
                        ..HookSubscription::default()
                    })
                    .collect();
            }
            HookKind::Rpc => {
                let data = request.data.as_ref();
                grant.data = data.and_then(|data| json(&String::from_utf8_lossy(&data.bytes)));
            }
            _ => {}
        }
        HookDecision::Granted(Box::new(grant))
    }
}

/// Returns the decision of an application that decides within the call: it does so for disconnect
/// requests and for every second RPC.
pub(crate) fn at_once(request: &HookRequest) -> Option<(HookOutcome, HookDecision)> {
    let is_at_once = match request.kind {
        HookKind::Disconnect => true,
        HookKind::Rpc => request.id.0.is_multiple_of(2),
        _ => false,
    };
    let fate = HookOutcome::Granted(0);
    is_at_once.then(|| (fate, fate.decision(request, 0)))
}
