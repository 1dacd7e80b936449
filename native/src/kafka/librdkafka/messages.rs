//! Queues, and what is polled from them.

use std::ffi::{CStr, CString, c_int};
use std::marker::PhantomData;
use std::{ptr, slice};

use super::clients::topic_of;
use super::functions::{Any, RawMessage, functions};
use crate::kafka::Refused;

const EVENT_ERROR: c_int = 8;

/// A handle of a queue. It is closed by `close` alone: a process that was forked drops
/// those of its parent, whose locks nobody releases.
pub struct Queue(Any);

// SAFETY: librdkafka's functions for queues are thread-safe.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    /// Of an address that librdkafka returned; None for NULL.
    pub(super) fn of(queue: Any) -> Option<Self> {
        (!queue.is_null()).then_some(Self(queue))
    }

    pub(super) fn handle(&self) -> Any {
        self.0
    }

    /// The next event; waits for it for so many milliseconds.
    #[inline]
    pub fn poll(&self, timeout: i32) -> Option<Event> {
        // SAFETY: the queue is open.
        let event = unsafe { (functions().rd_kafka_queue_poll)(self.0, timeout) };
        (!event.is_null()).then(|| Event(event))
    }

    pub fn close(self) {
        // SAFETY: the handle is not used again.
        unsafe { (functions().rd_kafka_queue_destroy)(self.0) };
    }
}

/// Something polled: a message, an error or the end of a partition.
pub struct Event(Any);

impl Drop for Event {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: what was borrowed from the event is not used any more.
        unsafe { (functions().rd_kafka_event_destroy)(self.0) };
    }
}

/// An error or the end of a partition.
pub struct Failure {
    pub code: i32,
    pub text: String,
    /// Topic, partition and offset, where it names them.
    pub place: Option<(CString, i32, i64)>,
}

impl Event {
    /// The message of the event: an event of a consumer has one, or none.
    #[inline]
    pub fn message(&mut self) -> Option<Message<'_>> {
        // SAFETY: the message lives as long as the event.
        unsafe { (functions().rd_kafka_event_message_next)(self.0).as_ref().map(Message) }
    }

    pub fn failure(&self) -> Option<Failure> {
        let f = functions();
        // SAFETY: the text lives as long as the event, the place until it is destroyed.
        unsafe {
            if (f.rd_kafka_event_type)(self.0) != EVENT_ERROR {
                return None;
            }
            let text = (f.rd_kafka_event_error_string)(self.0);
            let text = if text.is_null() { c"" } else { CStr::from_ptr(text) };
            let place = (f.rd_kafka_event_topic_partition)(self.0);
            let named = place
                .as_ref()
                .map(|one| (CStr::from_ptr(one.topic).to_owned(), one.partition, one.offset));
            if !place.is_null() {
                (f.rd_kafka_topic_partition_destroy)(place);
            }
            let code = (f.rd_kafka_event_error)(self.0);
            Some(Failure { code, text: text.to_string_lossy().into_owned(), place: named })
        }
    }
}

/// A message that was polled.
pub struct Message<'a>(&'a RawMessage);

impl<'a> Message<'a> {
    pub fn topic(&self) -> &'a CStr {
        topic_of(self.0)
    }

    pub fn partition(&self) -> i32 {
        self.0.partition
    }

    pub fn offset(&self) -> i64 {
        self.0.offset
    }

    pub fn key(&self) -> Result<Option<&'a [u8]>, Refused> {
        // SAFETY: the key lives as long as the event.
        unsafe { bytes(self.0.key, self.0.key_len) }
    }

    pub fn value(&self) -> Result<Option<&'a [u8]>, Refused> {
        // SAFETY: the value lives as long as the event.
        unsafe { bytes(self.0.payload, self.0.len) }
    }

    /// Milliseconds, and their kind; 0 if there are none.
    #[inline]
    pub fn time(&self) -> (i64, i32) {
        let mut kind = 0;
        // SAFETY: the message is librdkafka's.
        let millis = unsafe { (functions().rd_kafka_message_timestamp)(self.0, &mut kind) };
        (millis, kind)
    }

    pub fn headers(&self) -> MessageHeaders<'a> {
        let mut list = ptr::null_mut();
        // SAFETY: the message is librdkafka's, and has the list as long as it lives.
        let error = unsafe { (functions().rd_kafka_message_headers)(self.0, &mut list) };
        let list = if error == 0 { list } else { ptr::null_mut() };
        MessageHeaders { list, next: 0, message: PhantomData }
    }
}

/// Names and values, in their order.
pub struct MessageHeaders<'a> {
    list: Any,
    next: usize,
    message: PhantomData<&'a RawMessage>,
}

impl<'a> Iterator for MessageHeaders<'a> {
    type Item = (&'a CStr, Result<Option<&'a [u8]>, Refused>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.list.is_null() {
            return None;
        }
        let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
        let get = functions().rd_kafka_header_get_all;
        // SAFETY: name and value live as long as the message.
        unsafe {
            if get(self.list, self.next, &mut name, &mut value, &mut size) != 0 {
                return None;
            }
            self.next += 1;
            Some((CStr::from_ptr(name), bytes(value, size)))
        }
    }
}

/// Bytes of librdkafka's; None for null.
///
/// # Safety
/// `size` bytes can be read at `data` as long as 'a, if they are less than 2 GiB.
#[inline]
unsafe fn bytes<'a>(data: *const u8, size: usize) -> Result<Option<&'a [u8]>, Refused> {
    if data.is_null() {
        return Ok(None);
    }
    if size > i32::MAX as usize {
        return Err(Refused::TooLarge);
    }
    // SAFETY: the caller's.
    Ok(Some(unsafe { slice::from_raw_parts(data, size) }))
}
