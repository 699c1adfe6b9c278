//! Jobs and messages: what an owner asks, as a call of a function; and what that answers, in our words.

use std::time::Duration;

use tenure_core::{
    Begin, Holder, JobAct, JobCounts, JobOutcome, JobRecord, JobSaid, JobState, JobStep, JobView, Label,
    Note, Occurrence, Payload, Plan, Published, ResourceName, Token, WallTime,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::calls::{millis, signed, small, unsigned};
use super::line::Line;
use super::schema::Quoted;
use super::trouble::Trouble;
use super::{PATIENCE, Param};
use crate::Error;

/// How often a step is sent again because another transaction went first.
const AGAIN: usize = 20;

/// Has the server carry out a step of a job, in one round trip.
pub(super) async fn carry_out(line: &Line, schema: &Quoted, step: &JobStep) -> Result<JobSaid, Trouble> {
    let Holder { lease, resource, token } = &step.holder;
    let (bearer, name, token) = (&lease.0.to_be_bytes()[..], resource.as_str(), signed(token.0));
    let patience = patience();
    let holder: [Param<'_>; 4] =
        [(&bearer, Type::BYTEA), (&name, Type::TEXT), (&token, Type::INT8), (&patience, Type::INT4)];
    let rows = match &step.act {
        JobAct::Attend { plan, from } => {
            let (plan, from) = (plan.as_str(), signed(from.as_millis()));
            let own: [Param<'_>; 2] = [(&plan, Type::TEXT), (&from, Type::INT8)];
            let sql = format!("SELECT * FROM {schema}.attend($1, $2, $3, $4, $5, $6)");
            ask(line, &sql, &[&holder[..], &own].concat()).await?
        }
        JobAct::Begin(Begin { occurrence, missed, skipped, again }) => {
            let occurrence = signed(occurrence.as_millis());
            let (missed, skipped) = (i64::from(*missed), i64::from(*skipped));
            let own: [Param<'_>; 4] = [
                (&occurrence, Type::INT8),
                (&missed, Type::INT8),
                (&skipped, Type::INT8),
                (again, Type::BOOL),
            ];
            let sql = format!("SELECT * FROM {schema}.begin($1, $2, $3, $4, $5, $6, $7, $8)");
            ask(line, &sql, &[&holder[..], &own].concat()).await?
        }
        JobAct::Finish { occurrence, outcome, note } => {
            let (occurrence, note) = (signed(occurrence.as_millis()), note.as_str());
            let outcome: i32 = match outcome {
                JobOutcome::Ran => 1,
                JobOutcome::Failed => 2,
            };
            let own: [Param<'_>; 3] =
                [(&occurrence, Type::INT8), (&outcome, Type::INT4), (&note, Type::TEXT)];
            let sql = format!("SELECT * FROM {schema}.finish($1, $2, $3, $4, $5, $6)");
            // Whose lease it was does not matter any more.
            ask(line, &sql, &[&holder[1..], &own].concat()).await?
        }
    };
    let row = rows.first().ok_or_else(|| Trouble::damaged("nothing was answered"))?;
    said(row, &step.act)
}

/// Has the server send to all who listen.
pub(super) async fn publish(
    line: &Line,
    schema: &Quoted,
    holder: &Holder,
    payload: &Payload,
) -> Result<Published, Trouble> {
    let (bearer, token) = (&holder.lease.0.to_be_bytes()[..], signed(holder.token.0));
    let (name, bytes) = (holder.resource.as_str(), payload.as_bytes());
    let params: [Param<'_>; 5] = [
        (&bearer, Type::BYTEA),
        (&name, Type::TEXT),
        (&token, Type::INT8),
        (&patience(), Type::INT4),
        (&bytes, Type::BYTEA),
    ];
    let rows = ask(line, &format!("SELECT {schema}.publish($1, $2, $3, $4, $5)"), &params).await?;
    let row = rows.first().ok_or_else(|| Trouble::damaged("nothing was answered"))?;
    Ok(if row.try_get(0)? { Published::Sent } else { Published::NotOwner })
}

/// Where the messages of a resource go. A name of letters and digits.
pub(super) async fn channel(
    line: &Line,
    schema: &Quoted,
    resource: &ResourceName,
) -> Result<String, Trouble> {
    let name = resource.as_str();
    let rows = ask(line, &format!("SELECT {schema}.channel($1)"), &[(&name, Type::TEXT)]).await?;
    let row = rows.first().ok_or_else(|| Trouble::damaged("nothing was answered"))?;
    Ok(row.try_get(0)?)
}

/// The server gives up before we do.
fn patience() -> i32 {
    millis(PATIENCE * 9 / 10)
}

async fn ask(line: &Line, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Trouble> {
    let mut again = AGAIN;
    loop {
        // Dropped, it gives its link up, so that those who follow do not queue behind it.
        let asked = tokio::time::timeout(PATIENCE, line.query(PATIENCE, sql, params)).await;
        let silent = |_| Err(Error::unavailable("the server did not answer in time").into());
        match asked.unwrap_or_else(silent) {
            Err(trouble) if trouble.made_way() && again > 0 => again -= 1,
            rows => return rows,
        }
    }
}

fn said(row: &Row, act: &JobAct) -> Result<JobSaid, Trouble> {
    Ok(match (row.try_get("said")?, act) {
        (0, JobAct::Attend { .. }) => {
            let replaced: Option<&str> = row.try_get("replaced")?;
            JobSaid::Attended {
                through: occurrence(row.try_get("through")?)?,
                latest: record(row)?,
                replaced: replaced.map(Plan::new).transpose()?,
            }
        }
        (0, JobAct::Begin(_)) => JobSaid::Begun(run(row)?),
        (0, JobAct::Finish { .. }) => JobSaid::Finished(run(row)?),
        (1, _) => JobSaid::NotOwner,
        (2, _) => JobSaid::Unknown,
        (3, _) => JobSaid::Early,
        (4, _) => JobSaid::Taken(record(row)?),
        (other, _) => return Err(Trouble::damaged(format!("the answer {other} to a step of a job"))),
    })
}

/// Rows of `jobs`: each job, once for each of its runs, or once without any. One that is damaged is an error if it was asked
/// for, else it is left out.
pub(super) fn views(rows: &[Row], one: bool) -> Result<Vec<JobView>, Trouble> {
    let mut views = Vec::new();
    // Of one job they follow each other.
    let mut rest = rows;
    while let Some(row) = rest.first() {
        let name: &str = row.try_get("name")?;
        let runs = rest
            .iter()
            .take_while(|row| row.try_get::<_, &str>("name").is_ok_and(|other| other == name))
            .count();
        let (of_this, others) = rest.split_at(runs);
        rest = others;
        match view(name, of_this) {
            Ok(view) => views.push(view),
            Err(Trouble::Damaged(how)) if !one => {
                tracing::warn!(job = name, how, "a job is left out: it is damaged");
            }
            Err(trouble) => return Err(trouble),
        }
    }
    Ok(views)
}

fn view(name: &str, rows: &[Row]) -> Result<JobView, Trouble> {
    let row = rows.first().ok_or_else(|| Trouble::damaged("a job without a row"))?;
    let count = |column| Ok::<_, Trouble>(unsigned(row.try_get(column)?));
    Ok(JobView {
        job: ResourceName::new(name)?,
        plan: Plan::new(row.try_get("plan")?)?,
        through: occurrence(row.try_get("through")?)?,
        counts: JobCounts {
            ran: count("ran")?,
            failed: count("failed")?,
            interrupted: count("interrupted")?,
            missed: count("missed_ever")?,
            skipped: count("skipped_ever")?,
        },
        records: rows.iter().map(record).filter_map(Result::transpose).collect::<Result<_, _>>()?,
    })
}

fn run(row: &Row) -> Result<JobRecord, Trouble> {
    record(row)?.ok_or_else(|| Trouble::damaged("a run without a record"))
}

/// The run of this row, if there is one.
fn record(row: &Row) -> Result<Option<JobRecord>, Trouble> {
    let Some(number) = row.try_get::<_, Option<i64>>("occurrence")? else { return Ok(None) };
    let state = match row.try_get("state")? {
        0 => JobState::Running,
        1 => JobState::Ran,
        2 => JobState::Failed,
        3 => JobState::Interrupted,
        other => return Err(Trouble::damaged(format!("the state {other} of a run"))),
    };
    let took: Option<i64> = row.try_get("took_us")?;
    Ok(Some(JobRecord {
        occurrence: occurrence(number)?,
        attempt: small(row.try_get("attempt")?)?,
        token: Token(unsigned(row.try_get("token")?)),
        key_token: Token(unsigned(row.try_get("key_token")?)),
        worker: Label::new(row.try_get("worker")?)?,
        began_at: WallTime::from_micros(unsigned(row.try_get("began_at")?)),
        state,
        took: took.map(|micros| Duration::from_micros(unsigned(micros))),
        missed: small(row.try_get("missed")?)?,
        skipped: small(row.try_get("skipped")?)?,
        note: Note::of(row.try_get("note")?),
    }))
}

fn occurrence(number: i64) -> Result<Occurrence, Trouble> {
    Ok(Occurrence::new(unsigned(number))?)
}
