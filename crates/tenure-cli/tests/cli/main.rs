//! The command line as people use it: real processes, killed, stopped and asked as people do.
//!
//! `scene` starts and ends them, `command` is a command that writes down when it lives.
#![cfg(target_os = "linux")]

mod command;
mod deaths;
mod ends;
mod guard;
mod input;
mod notify;
mod options;
mod scene;
mod status;
mod stops;
mod terminal;
