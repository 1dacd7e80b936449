//! Rows of Arrow buffers to a producer.

use std::ffi::CStr;
use std::time::{Duration, Instant};

use super::Refused;
use super::librdkafka::clients::Client;
use super::librdkafka::topics::{Headers, Topic};
use crate::buffers::{Damaged, Offsets, Strings, is_valid};

const QUEUE_FULL: i32 = -184;
const PAUSE: Duration = Duration::from_millis(1);

impl From<Damaged> for Refused {
    fn from(_: Damaged) -> Self {
        Self::BadRows
    }
}

/// A column with values of some of the rows.
pub struct Column<'a, T> {
    pub valid: Option<&'a [u8]>,
    /// Index of the first row in the bits of `valid`.
    pub first: usize,
    pub values: T,
}

impl<T> Column<'_, T> {
    fn has(&self, row: usize) -> Result<bool, Damaged> {
        is_valid(self.valid, self.first + row)
    }
}

pub type Texts<'a> = Option<Column<'a, Strings<'a>>>;
/// Microseconds.
pub type Times<'a> = Column<'a, &'a [[u8; 8]]>;

/// Messages of one partition. Columns are None where all their values are null.
pub struct Rows<'a> {
    pub count: usize,
    pub keys: Texts<'a>,
    pub values: Texts<'a>,
    pub times: Option<Times<'a>>,
    pub headers: Option<Lists<'a>>,
}

/// Lists of names and values.
pub struct Lists<'a> {
    pub lists: Column<'a, Offsets<'a>>,
    /// Number of names and values.
    pub pairs: usize,
    pub names: Texts<'a>,
    pub values: Texts<'a>,
}

#[inline]
fn value<'a>(column: &Texts<'a>, row: usize) -> Result<Option<&'a [u8]>, Refused> {
    match column {
        Some(column) if column.has(row)? => Ok(Some(column.values.get(row)?)),
        _ => Ok(None),
    }
}

impl Rows<'_> {
    /// Milliseconds, rounded down; 0 for null, for which librdkafka sets the time.
    fn millis(&self, row: usize) -> Result<i64, Refused> {
        match &self.times {
            Some(times) if times.has(row)? => {
                let micros = times.values.get(row).ok_or(Damaged)?;
                Ok(i64::from_le_bytes(*micros).div_euclid(1000))
            }
            _ => Ok(0),
        }
    }

    fn headers(&self, row: usize) -> Result<Option<Headers>, Refused> {
        let Some(all) = &self.headers else { return Ok(None) };
        if !all.lists.has(row)? {
            return Ok(None);
        }
        let range = all.lists.values.range(row);
        if range.start > range.end || range.end > all.pairs {
            return Err(Refused::BadRows);
        }
        if range.is_empty() {
            return Ok(None);
        }
        let mut headers = Headers::new(range.len())?;
        for pair in range {
            let name = value(&all.names, pair)?.ok_or(Refused::BadRows)?;
            headers.add(name, value(&all.values, pair)?)?;
        }
        Ok(Some(headers))
    }

    /// Send one row; librdkafka's code if it is not sent.
    fn send(&self, row: usize, topic: &Topic, partition: i32) -> Result<i32, Refused> {
        let (key, content) = (value(&self.keys, row)?, value(&self.values, row)?);
        let (millis, headers) = (self.millis(row)?, self.headers(row)?);
        Ok(topic.send(partition, key, content, millis, headers).err().unwrap_or(0))
    }
}

/// Send up to `most` rows from row `next` on. While librdkafka's queue is full, wait for
/// room until the timeout. Returns librdkafka's code for a row that is refused, or 0;
/// `next` is then that row, or the one after the last that was sent.
pub fn send(
    client: &Client,
    (topic, partition): (&CStr, i32),
    rows: &Rows,
    next: &mut usize,
    most: usize,
    timeout: Duration,
) -> Result<i32, Refused> {
    let until = Instant::now() + timeout;
    let end = next.saturating_add(most).min(rows.count);
    let topic = match client.topic(topic) {
        Ok(topic) => topic,
        Err(code) => return Ok(code),
    };
    while *next < end {
        match rows.send(*next, &topic, partition)? {
            0 => *next += 1,
            QUEUE_FULL if Instant::now() >= until => break,
            QUEUE_FULL => std::thread::sleep(PAUSE),
            code => return Ok(code),
        }
    }
    Ok(0)
}
