//! What became of the messages of a producer. Written by librdkafka's threads.

use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const PURGED_FROM_QUEUE: i32 = -152;

/// A message that was not delivered.
#[derive(Clone)]
pub struct Undelivered {
    /// librdkafka's.
    pub code: i32,
    pub topic: CString,
    pub partition: i32,
    /// Bytes of the value.
    pub size: usize,
}

#[derive(Default)]
pub struct Reports {
    delivered: AtomicI64,
    first: Mutex<Option<Undelivered>>,
}

impl Reports {
    /// Count a report; of the first failure its topic, partition and size are kept.
    pub fn add<'a>(&self, code: i32, message: impl FnOnce() -> (&'a CStr, i32, usize)) {
        if code == 0 {
            self.delivered.fetch_add(1, Ordering::Relaxed);
        } else if code != PURGED_FROM_QUEUE {
            self.first().get_or_insert_with(|| {
                let (topic, partition, size) = message();
                Undelivered { code, topic: topic.to_owned(), partition, size }
            });
        }
    }

    /// Forget all; no message may be waiting for its report.
    pub fn reset(&self) {
        self.delivered.store(0, Ordering::SeqCst);
        *self.first() = None;
    }

    pub fn delivered(&self) -> i64 {
        self.delivered.load(Ordering::SeqCst)
    }

    pub fn first_failure(&self) -> Option<Undelivered> {
        self.first().clone()
    }

    fn first(&self) -> MutexGuard<'_, Option<Undelivered>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
