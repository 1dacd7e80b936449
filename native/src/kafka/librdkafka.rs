//! The library of the Kafka client of Python as safe types: all `unsafe` of Kafka's part.
//!
//! The functions are looked up when the process has loaded the client, so that they are
//! those that the client itself calls; nothing is linked.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};
use std::{ptr, slice};

use super::{Refused, reports::Reports};

const NAME: &CStr = c"streamfactory";
const NO_RESOURCES: i32 = -194;
const DESTROYED: i32 = -197;
const EVENT_ERROR: c_int = 8;
const NOW: c_int = 2;

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

type Any = *mut c_void;
type OnConfDestroy = unsafe extern "C" fn(Any) -> i32;
type OnNew = unsafe extern "C" fn(Any, *const c_void, Any, *mut c_char, usize) -> i32;
type OnAcknowledgement = unsafe extern "C" fn(Any, *mut RawMessage, Any) -> i32;

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

/// Exists only where the functions are bound.
fn functions() -> &'static Functions {
    BOUND.get().expect("clients and queues exist only after `bind`")
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

// --- clients, found by librdkafka's interface for interceptors --------------------------

/// A client of Python's. It belongs to librdkafka and to those who use it here.
pub struct Client {
    /// NULL before the client exists, and after it was destroyed.
    handle: AtomicPtr<c_void>,
    pub reports: Reports,
}

thread_local! {
    /// The client that this thread created last: `rd_kafka_new` calls `on_new` in the
    /// thread that called it.
    static NEWEST: RefCell<Option<Arc<Client>>> = const { RefCell::new(None) };
}

/// The client that this thread created last, once.
pub fn take_client() -> Option<Arc<Client>> {
    NEWEST.with_borrow_mut(Option::take)
}

/// Called by librdkafka when it loads this library as a plug-in.
///
/// # Safety
/// The settings are librdkafka's, and `size` bytes can be written at `reason`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conf_init(
    conf: Any,
    _opaque: *mut Any,
    reason: *mut c_char,
    size: usize,
) -> i32 {
    NEWEST.with_borrow_mut(Option::take);
    let Some(f) = BOUND.get() else {
        let text = c"streamfactory-native is not bound to librdkafka".to_bytes_with_nul();
        if size >= text.len() {
            // SAFETY: the text fits.
            unsafe { ptr::copy_nonoverlapping(text.as_ptr(), reason.cast(), text.len()) };
        }
        return NO_RESOURCES;
    };
    let made = Client { handle: AtomicPtr::default(), reports: Reports::default() };
    let client: Any = Arc::into_raw(Arc::new(made)).cast_mut().cast();
    let name = NAME.as_ptr();
    // SAFETY: `client` is an Arc that belongs to the settings from the first success on.
    unsafe {
        let add = f.rd_kafka_conf_interceptor_add_on_conf_destroy;
        let error = add(conf, name, on_conf_destroy, client);
        if error != 0 {
            drop(Arc::from_raw(client.cast::<Client>()));
            return error;
        }
        (f.rd_kafka_conf_interceptor_add_on_new)(conf, name, on_new, client)
    }
}

unsafe extern "C" fn on_new(
    handle: Any,
    _conf: *const c_void,
    opaque: Any,
    _reason: *mut c_char,
    _size: usize,
) -> i32 {
    // SAFETY: `opaque` is the Arc of the settings, which remains theirs.
    let client = unsafe {
        Arc::increment_strong_count(opaque.cast::<Client>());
        Arc::from_raw(opaque.cast::<Client>())
    };
    client.handle.store(handle, Ordering::Release);
    NEWEST.with_borrow_mut(|newest| *newest = Some(client));
    let add = functions().rd_kafka_interceptor_add_on_acknowledgement;
    // SAFETY: the client's settings keep the Arc until its threads have ended.
    unsafe { add(handle, NAME.as_ptr(), on_acknowledgement, opaque) }
}

/// The settings belong to the client, which frees them last, after its threads ended.
unsafe extern "C" fn on_conf_destroy(opaque: Any) -> i32 {
    // SAFETY: called once; from here on the settings have no Arc.
    let client = unsafe { Arc::from_raw(opaque.cast::<Client>()) };
    client.handle.store(ptr::null_mut(), Ordering::Release);
    // The thread may be ending, and have none any more.
    let _ = NEWEST.try_with(|newest| {
        newest.borrow_mut().take_if(|newest| Arc::ptr_eq(newest, &client));
    });
    0
}

/// Called for each message, before librdkafka drops it or queues its report: by the
/// thread of a broker, or by the one that sends where the partition does not exist.
unsafe extern "C" fn on_acknowledgement(
    _handle: Any,
    message: *mut RawMessage,
    opaque: Any,
) -> i32 {
    // SAFETY: librdkafka passes a message, and the settings still have their Arc.
    let (message, client) = unsafe { (&*message, &*opaque.cast::<Client>()) };
    client.reports.add(message.err, || (topic_of(message), message.partition, message.len));
    0
}

fn topic_of(message: &RawMessage) -> &CStr {
    if message.topic.is_null() {
        return c"";
    }
    // SAFETY: the topic lives as long as the message, and its name as long as the topic.
    unsafe { CStr::from_ptr((functions().rd_kafka_topic_name)(message.topic)) }
}

impl Client {
    fn handle(&self) -> Option<Any> {
        let handle = self.handle.load(Ordering::Acquire);
        (!handle.is_null()).then_some(handle)
    }

    /// The queue of a partition, which is no longer forwarded: it has what was fetched of
    /// the partition, its end and its errors.
    pub fn partition_queue(&self, topic: &CStr, partition: i32) -> Option<Queue> {
        let queue = self.queue_of(topic, partition)?;
        // SAFETY: the queue is open.
        unsafe { (functions().rd_kafka_queue_forward)(queue.0, ptr::null_mut()) };
        Some(queue)
    }

    /// An empty queue, to which others can be forwarded.
    pub fn new_queue(&self) -> Option<Queue> {
        // SAFETY: the handle is valid until the settings are destroyed.
        Queue::of(unsafe { (functions().rd_kafka_queue_new)(self.handle()?) })
    }

    /// Have the queue of a partition add to another one, also what it contains; false if
    /// it has none. librdkafka ends every forwarding when it stops fetching the partition.
    pub fn forward(&self, topic: &CStr, partition: i32, to: &Queue) -> bool {
        let Some(from) = self.queue_of(topic, partition) else { return false };
        // SAFETY: both are open.
        unsafe { (functions().rd_kafka_queue_forward)(from.0, to.0) };
        from.close(); // this handle; the forwarding remains
        true
    }

    fn queue_of(&self, topic: &CStr, partition: i32) -> Option<Queue> {
        let get = functions().rd_kafka_queue_get_partition;
        // SAFETY: the handle is valid until the settings are destroyed.
        Queue::of(unsafe { get(self.handle()?, topic.as_ptr(), partition) })
    }

    /// A topic to send to, or librdkafka's code.
    pub fn topic(&self, name: &CStr) -> Result<Topic, i32> {
        let (f, client) = (functions(), self.handle().ok_or(DESTROYED)?);
        // SAFETY: the handle is valid until the settings are destroyed.
        unsafe {
            let topic = (f.rd_kafka_topic_new)(client, name.as_ptr(), ptr::null_mut());
            let missing = topic.is_null();
            if missing { Err((f.rd_kafka_last_error)()) } else { Ok(Topic { client, topic }) }
        }
    }
}

// --- queues, events and messages ----------------------------------------------------------

/// A handle of a queue. It is closed by `close` alone: a process that was forked drops
/// those of its parent, whose locks nobody releases.
pub struct Queue(Any);

// SAFETY: librdkafka's functions for queues are thread-safe.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    fn of(queue: Any) -> Option<Self> {
        (!queue.is_null()).then_some(Self(queue))
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

// --- sending --------------------------------------------------------------------------------

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
