//! Columns that grow, and their Arrow buffers.

use crate::buffers::bitmap;
use crate::python::Bytes;

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

    fn validity(&self) -> Option<Bytes> {
        if self.nulls.is_empty() {
            return None;
        }
        let mut valid = vec![true; self.items.len()];
        self.nulls.iter().for_each(|&at| valid[at] = false);
        Some(Bytes::from(bitmap(&valid)))
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
    Int64(Values<[u8; 8]>),
    Double(Values<[u8; 8]>),
    String(Texts),
}

/// Validity as a bitmap, None where all are valid, and the buffers of the values.
pub type Parts = (Option<Bytes>, Vec<Bytes>);

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

    /// The buffers; nothing is copied but offsets of texts.
    pub fn into_parts(self) -> Parts {
        match self {
            Self::Bool(values) => (values.validity(), vec![Bytes::from(bitmap(&values.items))]),
            Self::Int64(values) | Self::Double(values) => {
                (values.validity(), vec![Bytes::from(values.items.into_flattened())])
            }
            Self::String(texts) => {
                let ends = std::iter::once(&0).chain(&texts.ends.items);
                let ends: Vec<[u8; 4]> = ends.map(|end: &i32| end.to_le_bytes()).collect();
                let buffers = vec![Bytes::from(ends.into_flattened()), Bytes::from(texts.bytes)];
                (texts.ends.validity(), buffers)
            }
        }
    }
}
