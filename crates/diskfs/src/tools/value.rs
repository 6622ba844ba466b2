//! The shown form of a structure: names and values, for people and for programs.

use std::fmt;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use vfscale_vfs::Escaped;

/// A value that can be shown in words ([`Display`](fmt::Display)) and as JSON ([`Serialize`]), in
/// which names of several words are in snake_case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// No value.
    Nothing,
    /// Yes or no.
    Flag(bool),
    /// A number.
    Number(u64),
    /// A number that may be negative.
    Signed(i64),
    /// Text.
    Text(String),
    /// Values in order.
    List(Vec<Value>),
    /// Named values, in order.
    Fields(Vec<(&'static str, Value)>),
}

impl Value {
    /// Creates a value without fields.
    pub const fn fields() -> Self {
        Self::Fields(Vec::new())
    }

    /// Adds a field; replaces any other value by this one field.
    #[must_use]
    pub fn with(self, name: &'static str, value: impl Into<Value>) -> Self {
        let mut fields = match self {
            Self::Fields(fields) => fields,
            _ => Vec::new(),
        };
        let is_of_name = |byte: u8| byte.is_ascii_lowercase() || b" _".contains(&byte);
        debug_assert!(name.bytes().all(is_of_name), "{name}: no key of JSON can be made of it");
        fields.push((name, value.into()));
        Self::Fields(fields)
    }

    /// Creates text from bytes that need not be UTF-8: shows other bytes, control characters and
    /// backslashes as escapes.
    pub fn bytes(bytes: &[u8]) -> Self {
        Self::Text(Escaped::bytes(bytes).to_string())
    }

    /// Creates text of hexadecimal digits.
    pub fn hex(bytes: &[u8]) -> Self {
        Self::Text(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn show(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("-"),
            Self::Flag(true) => f.write_str("yes"),
            Self::Flag(false) => f.write_str("no"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Signed(number) => write!(f, "{number}"),
            // Also what the volume has as text, as its label.
            Self::Text(text) => write!(f, "{}", Escaped::message(text)),
            Self::List(values) => {
                for (number, value) in values.iter().enumerate() {
                    if number > 0 || depth > 0 {
                        line(f, depth)?;
                    }
                    if let Self::Fields(fields) = value {
                        value.show_in_line(f, fields)?;
                    } else {
                        value.show(f, depth + 1)?;
                    }
                }
                Ok(())
            }
            Self::Fields(fields) => {
                for (number, (name, value)) in fields.iter().enumerate() {
                    if number > 0 || depth > 0 {
                        line(f, depth)?;
                    }
                    match value {
                        Self::List(values) if values.is_empty() => write!(f, "{name}: none")?,
                        Self::List(_) | Self::Fields(_) => {
                            write!(f, "{name}:")?;
                            value.show(f, depth + 1)?;
                        }
                        _ => write!(f, "{name}: {value}")?,
                    }
                }
                Ok(())
            }
        }
    }

    /// Shows the fields of an element of a list in one line; puts lists and fields among them in
    /// brackets.
    fn show_in_line(
        &self,
        f: &mut fmt::Formatter<'_>,
        fields: &[(&'static str, Value)],
    ) -> fmt::Result {
        for (number, (name, value)) in fields.iter().enumerate() {
            if number > 0 {
                f.write_str(", ")?;
            }
            match value {
                Self::List(_) | Self::Fields(_) => {
                    let text = value.to_string();
                    write!(f, "{name} ({})", text.replace('\n', "; "))?;
                }
                _ => write!(f, "{name} {value}")?,
            }
        }
        Ok(())
    }
}

fn line(f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
    write!(f, "\n{:1$}", "", depth * 2)
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show(f, 0)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nothing => serializer.serialize_none(),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::Number(number) => serializer.serialize_u64(*number),
            Self::Signed(number) => serializer.serialize_i64(*number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(values) => {
                let mut list = serializer.serialize_seq(Some(values.len()))?;
                for value in values {
                    list.serialize_element(value)?;
                }
                list.end()
            }
            Self::Fields(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    map.serialize_entry(&name.replace(' ', "_"), value)?;
                }
                map.end()
            }
        }
    }
}

macro_rules! from {
    ($($kind:ident: $($type:ty),+;)+) => {$($(
        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self::$kind(value.into())
            }
        }
    )+)+};
}

from! {
    Flag: bool;
    Number: u64, u32, u16, u8;
    Signed: i64;
    Text: String, &str;
    List: Vec<Value>;
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Nothing, Into::into)
    }
}

impl FromIterator<Value> for Value {
    fn from_iter<I: IntoIterator<Item = Value>>(values: I) -> Self {
        Self::List(values.into_iter().collect())
    }
}

#[cfg(test)]
mod tests;
