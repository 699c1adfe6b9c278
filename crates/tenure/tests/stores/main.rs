//! Every store on real files and real servers: what each promises, what it needs, and what it survives.

mod conformance;
mod fences;
mod forks;
mod postgres;
mod postgres_backend;
mod redis;
mod redis_backend;
mod sqlite;
mod sqlite_backend;
