//! What a worker asks, as a call of a function; and what that answers, in our words.

use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tenure_core::{
    Answer, Call, Claimed, Closing, Grant, Holding, Incarnation, Leave, Leaving, Notice, Released, Request,
    ResourceName, Said, Stamp, StoreTime, Term, Ticket, Token, Waiting, Want, Why, Wish,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Param;
use super::line::Line;
use super::schema::Quoted;
use super::trouble::Trouble;
use crate::Error;

/// A renewal waits for its own row only, which others hold for a moment; who holds it longer holds up all the workers
/// of this process, so it tries again on another connection instead.
const LEASE_IS_LOCKED_FOR: Duration = Duration::from_millis(250);
/// How long a request that shares its connection waits for a resource: those that come after it wait, too. Then it goes
/// on over a connection of its own.
const BRIEFLY: Duration = Duration::from_millis(100);
/// A request about several resources holds all that it has already while it waits for the next. If that takes longer,
/// it takes what it can have, and leaves the rest for another time.
const BATCH_WAITS_FOR: Duration = Duration::from_millis(500);
/// When to look again for what was left.
const LOOKS_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Nobody is told to look again sooner.
const SOONEST: Duration = Duration::from_millis(1);
/// The answer about a resource that another transaction holds.
const LEFT_OUT: i64 = 4;
/// The verdict on a release that the disk does not have yet.
const NOT_KEPT_YET: i16 = 9;
/// How often a request is sent again because another transaction went first, or because the store was reborn.
const AGAIN: usize = 20;

/// Has the server carry out a request, in one round trip unless it was reborn, another transaction went first, one holds
/// what is needed, or a release has woken somebody.
pub(super) async fn carry_out(line: &Line, schema: &Quoted, request: &Request) -> Result<Answer, Trouble> {
    let (began, mut again, mut manner) = (Instant::now(), AGAIN, Manner::Shared);
    loop {
        let answer = send(line, schema, request, manner, began.elapsed()).await;
        again = again.saturating_sub(1);
        match answer {
            Err(trouble) if trouble.made_way() && again > 0 => {}
            Err(Trouble::Locked) if is_about_resources(request) => {
                manner = match manner {
                    Manner::Shared => Manner::Apart,
                    Manner::Apart | Manner::Skipping
                        if is_batch(request) && began.elapsed() < request.limit * 3 / 4 =>
                    {
                        Manner::Skipping
                    }
                    Manner::Apart | Manner::Skipping => return Err(Trouble::Locked),
                };
            }
            Ok(None) if again > 0 => see(line, schema, request).await?,
            Ok(None) => return Err(Trouble::damaged("a new life of the server cannot be written down")),
            Ok(Some(Told { answer, left, is_kept })) => {
                if !is_kept {
                    flush(line, schema, request, began.elapsed()).await?;
                }
                return release_the_rest(line, schema, request, answer, &left).await;
            }
            Err(trouble) => return Err(trouble),
        }
    }
}

/// Waits until the disk has what was released: meanwhile the next owner has been told already, and its grant waits for the
/// disk, too.
async fn flush(line: &Line, schema: &Quoted, request: &Request, gone_by: Duration) -> Result<(), Trouble> {
    let Call::Release(leaves) = &request.call else { return Ok(()) };
    let (bearer, seq) = (request.lease.0.to_be_bytes(), number(request)?);
    let limit = request.limit.saturating_sub(gone_by);
    let names: Vec<&str> = leaves.iter().map(|leave| leave.resource.as_str()).collect();
    let params: [Param<'_>; 4] = [
        (&&bearer[..], Type::BYTEA),
        (&seq, Type::INT8),
        (&millis(limit), Type::INT4),
        (&names, Type::TEXT_ARRAY),
    ];
    let rows = line.query(limit, &format!("SELECT {schema}.flush($1, $2, $3, $4)"), &params).await?;
    let row = rows.first().ok_or_else(|| Trouble::damaged("nothing was answered"))?;
    match row.try_get(0)? {
        true => Ok(()),
        false => Err(Error::unavailable("cannot release: the server has forgotten it again").into()),
    }
}

/// Releases those that another transaction held, one at a time: each is waited for by itself alone.
async fn release_the_rest(
    line: &Line,
    schema: &Quoted,
    request: &Request,
    mut answer: Answer,
    left: &[usize],
) -> Result<Answer, Trouble> {
    let Call::Release(leaves) = &request.call else { return Ok(answer) };
    for index in left {
        let one = Request { call: Call::Release(vec![leaves[*index].clone()]), ..request.clone() };
        let of_one = Box::pin(carry_out(line, schema, &one)).await?;
        if of_one.stamp.incarnation != answer.stamp.incarnation {
            return Err(Error::unavailable("cannot release: the server was restarted meanwhile").into());
        }
        answer.stamp = of_one.stamp;
        match (&mut answer.said, of_one.said) {
            (Said::Released(all), Said::Released(one)) => all[*index] = one[0],
            (_, said) => return Ok(Answer { said, ..answer }),
        }
    }
    Ok(answer)
}

/// How a request is sent, and what it does about a resource that another transaction holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Over the connection of all, where it waits for a moment.
    Shared,
    /// Over a connection of its own, where it waits for longer.
    Apart,
    /// It leaves out what it cannot have at once.
    Skipping,
}

fn is_about_resources(request: &Request) -> bool {
    matches!(request.call, Call::Claim(_) | Call::Release(_))
}

fn is_batch(request: &Request) -> bool {
    match &request.call {
        Call::Claim(wants) => wants.len() > 1,
        Call::Release(leaves) => leaves.len() > 1,
        _ => false,
    }
}

/// Has the store notice its new life, or a longer ttl.
async fn see(line: &Line, schema: &Quoted, request: &Request) -> Result<(), Trouble> {
    let ttl = match request.call {
        Call::Open { ttl, .. } => ttl,
        _ => Duration::ZERO,
    };
    let sql = format!("SELECT {schema}.see($1, $2)");
    let params: [Param<'_>; 2] =
        [(&millis(request.limit), Type::INT4), (&nanos(request.longest.max(ttl)), Type::INT8)];
    line.query(request.limit, &sql, &params).await?;
    Ok(())
}

/// What the server said to a request.
struct Told {
    answer: Answer,
    /// Those of its resources that were left out.
    left: Vec<usize>,
    /// Whether the disk has it.
    is_kept: bool,
}

/// Sends it once. Nothing comes of it where the store has to notice something first.
async fn send(
    line: &Line,
    schema: &Quoted,
    request: &Request,
    manner: Manner,
    gone_by: Duration,
) -> Result<Option<Told>, Trouble> {
    let bearer = request.lease.0.to_be_bytes();
    let bearer = &bearer[..];
    let seq = number(request)?;
    let judged_by = request.judged_by.map(|time| signed(time.as_micros()));
    let (longest, patience) = (nanos(request.longest), millis(patience(request, manner, gone_by)));
    let common: [Param<'_>; 5] = [
        (&bearer, Type::BYTEA),
        (&seq, Type::INT8),
        (&judged_by, Type::INT8),
        (&longest, Type::INT8),
        (&patience, Type::INT4),
    ];
    let [who, .., patience] = common.clone();
    let waits = manner != Manner::Skipping;
    let limit = request.limit.saturating_sub(gone_by);
    let ask = async |sql: String, params: &[Param<'_>]| match manner {
        Manner::Apart => line.query_apart(limit, &sql, params).await,
        Manner::Shared | Manner::Skipping => line.query(limit, &sql, params).await,
    };
    let rows = match &request.call {
        Call::Open { ttl, label, metadata } => {
            let sql = format!("SELECT * FROM {schema}.open($1, $2, $3, $4, $5, $6, $7, $8)");
            let (ttl, label, metadata) = (nanos(*ttl), label.as_str(), metadata.as_str());
            let own: [Param<'_>; 3] = [(&ttl, Type::INT8), (&label, Type::TEXT), (&metadata, Type::TEXT)];
            ask(sql, &[&common[..], &own].concat()).await?
        }
        Call::Renew => ask(format!("SELECT * FROM {schema}.renew($1, $2, $3, $4, $5)"), &common).await?,
        Call::Claim(wants) => {
            let sql = format!("SELECT * FROM {schema}.claim($1, $2, $3, $4, $5, $6, $7, $8, $9)");
            let names: Vec<&str> = wants.iter().map(|want| want.resource.as_str()).collect();
            let tickets: Vec<i32> = wants.iter().map(tickets).collect();
            let priorities: Vec<i32> = wants.iter().map(|want| want.priority).collect();
            let own: [Param<'_>; 4] = [
                (&names, Type::TEXT_ARRAY),
                (&tickets, Type::INT4_ARRAY),
                (&priorities, Type::INT4_ARRAY),
                (&waits, Type::BOOL),
            ];
            ask(sql, &[&common[..], &own].concat()).await?
        }
        Call::Release(leaves) => {
            let sql = format!("SELECT * FROM {schema}.release($1, $2, $3, $4, $5, $6, $7, $8)");
            let names: Vec<&str> = leaves.iter().map(|leave| leave.resource.as_str()).collect();
            let how: Vec<i32> = leaves.iter().map(how).collect();
            let own: [Param<'_>; 3] =
                [(&names, Type::TEXT_ARRAY), (&how, Type::INT4_ARRAY), (&waits, Type::BOOL)];
            ask(sql, &[&common[..], &own].concat()).await?
        }
        Call::Held => ask(format!("SELECT * FROM {schema}.held($1, $2)"), &[who, patience]).await?,
        Call::Close(why) => {
            let why: i16 = match why {
                Closing::Left => 0,
                Closing::Expired => 1,
                Closing::Proved => 2,
            };
            let params = [who, patience, (&why, Type::INT2)];
            ask(format!("SELECT * FROM {schema}.close($1, $2, $3)"), &params).await?
        }
    };
    let row = rows.first().ok_or_else(|| Trouble::damaged("nothing was answered"))?;
    answer(row, request)
}

fn number(request: &Request) -> Result<i64, Trouble> {
    i64::try_from(request.seq.0).map_err(|_| {
        Trouble::Told(Error::refused(format!("request number {} is not below 2^63", request.seq.0)))
    })
}

/// How long the server waits for a lock before it gives up: less than we wait for it.
fn patience(request: &Request, manner: Manner, gone_by: Duration) -> Duration {
    let (limit, most) = (request.limit, request.limit * 9 / 10);
    match (&request.call, manner) {
        (Call::Renew | Call::Held | Call::Close(_), _) => (limit / 2).min(LEASE_IS_LOCKED_FOR),
        (Call::Open { .. }, _) => most,
        (Call::Claim(_) | Call::Release(_), Manner::Shared) => (limit / 4).min(BRIEFLY),
        (Call::Claim(_) | Call::Release(_), _) if is_batch(request) => (limit / 4).min(BATCH_WAITS_FOR),
        (Call::Claim(_) | Call::Release(_), _) => most.saturating_sub(gone_by),
    }
}

fn tickets(want: &Want) -> i32 {
    i32::try_from(want.tickets.count()).unwrap_or(i32::MAX)
}

fn how(leave: &Leave) -> i32 {
    match leave.how {
        Leaving::Released => 0,
        Leaving::Failed => 1,
        Leaving::SteppedDown => 2,
    }
}

fn answer(row: &Row, request: &Request) -> Result<Option<Told>, Trouble> {
    let now = StoreTime::from_micros(unsigned(row.try_get("now_us")?));
    let shown: Option<i64> = row.try_get("shown_us")?;
    let stamp = Stamp {
        now,
        shown: shown.map_or(now, |shown| StoreTime::from_micros(unsigned(shown))),
        incarnation: incarnation(row.try_get("incarnation")?),
        longest: Duration::from_nanos(unsigned(row.try_get("longest_ns")?)),
    };
    // The server counts spans from when it decided.
    let spent = stamp.shown.since(now);
    let numbers: Option<Vec<i64>> = row.try_get("numbers")?;
    let numbers = numbers.unwrap_or_default();
    let names: Option<Vec<&str>> = row.try_get("names")?;
    let names = names.unwrap_or_default();
    let verdict: i16 = row.try_get("verdict")?;
    let said = match (verdict, &request.call) {
        (0, _) => return Ok(None),
        (1, Call::Open { .. }) => Said::Opened,
        (2, Call::Renew) => {
            let (more, told) =
                numbers.split_first().ok_or_else(|| Trouble::damaged("a renewal without numbers"))?;
            Said::Kept { notices: notices(told, &names)?, more: *more != 0 }
        }
        (3, Call::Claim(wants)) => Said::Claimed(each(&numbers, wants.len(), |four| claimed(four, spent))?),
        (4 | NOT_KEPT_YET, Call::Release(leaves)) => {
            Said::Released(each(&numbers, leaves.len(), |four| released(four, spent))?)
        }
        (5, Call::Held) => Said::Held(holdings(&numbers, &names)?),
        (6, Call::Close(_)) => Said::Closed,
        (7, _) => Said::Gone,
        (8, Call::Renew) => Said::Stale,
        (verdict, _) => return Err(Trouble::damaged(format!("the verdict {verdict}"))),
    };
    let (fours, _) = numbers.as_chunks::<4>();
    let left = fours.iter().enumerate().filter(|(_, four)| four[0] == LEFT_OUT).map(|(index, _)| index);
    let left = if is_batch(request) { left.collect() } else { Vec::new() };
    Ok(Some(Told { answer: Answer { stamp, said }, left, is_kept: verdict != NOT_KEPT_YET }))
}

/// Names the life of the store by what makes it up: server, timeline, start, table.
fn incarnation(made_of: &str) -> Incarnation {
    let hash = Sha256::digest(made_of.as_bytes());
    Incarnation(hash.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte)))
}

/// Four numbers for each resource.
pub(super) fn each<T>(
    numbers: &[i64],
    count: usize,
    read: impl Fn([i64; 4]) -> Result<T, Trouble>,
) -> Result<Vec<T>, Trouble> {
    let (fours, rest) = numbers.as_chunks::<4>();
    if fours.len() != count || !rest.is_empty() {
        return Err(Trouble::damaged(format!("{} numbers for {count} resources", numbers.len())));
    }
    fours.iter().map(|four| read(*four)).collect()
}

pub(super) fn claimed(four: [i64; 4], spent: Duration) -> Result<Claimed, Trouble> {
    let [kind, a, b, c] = four;
    Ok(match kind {
        0 => Claimed::Granted(Grant {
            ticket: Ticket(small(a)?),
            term: Term(unsigned(b)),
            token: Token(unsigned(c)),
        }),
        1 => Claimed::Waiting(Waiting {
            ahead: small(a)?,
            look_again: Duration::from_micros(unsigned(b)).saturating_sub(spent).max(SOONEST),
            why: match c {
                0 => Why::Taken,
                1 => Why::Turn,
                _ => Why::Quarantine,
            },
        }),
        2 => Claimed::Stale,
        // Nothing is known of it, and it is looked at again.
        LEFT_OUT => Claimed::Waiting(Waiting { ahead: 0, look_again: LOOKS_AGAIN_AFTER, why: Why::Taken }),
        other => return Err(Trouble::damaged(format!("the answer {other} to a claim"))),
    })
}

pub(super) fn released(four: [i64; 4], spent: Duration) -> Result<Released, Trouble> {
    Ok(match four[0] {
        2 => Released::Stale,
        3 => Released::Free,
        // It is released after the others.
        LEFT_OUT => Released::Free,
        _ => Released::Again(claimed(four, spent)?),
    })
}

pub(super) fn notices(numbers: &[i64], names: &[&str]) -> Result<Vec<Notice>, Trouble> {
    let (pairs, _) = numbers.as_chunks::<2>();
    let notice = |([token, wish], name): (&[i64; 2], &&str)| {
        let wish = match wish {
            0 => Wish::Lowered,
            1 => Wish::Asked,
            2 => Wish::Evicted,
            other => return Err(Trouble::damaged(format!("the wish {other}"))),
        };
        Ok(Notice { resource: ResourceName::new(name)?, token: Token(unsigned(*token)), wish })
    };
    pairs.iter().zip(names).map(notice).collect()
}

pub(super) fn holdings(numbers: &[i64], names: &[&str]) -> Result<Vec<Holding>, Trouble> {
    let (pairs, _) = numbers.as_chunks::<2>();
    let holding = |([ticket, token], name): (&[i64; 2], &&str)| {
        let (ticket, token) = (Ticket(small(*ticket)?), Token(unsigned(*token)));
        Ok(Holding { resource: ResourceName::new(name)?, ticket, token })
    };
    pairs.iter().zip(names).map(holding).collect()
}

/// A span in nanoseconds; one beyond 292 years is cut there.
fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

/// A span in milliseconds, at least one: none would be for ever.
pub(super) fn millis(span: Duration) -> i32 {
    i32::try_from(span.as_millis()).unwrap_or(i32::MAX).max(1)
}

/// Counters, times and tokens stay far below 2^63.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

pub(super) fn small(number: i64) -> Result<u32, Trouble> {
    u32::try_from(number).map_err(|_| Trouble::damaged(format!("the number {number}")))
}
