//! Table schemas: columns with their types, indexes and limits. Validated once, when a table is created, so that later
//! code can rely on it.

use std::sync::Arc;

/// Maximum number of columns besides the key.
pub const COLUMNS_MAX: usize = 64;
/// Maximum number of indexes.
pub const INDEXES_MAX: usize = 16;
/// Maximum length of a column or index name in bytes.
pub const COLUMN_NAME_BYTES_MAX: usize = 64;
/// Maximum length of a string or bytes value in bytes.
pub const TEXT_BYTES_MAX: usize = 65_535;
/// Maximum number of words of an enum.
pub const ENUM_WORDS_MAX: usize = 256;
/// The smallest permitted memory limit of a table, in bytes.
pub const TABLE_BYTES_MIN: usize = 65_536;
/// The default memory limit of a table, in bytes.
pub const TABLE_BYTES_DEFAULT: usize = 1 << 30;

/// The type of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// A value that is true or false.
    Bool,
    /// An unsigned integer of 8, 16, 32 or 64 bits.
    Unsigned(u32),
    /// A signed integer of 8, 16, 32 or 64 bits.
    Signed(u32),
    /// An IEEE 754 number of 32 bits.
    F32,
    /// An IEEE 754 number of 64 bits.
    F64,
    /// UTF-8 of at most this many characters.
    String(usize),
    /// At most this many arbitrary bytes.
    Bytes(usize),
    /// One of a list of words.
    Enum(Arc<[Box<str>]>),
}

impl Type {
    /// Parses a type as in a schema, such as `u32` or `string(50)`.
    ///
    /// # Errors
    /// The reason, for the author of the schema.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, inner) = match text.split_once('(') {
            None => (text, None),
            Some((name, rest)) => match rest.strip_suffix(')') {
                Some(inner) => (name, Some(inner)),
                None => return Err(format!("the type \"{text}\" lacks a closing )")),
            },
        };
        let length = |unit: &str| match inner {
            None => Ok(TEXT_BYTES_MAX),
            Some(inner) => match inner.trim().parse() {
                Ok(length @ 1..=TEXT_BYTES_MAX) => Ok(length),
                _ => Err(format!(
                    "\"{text}\": the length must be from 1 to {TEXT_BYTES_MAX} {unit}"
                )),
            },
        };
        let kind = match name.trim() {
            "string" => return length("characters").map(Self::String),
            "bytes" => return length("bytes").map(Self::Bytes),
            "enum" => return Self::parse_enum(text, inner.unwrap_or_default()),
            "bool" => Self::Bool,
            "u8" => Self::Unsigned(8),
            "u16" => Self::Unsigned(16),
            "u32" => Self::Unsigned(32),
            "u64" => Self::Unsigned(64),
            "i8" => Self::Signed(8),
            "i16" => Self::Signed(16),
            "i32" => Self::Signed(32),
            "i64" => Self::Signed(64),
            "f32" => Self::F32,
            "f64" => Self::F64,
            _ => {
                return Err(format!(
                    "unknown type \"{text}\"; the types are bool, u8 u16 u32 u64, i8 i16 i32 i64, f32 f64, string, \
                     bytes, enum(…)"
                ));
            }
        };
        match inner {
            None => Ok(kind),
            Some(_) => Err(format!("the type \"{name}\" takes no parameter")),
        }
    }

    fn parse_enum(text: &str, inner: &str) -> Result<Self, String> {
        let words: Vec<Box<str>> = inner.split(',').map(|word| word.trim().into()).collect();
        if words.iter().any(|word| word.is_empty()) {
            return Err(format!("\"{text}\": expected words, as in enum(m,f)"));
        }
        if words.len() > ENUM_WORDS_MAX {
            return Err(format!("an enum may have at most {ENUM_WORDS_MAX} words"));
        }
        for (place, word) in words.iter().enumerate() {
            if words[..place].contains(word) {
                return Err(format!("\"{text}\" has the word \"{word}\" twice"));
            }
        }
        Ok(Self::Enum(words.into()))
    }

    /// Returns the number of bits of a value, if fixed.
    pub(super) fn bits(&self) -> Option<u32> {
        match self {
            Self::Bool | Self::Enum(_) => Some(8),
            Self::Unsigned(bits) | Self::Signed(bits) => Some(*bits),
            Self::F32 => Some(32),
            Self::F64 => Some(64),
            Self::String(_) | Self::Bytes(_) => None,
        }
    }

    /// Returns whether values of this type are numbers.
    #[must_use]
    pub fn is_number(&self) -> bool {
        matches!(
            self,
            Self::Unsigned(_) | Self::Signed(_) | Self::F32 | Self::F64
        )
    }

    /// Returns whether values of this type are strings or bytes.
    #[must_use]
    pub fn is_text(&self) -> bool {
        self.bits().is_none()
    }
}

impl std::fmt::Display for Type {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool => out.write_str("bool"),
            Self::Unsigned(bits) => write!(out, "u{bits}"),
            Self::Signed(bits) => write!(out, "i{bits}"),
            Self::F32 => out.write_str("f32"),
            Self::F64 => out.write_str("f64"),
            Self::String(TEXT_BYTES_MAX) => out.write_str("string"),
            Self::String(length) => write!(out, "string({length})"),
            Self::Bytes(TEXT_BYTES_MAX) => out.write_str("bytes"),
            Self::Bytes(length) => write!(out, "bytes({length})"),
            Self::Enum(words) => write!(out, "enum({})", words.join(",")),
        }
    }
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The name: a letter followed by letters, digits and `_`.
    pub name: Box<str>,
    /// The type of the column's values.
    pub kind: Type,
    /// Whether rows may lack a value in this column.
    pub is_nullable: bool,
}

impl Column {
    /// Parses a column from its name and its type, with a `?` after the type if values may be missing.
    ///
    /// # Errors
    /// The reason, for the author of the schema.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        check_name(name)?;
        let (text, is_nullable) = match text.trim().strip_suffix('?') {
            Some(text) => (text, true),
            None => (text.trim(), false),
        };
        let kind = Type::parse(text).map_err(|words| format!("column {name}: {words}"))?;
        Ok(Self {
            name: name.into(),
            kind,
            is_nullable,
        })
    }

    /// Returns the type in the notation of schemas.
    #[must_use]
    pub fn type_text(&self) -> String {
        let mark = if self.is_nullable { "?" } else { "" };
        format!("{}{mark}", self.kind)
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_good = name.len() <= COLUMN_NAME_BYTES_MAX
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_good {
        return Ok(());
    }
    Err(format!(
        "\"{name}\" is not a valid name: a letter, then letters, digits and _, at most {COLUMN_NAME_BYTES_MAX}"
    ))
}

/// An index of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSchema {
    /// The name of the index.
    pub name: Box<str>,
    /// The indexed columns: indices in [`Schema::columns`].
    pub columns: Vec<usize>,
    /// Whether each combination of values may occur only once.
    pub is_unique: bool,
    /// Whether rows without a value in the index's first column are left out.
    pub(super) is_sparse: bool,
}

/// Which rows are evicted when a table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evict {
    /// No eviction: a change that needs more room fails.
    Nothing,
    /// The rows with the lowest key.
    Key,
    /// The first rows of the index with this position in [`Schema::indexes`].
    Index(usize),
}

/// The validated schema of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The columns: the key, then the others in order of their names. If rows expire, a hidden column with the expiry comes
    /// last.
    pub columns: Vec<Column>,
    /// The indexes in order of their names. If rows expire, a hidden index by expiry comes last.
    pub indexes: Vec<IndexSchema>,
    /// Whether rows may expire.
    pub has_ttl: bool,
    /// The default lifetime in milliseconds.
    pub ttl_ms: Option<u64>,
    /// The memory limit in bytes.
    pub bytes_max: usize,
    /// Which rows are evicted when the memory limit is reached.
    pub evict: Evict,
}

/// A schema before validation.
#[derive(Clone, Debug, Default)]
pub struct SchemaDraft {
    /// The name and type of the key, such as `id:u32`.
    pub key: String,
    /// Names and types of the columns.
    pub columns: Vec<(String, String)>,
    /// For each index: its name, its columns, and whether it is unique.
    pub indexes: Vec<(String, Vec<String>, bool)>,
    /// Whether rows may expire.
    pub has_ttl: bool,
    /// The default lifetime in milliseconds.
    pub ttl_ms: Option<u64>,
    /// The memory limit in bytes.
    pub bytes_max: Option<usize>,
    /// Which rows to evict: `key`, `ttl` or the name of an index; `None` for no eviction.
    pub evict: Option<String>,
}

/// The name of the hidden column with the expiry. It is not a valid column name, so it can't conflict with one.
pub(super) const EXPIRES: &str = "(expires)";

impl SchemaDraft {
    /// Validates the draft.
    ///
    /// # Errors
    /// The reason, for the author of the schema.
    pub fn check(self) -> Result<Schema, String> {
        let (name, kind) = self
            .key
            .split_once(':')
            .ok_or("key: expected a name and a type, as in \"id:u32\"")?;
        let key = Column::parse(name.trim(), kind.trim())?;
        if key.is_nullable {
            return Err("a key can't be nullable: remove the ? after its type".to_owned());
        }
        if matches!(key.kind, Type::Bool | Type::F32 | Type::F64 | Type::Enum(_)) {
            return Err(format!(
                "a key must be an integer, a string or bytes, not {}",
                key.kind
            ));
        }
        if self.columns.len() > COLUMNS_MAX {
            return Err(format!("a table may have at most {COLUMNS_MAX} columns"));
        }
        let mut columns = vec![key];
        for (name, kind) in &self.columns {
            columns.push(Column::parse(name, kind)?);
        }
        columns[1..].sort_by(|one, other| one.name.cmp(&other.name));
        for (place, column) in columns.iter().enumerate() {
            if columns[..place]
                .iter()
                .any(|other| other.name == column.name)
            {
                return Err(format!("column {} occurs twice", column.name));
            }
        }
        if self.indexes.len() > INDEXES_MAX {
            return Err(format!("a table may have at most {INDEXES_MAX} indexes"));
        }
        let mut indexes = Vec::new();
        for (name, names, is_unique) in self.indexes {
            indexes.push(index(&columns, &name, &names, is_unique)?);
        }
        indexes.sort_by(|one, other| one.name.cmp(&other.name));
        if let Some(two) = indexes.windows(2).find(|two| two[0].name == two[1].name) {
            return Err(format!("index {} occurs twice", two[0].name));
        }
        if self.has_ttl {
            columns.push(Column {
                name: EXPIRES.into(),
                kind: Type::Unsigned(64),
                is_nullable: true,
            });
            indexes.push(IndexSchema {
                name: EXPIRES.into(),
                columns: vec![columns.len() - 1],
                is_unique: false,
                is_sparse: true,
            });
        }
        let evict = match self.evict.as_deref() {
            None => Evict::Nothing,
            Some("key") => Evict::Key,
            Some("ttl") if self.has_ttl => Evict::Index(indexes.len() - 1),
            Some("ttl") => return Err("evict: \"ttl\" requires the option ttl".to_owned()),
            Some(name) => match indexes.iter().position(|index| &*index.name == name) {
                Some(place) => Evict::Index(place),
                None => return Err(format!("evict: there is no index \"{name}\"")),
            },
        };
        let bytes_max = self.bytes_max.unwrap_or(TABLE_BYTES_DEFAULT);
        if bytes_max < TABLE_BYTES_MIN {
            return Err(format!("bytes_max: must be at least {TABLE_BYTES_MIN}"));
        }
        Ok(Schema {
            columns,
            indexes,
            has_ttl: self.has_ttl,
            ttl_ms: self.ttl_ms,
            bytes_max,
            evict,
        })
    }
}

fn index(
    columns: &[Column],
    name: &str,
    names: &[String],
    is_unique: bool,
) -> Result<IndexSchema, String> {
    check_name(name)?;
    if name == "key" || name == "ttl" {
        return Err(format!("{name} is not allowed as the name of an index"));
    }
    if names.is_empty() {
        return Err(format!("index {name}: expected names of columns"));
    }
    let mut places = Vec::new();
    for column in names {
        let place = columns.iter().position(|other| *other.name == **column);
        let place = place.ok_or_else(|| format!("index {name}: there is no column {column}"))?;
        if places.contains(&place) {
            return Err(format!("index {name} has the column {column} twice"));
        }
        places.push(place);
    }
    Ok(IndexSchema {
        name: name.into(),
        columns: places,
        is_unique,
        is_sparse: false,
    })
}

impl Schema {
    /// Returns the index of a column by its name.
    #[must_use]
    pub fn column(&self, name: &[u8]) -> Option<usize> {
        self.visible()
            .iter()
            .position(|column| column.name.as_bytes() == name)
    }

    /// Returns the position of an index in [`Schema::indexes`] by the index's name.
    #[must_use]
    pub fn index(&self, name: &[u8]) -> Option<usize> {
        let indexes = self.indexes.iter();
        indexes
            .take_while(|index| !index.is_sparse)
            .position(|index| index.name.as_bytes() == name)
    }

    /// Describes how another schema differs from this one; `None` if they are equal.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        if self == other {
            return None;
        }
        let columns = self.columns.iter().zip(&other.columns);
        let differs = columns.filter(|(own, other)| own != other).map(|(own, _)| {
            format!(
                "the column {} of the existing table has the type {}",
                own.name,
                own.type_text()
            )
        });
        let indexes = self.indexes.iter().zip(&other.indexes);
        let differs = differs.chain(indexes.filter(|(own, other)| own != other).map(|(own, _)| {
            format!(
                "the existing table's index {} has other columns, or one of the two indexes is unique and the other is not",
                own.name
            )
        }));
        let counts = || {
            let [columns, indexes] = [self.visible().len(), self.indexes.len()];
            format!(
                "the existing table has columns: {columns}, indexes: {indexes}, bytes_max: {}; if these are equal, ttl or evict differs",
                self.bytes_max
            )
        };
        Some(differs.into_iter().next().unwrap_or_else(counts))
    }

    /// Returns the columns that the author of the schema has defined, without the hidden one.
    #[must_use]
    pub fn visible(&self) -> &[Column] {
        &self.columns[..self.columns.len() - usize::from(self.has_ttl)]
    }

    /// Returns the index of the hidden column with the expiry; `None` if rows don't expire.
    pub(super) fn expires(&self) -> Option<usize> {
        self.has_ttl.then(|| self.columns.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(key: &str, columns: &[(&str, &str)], indexes: &[(&str, &[&str])]) -> SchemaDraft {
        SchemaDraft {
            key: key.to_owned(),
            columns: columns
                .iter()
                .map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned()))
                .collect(),
            indexes: indexes
                .iter()
                .map(|(name, columns)| {
                    let columns = columns.iter().map(|&name| name.to_owned()).collect();
                    ((*name).to_owned(), columns, false)
                })
                .collect(),
            ..SchemaDraft::default()
        }
    }

    #[test]
    fn types_are_read_and_written() {
        for text in [
            "bool",
            "u8",
            "u64",
            "i16",
            "f32",
            "f64",
            "string",
            "string(50)",
            "bytes(9)",
            "enum(m,f)",
        ] {
            assert_eq!(Type::parse(text).expect("a type").to_string(), text);
        }
        for (text, expected) in [
            ("u7", "unknown type \"u7\""),
            ("string(0)", "from 1 to 65535 characters"),
            ("string(5", "lacks a closing )"),
            ("u8(3)", "takes no parameter"),
            ("enum()", "expected words"),
            ("enum(a,a)", "the word \"a\" twice"),
        ] {
            let words = Type::parse(text).expect_err(text);
            assert!(words.contains(expected), "{words}");
        }
    }

    #[test]
    fn columns_stand_by_name_behind_the_key() {
        let schema = draft(
            "id:u32",
            &[("b", "u8?"), ("a", "string")],
            &[("by_b", &["b", "a"])],
        )
        .check()
        .expect("a schema");
        let names: Vec<&str> = schema.columns.iter().map(|column| &*column.name).collect();
        assert_eq!(names, ["id", "a", "b"]);
        assert_eq!(schema.indexes[0].columns, [2, 1]);
        assert!(schema.columns[2].is_nullable);
    }

    #[test]
    fn mistakes_are_named() {
        for (draft, expected) in [
            (draft("id", &[], &[]), "a name and a type"),
            (draft("id:f32", &[], &[]), "not f32"),
            (draft("id:u8?", &[], &[]), "can't be nullable"),
            (
                draft("id:u8", &[("id", "u8")], &[]),
                "column id occurs twice",
            ),
            (draft("id:u8", &[("1", "u8")], &[]), "is not a valid name"),
            (
                draft("id:u8", &[("a", "u9")], &[]),
                "column a: unknown type",
            ),
            (draft("id:u8", &[], &[("x", &["b"])]), "no column b"),
            (
                draft("id:u8", &[], &[("key", &["id"])]),
                "key is not allowed as the name of an index",
            ),
            (draft("id:u8", &[], &[("x", &[])]), "names of columns"),
            (
                draft("id:u8", &[], &[("x", &["id", "id"])]),
                "the column id twice",
            ),
            (
                draft("id:u8", &[], &[("x", &["id"]), ("x", &["id"])]),
                "index x occurs twice",
            ),
        ] {
            let words = draft.check().expect_err(expected);
            assert!(words.contains(expected), "{words}");
        }
    }
}
