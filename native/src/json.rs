//! Messages that are one object of JSON each, into columns.
//!
//! A message is parsed here only if it is surely good, and its values surely those that
//! Python's parser returns: every other one is left to that parser, which alone decides
//! what is an error. So this grammar may be narrower than JSON, never wider.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::buffers::Strings;
use crate::json::columns::{Column, Kind};
use crate::json::text::{Cursor, Key, Text};

pub mod columns;
mod text;

/// Depth of undeclared values from which on a message is left to Python.
const DEEPEST: usize = 64;

pub struct Fields {
    names: Vec<String>,
    keys: Vec<Option<Key>>,
    kinds: Vec<Kind>,
    all: bool,
}

impl Fields {
    pub fn new(fields: Vec<(String, String)>, all: bool) -> PyResult<Self> {
        let kind = |name: &String| match name.as_str() {
            "bool" => Ok(Kind::Bool),
            "int64" => Ok(Kind::Int64),
            "double" => Ok(Kind::Double),
            "string" => Ok(Kind::String),
            _ => Err(PyValueError::new_err(format!("no column of JSON is {name}"))),
        };
        let kinds = fields.iter().map(|(_, name)| kind(name)).collect::<PyResult<_>>()?;
        let names: Vec<String> = fields.into_iter().map(|(name, _)| name).collect();
        let keys = names.iter().map(|name| Key::new(name)).collect();
        Ok(Self { names, keys, kinds, all })
    }

    /// The messages that were left out, as int64, and the columns of all others.
    pub fn parse(
        &self,
        texts: &Strings,
        count: usize,
        undeclared: bool,
    ) -> PyResult<(Vec<u8>, Vec<Column>)> {
        let mut columns: Vec<Column> =
            self.kinds.iter().map(|&kind| Column::new(kind, count)).collect();
        let mut scratch = Vec::new();
        let mut others = Vec::new();
        let mut rows = 0;
        for number in 0..count {
            let mut at = Cursor::new(texts.get(number)?);
            if self.message(&mut at, &mut columns, rows, &mut scratch, undeclared).is_some() {
                rows += 1;
                continue;
            }
            others.extend_from_slice(&(number as i64).to_le_bytes());
            columns.iter_mut().for_each(|column| column.truncate(rows));
        }
        Ok((others, columns))
    }

    /// Add the values of a message to the columns, which have so many rows; None if it
    /// is not surely good: some of the columns have its value then.
    fn message(
        &self,
        at: &mut Cursor,
        columns: &mut [Column],
        rows: usize,
        scratch: &mut Vec<u8>,
        undeclared: bool,
    ) -> Option<()> {
        at.byte(b'{')?;
        let mut next = 0;
        if !at.is(b'}') {
            loop {
                if let Some(index) = self.field(at, next, scratch)? {
                    let column = &mut columns[index];
                    // Of a field that comes twice Python takes the last value.
                    (column.len() == rows).then_some(())?;
                    value(at, column, scratch)?;
                    next = index + 1;
                } else if undeclared {
                    at.skip(scratch, DEEPEST)?;
                } else {
                    return None;
                }
                if !at.is(b',') {
                    break;
                }
            }
            at.byte(b'}')?;
        }
        for column in columns {
            if column.len() == rows {
                (!self.all).then_some(())?;
                column.push_null();
            }
        }
        at.ended().then_some(())
    }

    /// Pass a name and its colon; the field, if it is declared.
    #[inline]
    fn field(&self, at: &mut Cursor, next: usize, scratch: &mut Vec<u8>) -> Option<Option<usize>> {
        at.pass_space();
        // Most fields are in the order of the schema.
        if self.keys.get(next).is_some_and(|key| at.key(key.as_ref())) {
            return Some(Some(next));
        }
        if let Some(index) = self.keys.iter().position(|key| at.key(key.as_ref())) {
            return Some(Some(index));
        }
        scratch.clear();
        let name = match at.string(scratch)? {
            Text::Plain(name) => name,
            Text::Unescaped => scratch,
        };
        let index = self.names.iter().position(|one| one.as_bytes() == name);
        at.byte(b':')?;
        Some(index)
    }
}

#[inline]
fn value(at: &mut Cursor, column: &mut Column, scratch: &mut Vec<u8>) -> Option<()> {
    if at.literal(b"null") {
        column.push_null();
        return Some(());
    }
    match column {
        Column::Bool(values) => {
            let found = at.literal(b"true");
            (found || at.literal(b"false")).then_some(())?;
            values.push(found);
        }
        Column::Int64(values) => values.push(at.integer()?.to_le_bytes()),
        Column::Double(values) => values.push(at.double()?.to_le_bytes()),
        Column::String(texts) => {
            scratch.clear();
            match at.string(scratch)? {
                Text::Plain(text) => texts.push(text)?,
                Text::Unescaped => texts.push(scratch)?,
            }
        }
    }
    Some(())
}
