//! Values that have to be JSON objects.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A value parsed from a JSON object only. Types that derive `Deserialize` also accept an array of
/// their fields in order, so they would take `[]`, PHP's encoding of an empty array, for an object
/// without fields.
#[derive(Debug, Default)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OfMap(PhantomData))
    }
}

struct OfMap<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OfMap<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Some<'a> {
        number: u64,
        #[serde(borrow)]
        raw: Option<&'a RawValue>,
        inner: Option<Object<Inner>>,
    }

    #[derive(Debug, Deserialize)]
    struct Inner {
        number: u64,
    }

    #[test]
    fn an_array_is_no_object() {
        let read = serde_json::from_str::<Object<Some<'_>>>;
        let Object(some) = read(r#"{"number": 7, "raw": [1, 2], "inner": {"number": 1}}"#).unwrap();
        assert_eq!((some.number, some.raw.unwrap().get()), (7, "[1, 2]"));
        assert_eq!(some.inner.unwrap().0.number, 1);
        for wrong in [
            "[]",
            "[7]",
            "7",
            "null",
            r#"{"inner":[1]}"#,
            r#"{"inner":[]}"#,
        ] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("expected an object"), "{error}");
        }
    }
}
