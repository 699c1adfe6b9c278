//! The peers that are crates, as candidates: `tenure-bench-peers PEER URL TTL_MS`.

#[path = "../../../src/peers/protocol.rs"]
mod protocol;

mod etcd;
mod rslock;

use std::process::ExitCode;
use std::time::Duration;

use protocol::{Trouble, serve};

fn main() -> ExitCode {
    match play() {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("{trouble}");
            ExitCode::FAILURE
        }
    }
}

fn play() -> Result<(), Trouble> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [peer, url, ttl] = words.as_slice() else { return Err("a candidate has three words".into()) };
    let ttl = Duration::from_millis(ttl.parse()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match peer.as_str() {
            "etcd" => serve(etcd::Candidate::connect(url, ttl).await?).await,
            "rslock" => serve(rslock::Candidate::connect(url, ttl)).await,
            other => Err(format!("there is no candidate {other:?}").into()),
        }
    })
}
