//! Validates the replies of handlers that decide whether a client may connect, subscribe, publish or call.

use veche_types::codes::APPLICATION_CODES;
use veche_types::{Payload, PayloadKind, PayloadRef};

use super::head::{GrantHead, ReplyHead};
use super::part::{PayloadParts, data_kind};
use crate::hooks::{Grant, HookResponse, ServerSubscription};

/// The maximum number of subscriptions in a grant.
const SUBSCRIPTIONS_MAX: usize = 1024;

/// Validates the reply of a handler that decides for a hook.
pub(super) fn hook_response(
    reply: ReplyHead<'_>,
    parts: &PayloadParts<'_>,
) -> Result<HookResponse, String> {
    match (reply.result, reply.error, reply.disconnect) {
        (Some(result), None, None) => Ok(HookResponse::Granted(Box::new(grant(result, parts)?))),
        (None, Some(error), None) if error.code > 0 => Ok(HookResponse::Error {
            code: error.code,
            message: error.message.into_owned(),
            is_temporary: error.temporary,
        }),
        (None, None, Some(end)) if APPLICATION_CODES.contains(&end.code) => {
            Ok(HookResponse::Disconnect {
                code: end.code,
                reason: end.reason.into_owned(),
            })
        }
        (None, Some(_), None) => Err("an error code must be at least 1".to_owned()),
        (None, None, Some(_)) => Err("a disconnect code must be from 3000 to 4999".to_owned()),
        _ => Err(
            "a reply must have exactly one of \"result\", \"error\" and \"disconnect\"".to_owned(),
        ),
    }
}

fn grant(head: GrantHead<'_>, parts: &PayloadParts<'_>) -> Result<Grant, String> {
    if head.subscriptions.len() > SUBSCRIPTIONS_MAX {
        return Err(format!(
            "a grant may have at most {SUBSCRIPTIONS_MAX} subscriptions"
        ));
    }
    let channels = head.subscriptions.into_iter().map(|one| {
        Ok::<_, String>(ServerSubscription {
            channel: one.channel.into_owned(),
            info: payload(one.info, one.info_kind.as_deref(), parts)?,
            data: payload(one.data, one.data_kind.as_deref(), parts)?,
            expires_at_s: one.expire_at,
        })
    });
    Ok(Grant {
        user: head.user.into_owned(),
        expires_at_s: head.expire_at,
        is_expired: head.expired,
        info: payload(head.info, head.info_kind.as_deref(), parts)?,
        data: payload(head.data, head.data_kind.as_deref(), parts)?,
        channels: channels.collect::<Result<_, _>>()?,
        meta: payload(head.meta, None, parts)?,
        skips_history: head.skip_history,
    })
}

fn payload(
    number: Option<u32>,
    kind: Option<&str>,
    parts: &PayloadParts<'_>,
) -> Result<Option<Payload>, String> {
    let Some(number) = number else {
        return Ok(None);
    };
    let kind = kind.map_or(Ok(PayloadKind::Json), data_kind)?;
    let bytes = parts.get_as(number, kind)?;
    if kind == PayloadKind::Text {
        return Err("data of a grant must be json or binary".to_owned());
    }
    Ok(Some(PayloadRef { kind, bytes }.to_payload()))
}
