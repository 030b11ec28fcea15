//! Reading JSON that may hold anything: a field of a wrong type is *unreadable*, which is neither absent nor an error.
//!
//! Flow: the slim types of `objects` are made of [`Field`]s; `translate` decides what an unreadable one means. Owns the
//! only hand-written deserialization. Must never fail on a value of an unexpected JSON type: one field that cannot be
//! read would otherwise lose the object, and with a list the whole page.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::jiff::Timestamp;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use smol_str::SmolStr;

use crate::model::time::Wall;

/// A field of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Field<T> {
    /// Not there, or `null`.
    #[default]
    Absent,
    /// There, of a form nobody expected.
    Unreadable,
    /// There.
    Is(T),
}

/// A list whose elements are read one by one.
pub type List<T> = Field<Vec<Field<T>>>;

/// Something that is needed cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} cannot be read")]
pub struct Unread(
    /// Which field.
    pub &'static str,
);

impl<T> Field<T> {
    /// The value, if there is a readable one.
    pub fn get(&self) -> Option<&T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Absent | Self::Unreadable => None,
        }
    }

    /// The value, if there is a readable one: for fields without which an object is still rightly read.
    pub fn ok(self) -> Option<T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Absent | Self::Unreadable => None,
        }
    }

    /// Whether there is anything, readable or not.
    pub fn is_there(&self) -> bool {
        !matches!(self, Self::Absent)
    }

    /// The value of a field that every such object has.
    pub fn required(self, name: &'static str) -> Result<T, Unread> {
        self.ok().ok_or(Unread(name))
    }

    /// The value of a field that may be absent, but if it is there must be read.
    pub fn optional(self, name: &'static str) -> Result<Option<T>, Unread> {
        match self {
            Self::Absent => Ok(None),
            Self::Unreadable => Err(Unread(name)),
            Self::Is(value) => Ok(Some(value)),
        }
    }
}

impl<T> Field<Vec<Field<T>>> {
    /// All elements of a list that may be absent (then it is empty), none of which may be unreadable.
    pub fn all(self, name: &'static str) -> Result<Vec<T>, Unread> {
        self.optional(name)?.unwrap_or_default().into_iter().map(|element| element.required(name)).collect()
    }
}

/// What a value of each JSON type means to a type; `None`: it is not that.
pub trait Readable: Sized {
    /// From a string.
    fn read_str(_text: &str) -> Option<Self> {
        None
    }

    /// From a boolean.
    fn read_bool(_value: bool) -> Option<Self> {
        None
    }

    /// From an integer.
    fn read_int(_value: i64) -> Option<Self> {
        None
    }

    /// From an array.
    fn read_seq<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<Option<Self>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    /// From an object.
    fn read_map<'de, A: MapAccess<'de>>(mut map: A) -> Result<Option<Self>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

struct FieldVisitor<T>(PhantomData<T>);

fn field<T>(value: Option<T>) -> Field<T> {
    value.map_or(Field::Unreadable, Field::Is)
}

impl<'de, T: Readable> Visitor<'de> for FieldVisitor<T> {
    type Value = Field<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Field::Absent)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Field::Absent)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(field(T::read_str(text)))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(field(T::read_bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(field(T::read_int(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(field(i64::try_from(value).ok().and_then(T::read_int)))
    }

    fn visit_f64<E>(self, _value: f64) -> Result<Self::Value, E> {
        Ok(Field::Unreadable)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        T::read_seq(seq).map(field)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::read_map(map).map(field)
    }
}

impl<'de, T: Readable> Deserialize<'de> for Field<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FieldVisitor(PhantomData))
    }
}

impl Readable for SmolStr {
    fn read_str(text: &str) -> Option<Self> {
        Some(Self::new(text))
    }
}

impl Readable for bool {
    fn read_bool(value: bool) -> Option<Self> {
        Some(value)
    }
}

impl Readable for i32 {
    fn read_int(value: i64) -> Option<Self> {
        Self::try_from(value).ok()
    }
}

/// Times as Kubernetes writes them (RFC 3339, whole seconds or microseconds).
impl Readable for Wall {
    fn read_str(text: &str) -> Option<Self> {
        text.parse::<Timestamp>().ok().map(|time| Self::from_millis(time.as_millisecond()))
    }
}

impl<T: Readable> Readable for Vec<Field<T>> {
    fn read_seq<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<Option<Self>, A::Error> {
        let mut elements = Self::new();
        while let Some(element) = seq.next_element()? {
            elements.push(element);
        }
        Ok(Some(elements))
    }
}

impl<T: Readable> Readable for BTreeMap<SmolStr, Field<T>> {
    fn read_map<'de, A: MapAccess<'de>>(mut map: A) -> Result<Option<Self>, A::Error> {
        let mut entries = Self::new();
        while let Some((key, value)) = map.next_entry::<SmolStr, Field<T>>()? {
            entries.insert(key, value);
        }
        Ok(Some(entries))
    }
}

/// An object of which only the presence counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Present;

impl Readable for Present {
    fn read_map<'de, A: MapAccess<'de>>(mut map: A) -> Result<Option<Self>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Some(Self))
    }
}

/// Lets structs that derive `Deserialize`, all of whose fields are [`Field`]s, be fields themselves.
macro_rules! readable_structs {
    ($($name:ident),+ $(,)?) => {$(
        impl $crate::kubernetes::lenient::Readable for $name {
            fn read_map<'de, A: serde::de::MapAccess<'de>>(map: A) -> Result<Option<Self>, A::Error> {
                serde::Deserialize::deserialize(serde::de::value::MapAccessDeserializer::new(map)).map(Some)
            }
        }
    )+};
}
pub(super) use readable_structs;

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Readable>(json: &str) -> Field<T> {
        serde_json::from_str(json).expect("a field takes any JSON")
    }

    #[test]
    fn a_field_of_a_wrong_type_is_unreadable_and_null_is_absent() {
        assert_eq!(read::<SmolStr>(r#""text""#), Field::Is(SmolStr::new("text")));
        for wrong in ["7", "-7", "1.5", "18446744073709551615", "true", "[1,[2]]", r#"{"a":{"b":[]}}"#] {
            assert_eq!(read::<SmolStr>(wrong), Field::Unreadable, "{wrong}");
        }
        assert_eq!(read::<SmolStr>("null"), Field::Absent);
        assert_eq!(read::<bool>(r#""true""#), Field::Unreadable);
        assert_eq!(read::<i32>("2147483648"), Field::Unreadable);
        assert_eq!(read::<i32>("-3"), Field::Is(-3));
    }

    #[test]
    fn elements_are_read_one_by_one() {
        let list = read::<Vec<Field<SmolStr>>>(r#"["a",1,null,"b"]"#);
        assert_eq!(
            list,
            Field::Is(vec![
                Field::Is(SmolStr::new("a")),
                Field::Unreadable,
                Field::Absent,
                Field::Is(SmolStr::new("b"))
            ])
        );
        assert_eq!(list.all("list"), Err(Unread("list")));
        assert_eq!(read::<Vec<Field<SmolStr>>>(r#"{"a":1}"#), Field::Unreadable);
        assert_eq!(read::<Vec<Field<SmolStr>>>("null").all("list"), Ok(vec![]));
    }

    #[test]
    fn times_are_read_in_both_precisions() {
        assert_eq!(read::<Wall>(r#""2030-01-01T00:00:00Z""#), Field::Is(Wall::from_millis(1_893_456_000_000)));
        assert_eq!(read::<Wall>(r#""2030-01-01T00:00:00.250000Z""#), Field::Is(Wall::from_millis(1_893_456_000_250)));
        assert_eq!(read::<Wall>(r#""yesterday""#), Field::Unreadable);
    }
}
