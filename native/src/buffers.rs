//! Arrow buffers as slices, and slices as Arrow buffers.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A buffer of Python's, which stays alive with it.
pub struct Octets(PyBuffer<i8>);

impl Octets {
    /// The bytes of a `pyarrow.Buffer`.
    pub fn of(buffer: &Bound<'_, PyAny>) -> PyResult<Self> {
        let found = PyBuffer::<i8>::get(buffer)?;
        if !found.is_c_contiguous() {
            return Err(PyValueError::new_err("a buffer with gaps"));
        }
        Ok(Self(found))
    }

    #[allow(unsafe_code)]
    pub fn bytes(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: the exporter keeps the memory while `self.0` lives, every byte is a
        // valid u8, and Arrow's buffers are not changed once they are in an array.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}

pub fn damaged() -> PyErr {
    PyValueError::new_err("the buffers of an array do not fit its length")
}

/// Numbers of `N` bytes each: `count` from the one at `first`.
pub fn numbers<const N: usize>(bytes: &[u8], first: usize, count: usize) -> PyResult<&[[u8; N]]> {
    let end = first.checked_add(count).ok_or_else(damaged)?;
    bytes.as_chunks::<N>().0.get(first..end).ok_or_else(damaged)
}

/// Byte strings: offsets of 32 or 64 bits, and data.
pub struct Strings<'a> {
    offsets: &'a [u8],
    data: &'a [u8],
    first: usize,
    wide: bool,
}

impl<'a> Strings<'a> {
    /// `count` strings from the one at `first`.
    pub fn new(
        offsets: &'a [u8],
        data: &'a [u8],
        first: usize,
        count: usize,
        wide: bool,
    ) -> PyResult<Self> {
        let last = first.checked_add(count).ok_or_else(damaged)?;
        let size = if wide { 8 } else { 4 };
        if count > 0 && offsets.len() / size <= last {
            return Err(damaged());
        }
        Ok(Self { offsets, data, first, wide })
    }

    fn offset(&self, at: usize) -> usize {
        let at = self.first + at;
        if self.wide {
            i64::from_le_bytes(self.offsets.as_chunks::<8>().0[at]) as usize
        } else {
            i32::from_le_bytes(self.offsets.as_chunks::<4>().0[at]) as usize
        }
    }

    pub fn get(&self, at: usize) -> PyResult<&'a [u8]> {
        self.data.get(self.offset(at)..self.offset(at + 1)).ok_or_else(damaged)
    }
}

pub fn is_valid(bitmap: Option<&[u8]>, at: usize) -> PyResult<bool> {
    match bitmap {
        None => Ok(true),
        Some(bits) => Ok(bits.get(at / 8).ok_or_else(damaged)? >> (at % 8) & 1 == 1),
    }
}

/// Flags as a bitmap.
pub fn bitmap(flags: &[bool]) -> Vec<u8> {
    let byte = |some: &[bool]| some.iter().rev().fold(0, |bits, &flag| bits << 1 | u8::from(flag));
    flags.chunks(8).map(byte).collect()
}
