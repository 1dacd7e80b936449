//! Messages that are one object of JSON each, into columns.
//!
//! A message is parsed here only if it is surely good, and its values surely those that
//! Python's parser returns: every other one is left to that parser, which alone decides
//! what is an error. So this grammar may be narrower than JSON, never wider.

use std::ops::Range;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::buffers::{Strings, bitmap};
use crate::json::text::Cursor;

mod text;

/// Depth of undeclared values from which on a message is left to Python.
const DEEPEST: usize = 64;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Bool,
    Int64,
    Double,
    String,
}

/// A value of a message, before the whole message is known to be good.
#[derive(Clone)]
enum Value {
    Missing,
    Null,
    Bool(bool),
    Int64(i64),
    Double(f64),
    /// Bytes of the message.
    Text(Range<usize>),
    /// Bytes of the scratch space: a text that had escapes.
    Unescaped(Range<usize>),
}

pub struct Fields {
    names: Vec<String>,
    /// The names as they stand in a message: most fields are in the order of the schema.
    quoted: Vec<String>,
    kinds: Vec<Kind>,
    all: bool,
}

/// Validity as a bitmap, None where all are valid, and the buffers of the values.
pub type Parts = (Option<Vec<u8>>, Vec<Vec<u8>>);

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
        let quoted = names.iter().map(|name| format!("\"{name}\"")).collect();
        Ok(Self { names, quoted, kinds, all })
    }

    /// The messages that were left out, and the columns of all others.
    pub fn parse(
        &self,
        texts: &Strings,
        count: usize,
        undeclared: bool,
    ) -> PyResult<(Vec<u8>, Vec<Parts>)> {
        let mut columns: Vec<Column> = self.kinds.iter().map(|&kind| Column::new(kind)).collect();
        let mut values = vec![Value::Missing; self.names.len()];
        let mut scratch = Vec::new();
        let mut others = Vec::new();
        for number in 0..count {
            let message = texts.get(number)?;
            values.fill(Value::Missing);
            scratch.clear();
            let found = self.message(message, &mut values, &mut scratch, undeclared);
            if found.is_none() {
                others.extend_from_slice(&(number as i64).to_le_bytes());
                continue;
            }
            for (column, value) in columns.iter_mut().zip(&values) {
                column.push(value, message, &scratch)?;
            }
        }
        Ok((others, columns.into_iter().map(Column::parts).collect()))
    }

    /// The values of a message; None if it is not surely good.
    fn message(
        &self,
        message: &[u8],
        values: &mut [Value],
        scratch: &mut Vec<u8>,
        undeclared: bool,
    ) -> Option<()> {
        let mut at = Cursor::new(message);
        at.byte(b'{')?;
        let mut next = 0;
        if !at.is(b'}') {
            loop {
                let index = if self.quoted.get(next).is_some_and(|name| at.literal(name)) {
                    Some(next)
                } else {
                    let text = at.string(scratch)?;
                    let name = text.of(message, scratch);
                    self.names.iter().position(|one| one.as_bytes() == name)
                };
                match index {
                    Some(index) => {
                        at.byte(b':')?;
                        values[index] = value(&mut at, self.kinds[index], scratch)?;
                        next = index + 1;
                    }
                    None if undeclared => {
                        at.byte(b':')?;
                        at.skip(scratch, DEEPEST)?;
                    }
                    None => return None,
                }
                if !at.is(b',') {
                    break;
                }
            }
            at.byte(b'}')?;
        }
        let complete = !self.all || values.iter().all(|one| !matches!(one, Value::Missing));
        (at.ended() && complete).then_some(())
    }
}

fn value(at: &mut Cursor, kind: Kind, scratch: &mut Vec<u8>) -> Option<Value> {
    if at.literal("null") {
        return Some(Value::Null);
    }
    match kind {
        Kind::Bool if at.literal("true") => Some(Value::Bool(true)),
        Kind::Bool if at.literal("false") => Some(Value::Bool(false)),
        Kind::Bool => None,
        Kind::Int64 => at.integer().map(Value::Int64),
        Kind::Double => at.double().map(Value::Double),
        Kind::String => at.string(scratch).map(|text| match text {
            text::Text::Plain(range) => Value::Text(range),
            text::Text::Unescaped(range) => Value::Unescaped(range),
        }),
    }
}

/// A column that grows.
struct Column {
    kind: Kind,
    valid: Vec<bool>,
    flags: Vec<bool>,
    /// Offsets of texts, else values.
    numbers: Vec<u8>,
    texts: Vec<u8>,
}

impl Column {
    fn new(kind: Kind) -> Self {
        let numbers = if kind == Kind::String { vec![0; 4] } else { Vec::new() };
        Self { kind, valid: Vec::new(), flags: Vec::new(), numbers, texts: Vec::new() }
    }

    fn push(&mut self, value: &Value, message: &[u8], scratch: &[u8]) -> PyResult<()> {
        self.valid.push(!matches!(value, Value::Missing | Value::Null));
        match self.kind {
            Kind::Bool => self.flags.push(matches!(value, Value::Bool(true))),
            Kind::Int64 => {
                let number = if let Value::Int64(number) = value { *number } else { 0 };
                self.numbers.extend_from_slice(&number.to_le_bytes());
            }
            Kind::Double => {
                let number = if let Value::Double(number) = value { *number } else { 0.0 };
                self.numbers.extend_from_slice(&number.to_le_bytes());
            }
            Kind::String => {
                match value {
                    Value::Text(range) => self.texts.extend_from_slice(&message[range.clone()]),
                    Value::Unescaped(range) => {
                        self.texts.extend_from_slice(&scratch[range.clone()]);
                    }
                    _ => (),
                }
                // An escape is longer than its text: no more than the messages, which
                // have offsets of 32 bits.
                let end = i32::try_from(self.texts.len())
                    .map_err(|_| PyValueError::new_err("a column of more than 2 GiB"))?;
                self.numbers.extend_from_slice(&end.to_le_bytes());
            }
        }
        Ok(())
    }

    fn parts(self) -> Parts {
        let valid = self.valid.contains(&false).then(|| bitmap(&self.valid));
        let buffers = match self.kind {
            Kind::Bool => vec![bitmap(&self.flags)],
            Kind::String => vec![self.numbers, self.texts],
            Kind::Int64 | Kind::Double => vec![self.numbers],
        };
        (valid, buffers)
    }
}
