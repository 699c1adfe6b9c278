//! What a worker asks, as a call of a function; and what that answers, in our words.

use std::time::Duration;

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
/// How often a request is sent again because another transaction went first, or because the store was reborn.
const AGAIN: usize = 20;

/// Has the server carry out a request, in one round trip unless it was reborn or another transaction went first.
pub(super) async fn carry_out(line: &Line, schema: &Quoted, request: &Request) -> Result<Answer, Trouble> {
    let mut again = AGAIN;
    loop {
        let answer = send(line, schema, request).await;
        again = again.saturating_sub(1);
        match answer {
            Err(trouble) if trouble.made_way() && again > 0 => {}
            Ok(None) if again > 0 => see(line, schema, request).await?,
            Ok(None) => return Err(Trouble::damaged("a new life of the server cannot be written down")),
            Ok(Some(answer)) => return Ok(answer),
            Err(trouble) => return Err(trouble),
        }
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
    line.query(&sql, &params).await?;
    Ok(())
}

/// Sends it once. Nothing comes of it where the store has to notice something first.
async fn send(line: &Line, schema: &Quoted, request: &Request) -> Result<Option<Answer>, Trouble> {
    let bearer = request.lease.0.to_be_bytes();
    let bearer = &bearer[..];
    let seq = i64::try_from(request.seq.0).map_err(|_| {
        Trouble::Told(Error::refused(format!("request number {} is not below 2^63", request.seq.0)))
    })?;
    let judged_by = request.judged_by.map(|time| signed(time.as_micros()));
    let (longest, patience) = (nanos(request.longest), millis(patience(request)));
    let common: [Param<'_>; 5] = [
        (&bearer, Type::BYTEA),
        (&seq, Type::INT8),
        (&judged_by, Type::INT8),
        (&longest, Type::INT8),
        (&patience, Type::INT4),
    ];
    let [who, .., waits] = common.clone();
    let rows = match &request.call {
        Call::Open { ttl, label, metadata } => {
            let sql = format!("SELECT * FROM {schema}.open($1, $2, $3, $4, $5, $6, $7, $8)");
            let (ttl, label, metadata) = (nanos(*ttl), label.as_str(), metadata.as_str());
            let own: [Param<'_>; 3] = [(&ttl, Type::INT8), (&label, Type::TEXT), (&metadata, Type::TEXT)];
            line.query(&sql, &[&common[..], &own].concat()).await?
        }
        Call::Renew => {
            line.query(&format!("SELECT * FROM {schema}.renew($1, $2, $3, $4, $5)"), &common).await?
        }
        Call::Claim(wants) => {
            let sql = format!("SELECT * FROM {schema}.claim($1, $2, $3, $4, $5, $6, $7, $8)");
            let names: Vec<&str> = wants.iter().map(|want| want.resource.as_str()).collect();
            let tickets: Vec<i32> = wants.iter().map(tickets).collect();
            let priorities: Vec<i32> = wants.iter().map(|want| want.priority).collect();
            let own: [Param<'_>; 3] =
                [(&names, Type::TEXT_ARRAY), (&tickets, Type::INT4_ARRAY), (&priorities, Type::INT4_ARRAY)];
            line.query(&sql, &[&common[..], &own].concat()).await?
        }
        Call::Release(leaves) => {
            let sql = format!("SELECT * FROM {schema}.release($1, $2, $3, $4, $5, $6, $7)");
            let names: Vec<&str> = leaves.iter().map(|leave| leave.resource.as_str()).collect();
            let how: Vec<i32> = leaves.iter().map(how).collect();
            let own: [Param<'_>; 2] = [(&names, Type::TEXT_ARRAY), (&how, Type::INT4_ARRAY)];
            line.query(&sql, &[&common[..], &own].concat()).await?
        }
        Call::Held => line.query(&format!("SELECT * FROM {schema}.held($1, $2)"), &[who, waits]).await?,
        Call::Close(why) => {
            let why: i16 = match why {
                Closing::Left => 0,
                Closing::Expired => 1,
                Closing::Proved => 2,
            };
            let params = [who, waits, (&why, Type::INT2)];
            line.query(&format!("SELECT * FROM {schema}.close($1, $2, $3)"), &params).await?
        }
    };
    let row = rows.first().ok_or_else(|| Trouble::damaged("nothing was answered"))?;
    answer(row, request)
}

/// How long the server waits for a lock before it gives up: less than we wait for it.
fn patience(request: &Request) -> Duration {
    match request.call {
        Call::Renew | Call::Held | Call::Close(_) => (request.limit / 2).min(LEASE_IS_LOCKED_FOR),
        Call::Open { .. } | Call::Claim(_) | Call::Release(_) => request.limit * 9 / 10,
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

fn answer(row: &Row, request: &Request) -> Result<Option<Answer>, Trouble> {
    let stamp = Stamp {
        now: StoreTime::from_micros(unsigned(row.try_get("now_us")?)),
        incarnation: incarnation(row.try_get("incarnation")?),
        longest: Duration::from_nanos(unsigned(row.try_get("longest_ns")?)),
    };
    let numbers: Option<Vec<i64>> = row.try_get("numbers")?;
    let numbers = numbers.unwrap_or_default();
    let names: Option<Vec<&str>> = row.try_get("names")?;
    let names = names.unwrap_or_default();
    let said = match (row.try_get("verdict")?, &request.call) {
        (0_i16, _) => return Ok(None),
        (1, Call::Open { .. }) => Said::Opened,
        (2, Call::Renew) => {
            let (more, told) =
                numbers.split_first().ok_or_else(|| Trouble::damaged("a renewal without numbers"))?;
            Said::Kept { notices: notices(told, &names)?, more: *more != 0 }
        }
        (3, Call::Claim(wants)) => Said::Claimed(each(&numbers, wants.len(), claimed)?),
        (4, Call::Release(leaves)) => Said::Released(each(&numbers, leaves.len(), released)?),
        (5, Call::Held) => Said::Held(holdings(&numbers, &names)?),
        (6, Call::Close(_)) => Said::Closed,
        (7, _) => Said::Gone,
        (8, Call::Renew) => Said::Stale,
        (verdict, _) => return Err(Trouble::damaged(format!("the verdict {verdict}"))),
    };
    Ok(Some(Answer { stamp, said }))
}

/// Names the life of the store by what makes it up: server, timeline, start, table.
fn incarnation(made_of: &str) -> Incarnation {
    let hash = Sha256::digest(made_of.as_bytes());
    Incarnation(hash.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte)))
}

/// Four numbers for each resource.
fn each<T>(
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

fn claimed(four: [i64; 4]) -> Result<Claimed, Trouble> {
    let [kind, a, b, c] = four;
    Ok(match kind {
        0 => Claimed::Granted(Grant {
            ticket: Ticket(small(a)?),
            term: Term(unsigned(b)),
            token: Token(unsigned(c)),
        }),
        1 => Claimed::Waiting(Waiting {
            ahead: small(a)?,
            look_again: Duration::from_micros(unsigned(b)),
            why: match c {
                0 => Why::Taken,
                1 => Why::Turn,
                _ => Why::Quarantine,
            },
        }),
        2 => Claimed::Stale,
        other => return Err(Trouble::damaged(format!("the answer {other} to a claim"))),
    })
}

fn released(four: [i64; 4]) -> Result<Released, Trouble> {
    Ok(match four[0] {
        2 => Released::Stale,
        3 => Released::Free,
        _ => Released::Again(claimed(four)?),
    })
}

fn notices(numbers: &[i64], names: &[&str]) -> Result<Vec<Notice>, Trouble> {
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

fn holdings(numbers: &[i64], names: &[&str]) -> Result<Vec<Holding>, Trouble> {
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
