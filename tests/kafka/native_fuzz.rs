//! Runs the compiled part beside a librdkafka that answers at random. Reading: sizes up to
//! the largest number, NULLs, texts that are not UTF-8, errors, and an allocator that
//! fails; into columns of one partition, and of several. Writing: a queue that is full,
//! refusals, rows whose offsets lie, and reports from other threads. Built with the
//! address sanitizer; every batch is compared with what was fed, every message with its
//! row. Usage: SEED ROUNDS.

#![feature(c_variadic)] // producev() has any number of arguments

#[path = "../../native/src/buffers.rs"]
#[allow(dead_code)]
mod buffers;
#[path = "../../native/src/kafka/mod.rs"]
mod kafka;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use buffers::{Offsets, Strings};
use kafka::Refused;
use kafka::columns::{BinaryBuffers, Columns, fitting};
use kafka::librdkafka::clients::{Client, conf_init, take_client};
use kafka::librdkafka::functions::{Functions, RawMessage, RawPlace, bind, install, try_plugin};
use kafka::librdkafka::messages::Queue;
use kafka::reading::{Limits, Part, Parts, fill, purge};
use kafka::sending::{self, Column, Lists, Rows, Texts};

// --- an allocator that fails -------------------------------------------------------------

/// How many large allocations succeed. Columns grow by at least 256 bytes; smaller
/// allocations, of texts, end the process if they fail, as everywhere in Rust.
static ALLOCATIONS_LEFT: AtomicI64 = AtomicI64::new(i64::MAX);

struct Failing;

impl Failing {
    fn fails(size: usize) -> bool {
        size >= 256 && ALLOCATIONS_LEFT.fetch_sub(1, Ordering::Relaxed) <= 0
    }
}

unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if Self::fails(layout.size()) {
            return ptr::null_mut();
        }
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, data: *mut u8, layout: Layout) {
        unsafe { System.dealloc(data, layout) }
    }
    unsafe fn realloc(&self, data: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if Self::fails(size) {
            return ptr::null_mut();
        }
        unsafe { System.realloc(data, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Failing = Failing;

fn allocations(count: i64) {
    ALLOCATIONS_LEFT.store(count, Ordering::Relaxed);
}

// --- chance and the state of the false librdkafka ------------------------------------------

type Any = *mut c_void;

const NAMES: [&CStr; 5] = [c"", c"name", c"\xc3\xa9", c"\xf0\x9f\x98\x80", c"a\xcc\x81"];
const BAD: [&CStr; 8] = [
    c"\xff",
    c"\xc3",
    c"\xc0\x80",
    c"\xed\xa0\x80",
    c"\xf4\x90\x80\x80",
    c"\x80",
    c"\xe2\x82",
    c"\xf0\x9f\x98",
];
static BYTES: [u8; 4096] = {
    let mut bytes = [b'x'; 4096];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = at as u8;
        at += 7;
    }
    bytes
};
static LONG: [u8; 250] = {
    let mut name = [b'n'; 250];
    name[249] = 0;
    name
};

/// Partitions of which messages are polled. An offset modulo their number names one.
fn place(at: usize) -> (&'static CStr, i32) {
    let long = CStr::from_bytes_with_nul(&LONG).unwrap();
    [(c"t", 0), (c"t", 1), (c"t", i32::MAX), (c"u", 0), (c"u", 1), (c"", 0), (long, 0)][at]
}
const PLACES: usize = 7;

#[repr(C)]
struct FalseEvent {
    message: RawMessage,
    error: i32,
    kind: i32,
    headers: usize,
    bad_name: bool,
    place: usize,
}

#[derive(Default)]
struct World {
    state: u64,
    live: usize,
    offset: i64,
    hostile_sizes: bool,
    bad_names: bool,
    errors: bool,
    several: bool,
    conflicts: i32,
    client: Option<FalseClient>,
    forwarded: Option<usize>,
    open_topics: usize,
    header_lists: usize,
    headers_added: usize,
    refusal: i32,
    is_full: bool,
    expected: usize,
    rows: Option<Rc<Given>>,
}

struct FalseClient {
    destroyed: unsafe extern "C" fn(Any) -> i32,
    created: Option<unsafe extern "C" fn(Any, *const c_void, Any, *mut c_char, usize) -> i32>,
    acknowledged: Option<unsafe extern "C" fn(Any, *mut RawMessage, Any) -> i32>,
    opaque: Any,
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::default());
}

fn world<T>(with: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(with)
}

fn chance(most: u64) -> u64 {
    world(|world| {
        world.state ^= world.state << 13; // xorshift64
        world.state ^= world.state >> 7;
        world.state ^= world.state << 17;
        world.state % (most + 1)
    })
}

fn below(count: usize) -> usize {
    chance(count as u64 - 1) as usize
}

/// Addresses that stand for objects of librdkafka.
static CLIENT: u8 = 0;
static QUEUE: u8 = 0;
static TOPIC: u8 = 0;
static LIST: u8 = 0;
/// Of undelivered messages: its name is long.
static REPORTED: u8 = 0;

fn address(of: &'static u8) -> Any {
    ptr::from_ref(of).cast_mut().cast()
}

// --- clients: settings that keep the interceptors, and call them ----------------------------

unsafe extern "C" fn version() -> c_int {
    0x0210_00ff
}
unsafe extern "C" fn conf_new() -> Any {
    address(&CLIENT)
}
unsafe extern "C" fn conf_set(
    _: Any,
    name: *const c_char,
    path: *const c_char,
    reason: *mut c_char,
    size: usize,
) -> c_int {
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"plugin.library.paths");
    if unsafe { CStr::from_ptr(path) } == c"good" {
        return 0;
    }
    unsafe { ptr::write_bytes(reason.cast::<u8>(), b'r', size) }; // not even an end
    -2
}
unsafe extern "C" fn nothing(_: Any) {}
unsafe extern "C" fn add_on_conf_destroy(
    _: Any,
    _: *const c_char,
    destroyed: unsafe extern "C" fn(Any) -> i32,
    opaque: Any,
) -> i32 {
    world(|world| {
        if world.conflicts == 0 {
            let client = FalseClient { destroyed, created: None, acknowledged: None, opaque };
            world.client = Some(client);
        }
        world.conflicts
    })
}
unsafe extern "C" fn add_on_new(
    _: Any,
    _: *const c_char,
    created: unsafe extern "C" fn(Any, *const c_void, Any, *mut c_char, usize) -> i32,
    opaque: Any,
) -> i32 {
    world(|world| {
        let client = world.client.as_mut().unwrap();
        assert_eq!(client.opaque, opaque);
        client.created = Some(created);
    });
    0
}
unsafe extern "C" fn add_on_acknowledgement(
    _: Any,
    _: *const c_char,
    acknowledged: unsafe extern "C" fn(Any, *mut RawMessage, Any) -> i32,
    opaque: Any,
) -> i32 {
    world(|world| {
        let client = world.client.as_mut().unwrap();
        assert_eq!(client.opaque, opaque);
        client.acknowledged = Some(acknowledged);
    });
    0
}
unsafe extern "C" fn last_error() -> i32 {
    -185
}

fn create() -> i32 {
    let (created, opaque) = world(|world| {
        let client = world.client.as_ref().unwrap();
        (client.created.unwrap(), client.opaque)
    });
    unsafe { created(address(&CLIENT), ptr::null(), opaque, ptr::null_mut(), 0) }
}

fn destroy() {
    let client = world(|world| world.client.take()).unwrap();
    assert_eq!(unsafe { (client.destroyed)(client.opaque) }, 0);
}

fn load_plugin(reason: &mut [u8]) -> i32 {
    let start = reason.as_mut_ptr().cast();
    unsafe { conf_init(ptr::null_mut(), ptr::null_mut(), start, reason.len()) }
}

// --- reading ----------------------------------------------------------------------------------

unsafe extern "C" fn get_partition(client: Any, _: *const c_char, partition: i32) -> Any {
    assert_eq!(client, address(&CLIENT));
    if partition < 0 { ptr::null_mut() } else { client }
}
unsafe extern "C" fn forward(_: Any, to: Any) {
    world(|world| world.forwarded = Some(to as usize));
}
unsafe extern "C" fn new_queue(client: Any) -> Any {
    assert_eq!(client, address(&CLIENT));
    address(&QUEUE)
}

fn value() -> (*const u8, usize) {
    if chance(4) == 0 {
        return (ptr::null(), below(99));
    }
    if world(|world| world.hostile_sizes) && chance(30) == 0 {
        let max = i32::MAX as usize + 1;
        let sizes = [usize::MAX, usize::MAX / 2, max, 1 << 32, u32::MAX as usize];
        return (BYTES.as_ptr(), sizes[below(5)]);
    }
    (BYTES.as_ptr(), if chance(3) == 0 { 0 } else { below(BYTES.len()) })
}

unsafe extern "C" fn poll(_: Any, _: c_int) -> Any {
    if chance(200) == 0 {
        return ptr::null_mut();
    }
    let several = world(|world| world.several);
    let mut place_of = if several { below(PLACES) } else { 0 };
    let mut error = 0;
    let (mut key, mut payload) = ((ptr::null(), 0), (ptr::null(), 0));
    let mut headers = 0;
    if world(|world| world.errors) && chance(50) == 0 {
        let code = chance(i32::MAX as u64) as i32 - i32::MAX / 2;
        error = if chance(1) == 1 { -191 } else { code };
    } else {
        let more = 1 + chance(3) as i64;
        let offset = world(|world| {
            world.offset += more;
            world.offset
        });
        place_of = if several { offset as usize % PLACES } else { 0 };
        (key, payload) = (value(), value());
        headers = if chance(2) > 0 { 0 } else { below(6) };
    }
    let bad_name = world(|world| world.bad_names) && headers > 0 && chance(20) == 0;
    let (topic, partition) = place(place_of);
    let message = RawMessage {
        err: 0,
        topic: topic.as_ptr().cast_mut().cast(),
        partition,
        payload: payload.0,
        len: payload.1,
        key: key.0,
        key_len: key.1,
        offset: world(|world| world.offset),
        opaque: ptr::null_mut(),
    };
    let kind = chance(2) as i32;
    world(|world| world.live += 1);
    let event = FalseEvent { message, error, kind, headers, bad_name, place: place_of };
    Box::into_raw(Box::new(event)).cast()
}

fn event<'a>(of: Any) -> &'a FalseEvent {
    unsafe { &*of.cast::<FalseEvent>() }
}

unsafe extern "C" fn event_type(of: Any) -> c_int {
    if event(of).error != 0 { 8 } else { 2 }
}
unsafe extern "C" fn message_next(of: Any) -> *const RawMessage {
    if event(of).error != 0 { ptr::null() } else { &event(of).message }
}
unsafe extern "C" fn event_error(of: Any) -> i32 {
    event(of).error
}
unsafe extern "C" fn error_string(of: Any) -> *const c_char {
    let texts = [ptr::null(), c"\xff\xfe".as_ptr(), LONG.as_ptr().cast(), c"text".as_ptr()];
    texts[event(of).error.unsigned_abs() as usize % 4]
}
unsafe extern "C" fn topic_partition(of: Any) -> *mut RawPlace {
    if chance(3) == 0 {
        return ptr::null_mut();
    }
    let (topic, partition) = place(event(of).place);
    Box::into_raw(Box::new(RawPlace { topic: topic.as_ptr(), partition, offset: 77 }))
}
unsafe extern "C" fn destroy_place(place: *mut RawPlace) {
    drop(unsafe { Box::from_raw(place) });
}
unsafe extern "C" fn destroy_event(of: Any) {
    world(|world| world.live -= 1);
    drop(unsafe { Box::from_raw(of.cast::<FalseEvent>()) });
}
fn millis(offset: i64) -> i64 {
    if offset % 9 == 0 { i64::MAX - offset } else { offset * 1000 - 70 }
}
/// The message is the first field of its event.
unsafe extern "C" fn timestamp(message: *const RawMessage, kind: *mut c_int) -> i64 {
    let event = event(message.cast_mut().cast());
    unsafe { *kind = event.kind };
    millis(event.message.offset)
}
unsafe extern "C" fn headers(message: *const RawMessage, list: *mut Any) -> i32 {
    if event(message.cast_mut().cast()).headers == 0 {
        return -156;
    }
    unsafe { *list = message.cast_mut().cast() };
    0
}
fn header(offset: i64, at: usize) -> (&'static CStr, Option<&'static [u8]>) {
    let number = offset as usize + at;
    let value = &BYTES[..number * 31 % 200];
    (NAMES[number % NAMES.len()], (number % 3 > 0).then_some(value))
}
unsafe extern "C" fn header_get_all(
    list: Any,
    at: usize,
    name: *mut *const c_char,
    value: *mut *const u8,
    size: *mut usize,
) -> i32 {
    let event = event(list);
    if at == event.headers {
        return -156;
    }
    let (text, data) = header(event.message.offset, at);
    let text = if event.bad_name { BAD[event.message.offset as usize % BAD.len()] } else { text };
    unsafe {
        *name = text.as_ptr();
        *value = data.map_or(ptr::null(), <[u8]>::as_ptr);
        *size = data.map_or(5, <[u8]>::len); // of a null it means nothing
    }
    0
}

/// Whether a column is well-formed, as Arrow defines it.
fn check_binary((valid, ends, data): &BinaryBuffers, rows: usize) {
    let ends: Vec<i32> = ends.as_chunks().0.iter().map(|end| i32::from_le_bytes(*end)).collect();
    assert_eq!(ends.len(), rows + 1);
    assert!(ends[0] == 0 && ends.is_sorted() && ends[rows] as usize == data.len());
    if let Some(bits) = valid {
        assert_eq!(bits.len(), rows.div_ceil(8));
        assert!((0..rows).any(|row| !bit(bits, row)), "without nulls there are no bits");
        let empty = |row| bit(bits, row) || ends[row] == ends[row + 1];
        assert!((0..rows).all(empty));
    }
}

fn bit(bits: &[u8], at: usize) -> bool {
    bits[at / 8] >> (at % 8) & 1 == 1
}

fn text_at<'a>((valid, ends, data): &'a BinaryBuffers, at: usize) -> Option<&'a [u8]> {
    let end = |at| i32::from_le_bytes(ends.as_chunks().0[at]) as usize;
    valid.as_ref().is_none_or(|bits| bit(bits, at)).then(|| &data[end(at)..end(at + 1)])
}

/// All rows are those that were fed; returns their offsets.
fn check_columns(columns: &mut Columns, with_headers: bool) -> Vec<i64> {
    let (rows, size) = (columns.rows, columns.size);
    let found = columns.take();
    let offsets: Vec<i64> =
        found.offsets.as_chunks().0.iter().map(|one| i64::from_le_bytes(*one)).collect();
    assert!(offsets.len() == rows && offsets.is_sorted_by(|one, next| one < next));
    assert_eq!(found.kinds.len(), 4 * rows);
    assert_eq!(found.times.1.len(), 8 * rows);
    check_binary(&found.keys, rows);
    check_binary(&found.values, rows);
    for row in 0..rows {
        for column in [&found.keys, &found.values] {
            let text = text_at(column, row).unwrap_or_default();
            assert_eq!(text, &BYTES[..text.len()]);
        }
        let kind = i32::from_le_bytes(found.kinds.as_chunks().0[row]);
        let micros = i64::from_le_bytes(found.times.1.as_chunks().0[row]);
        let valid = found.times.0.as_ref().is_none_or(|bits| bit(bits, row));
        assert_eq!(valid, kind >= 0);
        let wanted = if valid { millis(offsets[row]).wrapping_mul(1000) } else { 0 };
        assert_eq!(micros, wanted);
    }
    let mut bytes = found.keys.2.len() + found.values.2.len();
    if let Some(all) = found.headers {
        assert!(with_headers);
        check_binary(&all.names, all.count);
        check_binary(&all.values, all.count);
        let lists: Vec<i32> =
            all.ends.as_chunks().0.iter().map(|end| i32::from_le_bytes(*end)).collect();
        assert!(lists.len() == rows + 1 && lists[rows] as usize == all.count);
        for row in 0..rows {
            let range = lists[row] as usize..lists[row + 1] as usize;
            let valid = all.valid.as_ref().is_none_or(|bits| bit(bits, row));
            assert_eq!(valid, !range.is_empty());
            for (at, pair) in range.enumerate() {
                let (name, value) = header(offsets[row], at);
                assert_eq!(text_at(&all.names, pair), Some(name.to_bytes()));
                assert_eq!(text_at(&all.values, pair), value);
            }
        }
        bytes += all.names.2.len() + all.values.2.len() + 8 * all.count;
    }
    assert_eq!(size, bytes);
    offsets
}

fn begin_reading(several: bool) {
    let hostile_sizes = chance(3) == 0;
    let (bad_names, errors) = (chance(3) == 0, chance(1) == 1);
    world(|world| {
        *world = World {
            state: world.state,
            client: world.client.take(),
            hostile_sizes,
            bad_names,
            errors,
            several,
            ..World::default()
        };
    });
}

/// Columns that grow fail after some allocations, in a part of the rounds.
fn limit_allocations(most: u64) {
    let left = if chance(4) > 0 { i64::MAX } else { chance(most) as i64 };
    allocations(left);
}

fn live() -> usize {
    world(|world| world.live)
}

fn fuzz_reading(queue: &Queue, counts: &mut Counts) {
    begin_reading(false);
    let headers = chance(1) == 1;
    limit_allocations(60);
    let mut columns = match Columns::new(headers) {
        Ok(columns) => columns,
        Err(refused) => return counts.add(Err(refused)),
    };
    let mut status = Ok(());
    for _ in 0..20 {
        let (before, size) = (columns.rows, columns.size);
        let (wanted, most) = (below(301), chance(1 << 20) as usize);
        let limits = Limits { wanted, most, timeout: Duration::ZERO };
        status = fill(&mut columns, queue, &limits);
        assert_eq!(columns.rows, before + columns.added);
        assert!(columns.received <= wanted && (size < most || columns.received == 0));
        assert_eq!(live(), 0);
        assert!(columns.end.is_none_or(|end| end == 77));
        if status.is_err() {
            break;
        }
        if columns.rows > 0 {
            assert!(columns.next_offset > 0);
        }
    }
    allocations(i64::MAX);
    if status.is_ok() {
        check_columns(&mut columns, headers);
    }
    counts.add(status);
}

fn fuzz_parts(queue: &Queue, counts: &mut Counts) {
    begin_reading(true);
    let headers = chance(1) == 1;
    limit_allocations(200);
    let mut parts = Parts::new(headers);
    let mut status = Ok(());
    for _ in 0..20 {
        let wanted = below(301);
        let limits = Limits { wanted, most: 1 << 40, timeout: Duration::ZERO };
        status = parts.fill(queue, &limits);
        assert!(live() == 0 && parts.received <= wanted);
        if status.is_err() {
            break;
        }
        assert!(parts.failed().is_none_or(|part| part.columns.error.is_some()));
        if chance(5) == 0 {
            allocations(i64::MAX);
            check_parts(&mut parts, headers);
            limit_allocations(200);
        }
    }
    allocations(i64::MAX);
    match status {
        Ok(()) => check_parts(&mut parts, headers),
        Err(refused) => assert!(refused == Refused::NoMemory || parts.failed().is_some()),
    }
    counts.add(status);
}

/// Every message is in the columns of its partition, and each partition in one part.
fn check_parts(parts: &mut Parts, headers: bool) {
    let (rows, size) = (parts.rows, parts.size);
    let mut taken = parts.take();
    assert!(parts.rows == 0 && parts.size == 0 && parts.parts().is_empty());
    assert_eq!(taken.iter().map(|part| part.columns.rows).sum::<usize>(), rows);
    assert_eq!(taken.iter().map(|part| part.columns.size).sum::<usize>(), size);
    let of = |part: &Part| (part.topic.clone(), part.partition);
    let distinct: std::collections::HashSet<_> = taken.iter().map(of).collect();
    assert!(distinct.len() == taken.len() && taken.len() <= PLACES + 1);
    for part in &mut taken {
        for offset in check_columns(&mut part.columns, headers) {
            let (topic, partition) = place(offset as usize % PLACES);
            assert!(part.topic.as_c_str() == topic && part.partition == partition);
        }
    }
}

// --- writing -----------------------------------------------------------------------------------

const ROWS: usize = 40;
const MOST_HEADERS: usize = 4;

/// A column in buffers of exactly its size.
struct Values {
    first: usize,
    valid: Option<Box<[u8]>>,
    ends: Box<[i32]>,
    bytes: Box<[u8]>,
    data: Box<[u8]>,
    size: usize,
}

/// The rows of one call of `send`.
struct Given {
    keys: Option<Values>,
    values: Option<Values>,
    lists: Option<Values>,
    names: Option<Values>,
    contents: Option<Values>,
    times: Option<(usize, Option<Box<[u8]>>, Box<[[u8; 8]]>)>,
}

fn random_bytes(count: usize) -> Box<[u8]> {
    (0..count).map(|_| chance(255) as u8).collect()
}

fn random_bits(count: usize) -> Option<Box<[u8]>> {
    (chance(2) > 0).then(|| random_bytes(count.div_ceil(8)))
}

/// A column of `count` values behind others, with offsets that lie if hostile.
fn column_of(count: usize, most: usize, lists: bool, hostile: bool) -> Option<Values> {
    if chance(6) == 0 {
        return None;
    }
    let (first, size) = (below(10), below(most + 1));
    let mut ends = vec![below(size + 1) as i32];
    for at in 0..first + count {
        ends.push(ends[at] + chance((size as i32 - ends[at]) as u64 / 2) as i32);
    }
    if hostile {
        let at = below(ends.len());
        ends[at] = chance(u64::from(u32::MAX)) as u32 as i32;
    }
    let bytes = ends.iter().flat_map(|end| end.to_le_bytes()).collect();
    let valid = random_bits(first + count);
    let data = random_bytes(if lists { 0 } else { size });
    Some(Values { first, valid, ends: ends.into(), bytes, data, size })
}

fn is_null(column: &Option<Values>, row: usize) -> bool {
    let at = |values: &Values| values.first + row;
    column.as_ref().is_none_or(|one| one.valid.as_ref().is_some_and(|bits| !bit(bits, at(one))))
}

/// What librdkafka received is the value of a row.
unsafe fn check_slice(column: &Option<Values>, row: usize, data: *const u8, size: usize) {
    assert_eq!(is_null(column, row), data.is_null());
    let Some(column) = column.as_ref().filter(|_| !data.is_null()) else {
        assert_eq!(size, 0);
        return;
    };
    let at = column.first + row;
    assert_eq!(size, (column.ends[at + 1] - column.ends[at]) as usize);
    let found = unsafe { std::slice::from_raw_parts(data, size) };
    assert_eq!(found, &column.data[column.ends[at] as usize..][..size]);
}

unsafe extern "C" fn topic_new(client: Any, name: *const c_char, conf: Any) -> Any {
    assert!(client == address(&CLIENT) && conf.is_null());
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"topic");
    if chance(20) == 0 {
        return ptr::null_mut();
    }
    world(|world| world.open_topics += 1);
    address(&TOPIC)
}
unsafe extern "C" fn topic_destroy(topic: Any) {
    assert_eq!(topic, address(&TOPIC));
    world(|world| world.open_topics -= 1);
}
unsafe extern "C" fn topic_name(topic: Any) -> *const c_char {
    if topic == address(&REPORTED) { LONG.as_ptr().cast() } else { topic.cast() }
}
unsafe extern "C" fn headers_new(count: usize) -> Any {
    assert!(count > 0 && count <= MOST_HEADERS);
    if Failing::fails(256) {
        return ptr::null_mut();
    }
    world(|world| (world.header_lists, world.headers_added) = (world.header_lists + 1, 0));
    address(&LIST)
}
unsafe extern "C" fn headers_destroy(list: Any) {
    assert_eq!(list, address(&LIST));
    world(|world| world.header_lists -= 1);
}
unsafe extern "C" fn header_add(
    list: Any,
    name: *const u8,
    name_size: isize,
    data: *const u8,
    size: isize,
) -> i32 {
    assert_eq!(list, address(&LIST));
    let (rows, expected, added) = world(|world| {
        world.headers_added += 1;
        (world.rows.clone().unwrap(), world.expected, world.headers_added - 1)
    });
    let lists = rows.lists.as_ref().unwrap();
    let pair = lists.ends[lists.first + expected] as usize + added;
    unsafe {
        check_slice(&rows.names, pair, name, name_size as usize);
        check_slice(&rows.contents, pair, data, size as usize);
    }
    0
}
unsafe extern "C" fn producev(client: Any, mut given: ...) -> i32 {
    assert_eq!(client, address(&CLIENT));
    let (key, value, millis, list);
    unsafe {
        assert_eq!((given.arg::<c_int>(), given.arg::<Any>()), (2, address(&TOPIC)));
        assert_eq!((given.arg::<c_int>(), given.arg::<c_int>()), (3, 7));
        assert_eq!((given.arg::<c_int>(), given.arg::<c_int>()), (7, 2));
        assert_eq!(given.arg::<c_int>(), 5);
        key = (given.arg::<*const u8>(), given.arg::<usize>());
        assert_eq!(given.arg::<c_int>(), 4);
        value = (given.arg::<*const u8>(), given.arg::<usize>());
        assert_eq!(given.arg::<c_int>(), 8);
        millis = given.arg::<i64>();
        assert_eq!(given.arg::<c_int>(), 10);
        list = given.arg::<Any>();
        assert_eq!(given.arg::<c_int>(), 0);
    }
    if world(|world| world.is_full) {
        if chance(1) == 0 {
            world(|world| world.is_full = false);
        }
        return -184;
    }
    let (refusal, row, rows) =
        world(|world| (world.refusal, world.expected, world.rows.clone().unwrap()));
    if refusal != 0 && chance(20) == 0 {
        return refusal;
    }
    unsafe {
        check_slice(&rows.keys, row, key.0, key.1);
        check_slice(&rows.values, row, value.0, value.1);
    }
    match &rows.times {
        Some((first, valid, micros))
            if valid.as_ref().is_none_or(|bits| bit(bits, first + row)) =>
        {
            let micros = i128::from(i64::from_le_bytes(micros[first + row]));
            assert!(i128::from(millis) * 1000 <= micros);
            assert!(micros < (i128::from(millis) + 1) * 1000);
        }
        _ => assert_eq!(millis, 0),
    }
    if !list.is_null() {
        unsafe { headers_destroy(list) }; // they belong to the message
    }
    let full = chance(30) == 0;
    world(|world| (world.expected, world.is_full) = (world.expected + 1, full));
    0
}

fn texts(column: &Option<Values>, count: usize) -> Texts<'_> {
    let one = column.as_ref()?;
    let values = Strings::new(&one.bytes, &one.data, one.first, count, false).unwrap();
    Some(Column { valid: one.valid.as_deref(), first: one.first, values })
}

fn fuzz_writing(client: &Client, counts: &mut Counts) {
    let (hostile, count) = (chance(3) == 0, below(ROWS + 1));
    let lists = column_of(count, MOST_HEADERS, true, hostile);
    let pairs = lists.as_ref().map_or(0, |lists| lists.size);
    let times = (chance(2) > 0).then(|| {
        let first = below(10);
        let micros = (0..first + count).map(|_| (chance(u64::MAX - 1) as i64).to_le_bytes());
        (first, random_bits(first + count), micros.collect())
    });
    let given = Rc::new(Given {
        keys: column_of(count, 500, false, hostile && chance(2) == 0),
        values: column_of(count, 3000, false, hostile),
        names: column_of(pairs, 90, false, hostile && chance(4) == 0),
        contents: column_of(pairs, 90, false, hostile),
        lists,
        times,
    });
    let refusal = if chance(3) > 0 { 0 } else { 10 };
    let kept = Rc::clone(&given);
    world(|world| {
        (world.rows, world.refusal) = (Some(kept), refusal);
        (world.expected, world.is_full) = (0, false);
    });
    let rows = Rows {
        count,
        keys: texts(&given.keys, count),
        values: texts(&given.values, count),
        times: given.times.as_ref().map(|(first, valid, micros)| Column {
            valid: valid.as_deref(),
            first: *first,
            values: &micros[*first..],
        }),
        headers: given.lists.as_ref().map(|lists| Lists {
            lists: Column {
                valid: lists.valid.as_deref(),
                first: lists.first,
                values: Offsets::new(&lists.bytes, lists.first, count, false).unwrap(),
            },
            pairs,
            names: texts(&given.names, pairs),
            values: texts(&given.contents, pairs),
        }),
    };
    limit_allocations(60);
    let (mut next, mut status) = (0, Ok(0));
    for _ in 0..500 {
        let (before, most) = (next, below(ROWS + 1));
        let timeout = Duration::from_millis(chance(1));
        status = sending::send(client, (c"topic", 7), &rows, &mut next, most, timeout);
        let expected = world(|world| world.expected);
        assert!(next == expected && expected - before <= most && expected <= count);
        assert_eq!(world(|world| (world.open_topics, world.header_lists)), (0, 0));
        assert!(status.is_err() || [0, -185, refusal].contains(&status.unwrap()));
        if status.is_err() || next == count {
            break;
        }
    }
    allocations(i64::MAX);
    assert!(status.is_err() || next == count);
    counts.add(status.map(|_| ()));
}

/// Reports of four threads at once are all counted, and one failure is kept.
fn check_reports(client: &Client, nameless: bool) {
    client.reports.reset();
    assert!(client.reports.delivered() == 0 && client.reports.first_failure().is_none());
    let (acknowledged, opaque) = world(|world| {
        let client = world.client.as_ref().unwrap();
        (client.acknowledged.unwrap(), client.opaque as usize)
    });
    let report = move || {
        for number in 0..200 {
            let err = match number {
                number if number % 50 == 20 => -152,
                number if number % 100 == 60 => 10,
                _ => 0,
            };
            let topic = if nameless { ptr::null_mut() } else { address(&REPORTED) };
            let mut message = RawMessage {
                err,
                topic,
                partition: number,
                payload: ptr::null(),
                len: 5,
                key: ptr::null(),
                key_len: 0,
                offset: 0,
                opaque: ptr::null_mut(),
            };
            assert_eq!(unsafe { acknowledged(ptr::null_mut(), &mut message, opaque as Any) }, 0);
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(report))));
    assert_eq!(client.reports.delivered(), 4 * (200 - 4 - 2));
    let failure = client.reports.first_failure().unwrap();
    assert!(failure.code == 10 && failure.size == 5 && failure.partition % 100 == 60);
    assert_eq!(failure.topic.count_bytes(), if nameless { 0 } else { 249 });
}

// --- all of it -----------------------------------------------------------------------------------

#[derive(Default)]
struct Counts([usize; 5]);

impl Counts {
    fn add(&mut self, status: Result<(), Refused>) {
        self.0[status.map_or_else(|refused| refused as usize, |()| 0)] += 1;
    }
}

/// A client that was created as librdkafka does it, after some that were not.
fn created_client() -> Arc<Client> {
    let mut reason = [0; 80];
    world(|world| world.conflicts = -173);
    assert_eq!(load_plugin(&mut reason), -173);
    world(|world| world.conflicts = 0);
    assert_eq!(load_plugin(&mut reason), 0);
    assert!(take_client().is_none());
    assert_eq!(create(), 0);
    destroy(); // a client that failed to start
    assert!(take_client().is_none());
    assert_eq!(load_plugin(&mut reason), 0);
    assert_eq!(create(), 0);
    let client = take_client().unwrap();
    assert!(take_client().is_none());
    client
}

fn check_queues(client: &Client) -> Queue {
    let opened = client.partition_queue(c"t", 0).unwrap();
    assert_eq!(world(|world| world.forwarded), Some(0));
    purge(&opened);
    assert_eq!(live(), 0);
    opened.close();
    assert!(client.partition_queue(c"t", -1).is_none());
    let queue = client.new_queue().unwrap();
    assert!(client.forward(c"t", 0, &queue) && !client.forward(c"t", -1, &queue));
    assert_eq!(world(|world| world.forwarded), Some(address(&QUEUE) as usize));
    queue
}

/// What is kept of a client that was destroyed does nothing.
fn check_ended(client: &Client, queue: &Queue) {
    assert!(client.new_queue().is_none() && client.partition_queue(c"t", 0).is_none());
    assert!(!client.forward(c"t", 0, queue));
    let rows = Rows { count: 1, keys: None, values: None, times: None, headers: None };
    let mut next = 0;
    let sent = sending::send(client, (c"topic", 7), &rows, &mut next, 1, Duration::ZERO);
    assert!(sent == Ok(-197) && next == 0);
}

fn functions() -> Functions {
    Functions {
        rd_kafka_version: version,
        rd_kafka_conf_new: conf_new,
        rd_kafka_conf_set: conf_set,
        rd_kafka_conf_destroy: nothing,
        rd_kafka_conf_interceptor_add_on_conf_destroy: add_on_conf_destroy,
        rd_kafka_conf_interceptor_add_on_new: add_on_new,
        rd_kafka_interceptor_add_on_acknowledgement: add_on_acknowledgement,
        rd_kafka_last_error: last_error,
        rd_kafka_queue_new: new_queue,
        rd_kafka_queue_get_partition: get_partition,
        rd_kafka_queue_forward: forward,
        rd_kafka_queue_destroy: nothing,
        rd_kafka_queue_poll: poll,
        rd_kafka_event_type: event_type,
        rd_kafka_event_message_next: message_next,
        rd_kafka_event_error: event_error,
        rd_kafka_event_error_string: error_string,
        rd_kafka_event_topic_partition: topic_partition,
        rd_kafka_event_destroy: destroy_event,
        rd_kafka_topic_partition_destroy: destroy_place,
        rd_kafka_message_timestamp: timestamp,
        rd_kafka_message_headers: headers,
        rd_kafka_header_get_all: header_get_all,
        rd_kafka_topic_new: topic_new,
        rd_kafka_topic_destroy: topic_destroy,
        rd_kafka_topic_name: topic_name,
        rd_kafka_headers_new: headers_new,
        rd_kafka_headers_destroy: headers_destroy,
        rd_kafka_header_add: header_add,
        rd_kafka_producev: producev,
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|one| one.parse::<u64>().unwrap());
    let (seed, rounds) = (arguments.next().unwrap_or(0), arguments.next().unwrap_or(100));
    world(|world| world.state = seed + 1);
    let mut reason = [0; 80];
    assert_eq!(load_plugin(&mut reason), -194);
    assert!(CStr::from_bytes_until_nul(&reason).unwrap().to_str().unwrap().contains("not bound"));
    assert_eq!(load_plugin(&mut []), -194);
    assert!(bind(c"/absent").is_err_and(|reason| reason.contains("cannot be loaded")));
    install(functions());
    assert!(try_plugin(c"good").is_ok());
    assert_eq!(try_plugin(c"bad"), Err("r".repeat(512)));
    assert_eq!(fitting(i32::MAX as usize - 10, 10), Ok(i32::MAX as usize));
    assert_eq!(fitting(i32::MAX as usize - 10, 11), Err(Refused::TooLarge));
    assert_eq!(fitting(1, usize::MAX), Err(Refused::TooLarge));
    let mut counts = Counts::default();
    let client = created_client();
    let queue = check_queues(&client);
    check_reports(&client, false);
    check_reports(&client, true);
    (0..20 * rounds).for_each(|_| fuzz_writing(&client, &mut counts));
    for _ in 0..rounds {
        fuzz_reading(&queue, &mut counts);
        fuzz_parts(&queue, &mut counts);
    }
    destroy();
    check_ended(&client, &queue);
    queue.close();
    let [ok, no_memory, too_large, bad_header, bad_rows] = counts.0;
    println!(
        "ok={ok} no_memory={no_memory} too_large={too_large} bad_header={bad_header} \
         bad_rows={bad_rows}"
    );
}
