//! Kafka's partitioner for columns: murmur2, as in the Java client.

use pyo3::prelude::*;

use crate::buffers::{Damaged, Strings, is_valid, numbers};

const SEED: u32 = 0x9747_b28c;
const M: u32 = 0x5bd1_e995;

/// The hash of a key.
pub fn murmur2(key: &[u8]) -> u32 {
    let (words, rest) = key.as_chunks::<4>();
    // Java's length is an int: a key has at most 2^31 - 1 bytes.
    let mut hash = SEED ^ key.len() as u32;
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k = (k ^ (k >> 24)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |bits, &byte| bits << 8 | u32::from(byte));
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

fn partition_of(key: &[u8], count: u32) -> i32 {
    (murmur2(key) & 0x7fff_ffff).rem_euclid(count) as i32
}

/// The partition of each key; `home` for nulls.
pub fn of_strings(
    keys: &Strings,
    valid: Option<&[u8]>,
    first: usize,
    rows: usize,
    (count, home): (u32, i32),
) -> PyResult<Vec<u8>> {
    let mut found = Vec::with_capacity(rows * 4);
    for row in 0..rows {
        let known = is_valid(valid, first + row)?;
        let partition = if known { partition_of(keys.get(row)?, count) } else { home };
        found.extend_from_slice(&partition.to_le_bytes());
    }
    Ok(found)
}

/// The partition of each number, whose key is its decimal text; `home` for nulls.
pub fn of_integers(
    values: &[u8],
    valid: Option<&[u8]>,
    first: usize,
    rows: usize,
    (count, home): (u32, i32),
) -> PyResult<Vec<u8>> {
    let values = numbers::<8>(values, first, rows)?;
    let mut found = Vec::with_capacity(rows * 4);
    let mut text = itoa::Buffer::new();
    for (row, value) in values.iter().enumerate() {
        let known = is_valid(valid, first + row)?;
        let key = text.format(i64::from_le_bytes(*value)).as_bytes();
        let partition = if known { partition_of(key, count) } else { home };
        found.extend_from_slice(&partition.to_le_bytes());
    }
    Ok(found)
}

/// Partitions with their numbers of rows, none with 0.
pub type Sizes = Vec<(usize, usize)>;

/// The sizes of partitions, ascending, and the rows by partition, in their order.
pub fn split(partitions: &[u8]) -> PyResult<(Sizes, Vec<u8>)> {
    let (chosen, _) = partitions.as_chunks::<4>();
    let at = |partition: &[u8; 4]| usize::try_from(i32::from_le_bytes(*partition));
    let mut sizes: Vec<usize> = Vec::new();
    for partition in chosen {
        let partition = at(partition).map_err(|_| Damaged)?;
        if partition >= sizes.len() {
            sizes.resize(partition + 1, 0);
        }
        sizes[partition] += 1;
    }
    let mut next = Vec::with_capacity(sizes.len());
    let mut begin = 0;
    for size in &sizes {
        next.push(begin);
        begin += size;
    }
    let mut order = vec![[0; 4]; chosen.len()];
    for (row, partition) in chosen.iter().enumerate() {
        let place = &mut next[at(partition).map_err(|_| Damaged)?];
        order[*place] = (row as u32).to_le_bytes();
        *place += 1;
    }
    let found = sizes.into_iter().enumerate().filter(|(_, size)| *size > 0).collect();
    Ok((found, order.into_flattened()))
}
