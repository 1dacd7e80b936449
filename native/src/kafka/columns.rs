//! Columns of one partition, to which messages are added.

use std::mem::take;

use super::Refused;
use super::librdkafka::messages::{Failure, Message};

/// The largest number of bytes or items of a column.
const MOST: usize = i32::MAX as usize;
/// Bytes of a header besides its name and value: the ends of both.
const HEADER_BYTES: usize = 8;
const PARTITION_EOF: i32 = -191;

/// Make room for more items. A failure is an error, not the end of the process.
#[inline]
fn reserve<T>(items: &mut Vec<T>, more: usize) -> Result<(), Refused> {
    if items.capacity() - items.len() >= more { Ok(()) } else { grow(items, more) }
}

#[cold]
fn grow<T>(items: &mut Vec<T>, more: usize) -> Result<(), Refused> {
    let least = 256 / size_of::<T>();
    items.try_reserve(more.max(least)).map_err(|_| Refused::NoMemory)
}

#[inline]
fn push<T>(items: &mut Vec<T>, item: T) -> Result<(), Refused> {
    reserve(items, 1)?;
    items.push(item);
    Ok(())
}

/// How many bytes or items a column has after more of them.
#[inline]
pub fn fitting(used: usize, more: usize) -> Result<usize, Refused> {
    let sum = used.checked_add(more).filter(|&sum| sum <= MOST);
    sum.ok_or(Refused::TooLarge)
}

/// Flags of rows as bits.
#[derive(Default)]
pub struct Bits {
    bytes: Vec<u8>,
    count: usize,
    zeros: usize,
}

impl Bits {
    #[inline]
    fn push(&mut self, bit: bool) -> Result<(), Refused> {
        if self.count.is_multiple_of(8) {
            push(&mut self.bytes, 0)?;
        }
        self.bytes[self.count / 8] |= u8::from(bit) << (self.count % 8);
        self.count += 1;
        self.zeros += usize::from(!bit);
        Ok(())
    }

    /// The bits; None if all are set.
    fn take(&mut self) -> Option<Vec<u8>> {
        let bytes = take(&mut self.bytes);
        (self.zeros > 0).then_some(bytes)
    }
}

/// A column of type binary or string.
pub struct Binary {
    data: Vec<u8>,
    ends: Vec<[u8; 4]>,
    valid: Bits,
}

/// The Arrow buffers of a column: validity, None if all are valid; offsets; data.
pub type BinaryBuffers = (Option<Vec<u8>>, Vec<u8>, Vec<u8>);

impl Binary {
    fn new() -> Result<Self, Refused> {
        let mut made = Self { data: Vec::new(), ends: Vec::new(), valid: Bits::default() };
        push(&mut made.ends, [0; 4])?;
        Ok(made)
    }

    #[inline]
    fn push(&mut self, value: Option<&[u8]>) -> Result<(), Refused> {
        let data = value.unwrap_or_default();
        let end = fitting(self.data.len(), data.len())?;
        self.valid.push(value.is_some())?;
        reserve(&mut self.data, data.len())?;
        self.data.extend_from_slice(data);
        push(&mut self.ends, (end as i32).to_le_bytes())
    }

    fn take(&mut self) -> BinaryBuffers {
        (self.valid.take(), take(&mut self.ends).into_flattened(), take(&mut self.data))
    }
}

/// Lists of names and values.
pub struct Headers {
    count: usize,
    ends: Vec<[u8; 4]>,
    valid: Bits,
    names: Binary,
    values: Binary,
}

pub struct HeaderBuffers {
    /// Of names and values.
    pub count: usize,
    pub valid: Option<Vec<u8>>,
    pub ends: Vec<u8>,
    pub names: BinaryBuffers,
    pub values: BinaryBuffers,
}

impl Headers {
    fn new() -> Result<Self, Refused> {
        let (names, values) = (Binary::new()?, Binary::new()?);
        let mut made = Self { count: 0, ends: Vec::new(), valid: Bits::default(), names, values };
        push(&mut made.ends, [0; 4])?;
        Ok(made)
    }

    fn push(&mut self, message: &Message) -> Result<(), Refused> {
        let before = self.count;
        for (name, value) in message.headers() {
            let name = name.to_str().map_err(|_| Refused::BadHeader)?;
            let count = fitting(self.count, 1)?;
            self.names.push(Some(name.as_bytes()))?;
            self.values.push(value?)?;
            self.count = count;
        }
        push(&mut self.ends, (self.count as i32).to_le_bytes())?;
        self.valid.push(self.count > before)
    }

    fn size(&self) -> usize {
        self.names.data.len() + self.values.data.len() + HEADER_BYTES * self.count
    }
}

/// Columns of one batch, and what the last call of `fill` found.
pub struct Columns {
    pub rows: usize,
    /// Bytes of keys, values and headers.
    pub size: usize,
    /// After the last row; that of a message that was refused.
    pub next_offset: i64,
    /// By the last call: messages and events.
    pub received: usize,
    /// By the last call: rows.
    pub added: usize,
    /// By the last call: the end of the partition, if it was reached.
    pub end: Option<i64>,
    /// By the last call: librdkafka's code and text.
    pub error: Option<(i32, String)>,
    keys: Binary,
    values: Binary,
    offsets: Vec<[u8; 8]>,
    micros: Vec<[u8; 8]>,
    timed: Bits,
    kinds: Vec<[u8; 4]>,
    headers: Option<Headers>,
}

pub struct Buffers {
    pub keys: BinaryBuffers,
    pub values: BinaryBuffers,
    pub offsets: Vec<u8>,
    /// Validity and microseconds.
    pub times: (Option<Vec<u8>>, Vec<u8>),
    pub kinds: Vec<u8>,
    /// None if no row has any.
    pub headers: Option<HeaderBuffers>,
}

impl Columns {
    /// Without rows; headers are collected where they are wanted.
    pub fn new(headers: bool) -> Result<Self, Refused> {
        Ok(Self {
            rows: 0,
            size: 0,
            next_offset: 0,
            received: 0,
            added: 0,
            end: None,
            error: None,
            keys: Binary::new()?,
            values: Binary::new()?,
            offsets: Vec::new(),
            micros: Vec::new(),
            timed: Bits::default(),
            kinds: Vec::new(),
            headers: headers.then(Headers::new).transpose()?,
        })
    }

    /// Add a row. After an error the columns can only be dropped.
    pub fn add(&mut self, message: &Message) -> Result<(), Refused> {
        let (millis, kind) = message.time();
        // The product wraps around like NumPy's: a timestamp is any number.
        let micros = if kind == 0 { 0 } else { millis.wrapping_mul(1000) };
        self.next_offset = message.offset();
        self.keys.push(message.key()?)?;
        self.values.push(message.value()?)?;
        let mut size = self.keys.data.len() + self.values.data.len();
        if let Some(headers) = &mut self.headers {
            headers.push(message)?;
            size += headers.size();
        }
        push(&mut self.offsets, message.offset().to_le_bytes())?;
        push(&mut self.micros, micros.to_le_bytes())?;
        self.timed.push(kind != 0)?;
        push(&mut self.kinds, (kind - 1).to_le_bytes())?;
        self.size = size;
        self.next_offset = message.offset().wrapping_add(1);
        self.rows += 1;
        self.added += 1;
        Ok(())
    }

    /// Note the end of the partition or an error; true for an error.
    pub fn note(&mut self, failure: Failure) -> bool {
        if failure.code == PARTITION_EOF {
            self.end = failure.place.map(|(_, _, offset)| offset).or(self.end);
            return false;
        }
        if failure.code != 0 {
            self.error = Some((failure.code, failure.text));
        }
        self.error.is_some()
    }

    /// All rows; the columns have none afterwards.
    pub fn take(&mut self) -> Buffers {
        let headers = self.headers.take().filter(|headers| headers.count > 0);
        Buffers {
            keys: self.keys.take(),
            values: self.values.take(),
            offsets: take(&mut self.offsets).into_flattened(),
            times: (self.timed.take(), take(&mut self.micros).into_flattened()),
            kinds: take(&mut self.kinds).into_flattened(),
            headers: headers.map(|mut headers| HeaderBuffers {
                count: headers.count,
                valid: headers.valid.take(),
                ends: headers.ends.into_flattened(),
                names: headers.names.take(),
                values: headers.values.take(),
            }),
        }
    }
}
