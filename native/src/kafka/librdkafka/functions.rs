//! The functions of librdkafka, looked up in the library that Python's client has loaded.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

const NOW: c_int = 2;

/// `rd_kafka_message_t`: a public structure, unchanged since version 0.9.
#[repr(C)]
pub struct RawMessage {
    pub err: i32,
    pub topic: *mut c_void,
    pub partition: i32,
    pub payload: *const u8,
    pub len: usize,
    pub key: *const u8,
    pub key_len: usize,
    pub offset: i64,
    pub opaque: *mut c_void,
}

/// The beginning of `rd_kafka_topic_partition_t`.
#[repr(C)]
pub struct RawPlace {
    pub topic: *const c_char,
    pub partition: i32,
    pub offset: i64,
}

pub(super) type Any = *mut c_void;
pub(super) type OnConfDestroy = unsafe extern "C" fn(Any) -> i32;
pub(super) type OnNew = unsafe extern "C" fn(Any, *const c_void, Any, *mut c_char, usize) -> i32;
pub(super) type OnAcknowledgement = unsafe extern "C" fn(Any, *mut RawMessage, Any) -> i32;

unsafe extern "C" {
    fn dlopen(path: *const c_char, mode: c_int) -> Any;
    fn dlsym(library: Any, name: *const c_char) -> Any;
}

macro_rules! functions {
    ($($name:ident: $kind:ty;)*) => {
        /// The functions, by their names.
        pub struct Functions {
            $(pub $name: $kind,)*
        }

        impl Functions {
            /// Those of an open library, or the name of one that is missing.
            fn find(library: Any) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the name ends with 0.
                        let found = unsafe {
                            dlsym(library, concat!(stringify!($name), "\0").as_ptr().cast())
                        };
                        if found.is_null() {
                            return Err(stringify!($name));
                        }
                        // SAFETY: librdkafka declares the function with this type.
                        unsafe { std::mem::transmute::<Any, $kind>(found) }
                    },)*
                })
            }
        }
    };
}

functions! {
    rd_kafka_version: unsafe extern "C" fn() -> c_int;
    rd_kafka_conf_new: unsafe extern "C" fn() -> Any;
    rd_kafka_conf_set: unsafe extern "C" fn(
        Any, *const c_char, *const c_char, *mut c_char, usize) -> c_int;
    rd_kafka_conf_destroy: unsafe extern "C" fn(Any);
    rd_kafka_conf_interceptor_add_on_conf_destroy: unsafe extern "C" fn(
        Any, *const c_char, OnConfDestroy, Any) -> i32;
    rd_kafka_conf_interceptor_add_on_new: unsafe extern "C" fn(
        Any, *const c_char, OnNew, Any) -> i32;
    rd_kafka_interceptor_add_on_acknowledgement: unsafe extern "C" fn(
        Any, *const c_char, OnAcknowledgement, Any) -> i32;
    rd_kafka_last_error: unsafe extern "C" fn() -> i32;
    rd_kafka_queue_new: unsafe extern "C" fn(Any) -> Any;
    rd_kafka_queue_get_partition: unsafe extern "C" fn(Any, *const c_char, i32) -> Any;
    rd_kafka_queue_forward: unsafe extern "C" fn(Any, Any);
    rd_kafka_queue_destroy: unsafe extern "C" fn(Any);
    rd_kafka_queue_poll: unsafe extern "C" fn(Any, c_int) -> Any;
    rd_kafka_event_type: unsafe extern "C" fn(Any) -> c_int;
    rd_kafka_event_message_next: unsafe extern "C" fn(Any) -> *const RawMessage;
    rd_kafka_event_error: unsafe extern "C" fn(Any) -> i32;
    rd_kafka_event_error_string: unsafe extern "C" fn(Any) -> *const c_char;
    rd_kafka_event_topic_partition: unsafe extern "C" fn(Any) -> *mut RawPlace;
    rd_kafka_event_destroy: unsafe extern "C" fn(Any);
    rd_kafka_topic_partition_destroy: unsafe extern "C" fn(*mut RawPlace);
    rd_kafka_message_timestamp: unsafe extern "C" fn(*const RawMessage, *mut c_int) -> i64;
    rd_kafka_message_headers: unsafe extern "C" fn(*const RawMessage, *mut Any) -> i32;
    rd_kafka_header_get_all: unsafe extern "C" fn(
        Any, usize, *mut *const c_char, *mut *const u8, *mut usize) -> i32;
    rd_kafka_topic_new: unsafe extern "C" fn(Any, *const c_char, Any) -> Any;
    rd_kafka_topic_destroy: unsafe extern "C" fn(Any);
    rd_kafka_topic_name: unsafe extern "C" fn(Any) -> *const c_char;
    rd_kafka_headers_new: unsafe extern "C" fn(usize) -> Any;
    rd_kafka_headers_destroy: unsafe extern "C" fn(Any);
    rd_kafka_header_add: unsafe extern "C" fn(
        Any, *const u8, isize, *const u8, isize) -> i32;
    rd_kafka_producev: unsafe extern "C" fn(Any, ...) -> i32;
}

static BOUND: OnceLock<Functions> = OnceLock::new();

/// The functions, if they were found.
pub(super) fn bound() -> Option<&'static Functions> {
    BOUND.get()
}

/// For clients and queues, which exist only where the functions are bound.
pub(super) fn functions() -> &'static Functions {
    bound().expect("clients and queues exist only after `bind`")
}

/// Use these functions from now on, unless there are others already.
pub fn install(found: Functions) {
    let _ = BOUND.set(found);
}

/// Find the functions in a library and those that it depends on; the version.
pub fn bind(path: &CStr) -> Result<i32, String> {
    // SAFETY: the path ends with 0. The library stays open as long as the process runs.
    let library = unsafe { dlopen(path.as_ptr(), NOW) };
    if library.is_null() {
        return Err(format!("{} cannot be loaded", path.to_string_lossy()));
    }
    install(Functions::find(library).map_err(|name| format!("{name} is missing"))?);
    // SAFETY: it has no condition.
    Ok(unsafe { (functions().rd_kafka_version)() })
}

/// Whether librdkafka loads a library as a plug-in; its reason otherwise.
pub fn try_plugin(path: &CStr) -> Result<(), String> {
    let (f, mut reason) = (functions(), [0u8; 512]);
    // SAFETY: the settings are destroyed once, and the reason is written within its size.
    let refused = unsafe {
        let settings = (f.rd_kafka_conf_new)();
        let name = c"plugin.library.paths".as_ptr();
        let reason = reason.as_mut_ptr().cast();
        let refused = (f.rd_kafka_conf_set)(settings, name, path.as_ptr(), reason, 512);
        (f.rd_kafka_conf_destroy)(settings);
        refused
    };
    let text = reason.split(|&byte| byte == 0).next().unwrap_or_default();
    if refused == 0 { Ok(()) } else { Err(String::from_utf8_lossy(text).into_owned()) }
}
