//! Buffers of Python as slices, and vectors as buffers of Python.

use std::ffi::c_int;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::buffers::Damaged;

impl From<Damaged> for PyErr {
    fn from(_: Damaged) -> Self {
        PyValueError::new_err("the buffers of an array do not fit its length")
    }
}

/// A buffer of Python's, which stays alive with it.
pub struct Octets(PyBuffer<i8>);

impl Octets {
    /// The bytes of a `pyarrow.Buffer`.
    pub fn of(buffer: &Bound<'_, PyAny>) -> PyResult<Self> {
        let found = PyBuffer::<i8>::get(buffer)?;
        if !found.is_c_contiguous() {
            return Err(PyValueError::new_err("a buffer with gaps"));
        }
        Ok(Self(found))
    }

    #[allow(unsafe_code)]
    pub fn bytes(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: the exporter keeps the memory while `self.0` lives, every byte is a
        // valid u8, and Arrow's buffers are not changed once they are in an array.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}

/// Bytes that Python reads without a copy, and cannot change.
#[pyclass(frozen)]
pub struct Bytes(Vec<u8>);

impl From<Vec<u8>> for Bytes {
    fn from(mut bytes: Vec<u8>) -> Self {
        bytes.shrink_to_fit(); // a batch may be kept for long
        Self(bytes)
    }
}

#[pymethods]
impl Bytes {
    #[allow(unsafe_code)]
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = &slf.get().0;
        let (start, size) = (bytes.as_ptr().cast_mut().cast(), bytes.len() as isize);
        // SAFETY: the view refers to this object, whose vector is never changed.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, size, 1, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}
