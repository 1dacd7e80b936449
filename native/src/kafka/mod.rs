//! Messages of librdkafka from and into Arrow buffers; nothing of Python.

pub mod columns;
pub mod librdkafka;
pub mod reading;
pub mod reports;
pub mod sending;

/// Why messages are not read or rows not sent; the numbers are those of Python's side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Refused {
    NoMemory = 1,
    /// A column would exceed 2^31-1 bytes.
    TooLarge = 2,
    /// The name of a header is not UTF-8.
    BadHeader = 3,
    /// Rows have offsets outside of their data.
    BadRows = 4,
}
