//! Kafka's part as classes of Python. All calls that wait release Python's lock.

use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::Buffer;
use crate::buffers::{Damaged, Offsets, Strings, numbers};
use crate::kafka::columns::{self, BinaryBuffers};
use crate::kafka::librdkafka::{clients, functions, messages};
use crate::kafka::reading::{self, Limits};
use crate::kafka::sending::{self, Column, Lists, Texts, Times};
use crate::kafka::{Refused, reports::Undelivered};
use crate::python::{Bytes, Octets};

impl From<Refused> for PyErr {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NoMemory => PyMemoryError::new_err("no memory"),
            other => PyValueError::new_err(format!("{other:?}")),
        }
    }
}

fn status(result: Result<(), Refused>) -> u8 {
    result.map_or_else(|refused| refused as u8, |()| 0)
}

fn limits(wanted: usize, most: usize, millis: u64) -> Limits {
    Limits { wanted, most, timeout: Duration::from_millis(millis) }
}

fn text(of: &CStr) -> String {
    of.to_string_lossy().into_owned()
}

/// Use the librdkafka of a library, which is loaded already; its version as a number.
#[pyfunction]
fn bind(path: CString) -> PyResult<i32> {
    functions::bind(&path).map_err(PyOSError::new_err)
}

/// Raise OSError if librdkafka does not load this library, a file, as a plug-in.
#[pyfunction]
fn try_plugin(path: CString) -> PyResult<()> {
    functions::try_plugin(&path).map_err(PyOSError::new_err)
}

/// Return the client that this thread created last, once.
#[pyfunction]
fn take_client() -> Option<Client> {
    clients::take_client().map(Client)
}

/// A client of librdkafka. It can be kept longer than that, and then does nothing.
#[pyclass(frozen)]
struct Client(Arc<clients::Client>);

#[pymethods]
impl Client {
    /// Return the queue of a partition, which ends to be forwarded.
    fn partition_queue(&self, topic: CString, partition: i32) -> Option<Queue> {
        self.0.partition_queue(&topic, partition).map(|queue| Queue(Some(queue)))
    }

    /// Return an empty queue, to which partitions can be forwarded.
    fn new_queue(&self) -> Option<Queue> {
        self.0.new_queue().map(|queue| Queue(Some(queue)))
    }

    /// Have the queue of a partition add to another; false if it has none.
    fn forward(&self, topic: CString, partition: i32, queue: &Queue) -> PyResult<bool> {
        Ok(self.0.forward(&topic, partition, queue.get()?))
    }

    /// Send up to `most` rows; a status. See `rows.next` and `rows.error`.
    fn send(
        &self,
        py: Python<'_>,
        topic: CString,
        partition: i32,
        rows: &mut Rows,
        most: usize,
        millis: u64,
    ) -> u8 {
        let mut next = rows.next;
        let timeout = Duration::from_millis(millis);
        let sent = py.detach(|| {
            let (view, to) = (rows.view()?, (topic.as_c_str(), partition));
            sending::send(&self.0, to, &view, &mut next, most, timeout)
        });
        (rows.next, rows.error) = (next, sent.unwrap_or(0));
        status(sent.map(|_| ()))
    }

    /// Forget reports; no message may be waiting for its own.
    fn reset_reports(&self) {
        self.0.reports.reset();
    }

    /// Return how many messages were delivered.
    fn delivered(&self) -> i64 {
        self.0.reports.delivered()
    }

    /// Return code, topic, partition and bytes of the first that was not.
    fn first_failure(&self) -> Option<(i32, String, i32, usize)> {
        let Undelivered { code, topic, partition, size } = self.0.reports.first_failure()?;
        Some((code, text(&topic), partition, size))
    }
}

/// A queue of librdkafka, until it is closed. It is not closed when it is collected.
#[pyclass]
struct Queue(Option<messages::Queue>);

impl Queue {
    fn get(&self) -> PyResult<&messages::Queue> {
        self.0.as_ref().ok_or_else(|| PyValueError::new_err("the queue is closed"))
    }
}

#[pymethods]
impl Queue {
    /// Drop what the queue contains.
    fn purge(&self, py: Python<'_>) -> PyResult<()> {
        let queue = self.get()?;
        py.detach(|| reading::purge(queue));
        Ok(())
    }

    /// Close the queue, once.
    fn close(&mut self, py: Python<'_>) {
        let queue = self.0.take();
        py.detach(|| queue.map(messages::Queue::close));
    }
}

/// Code and text of librdkafka.
type Failure<'a> = (i32, &'a str);
type Part = (Option<Bytes>, Bytes, Bytes);

fn part((valid, ends, data): BinaryBuffers) -> Part {
    (valid.map(Bytes::from), Bytes::from(ends), Bytes::from(data))
}

/// The columns of one partition. For one thread.
#[pyclass]
struct Columns {
    columns: columns::Columns,
    taken: bool,
}

impl From<columns::Columns> for Columns {
    fn from(columns: columns::Columns) -> Self {
        Self { columns, taken: false }
    }
}

type HeaderParts = (usize, Option<Bytes>, Bytes, Part, Part);
type AllParts = (Part, Part, Bytes, (Option<Bytes>, Bytes), Bytes, Option<HeaderParts>);

#[pymethods]
impl Columns {
    #[new]
    fn new(headers: bool) -> PyResult<Self> {
        Ok(columns::Columns::new(headers)?.into())
    }

    /// Add messages of a queue; a status. After one other than 0 only `next_offset`
    /// means something: that of the message which was refused.
    fn fill(
        &mut self,
        py: Python<'_>,
        queue: &Queue,
        wanted: usize,
        most: usize,
        millis: u64,
    ) -> PyResult<u8> {
        let queue = queue.get()?;
        if self.taken {
            return Err(PyValueError::new_err("the rows were taken"));
        }
        let limits = limits(wanted, most, millis);
        Ok(status(py.detach(|| reading::fill(&mut self.columns, queue, &limits))))
    }

    #[getter]
    fn rows(&self) -> usize {
        self.columns.rows
    }

    #[getter]
    fn size(&self) -> usize {
        self.columns.size
    }

    #[getter]
    fn next_offset(&self) -> i64 {
        self.columns.next_offset
    }

    /// Return messages and events, rows, end and error of the last call.
    fn filled(&self) -> (usize, usize, Option<i64>, Option<Failure<'_>>) {
        let columns = &self.columns;
        let error = columns.error.as_ref().map(|(code, text)| (*code, text.as_str()));
        (columns.received, columns.added, columns.end, error)
    }

    /// Return the buffers of keys, values, offsets, times, kinds and headers, once. The
    /// numbers of rows, bytes and the next offset stay.
    fn take(&mut self) -> AllParts {
        self.taken = true;
        let found = self.columns.take();
        let (valid, micros) = found.times;
        let headers = found.headers.map(|one| {
            let names = part(one.names);
            (one.count, one.valid.map(Bytes::from), Bytes::from(one.ends), names, part(one.values))
        });
        let times = (valid.map(Bytes::from), Bytes::from(micros));
        let (keys, values) = (part(found.keys), part(found.values));
        (keys, values, Bytes::from(found.offsets), times, Bytes::from(found.kinds), headers)
    }
}

/// The columns of several partitions. For one thread.
#[pyclass]
struct Parts(reading::Parts);

#[pymethods]
impl Parts {
    #[new]
    fn new(headers: bool) -> Self {
        Self(reading::Parts::new(headers))
    }

    /// Add messages of a queue; a status. After one other than 0 only `failed` means
    /// something.
    fn fill(
        &mut self,
        py: Python<'_>,
        queue: &Queue,
        wanted: usize,
        most: usize,
        millis: u64,
    ) -> PyResult<u8> {
        let queue = queue.get()?;
        let limits = limits(wanted, most, millis);
        Ok(status(py.detach(|| self.0.fill(queue, &limits))))
    }

    #[getter]
    fn rows(&self) -> usize {
        self.0.rows
    }

    #[getter]
    fn size(&self) -> usize {
        self.0.size
    }

    /// The messages and events of the last call.
    #[getter]
    fn received(&self) -> usize {
        self.0.received
    }

    /// Topic, partition, next offset and error of the partition that failed.
    #[getter]
    fn failed(&self) -> Option<(String, i32, i64, Option<Failure<'_>>)> {
        let part = self.0.failed()?;
        let error = part.columns.error.as_ref().map(|(code, text)| (*code, text.as_str()));
        Some((text(&part.topic), part.partition, part.columns.next_offset, error))
    }

    /// Return the ends of partitions that were reached, with topics and partitions.
    fn ends(&self) -> Vec<(String, i32, i64)> {
        let end =
            |part: &reading::Part| Some((text(&part.topic), part.partition, part.columns.end?));
        self.0.parts().iter().filter_map(end).collect()
    }

    /// Return the columns that have rows, with topics and partitions; none are left.
    fn take(&mut self) -> Vec<(String, i32, Columns)> {
        let parts = self.0.take().into_iter().filter(|part| part.columns.rows > 0);
        parts.map(|part| (text(&part.topic), part.partition, part.columns.into())).collect()
    }
}

/// Buffers of a column, and the index of its first row in them.
type Given<'py> = Option<(usize, Vec<Option<Buffer<'py>>>)>;

struct Held {
    first: usize,
    buffers: Vec<Option<Octets>>,
}

impl Held {
    fn of(given: Given) -> PyResult<Option<Self>> {
        let Some((first, buffers)) = given else { return Ok(None) };
        let open = |one: &Option<Buffer>| one.as_ref().map(Octets::of).transpose();
        Ok(Some(Self { first, buffers: buffers.iter().map(open).collect::<PyResult<_>>()? }))
    }

    fn bytes(&self, at: usize) -> Option<&[u8]> {
        self.buffers.get(at).and_then(Option::as_ref).map(Octets::bytes)
    }

    fn column<T>(&self, values: T) -> Column<'_, T> {
        Column { valid: self.bytes(0), first: self.first, values }
    }

    fn offsets(&self) -> &[u8] {
        self.bytes(1).unwrap_or_default()
    }
}

fn texts(held: &Option<Held>, count: usize) -> Result<Texts<'_>, Damaged> {
    let Some(held) = held else { return Ok(None) };
    let data = held.bytes(2).unwrap_or_default();
    Ok(Some(held.column(Strings::new(held.offsets(), data, held.first, count, false)?)))
}

fn times(held: &Option<Held>, count: usize) -> Result<Option<Times<'_>>, Damaged> {
    let Some(held) = held else { return Ok(None) };
    let micros = held.bytes(1).unwrap_or_default();
    Ok(Some(held.column(numbers(micros, held.first, count)?)))
}

/// Messages of one partition. A column is None where all its values are null.
#[pyclass]
struct Rows {
    count: usize,
    keys: Option<Held>,
    values: Option<Held>,
    times: Option<Held>,
    headers: Option<Held>,
    pairs: usize,
    names: Option<Held>,
    header_values: Option<Held>,
    /// The row that is sent next.
    #[pyo3(get)]
    next: usize,
    /// librdkafka's code for refusing that row; 0 without.
    #[pyo3(get)]
    error: i32,
}

impl Rows {
    fn view(&self) -> Result<sending::Rows<'_>, Damaged> {
        let headers = match &self.headers {
            Some(held) => Some(Lists {
                lists: held.column(Offsets::new(held.offsets(), held.first, self.count, false)?),
                pairs: self.pairs,
                names: texts(&self.names, self.pairs)?,
                values: texts(&self.header_values, self.pairs)?,
            }),
            None => None,
        };
        let (keys, values) = (texts(&self.keys, self.count)?, texts(&self.values, self.count)?);
        let times = times(&self.times, self.count)?;
        Ok(sending::Rows { count: self.count, keys, values, times, headers })
    }
}

#[pymethods]
impl Rows {
    /// Columns are the index of their first row and the buffers of the array. `headers`
    /// are lists of `pairs` names and values.
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        count: usize,
        keys: Given,
        values: Given,
        times: Given,
        headers: Given,
        pairs: usize,
        names: Given,
        header_values: Given,
    ) -> PyResult<Self> {
        Ok(Self {
            count,
            keys: Held::of(keys)?,
            values: Held::of(values)?,
            times: Held::of(times)?,
            headers: Held::of(headers)?,
            pairs,
            names: Held::of(names)?,
            header_values: Held::of(header_values)?,
            next: 0,
            error: 0,
        })
    }
}

pub fn module<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyModule>> {
    let module = PyModule::new(py, "kafka")?;
    module.add_class::<Client>()?;
    module.add_class::<Queue>()?;
    module.add_class::<Columns>()?;
    module.add_class::<Parts>()?;
    module.add_class::<Rows>()?;
    module.add_function(wrap_pyfunction!(bind, &module)?)?;
    module.add_function(wrap_pyfunction!(try_plugin, &module)?)?;
    module.add_function(wrap_pyfunction!(take_client, &module)?)?;
    Ok(module)
}
