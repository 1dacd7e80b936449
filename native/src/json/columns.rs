//! Columns that grow, and their Arrow buffers.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffers::bitmap;

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Bool,
    Int64,
    Double,
    String,
}

/// Values, and which of them are null.
pub struct Values<T> {
    items: Vec<T>,
    nulls: Vec<usize>,
}

impl<T: Copy + Default> Values<T> {
    fn new(rows: usize) -> Self {
        Self { items: Vec::with_capacity(rows), nulls: Vec::new() }
    }

    #[inline]
    pub fn push(&mut self, value: T) {
        self.items.push(value);
    }

    fn push_null(&mut self) {
        self.nulls.push(self.items.len());
        self.items.push(T::default());
    }

    fn truncate(&mut self, rows: usize) {
        self.items.truncate(rows);
        while self.nulls.last().is_some_and(|&at| at >= rows) {
            self.nulls.pop();
        }
    }

    fn validity<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        if self.nulls.is_empty() {
            return None;
        }
        let mut valid = vec![true; self.items.len()];
        self.nulls.iter().for_each(|&at| valid[at] = false);
        Some(PyBytes::new(py, &bitmap(&valid)))
    }
}

/// Texts, by where they end.
pub struct Texts {
    ends: Values<i32>,
    bytes: Vec<u8>,
}

impl Texts {
    /// None if the column has more than 2 GiB.
    #[inline]
    pub fn push(&mut self, text: &[u8]) -> Option<()> {
        let end = i32::try_from(self.bytes.len() + text.len()).ok()?;
        self.bytes.extend_from_slice(text);
        self.ends.push(end);
        Some(())
    }

    fn end(&self) -> i32 {
        self.ends.items.last().copied().unwrap_or(0)
    }

    fn push_null(&mut self) {
        let end = self.end();
        self.ends.push_null();
        *self.ends.items.last_mut().expect("the null") = end;
    }

    fn truncate(&mut self, rows: usize) {
        self.ends.truncate(rows);
        self.bytes.truncate(self.end() as usize);
    }
}

/// A column that grows.
pub enum Column {
    Bool(Values<bool>),
    Int64(Values<i64>),
    Double(Values<f64>),
    String(Texts),
}

/// Validity as a bitmap, None where all are valid, and the buffers of the values.
pub type Parts<'py> = (Option<Bound<'py, PyBytes>>, Vec<Bound<'py, PyBytes>>);

impl Column {
    pub fn new(kind: Kind, rows: usize) -> Self {
        match kind {
            Kind::Bool => Self::Bool(Values::new(rows)),
            Kind::Int64 => Self::Int64(Values::new(rows)),
            Kind::Double => Self::Double(Values::new(rows)),
            Kind::String => Self::String(Texts { ends: Values::new(rows), bytes: Vec::new() }),
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Bool(values) => values.items.len(),
            Self::Int64(values) => values.items.len(),
            Self::Double(values) => values.items.len(),
            Self::String(texts) => texts.ends.items.len(),
        }
    }

    pub fn push_null(&mut self) {
        match self {
            Self::Bool(values) => values.push_null(),
            Self::Int64(values) => values.push_null(),
            Self::Double(values) => values.push_null(),
            Self::String(texts) => texts.push_null(),
        }
    }

    pub fn truncate(&mut self, rows: usize) {
        match self {
            Self::Bool(values) => values.truncate(rows),
            Self::Int64(values) => values.truncate(rows),
            Self::Double(values) => values.truncate(rows),
            Self::String(texts) => texts.truncate(rows),
        }
    }

    pub fn parts<'py>(&self, py: Python<'py>) -> PyResult<Parts<'py>> {
        Ok(match self {
            Self::Bool(values) => {
                (values.validity(py), vec![PyBytes::new(py, &bitmap(&values.items))])
            }
            Self::Int64(values) => (
                values.validity(py),
                vec![numbers(py, &[], &values.items, |one| one.to_le_bytes())?],
            ),
            Self::Double(values) => (
                values.validity(py),
                vec![numbers(py, &[], &values.items, |one| one.to_le_bytes())?],
            ),
            Self::String(texts) => {
                let ends = numbers(py, &[0], &texts.ends.items, |one| one.to_le_bytes())?;
                (texts.ends.validity(py), vec![ends, PyBytes::new(py, &texts.bytes)])
            }
        })
    }
}

/// The bytes of numbers, one part after the other.
fn numbers<'py, T: Copy, const N: usize>(
    py: Python<'py>,
    first: &[T],
    rest: &[T],
    bytes: impl Fn(T) -> [u8; N],
) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, (first.len() + rest.len()) * N, |buffer| {
        let places = buffer.as_chunks_mut::<N>().0;
        let (head, tail) = places.split_at_mut(first.len());
        head.iter_mut().zip(first).for_each(|(place, &one)| *place = bytes(one));
        tail.iter_mut().zip(rest).for_each(|(place, &one)| *place = bytes(one));
        Ok(())
    })
}
