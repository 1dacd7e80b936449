//! The library of the Kafka client of Python as safe types: all `unsafe` of Kafka's part.
//!
//! The functions are looked up when the process has loaded the client, so that they are
//! those that the client itself calls; nothing is linked.

#![allow(unsafe_code)]

pub mod clients;
pub mod functions;
pub mod messages;
pub mod topics;
