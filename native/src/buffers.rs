//! Arrow buffers as slices: everything is checked, whatever their owner promises.

use std::ops::Range;

/// The buffers of an array do not fit its length.
#[derive(Clone, Copy, Debug)]
pub struct Damaged;

/// Numbers of `N` bytes each: `count` from the one at `first`.
pub fn numbers<const N: usize>(
    bytes: &[u8],
    first: usize,
    count: usize,
) -> Result<&[[u8; N]], Damaged> {
    let end = first.checked_add(count).ok_or(Damaged)?;
    bytes.as_chunks::<N>().0.get(first..end).ok_or(Damaged)
}

/// Where values begin and end: offsets of 32 or 64 bits.
pub struct Offsets<'a> {
    bytes: &'a [u8],
    first: usize,
    wide: bool,
}

impl<'a> Offsets<'a> {
    /// Of `count` values from the one at `first`.
    pub fn new(bytes: &'a [u8], first: usize, count: usize, wide: bool) -> Result<Self, Damaged> {
        let last = first.checked_add(count).ok_or(Damaged)?;
        let size = if wide { 8 } else { 4 };
        if count > 0 && bytes.len() / size <= last {
            return Err(Damaged);
        }
        Ok(Self { bytes, first, wide })
    }

    #[inline]
    fn at(&self, at: usize) -> usize {
        let at = self.first + at;
        if self.wide {
            i64::from_le_bytes(self.bytes.as_chunks::<8>().0[at]) as usize
        } else {
            i32::from_le_bytes(self.bytes.as_chunks::<4>().0[at]) as usize
        }
    }

    /// Of a value; negative offsets are very large, and the range may be reversed.
    #[inline]
    pub fn range(&self, at: usize) -> Range<usize> {
        self.at(at)..self.at(at + 1)
    }
}

/// Byte strings: offsets and data.
pub struct Strings<'a> {
    offsets: Offsets<'a>,
    data: &'a [u8],
}

impl<'a> Strings<'a> {
    /// `count` strings from the one at `first`.
    pub fn new(
        offsets: &'a [u8],
        data: &'a [u8],
        first: usize,
        count: usize,
        wide: bool,
    ) -> Result<Self, Damaged> {
        Ok(Self { offsets: Offsets::new(offsets, first, count, wide)?, data })
    }

    #[inline]
    pub fn get(&self, at: usize) -> Result<&'a [u8], Damaged> {
        self.data.get(self.offsets.range(at)).ok_or(Damaged)
    }
}

pub fn is_valid(bitmap: Option<&[u8]>, at: usize) -> Result<bool, Damaged> {
    match bitmap {
        None => Ok(true),
        Some(bits) => Ok(bits.get(at / 8).ok_or(Damaged)? >> (at % 8) & 1 == 1),
    }
}

/// Flags as a bitmap.
pub fn bitmap(flags: &[bool]) -> Vec<u8> {
    let byte = |some: &[bool]| some.iter().rev().fold(0, |bits, &flag| bits << 1 | u8::from(flag));
    flags.chunks(8).map(byte).collect()
}
