//! A second definition of the protocol's messages, which independent libraries encode and decode: prost for Protobuf,
//! serde_json for JSON. Unknown fields are errors.

#![allow(dead_code, unreachable_pub, reason = "each test takes what it needs")]

use std::collections::BTreeMap;

use prost::Message;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Declares messages: each field with its Protobuf type, number and Rust type.
macro_rules! messages {
    ($($name:ident { $($(#[$serde:meta])* $field:ident: $kind:ty = $($prost:meta),+;)* })*) => {
        $(
            #[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
            #[serde(default, deny_unknown_fields)]
            pub struct $name {
                $(
                    #[prost($($prost),+)]
                    #[serde(skip_serializing_if = "is_zero")]
                    $(#[$serde])*
                    pub $field: $kind,
                )*
            }
        )*
    };
}

type Map<V> = BTreeMap<String, V>;

messages! {
    Command {
        id: u32 = uint32, tag = "1";
        connect: Option<ConnectRequest> = message, optional, tag = "4";
        subscribe: Option<SubscribeRequest> = message, optional, tag = "5";
        unsubscribe: Option<ChannelRequest> = message, optional, tag = "6";
        publish: Option<PublishRequest> = message, optional, tag = "7";
        presence: Option<ChannelRequest> = message, optional, tag = "8";
        presence_stats: Option<ChannelRequest> = message, optional, tag = "9";
        history: Option<HistoryRequest> = message, optional, tag = "10";
        ping: Option<Nothing> = message, optional, tag = "11";
        send: Option<SendRequest> = message, optional, tag = "12";
        rpc: Option<RpcRequest> = message, optional, tag = "13";
        refresh: Option<RefreshRequest> = message, optional, tag = "14";
        sub_refresh: Option<SubRefreshRequest> = message, optional, tag = "15";
    }
    ConnectRequest {
        token: String = string, tag = "1";
        #[serde(with = "raw")]
        data: Vec<u8> = bytes = "vec", tag = "2";
        subs: Map<SubscribeRequest> = btree_map = "string, message", tag = "3";
        name: String = string, tag = "4";
        version: String = string, tag = "5";
        headers: Map<String> = btree_map = "string, string", tag = "6";
        flag: i64 = int64, tag = "7";
        dict: String = string, tag = "8";
        profile: String = string, tag = "9";
    }
    SubscribeRequest {
        channel: String = string, tag = "1";
        token: String = string, tag = "2";
        recover: bool = bool, tag = "3";
        epoch: String = string, tag = "6";
        offset: u64 = uint64, tag = "7";
        #[serde(with = "raw")]
        data: Vec<u8> = bytes = "vec", tag = "8";
        positioned: bool = bool, tag = "9";
        recoverable: bool = bool, tag = "10";
        join_leave: bool = bool, tag = "11";
        delta: String = string, tag = "12";
        tf: Option<FilterNode> = message, optional, tag = "13";
        flag: i64 = int64, tag = "14";
        r#type: i32 = int32, tag = "15";
        phase: i32 = int32, tag = "16";
        cursor: String = string, tag = "17";
        limit: i32 = int32, tag = "18";
        asc: bool = bool, tag = "19";
    }
    FilterNode {
        op: String = string, tag = "1";
        key: String = string, tag = "2";
        cmp: String = string, tag = "3";
        val: String = string, tag = "4";
        vals: Vec<String> = string, repeated, tag = "5";
        nodes: Vec<FilterNode> = message, repeated, tag = "6";
    }
    ChannelRequest {
        channel: String = string, tag = "1";
    }
    PublishRequest {
        channel: String = string, tag = "1";
        #[serde(with = "raw")]
        data: Vec<u8> = bytes = "vec", tag = "2";
        r#type: i32 = int32, tag = "3";
        key: String = string, tag = "4";
        removed: bool = bool, tag = "5";
    }
    HistoryRequest {
        channel: String = string, tag = "1";
        limit: i32 = int32, tag = "7";
        since: Option<StreamPosition> = message, optional, tag = "8";
        reverse: bool = bool, tag = "9";
    }
    StreamPosition {
        offset: u64 = uint64, tag = "1";
        epoch: String = string, tag = "2";
    }
    Nothing {}
    SendRequest {
        #[serde(with = "raw")]
        data: Vec<u8> = bytes = "vec", tag = "1";
    }
    RpcRequest {
        #[serde(with = "raw")]
        data: Vec<u8> = bytes = "vec", tag = "1";
        method: String = string, tag = "2";
    }
    RefreshRequest {
        token: String = string, tag = "1";
    }
    SubRefreshRequest {
        channel: String = string, tag = "1";
        token: String = string, tag = "2";
        r#type: i32 = int32, tag = "3";
    }
    EmulationRequest {
        node: String = string, tag = "1";
        session: String = string, tag = "2";
        #[serde(with = "raw")]
        data: Vec<u8> = bytes = "vec", tag = "3";
    }
    Reply {
        id: u32 = uint32, tag = "1";
        error: Option<Error> = message, optional, tag = "2";
        push: Option<Push> = message, optional, tag = "4";
        connect: Option<ConnectResult> = message, optional, tag = "5";
        subscribe: Option<SubscribeResult> = message, optional, tag = "6";
        unsubscribe: Option<Nothing> = message, optional, tag = "7";
        publish: Option<Nothing> = message, optional, tag = "8";
        presence: Option<PresenceResult> = message, optional, tag = "9";
        presence_stats: Option<PresenceStatsResult> = message, optional, tag = "10";
        history: Option<HistoryResult> = message, optional, tag = "11";
        ping: Option<Nothing> = message, optional, tag = "12";
        rpc: Option<RpcResult> = message, optional, tag = "13";
        refresh: Option<RefreshResult> = message, optional, tag = "14";
        sub_refresh: Option<SubRefreshResult> = message, optional, tag = "15";
    }
    Error {
        code: u32 = uint32, tag = "1";
        message: String = string, tag = "2";
        temporary: bool = bool, tag = "3";
    }
    ConnectResult {
        client: String = string, tag = "1";
        version: String = string, tag = "2";
        expires: bool = bool, tag = "3";
        ttl: u32 = uint32, tag = "4";
        #[serde(with = "raw")]
        data: Vec<u8> = bytes = "vec", tag = "5";
        subs: Map<SubscribeResult> = btree_map = "string, message", tag = "6";
        ping: u32 = uint32, tag = "7";
        pong: bool = bool, tag = "8";
        session: String = string, tag = "9";
        node: String = string, tag = "10";
        time: i64 = int64, tag = "11";
    }
    SubscribeResult {
        expires: bool = bool, tag = "1";
        ttl: u32 = uint32, tag = "2";
        recoverable: bool = bool, tag = "3";
        epoch: String = string, tag = "6";
        publications: Vec<Publication> = message, repeated, tag = "7";
        recovered: bool = bool, tag = "8";
        offset: u64 = uint64, tag = "9";
        positioned: bool = bool, tag = "10";
        #[serde(with = "raw")]
        data: Vec<u8> = bytes = "vec", tag = "11";
        was_recovering: bool = bool, tag = "12";
        delta: bool = bool, tag = "13";
    }
    PresenceResult {
        presence: Map<ClientInfo> = btree_map = "string, message", tag = "1";
    }
    PresenceStatsResult {
        num_clients: u32 = uint32, tag = "1";
        num_users: u32 = uint32, tag = "2";
    }
    HistoryResult {
        publications: Vec<Publication> = message, repeated, tag = "1";
        epoch: String = string, tag = "2";
        offset: u64 = uint64, tag = "3";
    }
    RpcResult {
        #[serde(with = "raw")]
        data: Vec<u8> = bytes = "vec", tag = "1";
    }
    RefreshResult {
        client: String = string, tag = "1";
        version: String = string, tag = "2";
        expires: bool = bool, tag = "3";
        ttl: u32 = uint32, tag = "4";
    }
    SubRefreshResult {
        expires: bool = bool, tag = "1";
        ttl: u32 = uint32, tag = "2";
    }
    Push {
        channel: String = string, tag = "2";
        r#pub: Option<Publication> = message, optional, tag = "4";
        join: Option<Info> = message, optional, tag = "5";
        leave: Option<Info> = message, optional, tag = "6";
        unsubscribe: Option<Unsubscribe> = message, optional, tag = "7";
        message: Option<Direct> = message, optional, tag = "8";
        subscribe: Option<Subscribe> = message, optional, tag = "9";
        connect: Option<Connect> = message, optional, tag = "10";
        disconnect: Option<Disconnect> = message, optional, tag = "11";
        refresh: Option<Refresh> = message, optional, tag = "12";
    }
    ClientInfo {
        user: String = string, tag = "1";
        client: String = string, tag = "2";
        #[serde(with = "raw")]
        conn_info: Vec<u8> = bytes = "vec", tag = "3";
        #[serde(with = "raw")]
        chan_info: Vec<u8> = bytes = "vec", tag = "4";
    }
    Publication {
        #[serde(with = "raw")]
        data: Vec<u8> = bytes = "vec", tag = "4";
        info: Option<ClientInfo> = message, optional, tag = "5";
        offset: u64 = uint64, tag = "6";
        tags: Map<String> = btree_map = "string, string", tag = "7";
        delta: bool = bool, tag = "8";
        time: i64 = int64, tag = "9";
        channel: String = string, tag = "10";
    }
    Info {
        info: Option<ClientInfo> = message, optional, tag = "1";
    }
    Unsubscribe {
        code: u32 = uint32, tag = "2";
        reason: String = string, tag = "3";
    }
    Direct {
        #[serde(with = "raw")]
        data: Vec<u8> = bytes = "vec", tag = "1";
    }
    Subscribe {
        recoverable: bool = bool, tag = "1";
        epoch: String = string, tag = "4";
        offset: u64 = uint64, tag = "5";
        positioned: bool = bool, tag = "6";
        #[serde(with = "raw")]
        data: Vec<u8> = bytes = "vec", tag = "7";
    }
    Connect {
        client: String = string, tag = "1";
        version: String = string, tag = "2";
        #[serde(with = "raw")]
        data: Vec<u8> = bytes = "vec", tag = "3";
        subs: Map<SubscribeResult> = btree_map = "string, message", tag = "4";
        expires: bool = bool, tag = "5";
        ttl: u32 = uint32, tag = "6";
        ping: u32 = uint32, tag = "7";
        pong: bool = bool, tag = "8";
        session: String = string, tag = "9";
        node: String = string, tag = "10";
        time: i64 = int64, tag = "11";
    }
    Disconnect {
        code: u32 = uint32, tag = "1";
        reason: String = string, tag = "2";
        reconnect: bool = bool, tag = "3";
    }
    Refresh {
        expires: bool = bool, tag = "1";
        ttl: u32 = uint32, tag = "2";
    }
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Writes JSON data unchanged. Reading a JSON string yields the text without quotes and escapes, as in Protobuf.
mod raw {
    use serde::de::{Deserialize, Deserializer};
    use serde::ser::{Serialize, Serializer};
    use serde_json::value::RawValue;

    pub fn serialize<S: Serializer>(data: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let text = String::from_utf8(data.to_vec()).expect("UTF-8");
        RawValue::from_string(text)
            .expect("JSON")
            .serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let text = serde_json::from_str::<String>(raw.get()).unwrap_or_else(|_| raw.get().into());
        Ok(text.into_bytes())
    }
}

/// Encodes a message as JSON.
pub fn to_json(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).unwrap()
}

/// Encodes a message as length-prefixed Protobuf.
pub fn to_protobuf(message: &impl Message) -> Vec<u8> {
    message.encode_length_delimited_to_vec()
}

/// Decodes the messages of a transport message from JSON, one per line.
pub fn all_of_json<M: DeserializeOwned>(bytes: &[u8]) -> Vec<M> {
    let text = str::from_utf8(bytes).expect("UTF-8");
    text.split('\n')
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// Decodes the messages of a transport message from length-prefixed Protobuf.
pub fn all_of_protobuf<M: Message + Default>(mut bytes: &[u8]) -> Vec<M> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        messages.push(M::decode_length_delimited(&mut bytes).expect("Protobuf"));
    }
    messages
}
