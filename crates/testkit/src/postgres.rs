//! Private PostgreSQL servers.
