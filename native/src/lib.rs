//! The compiled core of streamfactory: what Python would do for each message.
//!
//! Arrays come as the buffers of `pyarrow`, and answers are [`Bytes`], which `pyarrow`
//! takes as buffers. Everything runs without Python's lock. Buffers that do not fit
//! are a `ValueError`: nothing is read outside of them.

mod buffers;
mod json;
mod kafka;
mod kafka_classes;
mod python;
mod routing;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use buffers::Strings;
use json::columns::{Column, Parts};
use python::{Bytes, Octets};

/// The interface that the Python side expects; raised with each change.
const LEVEL: u32 = 2;

type Buffer<'py> = Bound<'py, PyAny>;

/// Return the partition of each key as int32.
///
/// `kind` is `"int64"`, `"binary"` or `"large_binary"`, `buffers` those of the array.
#[pyfunction]
fn partitions<'py>(
    py: Python<'py>,
    kind: &str,
    buffers: Vec<Option<Buffer<'py>>>,
    first: usize,
    rows: usize,
    count: u32,
    home: i32,
) -> PyResult<Bytes> {
    if count == 0 {
        return Err(PyValueError::new_err("no partitions"));
    }
    let opened: Vec<Option<Octets>> = buffers
        .iter()
        .map(|one| one.as_ref().map(Octets::of).transpose())
        .collect::<PyResult<_>>()?;
    let bytes = |at: usize| opened.get(at).and_then(Option::as_ref).map(Octets::bytes);
    let (valid, values, data) = (bytes(0), bytes(1).unwrap_or(&[]), bytes(2).unwrap_or(&[]));
    let found = py.detach(|| match kind {
        "int64" => routing::of_integers(values, valid, first, rows, (count, home)),
        _ => {
            let keys = Strings::new(values, data, first, rows, kind == "large_binary")?;
            routing::of_strings(&keys, valid, first, rows, (count, home))
        }
    })?;
    Ok(Bytes::from(found))
}

/// Return partitions with their numbers of rows, and the rows by partition as uint32.
#[pyfunction]
fn split<'py>(py: Python<'py>, partitions: &Buffer<'py>) -> PyResult<(routing::Sizes, Bytes)> {
    let given = Octets::of(partitions)?;
    let bytes = given.bytes();
    let (sizes, order) = py.detach(|| routing::split(bytes))?;
    Ok((sizes, Bytes::from(order)))
}

/// Parses objects of JSON without nested columns. Thread-safe.
#[pyclass(frozen)]
struct FlatJson(json::Fields);

#[pymethods]
impl FlatJson {
    /// `fields` are names and kinds: `"bool"`, `"int64"`, `"double"` or `"string"`.
    #[new]
    fn new(fields: Vec<(String, String)>, all_fields: bool) -> PyResult<Self> {
        json::Fields::new(fields, all_fields).map(Self)
    }

    /// Return the messages that are not surely good, as int64, and the others' columns.
    fn parse<'py>(
        &self,
        py: Python<'py>,
        offsets: &Buffer<'py>,
        data: &Buffer<'py>,
        first: usize,
        count: usize,
        undeclared: bool,
    ) -> PyResult<(Bytes, Vec<Parts>)> {
        let (offsets, data) = (Octets::of(offsets)?, Octets::of(data)?);
        let (offsets, data) = (offsets.bytes(), data.bytes());
        py.detach(|| {
            let texts = Strings::new(offsets, data, first, count, false)?;
            let (others, columns) = self.0.parse(&texts, count, undeclared)?;
            let parts = columns.into_iter().map(Column::into_parts).collect();
            Ok((Bytes::from(others), parts))
        })
    }
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("LEVEL", LEVEL)?;
    module.add_submodule(&kafka_classes::module(module.py())?)?;
    module.add_class::<FlatJson>()?;
    module.add_function(wrap_pyfunction!(partitions, module)?)?;
    module.add_function(wrap_pyfunction!(split, module)?)
}
