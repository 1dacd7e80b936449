//! Queues of librdkafka into columns: of one partition, or of several.

use std::ffi::{CStr, CString};
use std::time::{Duration, Instant};

use super::Refused;
use super::columns::Columns;
use super::librdkafka::messages::{Event, Failure, Message, Queue};

/// Bytes from which a batch takes no more messages, whatever it is asked for. Below it, a
/// message of up to 1 GiB fits: columns stay below 2^31.
const MOST_BYTES: usize = 1 << 30;

/// How much a call reads, and for how long it waits.
pub struct Limits {
    /// Messages and events.
    pub wanted: usize,
    /// Bytes from which on no message is added; what follows stays in the queue.
    pub most: usize,
    pub timeout: Duration,
}

impl Limits {
    fn reached(&self, received: usize, size: usize) -> bool {
        received >= self.wanted || size >= self.most.min(MOST_BYTES)
    }
}

/// The next event; None if there is none until a time.
fn next(queue: &Queue, until: Instant) -> Option<Event> {
    queue.poll(0).or_else(|| {
        let left = until.saturating_duration_since(Instant::now()).as_millis();
        let left = i32::try_from(left).unwrap_or(i32::MAX);
        if left > 0 { queue.poll(left) } else { None }
    })
}

/// Drop what the queue contains.
pub fn purge(queue: &Queue) {
    while queue.poll(0).is_some() {}
}

/// Add messages, and wait for all of them until the timeout. Stops at an error of
/// librdkafka. After `Refused` the columns can only be dropped.
pub fn fill(columns: &mut Columns, queue: &Queue, limits: &Limits) -> Result<(), Refused> {
    let until = Instant::now() + limits.timeout;
    (columns.received, columns.added) = (0, 0);
    (columns.end, columns.error) = (None, None);
    while !limits.reached(columns.received, columns.size) {
        let Some(mut event) = next(queue, until) else { break };
        columns.received += 1;
        if let Some(message) = event.message() {
            columns.add(&message)?;
        } else if event.failure().is_some_and(|failure| columns.note(failure)) {
            break;
        }
    }
    Ok(())
}

/// The columns of one partition.
pub struct Part {
    pub columns: Columns,
    /// Empty if it is that of an error that names no partition.
    pub topic: CString,
    /// -1 as above.
    pub partition: i32,
}

/// One batch of each partition of which messages were polled.
#[derive(Default)]
pub struct Parts {
    headers: bool,
    parts: Vec<Part>,
    /// Index of the part of the last message.
    last: usize,
    /// Of all parts.
    pub rows: usize,
    /// Bytes of keys, values and headers of all parts.
    pub size: usize,
    /// By the last call: messages and events.
    pub received: usize,
    /// By the last call: index of the part with an error, or whose message was refused.
    failed: Option<usize>,
}

impl Parts {
    pub fn new(headers: bool) -> Self {
        Self { headers, ..Self::default() }
    }

    /// Add messages, each to the columns of its partition; otherwise like `fill`.
    pub fn fill(&mut self, queue: &Queue, limits: &Limits) -> Result<(), Refused> {
        let until = Instant::now() + limits.timeout;
        (self.received, self.failed) = (0, None);
        while self.failed.is_none() && !limits.reached(self.received, self.size) {
            let Some(mut event) = next(queue, until) else { break };
            self.received += 1;
            if let Some(message) = event.message() {
                self.add(&message)?;
            } else if let Some(failure) = event.failure() {
                self.note(failure)?;
            }
        }
        Ok(())
    }

    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub fn failed(&self) -> Option<&Part> {
        self.parts.get(self.failed?)
    }

    /// All parts; none are left.
    pub fn take(&mut self) -> Vec<Part> {
        std::mem::replace(self, Self::new(self.headers)).parts
    }

    fn add(&mut self, message: &Message) -> Result<(), Refused> {
        let columns = self.part(message.topic(), message.partition())?;
        let before = columns.size;
        let added = columns.add(message).map(|()| columns.size - before);
        if added.is_err() {
            self.failed = Some(self.last);
        }
        self.size += added?;
        self.rows += 1;
        Ok(())
    }

    fn note(&mut self, failure: Failure) -> Result<(), Refused> {
        let columns = match &failure.place {
            Some((topic, partition, _)) => self.part(topic, *partition)?,
            None => self.part(c"", -1)?,
        };
        if columns.note(failure) {
            self.failed = Some(self.last);
        }
        Ok(())
    }

    /// The columns of a partition. Messages of one partition follow each other in runs.
    fn part(&mut self, topic: &CStr, partition: i32) -> Result<&mut Columns, Refused> {
        let is_it = |part: &Part| part.partition == partition && part.topic.as_c_str() == topic;
        if !self.parts.get(self.last).is_some_and(is_it) {
            self.last = match self.parts.iter().position(is_it) {
                Some(index) => index,
                None => self.add_part(topic, partition)?,
            };
        }
        Ok(&mut self.parts[self.last].columns)
    }

    fn add_part(&mut self, topic: &CStr, partition: i32) -> Result<usize, Refused> {
        self.parts.try_reserve(1).map_err(|_| Refused::NoMemory)?;
        let columns = Columns::new(self.headers)?;
        self.parts.push(Part { columns, topic: topic.to_owned(), partition });
        Ok(self.parts.len() - 1)
    }
}
