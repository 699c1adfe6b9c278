//! What the scripts say, turned into ours. Whatever does not fit is an error, never a guess.

pub(super) mod jobs;

use std::time::Duration;

use redis::Value;
use tenure_core::{
    Answer, Asked, Call, Claimed, Grant, Happened, Holding, Incarnation, Label, Leaving, Metadata, NOTICES,
    Notice, OwnerView, Record, Released, ResourceName, ResourceView, Said, Stamp, StoreTime, Term, Ticket,
    Token, WaiterView, Waiting, Why, Wish,
};

use super::trouble::{Outcome, Trouble};

/// The parts of an answer, taken one by one.
struct Parts(std::vec::IntoIter<Value>);

impl Parts {
    fn of(value: Value) -> Outcome<Self> {
        match value {
            Value::Array(parts) => Ok(Self(parts.into_iter())),
            other => Err(odd("a list", &other)),
        }
    }

    fn next(&mut self) -> Outcome<Value> {
        self.0.next().ok_or_else(|| Trouble::Odd("a part is missing".to_owned()))
    }

    fn text(&mut self) -> Outcome<String> {
        match self.next()? {
            Value::BulkString(bytes) => {
                String::from_utf8(bytes).map_err(|_| Trouble::Odd("a text is not UTF-8".to_owned()))
            }
            other => Err(odd("a text", &other)),
        }
    }

    fn number<T: std::str::FromStr>(&mut self) -> Outcome<T> {
        parsed(&self.text()?)
    }

    fn list(&mut self) -> Outcome<Self> {
        Self::of(self.next()?)
    }

    /// Each of the parts that are left, read by `read`.
    fn each<T>(self, read: impl Fn(Self) -> Outcome<T>) -> Outcome<Vec<T>> {
        self.0.map(|value| read(Self::of(value)?)).collect()
    }

    /// The same, without those that `read` does not understand: what is damaged must not hide the rest. Says how many
    /// those are.
    fn each_sound<T>(self, read: impl Fn(Self) -> Outcome<T>) -> (Vec<T>, usize) {
        let count = self.0.len();
        let sound: Vec<T> = self.0.filter_map(|value| read(Self::of(value).ok()?).ok()).collect();
        let left_out = count - sound.len();
        (sound, left_out)
    }

    /// The same of rows that are texts.
    fn each_sound_row<T>(mut self, read: impl Fn(&str) -> Outcome<T>) -> (Vec<T>, usize) {
        let count = self.0.len();
        let sound: Vec<T> = (0..count).filter_map(|_| read(&self.text().ok()?).ok()).collect();
        let left_out = count - sound.len();
        (sound, left_out)
    }

    fn texts(mut self) -> Outcome<Vec<String>> {
        let count = self.0.len();
        (0..count).map(|_| self.text()).collect()
    }
}

fn parsed<T: std::str::FromStr>(text: &str) -> Outcome<T> {
    text.parse().map_err(|_| Trouble::Odd(format!("{:?} is not a number that fits", beginning(text))))
}

/// Of a value, the kind only: it may hold anything.
fn odd(wanted: &str, value: &Value) -> Trouble {
    let kind = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) | Value::Okay => "a text",
        Value::Array(_) => "a list",
        _ => "something else",
    };
    Trouble::Odd(format!("{kind} instead of {wanted}"))
}

fn beginning(text: &str) -> String {
    text.chars().take(20).collect()
}

fn unknown(text: &str) -> Trouble {
    Trouble::Odd(format!("the word {:?}", beginning(text)))
}

fn stamp(parts: &mut Parts) -> Outcome<Stamp> {
    let now = StoreTime::from_micros(parts.number()?);
    let life = u128::from_str_radix(&parts.text()?, 16);
    let incarnation =
        Incarnation(life.map_err(|_| Trouble::Odd("it does not say which life it is".to_owned()))?);
    Ok(Stamp { now, shown: now, incarnation, longest: Duration::from_nanos(parts.number()?) })
}

/// The answer to what a worker asked.
pub(super) fn answer(call: &Call, value: Value) -> Outcome<Answer> {
    let mut parts = Parts::of(value)?;
    let stamp = stamp(&mut parts)?;
    let said = match parts.text()?.as_str() {
        "opened" => Said::Opened,
        "closed" => {
            report(&parts.list()?.texts()?, 0);
            Said::Closed
        }
        "gone" => Said::Gone,
        "stale" => Said::Stale,
        "kept" => {
            let rows = parts.list()?.texts()?;
            let more = rows.len() > NOTICES;
            Said::Kept { notices: sound_rows(&rows[..rows.len().min(NOTICES)], notice), more }
        }
        "held" => Said::Held(sound_rows(&parts.list()?.texts()?, holding)),
        "claimed" => Said::Claimed(parts.list()?.each(claimed)?),
        "released" => {
            let Call::Release(leaves) = call else { return Err(unknown("released")) };
            let answers = parts.list()?.0;
            let released = leaves.iter().zip(answers).map(|(leave, value)| released(leave.how, value));
            Said::Released(released.collect::<Outcome<_>>()?)
        }
        other => return Err(unknown(other)),
    };
    match (call, &said) {
        (Call::Claim(wants), Said::Claimed(answers)) if wants.len() == answers.len() => {}
        (Call::Release(leaves), Said::Released(answers)) if leaves.len() == answers.len() => {}
        (Call::Claim(_) | Call::Release(_), Said::Claimed(_) | Said::Released(_)) => {
            return Err(Trouble::Odd("an answer is missing".to_owned()));
        }
        (Call::Open { .. }, Said::Opened)
        | (Call::Renew, Said::Kept { .. } | Said::Stale)
        | (Call::Held, Said::Held(_))
        | (Call::Close(_), Said::Closed)
        | (_, Said::Gone) => {}
        _ => return Err(Trouble::Odd("the answer to another request".to_owned())),
    }
    Ok(Answer { stamp, said })
}

fn grant(parts: &mut Parts) -> Outcome<Grant> {
    Ok(Grant { ticket: Ticket(parts.number()?), term: Term(parts.number()?), token: Token(parts.number()?) })
}

fn claimed(mut parts: Parts) -> Outcome<Claimed> {
    Ok(match parts.text()?.as_str() {
        "granted" => Claimed::Granted(grant(&mut parts)?),
        "stale" => Claimed::Stale,
        "waiting" => Claimed::Waiting(Waiting {
            ahead: parts.number()?,
            look_again: Duration::from_nanos(parts.number()?),
            why: match parts.text()?.as_str() {
                "taken" => Why::Taken,
                "turn" => Why::Turn,
                "quarantine" => Why::Quarantine,
                other => return Err(unknown(other)),
            },
        }),
        other => return Err(unknown(other)),
    })
}

fn released(how: Leaving, value: Value) -> Outcome<Released> {
    if let Value::Array(parts) = &value
        && let Some(Value::BulkString(word)) = parts.first()
    {
        match word.as_slice() {
            b"free" => return Ok(Released::Free),
            b"stale" => return Ok(Released::Stale),
            _ => {}
        }
    }
    match how {
        Leaving::SteppedDown => Ok(Released::Again(claimed(Parts::of(value)?)?)),
        Leaving::Released | Leaving::Failed => Err(odd("what a release says", &value)),
    }
}

/// `NAME \0 A B`: a row about a resource, without the lease that it belongs to.
fn row(row: &str) -> Outcome<(ResourceName, &str, &str)> {
    let parts = row.split_once('\0').and_then(|(name, rest)| Some((name, rest.split_once(' ')?)));
    let (name, (first, second)) = parts.ok_or_else(|| Trouble::Odd("a row is torn".to_owned()))?;
    Ok((resource(name)?, first, second))
}

/// Those of the rows that are understood. One of which nobody can tell what it is about is no reason to lose the rest.
fn sound_rows<T>(rows: &[String], read: impl Fn(&str) -> Outcome<T>) -> Vec<T> {
    let sound: Vec<T> = rows.iter().filter_map(|row| read(row).ok()).collect();
    report(&[], rows.len() - sound.len());
    sound
}

fn notice(text: &str) -> Outcome<Notice> {
    let (resource, token, wish) = row(text)?;
    let wish = match wish {
        "0" => Wish::Lowered,
        "1" => Wish::Asked,
        "2" => Wish::Evicted,
        other => return Err(unknown(other)),
    };
    Ok(Notice { resource, token: Token(parsed(token)?), wish })
}

fn holding(text: &str) -> Outcome<Holding> {
    let (resource, ticket, token) = row(text)?;
    Ok(Holding { resource, ticket: Ticket(parsed(ticket)?), token: Token(parsed(token)?) })
}

fn resource(name: &str) -> Outcome<ResourceName> {
    ResourceName::new(name).map_err(|limit| Trouble::Odd(limit.to_string()))
}

fn label(text: &str) -> Outcome<Label> {
    Label::new(text).map_err(|limit| Trouble::Odd(limit.to_string()))
}

fn metadata(text: &str) -> Outcome<Metadata> {
    Metadata::new(text).map_err(|limit| Trouble::Odd(limit.to_string()))
}

/// The answer to an operator's wish.
pub(super) fn asked(value: Value) -> Outcome<Asked> {
    let mut parts = Parts::of(value)?;
    stamp(&mut parts)?;
    Ok(match parts.text()?.as_str() {
        "done" => Asked::Done,
        "not-waiting" => Asked::NotWaiting,
        "other-owners" => {
            let tokens = parts.list()?.texts()?;
            Asked::OtherOwners(tokens.iter().map(|token| Ok(Token(parsed(token)?))).collect::<Outcome<_>>()?)
        }
        other => return Err(unknown(other)),
    })
}

/// Says what is left out because it is damaged: resources by name, and how many rows.
fn report(names: &[String], rows: usize) {
    for resource in names {
        tracing::warn!(resource, "a resource is left out: a part of it is gone or cannot be read");
    }
    if rows > 0 {
        tracing::warn!(rows, "rows of the store are left out: they are none that Tenure wrote");
    }
}

/// Some of the resources, and where to go on.
pub(super) struct Views {
    pub(super) views: Vec<ResourceView>,
    /// Empty when these were all.
    pub(super) cursor: String,
    /// Damaged ones.
    pub(super) left_out: Vec<String>,
}

pub(super) fn views(value: Value) -> Outcome<Views> {
    let mut parts = Parts::of(value)?;
    stamp(&mut parts)?;
    let (views, odd) = parts.list()?.each_sound(view);
    let (cursor, left_out) = (parts.text()?, parts.list()?.texts()?);
    report(&left_out, odd);
    Ok(Views { views, cursor, left_out })
}

fn view(mut parts: Parts) -> Outcome<ResourceView> {
    let micros = |parts: &mut Parts| Ok::<_, Trouble>(Duration::from_micros(parts.number()?));
    Ok(ResourceView {
        resource: resource(&parts.text()?)?,
        tickets: parts.number()?,
        owners: parts.list()?.each(|mut owner| {
            Ok(OwnerView {
                worker: label(&owner.text()?)?,
                metadata: metadata(&owner.text()?)?,
                grant: grant(&mut owner)?,
                owned_for: micros(&mut owner)?,
                left: micros(&mut owner)?,
            })
        })?,
        waiters: parts.list()?.each(|mut waiter| {
            Ok(WaiterView {
                worker: label(&waiter.text()?)?,
                metadata: metadata(&waiter.text()?)?,
                left: micros(&mut waiter)?,
            })
        })?,
        withheld: Some(micros(&mut parts)?).filter(|left| !left.is_zero()),
    })
}

/// A piece of the history, and where to go on.
pub(super) struct Past {
    pub(super) now: StoreTime,
    /// Of the endings that nobody has written down, and of the records; the second is empty when these were all.
    pub(super) cursor: String,
    pub(super) from: String,
    /// Endings that nobody has written down yet.
    pub(super) unwritten: Vec<Record>,
    pub(super) written: Vec<Record>,
    /// Damaged resources.
    pub(super) left_out: Vec<String>,
}

pub(super) fn past(value: Value) -> Outcome<Past> {
    let mut parts = Parts::of(value)?;
    let now = stamp(&mut parts)?.now;
    let (cursor, from) = (parts.text()?, parts.text()?);
    let (unwritten, odd) = parts.list()?.each_sound_row(record);
    let (written, more_odd) = parts.list()?.each_sound_row(record);
    let left_out = parts.list()?.texts()?;
    report(&left_out, odd + more_odd);
    Ok(Past { now, cursor, from, unwritten, written, left_out })
}

/// `AT WHAT TICKET TERM TOKEN \0 RESOURCE \0 WORKER`: a row of the history.
fn record(row: &str) -> Outcome<Record> {
    let torn = || Trouble::Odd("a row is torn".to_owned());
    let parts: Vec<&str> = row.split('\0').collect();
    let [head, name, worker] = parts[..] else { return Err(torn()) };
    let words: Vec<&str> = head.split(' ').collect();
    let [at, what, ticket, term, token] = words[..] else { return Err(torn()) };
    let what = match what {
        "granted" => Happened::Granted,
        "released" => Happened::Released,
        "failed" => Happened::Failed,
        "stepped-down" => Happened::SteppedDown,
        "expired" => Happened::Expired,
        "died" => Happened::Died,
        "evicted" => Happened::Evicted,
        other => return Err(unknown(other)),
    };
    let grant =
        Grant { ticket: Ticket(parsed(ticket)?), term: Term(parsed(term)?), token: Token(parsed(token)?) };
    Ok(Record {
        at: StoreTime::from_micros(parsed(at)?),
        resource: resource(name)?,
        worker: label(worker)?,
        grant,
        what,
    })
}

#[cfg(test)]
mod tests {
    use tenure_core::{Tickets, Want};

    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn list(values: impl IntoIterator<Item = Value>) -> Value {
        Value::Array(values.into_iter().collect())
    }

    fn texts(words: &[&str]) -> Value {
        list(words.iter().map(|word| text(word)))
    }

    fn stamped(said: impl IntoIterator<Item = Value>) -> Value {
        let stamp = ["1763228625123500", "00112233445566778899aabbccddeeff", "15000000000"];
        list(stamp.map(text).into_iter().chain(said))
    }

    fn claim() -> Call {
        let resource = ResourceName::new("job").expect("a name");
        Call::Claim(vec![Want { resource, tickets: Tickets::ONE, priority: 0 }])
    }

    #[test]
    fn every_answer_is_stamped_with_numbers_that_are_exact() {
        let answer =
            answer(&Call::Renew, stamped([text("kept"), list([text("a b\u{0}1763228625123501 2")])]))
                .expect("it is understood");

        assert_eq!(answer.stamp.now, StoreTime::from_micros(1_763_228_625_123_500));
        assert_eq!(answer.stamp.incarnation, Incarnation(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff));
        assert_eq!(answer.stamp.longest, Duration::from_secs(15));
        let notice = Notice {
            resource: ResourceName::new("a b").expect("a name"),
            token: Token(1_763_228_625_123_501),
            wish: Wish::Evicted,
        };
        assert_eq!(answer.said, Said::Kept { notices: vec![notice], more: false });
    }

    #[test]
    fn a_row_that_is_none_of_ours_does_not_hide_the_others() {
        let rows = || list(["torn", "job\u{0}x 2", "job\u{0}5 1"].map(text));
        let job = || ResourceName::new("job").expect("a name");

        let kept = answer(&Call::Renew, stamped([text("kept"), rows()])).expect("it is understood");
        let held = answer(&Call::Held, stamped([text("held"), rows()])).expect("it is understood");

        let notice = Notice { resource: job(), token: Token(5), wish: Wish::Asked };
        assert_eq!(kept.said, Said::Kept { notices: vec![notice], more: false });
        let holding = Holding { resource: job(), ticket: Ticket(5), token: Token(1) };
        assert_eq!(held.said, Said::Held(vec![holding]));
    }

    #[test]
    fn a_grant_and_a_place_in_the_queue_are_read() {
        let granted = stamped([text("claimed"), list([texts(&["granted", "0", "7", "1763228625123500"])])]);
        let grant = Grant { ticket: Ticket(0), term: Term(7), token: Token(1_763_228_625_123_500) };
        assert_eq!(
            answer(&claim(), granted).expect("it is understood").said,
            Said::Claimed(vec![Claimed::Granted(grant)])
        );

        let waiting = stamped([text("claimed"), list([texts(&["waiting", "2", "1500000", "turn"])])]);
        let place = Waiting { ahead: 2, look_again: Duration::from_micros(1_500), why: Why::Turn };
        assert_eq!(
            answer(&claim(), waiting).expect("it is understood").said,
            Said::Claimed(vec![Claimed::Waiting(place)])
        );
    }

    #[test]
    fn a_row_of_the_history_is_read_whole_or_left_out() {
        let sound = "1763228625000000 stepped-down 2 7 1763228625123500\u{0}a job\u{0}host 1";
        let torn =
            ["x", "1 granted 0 7\u{0}job\u{0}a", "1 granted 0 7 5\u{0}job", "1 other 0 7 5\u{0}job\u{0}a"];
        let rows = || list([&[sound], &torn[..]].concat().into_iter().map(text).chain([Value::Nil]));

        let past = past(stamped([text(""), text(""), rows(), rows(), list([])])).expect("it is understood");

        let grant = Grant { ticket: Ticket(2), term: Term(7), token: Token(1_763_228_625_123_500) };
        let record = Record {
            at: StoreTime::from_micros(1_763_228_625_000_000),
            resource: ResourceName::new("a job").expect("a name"),
            worker: Label::new("host 1").expect("a label"),
            grant,
            what: Happened::SteppedDown,
        };
        assert_eq!((past.unwritten, past.written), (vec![record.clone()], vec![record]));
    }

    #[test]
    fn what_does_not_fit_is_an_error_and_never_a_guess() {
        for odd in [
            Value::Nil,
            text("claimed"),
            list([]),
            stamped([]),
            stamped([text("something")]),
            stamped([text("claimed")]),
            // No answer for the one resource that was asked for.
            stamped([text("claimed"), list([])]),
            stamped([text("claimed"), list([texts(&["granted", "0", "7", "1.7632286251235e+15"])])]),
            stamped([text("claimed"), list([texts(&["granted", "0"])])]),
            stamped([text("claimed"), list([texts(&["waiting", "2", "1", "whatever"])])]),
            stamped([text("kept")]),
            // Not what was asked for.
            stamped([text("kept"), list([])]),
            stamped([text("opened")]),
            list(["x", "00112233445566778899aabbccddeeff", "0", "opened"].map(text)),
            list(["1", "no life", "0", "opened"].map(text)),
        ] {
            assert!(answer(&claim(), odd.clone()).is_err(), "{odd:?}");
        }
    }
}
