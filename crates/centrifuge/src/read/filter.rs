//! Decoding of filters: a tree in either encoding. Only its depth is checked here, not its meaning.

use std::borrow::Cow;

use super::json;
use super::wire;
use crate::filter::{FILTER_DEPTH_MAX, FilterError};
use crate::{PublicationData, depth};

/// A decoded node of a filter, with the fields of every kind of node.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(crate) struct WireNode<'a> {
    #[serde(borrow, deserialize_with = "json::text")]
    pub(crate) op: Cow<'a, str>,
    #[serde(borrow, deserialize_with = "json::text")]
    pub(crate) key: Cow<'a, str>,
    #[serde(borrow, deserialize_with = "json::text")]
    pub(crate) cmp: Cow<'a, str>,
    #[serde(borrow, deserialize_with = "json::text")]
    pub(crate) val: Cow<'a, str>,
    #[serde(borrow, deserialize_with = "json::texts")]
    pub(crate) vals: Vec<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "json::objects")]
    pub(crate) nodes: Vec<Self>,
}

/// Decodes a filter. The caller has checked the length of `data`, which bounds the memory.
pub(crate) fn read(data: PublicationData<'_>) -> Result<WireNode<'_>, FilterError> {
    match data {
        // Each node is an object that contains its children or values in a list, so the JSON text is nested twice as
        // deep as the filter.
        PublicationData::Json(text) if depth::is_over(text, 2 * FILTER_DEPTH_MAX) => {
            Err(FilterError)
        }
        PublicationData::Json(text) => json::one(text).map_err(|_| FilterError),
        PublicationData::Text(_) => Err(FilterError),
        PublicationData::Binary(bytes) => protobuf(bytes, FILTER_DEPTH_MAX),
    }
}

fn protobuf(mut bytes: &[u8], depth_max: usize) -> Result<WireNode<'_>, FilterError> {
    let depth_left = depth_max.checked_sub(1).ok_or(FilterError)?;
    let mut node = WireNode::default();
    while !bytes.is_empty() {
        let (number, value) = wire::field(&mut bytes).map_err(|_| FilterError)?;
        if !(1..=6).contains(&number) {
            continue;
        }
        let value = value.bytes().ok_or(FilterError)?;
        if number == 6 {
            node.nodes.push(protobuf(value, depth_left)?);
            continue;
        }
        let text = Cow::Borrowed(super::text(value).map_err(|_| FilterError)?);
        match number {
            1 => node.op = text,
            2 => node.key = text,
            3 => node.cmp = text,
            4 => node.val = text,
            _ => node.vals.push(text),
        }
    }
    Ok(node)
}
