//! An HTTP service of which every copy answers, and one does what only one may do. It says three different things:
//!
//! - `/livez`: this process runs. Restart it if not. It says nothing of the store: a store that is away is no
//!   reason to restart everybody.
//! - `/readyz`: it can serve. Whether it is the leader has nothing to do with it: those who are not serve, too.
//! - `/leader`: 200 on the one that owns, 503 elsewhere; for those who want to reach the owner. Never an old answer.
//!
//! `cargo run --example service [STORE [ADDRESS]]`, more than once; SIGTERM ends it: first the work, then the ticket,
//! then the requests that are under way.
// req: A5 A6

use std::io::Write;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tenure::{Campaign, Worker};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let store = arguments.next().unwrap_or_else(|| "sqlite:tenure.db".to_owned());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);

    let worker = Worker::connect(&store).await?;
    let campaign = lead(&worker)?;
    let listener = TcpListener::bind(address).await?;
    say(&format!("listening on {}", listener.local_addr()?));
    let stopped = {
        let worker = worker.clone();
        async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            // First, so that the next one leads while we still answer what we were asked.
            worker.shutdown().await;
            say("handed over");
        }
    };
    axum::serve(listener, router(campaign)).with_graceful_shutdown(stopped).await?;
    Ok(())
}

fn router(campaign: Campaign) -> Router {
    Router::new()
        .route("/livez", get(async || "alive"))
        .route("/readyz", get(async || "ready"))
        .route("/leader", get(async |State(campaign): State<Campaign>| leader(&campaign)))
        .with_state(campaign)
}

/// Tens of nanoseconds, and no question to the store: it can be asked with every request.
fn leader(campaign: &Campaign) -> (StatusCode, &'static str) {
    if campaign.is_owner() {
        (StatusCode::OK, "leader")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not the leader")
    }
}

/// What only one may do: here a timer. It is cancelled when the ownership ends, and then the ticket is free.
fn lead(worker: &Worker) -> Result<Campaign, tenure::Error> {
    worker.campaign("service.timer").spawn(async |lead| {
        say(&format!("leads, term {}", lead.term()));
        let _parting = Parting;
        loop {
            say("tick");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    })
}

/// Says so when the work ends, also when it is cancelled.
struct Parting;

impl Drop for Parting {
    fn drop(&mut self) {
        say("leads no more");
    }
}

/// To whoever listens.
fn say(line: &str) {
    let _closed = writeln!(std::io::stdout(), "{line}");
}
