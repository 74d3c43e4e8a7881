//! Replies of any size to calls, and requests of hooks.

use std::net::{IpAddr, Ipv4Addr};

use veche_calls::CallReply;
use veche_calls::channel::{ChannelMember, ChannelPublication, ChannelReply};
use veche_calls::mysql::{MysqlReply, MysqlValue, Rows};
use veche_script::hooks::{AppHookCaller, AppHookRequest, Hook};

/// Returns a reply with `count` rows; the value of the only column is the row's number, from 0.
pub(crate) fn rows(count: u32) -> CallReply {
    let values = (0..count).map(|number| MysqlValue::Number(number.into()));
    CallReply::Mysql(MysqlReply::Rows(Rows {
        columns: vec!["a".to_owned()],
        values: values.collect(),
    }))
}

pub(crate) fn publication(offset: u32) -> ChannelPublication {
    ChannelPublication {
        is_text: true,
        data: b"x".to_vec(),
        position: format!("e:{offset}"),
        at_ms: 7,
        by: None,
        tags: Vec::new(),
    }
}

/// Returns a history of this many publications.
pub(crate) fn history(count: u32) -> CallReply {
    CallReply::Channel(ChannelReply::History {
        publications: (0..count).map(publication).collect(),
        position: format!("e:{count}"),
    })
}

/// Returns this many members of a channel, all of one user.
pub(crate) fn presence(count: u32) -> CallReply {
    let members = (0..count).map(|number| ChannelMember {
        user: "ann".to_owned(),
        client: number.to_string(),
        info: None,
    });
    CallReply::Channel(ChannelReply::Presence(members.collect()))
}

/// Returns a hook request of the user `ann` without data.
pub(crate) fn hook_request(hook: Hook) -> AppHookRequest<'static> {
    AppHookRequest {
        hook,
        caller: AppHookCaller {
            id: "c1",
            user: "ann",
            transport: "websocket",
            protocol: "json",
            name: "",
            version: "",
            remote: IpAddr::V4(Ipv4Addr::LOCALHOST),
            headers: &[],
            meta: None,
        },
        subject: "",
        code: 0,
        token: "",
        channels: &[],
        data: None,
    }
}
