//! The clients of Python, found by librdkafka's interface for interceptors.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::functions::{Any, RawMessage, bound, functions};
use super::messages::Queue;
use super::topics::Topic;
use crate::kafka::reports::Reports;

const NAME: &CStr = c"streamfactory";
const NO_RESOURCES: i32 = -194;
const DESTROYED: i32 = -197;

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
    let Some(f) = bound() else {
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

pub(super) fn topic_of(message: &RawMessage) -> &CStr {
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
        unsafe { (functions().rd_kafka_queue_forward)(queue.handle(), ptr::null_mut()) };
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
        unsafe { (functions().rd_kafka_queue_forward)(from.handle(), to.handle()) };
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
            if missing { Err((f.rd_kafka_last_error)()) } else { Ok(Topic::of(client, topic)) }
        }
    }
}
