//! The library as its users call it, on stores in memory.

mod behaviour;
mod cron;
mod edges;
mod fanout;
mod library;
mod metrics;
mod slow_log;
mod spawn;
mod subscriptions;
