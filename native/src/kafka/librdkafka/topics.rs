//! Topics to which rows are sent.

use std::ptr;

use super::functions::{Any, functions};
use crate::kafka::Refused;

/// Tags of `rd_kafka_producev`, and a flag: librdkafka copies the row.
mod tag {
    use std::ffi::c_int;
    pub const END: c_int = 0;
    pub const TOPIC: c_int = 2;
    pub const PARTITION: c_int = 3;
    pub const VALUE: c_int = 4;
    pub const KEY: c_int = 5;
    pub const FLAGS: c_int = 7;
    pub const TIME: c_int = 8;
    pub const HEADERS: c_int = 10;
    pub const FLAG_COPY: c_int = 2;
}

/// A topic of a client that is open.
pub struct Topic {
    client: Any,
    topic: Any,
}

impl Drop for Topic {
    fn drop(&mut self) {
        // SAFETY: messages that are queued have references of their own.
        unsafe { (functions().rd_kafka_topic_destroy)(self.topic) };
    }
}

impl Topic {
    /// Of addresses that librdkafka returned.
    pub(super) fn of(client: Any, topic: Any) -> Self {
        Self { client, topic }
    }

    /// Queue a copy of a row, or return librdkafka's code.
    #[inline]
    pub fn send(
        &self,
        partition: i32,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        millis: i64,
        headers: Option<Headers>,
    ) -> Result<(), i32> {
        let start = |bytes: Option<&[u8]>| bytes.map_or(ptr::null(), <[u8]>::as_ptr);
        let size = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        let list = headers.as_ref().map_or(ptr::null_mut(), |headers| headers.0);
        // SAFETY: each tag is followed by what librdkafka reads for it.
        let code = unsafe {
            (functions().rd_kafka_producev)(
                self.client,
                tag::TOPIC,
                self.topic,
                tag::PARTITION,
                partition,
                tag::FLAGS,
                tag::FLAG_COPY,
                tag::KEY,
                start(key),
                size(key),
                tag::VALUE,
                start(value),
                size(value),
                tag::TIME,
                millis,
                tag::HEADERS,
                list,
                tag::END,
            )
        };
        if code != 0 {
            return Err(code);
        }
        std::mem::forget(headers); // they belong to the message
        Ok(())
    }
}

/// Headers of a message that is not sent yet.
pub struct Headers(Any);

impl Drop for Headers {
    fn drop(&mut self) {
        // SAFETY: no message has them.
        unsafe { (functions().rd_kafka_headers_destroy)(self.0) };
    }
}

impl Headers {
    /// An empty list with room for so many.
    pub fn new(count: usize) -> Result<Self, Refused> {
        // SAFETY: it has no condition.
        let list = unsafe { (functions().rd_kafka_headers_new)(count) };
        if list.is_null() { Err(Refused::NoMemory) } else { Ok(Self(list)) }
    }

    /// Add copies of a name and its value.
    pub fn add(&mut self, name: &[u8], value: Option<&[u8]>) -> Result<(), Refused> {
        let add = functions().rd_kafka_header_add;
        let (data, size) = value.map_or((ptr::null(), 0), |one| (one.as_ptr(), one.len()));
        // SAFETY: both are copied; a slice has at most isize::MAX bytes.
        let error = unsafe { add(self.0, name.as_ptr(), name.len() as isize, data, size as isize) };
        if error == 0 { Ok(()) } else { Err(Refused::NoMemory) }
    }
}
