//! The fixed scenario: one worker is killed, one is asked to step down, one is paused and resumed.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::RESOURCE;
use super::lives::{Life, now_us};
use super::stage::{Stage, State};
use crate::exit::{Exit, Failure};
use crate::output::{self, span};

/// How long a busy machine may take beyond what is promised; a quiet one needs some milliseconds.
const SLACK: Duration = Duration::from_secs(2);
/// How long the last owner is watched, and whoever was resumed.
const WATCHED: Duration = Duration::from_millis(500);

pub(super) async fn play(mut stage: Stage, workers: u8) -> Result<Exit, Failure> {
    match scenes(&mut stage, workers).await {
        Ok(()) => output::data("held: at no moment two worked, and each time another worker took over\n")?,
        Err(broken) if broken.exit() == Exit::UNSAFE => {
            output::data(&format!("BROKEN: {broken}\n"))?;
            return Ok(Exit::UNSAFE);
        }
        Err(failure) => return Err(failure),
    }
    Ok(Exit::OK)
}

/// A promise did not hold.
fn broken(what: String) -> Failure {
    Failure::new(what).with_exit(Exit::UNSAFE)
}

async fn scenes(stage: &mut Stage, workers: u8) -> Result<(), Failure> {
    let ttl = stage.timing.ttl();
    for _ in 0..workers {
        stage.add()?;
    }
    let first = next(stage, 0, now_us(), SLACK + ttl).await?;
    say(stage, first, "is the first to own", None)?;
    waiting(stage, usize::from(workers) - 1).await?;

    let killed = owner(stage, first);
    let at = now_us();
    stage.kill(killed);
    let second = next(stage, first.term, at, SLACK).await?;
    say(stage, second, &format!("took over after `{}` was killed", stage.workers[killed].name), Some(at))?;

    let at = now_us();
    let view = stage.store.read(RESOURCE).await?;
    let token = view.and_then(|view| view.owners.first().map(|owner| owner.grant.token.0)).unwrap_or(0);
    let _asked = stage.store.ask(RESOURCE, token, None).await?;
    // The owner learns of the wish with its next renewal, if not sooner.
    let third = next(stage, second.term, at, SLACK + stage.timing.renew()).await?;
    let asked = stage.workers[owner(stage, second)].name.clone();
    say(stage, third, &format!("took over from `{asked}`, which was asked to step down"), Some(at))?;

    stage.add()?;
    let paused = owner(stage, third);
    let at = pause(stage, paused).await;
    let fourth = next(stage, third.term, at, SLACK + ttl).await?;
    let name = stage.workers[paused].name.clone();
    say(
        stage,
        fourth,
        &format!("took over when the lease of `{name}`, which is paused, had run out"),
        Some(at),
    )?;

    let at = now_us();
    stage.resume_all();
    goes_on(stage, fourth, at).await?;
    checked(stage)?;
    output::data(&format!("`{name}` was resumed, and did not believe that it was the owner\n"))
}

/// Pauses a worker, but not in the middle of a write: there it would keep everybody from writing, as SQLite has it, and
/// nobody could take over until it is resumed. Says when.
async fn pause(stage: &mut Stage, at: usize) -> u64 {
    loop {
        let now = now_us();
        stage.pause(at);
        // Nobody has that token; but whoever asks has to be able to write.
        let asked = timeout(WATCHED, stage.store.ask(RESOURCE, 0, None)).await;
        if matches!(asked, Ok(Ok(_))) {
            return now;
        }
        stage.resume_all();
        sleep(Duration::from_millis(20)).await;
    }
}

/// Waits for the work of a later term, which must begin within `limit` of `since_us`.
async fn next(stage: &mut Stage, after: u64, since_us: u64, limit: Duration) -> Result<Life, Failure> {
    loop {
        checked(stage)?;
        if let Some(life) = stage.lives.read()?.iter().find(|life| life.term > after) {
            return Ok(*life);
        }
        if Duration::from_micros(now_us().saturating_sub(since_us)) > limit {
            return Err(broken(format!("nobody took over within {}", span(limit))));
        }
        sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until so many workers wait, so that the first of them takes over and not one that comes only then.
async fn waiting(stage: &Stage, count: usize) -> Result<(), Failure> {
    let limit = Instant::now() + SLACK * 3;
    while Instant::now() < limit {
        let view = stage.store.read(RESOURCE).await?;
        if view.is_some_and(|view| view.waiters.len() >= count) {
            return Ok(());
        }
        sleep(Duration::from_millis(5)).await;
    }
    Err(Failure::new("the workers of the demo do not start"))
}

/// The owner works on, and no other worker beside it.
async fn goes_on(stage: &mut Stage, life: Life, since_us: u64) -> Result<(), Failure> {
    let until = since_us + u64::try_from(WATCHED.as_micros()).unwrap_or(0);
    let limit = Instant::now() + WATCHED + SLACK;
    while Instant::now() < limit {
        checked(stage)?;
        let works_on = |later: &Life| later.term >= life.term && later.last_us >= until;
        if stage.lives.read()?.iter().any(works_on) {
            return checked(stage);
        }
        sleep(Duration::from_millis(5)).await;
    }
    Err(broken("the owner does not go on".to_owned()))
}

fn checked(stage: &Stage) -> Result<(), Failure> {
    stage.lives.two_at_once().map_or(Ok(()), |(one, other)| {
        let name = |life: Life| {
            let player = stage.workers.iter().find(|player| player.pid() == life.pid);
            player.map_or_else(|| life.pid.to_string(), |player| player.name.clone())
        };
        let (a, b) = (name(one), name(other));
        Err(broken(format!("`{a}` (term {}) and `{b}` (term {}) worked at once", one.term, other.term)))
    })
}

fn owner(stage: &Stage, life: Life) -> usize {
    let alive = |player: &super::stage::Player| player.pid() == life.pid && player.state != State::Dead;
    stage.workers.iter().position(alive).unwrap_or(0)
}

fn say(stage: &Stage, life: Life, what: &str, since_us: Option<u64>) -> Result<(), Failure> {
    let name =
        stage.workers.iter().find(|player| player.pid() == life.pid).map_or("?", |player| &player.name);
    let after = since_us.map(|since| Duration::from_micros(life.first_us.saturating_sub(since)));
    let after = after.map(|after| format!(", {} later", span(after))).unwrap_or_default();
    output::data(&format!("`{name}` {what}{after} (term {})\n", life.term))
}
