//! The command line as people use it: real processes, killed, stopped and asked as people do.
//!
//! `scene` starts and ends them, `command` is a command that writes down when it lives, `terminal` a terminal with somebody
//! who reads it, `stores` the servers.
#![cfg(target_os = "linux")]

mod command;
mod config;
mod cron;
mod deaths;
mod demo;
mod doctor;
mod ends;
mod explain;
mod guard;
mod help;
mod history;
mod hostile;
mod input;
mod job_control;
mod new;
mod notify;
mod once;
mod options;
mod outages;
mod prose;
mod scene;
mod schema;
mod status;
mod step_down;
mod stops;
mod stores;
mod terminal;
mod watch;
