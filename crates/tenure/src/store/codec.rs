//! How records are written down: the names of their keys and, as JSON, their values.
//!
//! Fields that this version does not know are kept in the record itself, its owners, its queue, its job and its
//! quarantine. A new field anywhere else needs a new format.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tenure_core::rules::{
    Ended, Event, Info, Job, Lease, Meta, Place, Quarantine, Resource, Rest, Run, Runs, Seat, SetBy, Time,
    TtlUse, Ttls, Value,
};
use tenure_core::{
    Closing, Grant, Happened, Incarnation, JobCounts, JobRecord, JobState, Key, LONGEST_TTL, Label, LeaseId,
    Message, Metadata, Note, Notice, Occurrence, Payload, Plan, ResourceName, Seq, StoreTime, Term, Ticket,
    Tickets, Token, Version, WallTime, Wish,
};

use super::backend::Text;
use super::json::{Read, Reader, Writer};
use crate::Error;

/// The name of a record in a database, such as `resource/nightly-report` or `lease/00f3..`.
#[must_use]
pub fn key_name(key: &Key) -> String {
    match key {
        Key::Meta => "meta".to_owned(),
        Key::Ttls => "ttls".to_owned(),
        Key::Lease(lease) => format!("lease/{:032x}", lease.0),
        Key::Info(lease) => format!("info/{:032x}", lease.0),
        Key::Resource(name) => format!("resource/{name}"),
        Key::Runs(name) => format!("runs/{name}"),
    }
}

/// The key of a record by its name in a database; nothing if it is no name of ours.
#[must_use]
pub fn key_of(name: &str) -> Option<Key> {
    let lease = |hex: &str| {
        let ours = hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        ours.then(|| u128::from_str_radix(hex, 16).ok().map(LeaseId))?
    };
    match name.split_once('/') {
        None if name == "meta" => Some(Key::Meta),
        None if name == "ttls" => Some(Key::Ttls),
        Some(("lease", hex)) => lease(hex).map(Key::Lease),
        Some(("info", hex)) => lease(hex).map(Key::Info),
        Some(("resource", name)) => ResourceName::new(name).ok().map(Key::Resource),
        Some(("runs", name)) => ResourceName::new(name).ok().map(Key::Runs),
        _ => None,
    }
}

/// The format of the records that this version writes. A record says which one a writer has to know.
const FORMAT: u64 = 1;

/// Writes a record down, with how often it has been written.
pub(crate) fn encode(value: &Value, revision: u64) -> Text {
    let text = Writer::object(|write| {
        write.put("format", FORMAT);
        write.put("rev", revision);
        match value {
            Value::Meta(meta) => write.meta(meta),
            Value::Ttls(ttls) => write.ttls(ttls),
            Value::Lease(lease) => write.lease(lease),
            Value::Info(info) => write.info(info),
            Value::Resource(resource) => write.resource(resource),
            Value::Runs(runs) => write.runs(runs),
        }
    });
    text.into()
}

/// Reads a record, and how often it has been written.
///
/// # Errors
/// When it is damaged, or was written by a version whose records this one does not know.
pub(crate) fn decode(key: &Key, text: &str) -> Result<(u64, Value), Error> {
    let damaged = |what: &str| Error::corrupt(format!("the record `{}` cannot be read: {what}", shown(key)));
    let mut read = Reader::of(text, "it").map_err(|_| damaged("it is not a JSON object"))?;
    let format = read.number("format").map_err(|what| damaged(&what))?;
    if format > FORMAT {
        return Err(Error::refused(format!(
            "the record `{}` has format {format}, and this version knows up to {FORMAT}: use a newer version of Tenure",
            shown(key)
        )));
    }
    let record = read.number("rev").and_then(|revision| {
        let value = match key {
            Key::Meta => Value::Meta(read.meta()?),
            Key::Ttls => Value::Ttls(read.ttls()?),
            Key::Lease(_) => Value::Lease(read.lease()?),
            Key::Info(_) => Value::Info(read.info()?),
            Key::Resource(_) => Value::Resource(read.resource()?),
            Key::Runs(_) => Value::Runs(read.runs()?),
        };
        Ok((revision, value))
    });
    record.map_err(|what| damaged(&what))
}

/// The name of a record as errors show it: without the id of a lease.
fn shown(key: &Key) -> String {
    match key {
        Key::Lease(_) => "lease/..".to_owned(),
        Key::Info(_) => "info/..".to_owned(),
        other => key_name(other),
    }
}

/// How the parts of a record are written. What is absent, empty or false is left out.
impl Writer {
    fn time(&mut self, name: &str, time: Time) {
        if let Some(time) = time {
            self.put(name, time.as_micros());
        }
    }

    fn span(&mut self, name: &str, span: Duration) {
        self.put(name, u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
    }

    fn rest(&mut self, rest: &Rest) {
        for (name, json) in rest.iter() {
            self.raw(name, json);
        }
    }

    fn meta(&mut self, meta: &Meta) {
        self.hex("life", meta.life.0);
        self.span("longest_us", meta.longest);
        if let Some(quarantine) = &meta.quarantine {
            self.part("quarantine", |write| {
                write.time("since", quarantine.since);
                write.put("mark", quarantine.mark);
                if let Some(from) = quarantine.from {
                    write.hex("from", from.0);
                }
                write.rest(&quarantine.rest);
            });
        }
        self.put("floor", meta.floor.0);
        self.hex("secret", meta.secret);
        self.rest(&meta.rest);
    }

    fn ttls(&mut self, ttls: &Ttls) {
        self.list("uses", &ttls.uses, |write, used| {
            write.span("ttl_us", used.ttl);
            write.time("used", used.used);
        });
        self.rest(&ttls.rest);
    }

    fn lease(&mut self, lease: &Lease) {
        self.put("label", lease.label.as_str());
        self.span("ttl_us", lease.ttl);
        self.time("opened", lease.opened);
        self.time("renewed", lease.renewed);
        self.put("seq", lease.seq.0);
        if !lease.notices.is_empty() {
            self.list("notices", &lease.notices, |write, notice| {
                write.put("resource", notice.resource.as_str());
                write.put("token", notice.token.0);
                write.put("wish", wish_name(notice.wish));
            });
        }
        if lease.all {
            self.put("all", true);
        }
        if let Some(ended) = &lease.ended {
            self.part("ended", |write| {
                write.time("at", ended.at);
                write.put("why", closing_name(ended.why));
                write.put("clean", ended.clean);
            });
        }
        self.rest(&lease.rest);
    }

    fn info(&mut self, info: &Info) {
        // As text: it comes back as it was.
        self.put("metadata", info.metadata.as_str());
        if let Some(witness) = &info.witness {
            self.put("witness", &**witness);
        }
        self.rest(&info.rest);
    }

    fn resource(&mut self, resource: &Resource) {
        self.put("tickets", resource.tickets);
        self.part("set_by", |write| {
            write.time("opened", resource.set_by.opened);
            write.hex("lease", resource.set_by.lease.0);
        });
        self.put("term", resource.term.0);
        self.put("token", resource.token.0);
        self.put("arrivals", resource.arrivals);
        self.list("owners", &resource.seats, |write, seat| {
            write.grant(seat.grant);
            write.hex("lease", seat.lease.0);
            write.time("since", seat.since);
            if let Some(wish) = seat.wish {
                write.put("wish", wish_name(wish));
            }
            write.rest(&seat.rest);
        });
        self.time("freed", resource.freed);
        self.put("frees", resource.frees);
        self.list("queue", &resource.queue, |write, place| {
            write.hex("lease", place.lease.0);
            write.put("arrival", place.arrival);
            if place.priority != 0 {
                write.put("priority", place.priority);
            }
            if place.named != 0 {
                write.put("named", place.named);
            }
            write.span("step_us", place.step);
            write.rest(&place.rest);
        });
        if let Some(job) = &resource.job {
            self.part("job", |write| write.job(job));
        }
        self.rest(&resource.rest);
    }

    fn grant(&mut self, grant: Grant) {
        self.put("ticket", grant.ticket.0);
        self.put("term", grant.term.0);
        self.put("token", grant.token.0);
    }

    fn job(&mut self, job: &Job) {
        self.put("plan", job.plan.as_str());
        self.put("through", job.through.as_millis());
        let JobCounts { ran, failed, interrupted, missed, skipped } = job.counts;
        self.part("counts", |write| {
            write.put("ran", ran);
            write.put("failed", failed);
            write.put("interrupted", interrupted);
            write.put("missed", missed);
            write.put("skipped", skipped);
        });
        if let Some(run) = &job.latest {
            self.part("latest", |write| {
                write.time("began", run.began);
                write.run(&run.record);
            });
        }
        self.rest(&job.rest);
    }

    fn told(&mut self, told: Option<&Told>) {
        if let Some(told) = told {
            self.hex("life", told.life.0);
            self.put("version", told.version.0);
            self.raw("record", told.text.as_str());
        }
    }

    fn runs(&mut self, runs: &Runs) {
        self.list("runs", &runs.runs, Self::run);
        self.rest(&runs.rest);
    }

    fn run(&mut self, run: &JobRecord) {
        self.put("occurrence", run.occurrence.as_millis());
        self.put("attempt", run.attempt);
        self.put("token", run.token.0);
        self.put("key_token", run.key_token.0);
        self.put("worker", run.worker.as_str());
        self.put("began_at", run.began_at.as_micros());
        self.put("state", state_name(run.state));
        if let Some(took) = run.took {
            self.span("took_us", took);
        }
        self.put("missed", run.missed);
        self.put("skipped", run.skipped);
        if !run.note.as_str().is_empty() {
            self.put("note", run.note.as_str());
        }
    }
}

impl Reader<'_> {
    fn time(&mut self, name: &str) -> Read<Time> {
        Ok(self.maybe_number(name)?.map(StoreTime::from_micros))
    }

    fn span(&mut self, name: &str) -> Read<Duration> {
        Ok(Duration::from_micros(self.number(name)?))
    }

    fn name(&mut self, name: &str) -> Read<ResourceName> {
        ResourceName::new(&self.text(name)?).map_err(|error| error.to_string())
    }

    fn label(&mut self, name: &str) -> Read<Label> {
        Label::new(&self.text(name)?).map_err(|error| error.to_string())
    }

    fn meta(&mut self) -> Read<Meta> {
        let quarantine = self.maybe_part("quarantine", |part| {
            let from = if part.has("from") { Some(Incarnation(part.hex("from")?)) } else { None };
            Ok(Quarantine {
                since: part.time("since")?,
                mark: part.drawn("mark")?,
                from,
                rest: part.left_over(),
            })
        })?;
        Ok(Meta {
            life: Incarnation(self.hex("life")?),
            // Whoever wrote more than that would have nothing granted for as long.
            longest: self.span("longest_us")?.min(LONGEST_TTL),
            quarantine,
            floor: Token(self.number("floor")?),
            secret: self.hex("secret")?,
            rest: self.left_over(),
        })
    }

    fn ttls(&mut self) -> Read<Ttls> {
        let uses = self.list("uses", |used| {
            Ok(TtlUse { ttl: used.span("ttl_us")?.min(LONGEST_TTL), used: used.time("used")? })
        })?;
        Ok(Ttls { uses, rest: self.left_over() })
    }

    fn lease(&mut self) -> Read<Lease> {
        let notices = self.list("notices", |notice| {
            Ok(Notice {
                resource: notice.name("resource")?,
                token: Token(notice.number("token")?),
                wish: wish_of(&notice.text("wish")?)?,
            })
        })?;
        let ended = self.maybe_part("ended", |ended| {
            let why = closing_of(&ended.text("why")?)?;
            Ok(Ended { at: ended.time("at")?, why, clean: ended.flag("clean")? })
        })?;
        Ok(Lease {
            ttl: self.span("ttl_us")?.min(LONGEST_TTL),
            label: self.label("label")?,
            opened: self.time("opened")?,
            renewed: self.time("renewed")?,
            seq: Seq(self.number("seq")?),
            notices,
            all: self.flag("all")?,
            ended,
            rest: self.left_over(),
        })
    }

    fn info(&mut self) -> Read<Info> {
        Ok(Info {
            metadata: Metadata::new(&self.text("metadata")?).map_err(|error| error.to_string())?,
            witness: self.maybe_text("witness")?.map(Into::into),
            rest: self.left_over(),
        })
    }

    fn resource(&mut self) -> Read<Resource> {
        let set_by = self.part("set_by", |by| {
            Ok(SetBy { opened: by.time("opened")?, lease: LeaseId(by.hex("lease")?) })
        })?;
        let seats = self.list("owners", |seat| {
            Ok(Seat {
                grant: seat.grant()?,
                lease: LeaseId(seat.hex("lease")?),
                since: seat.time("since")?,
                wish: seat.maybe_text("wish")?.map(|wish| wish_of(&wish)).transpose()?,
                rest: seat.left_over(),
            })
        })?;
        let queue = self.list("queue", |place| {
            Ok(Place {
                lease: LeaseId(place.hex("lease")?),
                priority: place.maybe_signed("priority")?.unwrap_or(0),
                named: place.maybe_number("named")?.unwrap_or(0),
                arrival: place.number("arrival")?,
                step: place.span("step_us")?,
                rest: place.left_over(),
            })
        })?;
        Ok(Resource {
            tickets: self.tickets()?,
            set_by,
            term: Term(self.number("term")?),
            token: Token(self.number("token")?),
            arrivals: self.number("arrivals")?,
            seats,
            freed: self.time("freed")?,
            frees: self.number("frees")?,
            queue,
            job: self.maybe_part("job", Reader::job)?.map(Box::new),
            rest: self.left_over(),
        })
    }

    fn tickets(&mut self) -> Read<u32> {
        let tickets = Tickets::new(self.small("tickets")?).map_err(|error| error.to_string())?;
        Ok(tickets.count())
    }

    fn grant(&mut self) -> Read<Grant> {
        Ok(Grant {
            ticket: Ticket(self.small("ticket")?),
            term: Term(self.number("term")?),
            token: Token(self.number("token")?),
        })
    }

    fn job(&mut self) -> Read<Job> {
        let counts = self.part("counts", |counts| {
            Ok(JobCounts {
                ran: counts.number("ran")?,
                failed: counts.number("failed")?,
                interrupted: counts.number("interrupted")?,
                missed: counts.number("missed")?,
                skipped: counts.number("skipped")?,
            })
        })?;
        let latest = self.maybe_part("latest", |latest| {
            let began = latest.time("began")?;
            Ok(Run { record: latest.run()?, began })
        })?;
        Ok(Job {
            plan: Plan::new(&self.text("plan")?).map_err(|error| error.to_string())?,
            through: self.occurrence("through")?,
            counts,
            latest,
            rest: self.left_over(),
        })
    }

    fn told(&mut self) -> Read<Option<Told>> {
        let Some(record) = self.maybe_raw("record") else { return Ok(None) };
        let (life, version) = (Incarnation(self.hex("life")?), Version(self.drawn("version")?));
        Ok(Some(Told { life, version, text: record.into() }))
    }

    fn occurrence(&mut self, name: &str) -> Read<Occurrence> {
        Occurrence::new(self.number(name)?).map_err(|error| error.to_string())
    }

    fn runs(&mut self) -> Read<Runs> {
        Ok(Runs { runs: self.list("runs", Reader::run)?, rest: self.left_over() })
    }

    fn run(&mut self) -> Read<JobRecord> {
        Ok(JobRecord {
            occurrence: self.occurrence("occurrence")?,
            attempt: self.small("attempt")?,
            token: Token(self.number("token")?),
            key_token: Token(self.number("key_token")?),
            worker: self.label("worker")?,
            began_at: WallTime::from_micros(self.number("began_at")?),
            state: state_of(&self.text("state")?)?,
            took: self.maybe_number("took_us")?.map(Duration::from_micros),
            missed: self.small("missed")?,
            skipped: self.small("skipped")?,
            note: Note::of(&self.maybe_text("note")?.unwrap_or_default()),
        })
    }
}

/// The names of the variants of an enum, each way.
macro_rules! names {
    ($name:ident $of:ident $type:ident $($text:literal $variant:ident)+) => {
        #[allow(unreachable_patterns)] // Some of them may grow.
        fn $name(value: $type) -> &'static str {
            match value {
                $($type::$variant => $text,)+
                _ => "unknown",
            }
        }

        fn $of(text: &str) -> Read<$type> {
            match text {
                $($text => Ok($type::$variant),)+
                other => Err(format!("{other:?} is not known")),
            }
        }
    };
}

names!(wish_name wish_of Wish "lowered" Lowered "asked" Asked "evicted" Evicted);
names!(closing_name closing_of Closing "left" Left "expired" Expired "proved" Proved);
names!(state_name state_of JobState "running" Running "ran" Ran "failed" Failed "interrupted" Interrupted);
names!(
    happened_name happened_of Happened
    "granted" Granted "released" Released "failed" Failed "stepped-down" SteppedDown "expired" Expired "died" Died
    "evicted" Evicted
);

/// Writes a line of the history down; when it happened is the store's to know.
pub(crate) fn encode_event(event: &Event) -> Text {
    let line = Writer::object(|write| {
        write.put("resource", event.resource.as_str());
        write.put("worker", event.worker.as_str());
        write.grant(event.grant);
        write.put("what", happened_name(event.what));
    });
    line.into()
}

/// Reads a line of the history.
pub(crate) fn decode_event(at: Time, text: &str) -> Result<Event, Error> {
    let read = || {
        let mut read = Reader::of(text, "line")?;
        Ok(Event {
            at,
            resource: read.name("resource")?,
            worker: read.label("worker")?,
            grant: read.grant()?,
            what: happened_of(&read.text("what")?)?,
        })
    };
    read().map_err(|what: String| Error::corrupt(format!("a line of the history cannot be read: {what}")))
}

/// A signal as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    /// A ticket may be free; with the record that says so, if it fits.
    Look {
        resource: ResourceName,
        after: Duration,
        told: Option<Told>,
    },
    Ended(LeaseId),
    Knock(ResourceName),
    /// A record as it is now.
    Changed {
        resource: ResourceName,
        told: Told,
    },
    Message {
        message: Message,
        number: u64,
    },
}

/// A record inside of a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) life: Incarnation,
    pub(crate) version: Version,
    pub(crate) text: Text,
}

/// Writes a signal down. Where the text would be longer than `most` bytes the record in it is left out; a signal that says
/// nothing without it is not written.
pub(crate) fn encode_signal(spoken: &Spoken, most: usize) -> Option<Text> {
    let write = |with_record: bool| {
        Writer::object(|write| match spoken {
            Spoken::Look { resource, after, told } => {
                write.put("look", resource.as_str());
                write.span("after_us", *after);
                write.told(told.as_ref().filter(|_| with_record));
            }
            Spoken::Changed { resource, told } => {
                write.put("changed", resource.as_str());
                write.told(Some(told));
            }
            Spoken::Ended(lease) => write.hex("ended", lease.0),
            Spoken::Knock(resource) => write.put("knock", resource.as_str()),
            Spoken::Message { message, number } => {
                write.put("message", message.resource.as_str());
                write.put("ticket", message.ticket.0);
                write.put("token", message.token.0);
                write.put("number", *number);
                write.put("bytes", STANDARD.encode(message.bytes()));
            }
        })
    };
    let whole = write(true);
    match spoken {
        _ if whole.len() <= most => Some(whole.into()),
        Spoken::Changed { .. } => None,
        _ => Some(write(false).into()),
    }
}

/// Reads a signal; nothing if it is none of ours.
pub(crate) fn decode_signal(text: &str) -> Option<Spoken> {
    let mut read = Reader::of(text, "signal").ok()?;
    if read.has("look") {
        let (resource, after) = (read.name("look").ok()?, read.span("after_us").ok()?);
        return Some(Spoken::Look { resource, after, told: read.told().ok()? });
    }
    if read.has("changed") {
        return Some(Spoken::Changed { resource: read.name("changed").ok()?, told: read.told().ok()?? });
    }
    if read.has("ended") {
        return Some(Spoken::Ended(LeaseId(read.hex("ended").ok()?)));
    }
    if read.has("message") {
        let payload = STANDARD.decode(read.text("bytes").ok()?).ok()?;
        let message = Message {
            resource: read.name("message").ok()?,
            ticket: Ticket(read.small("ticket").ok()?),
            token: Token(read.number("token").ok()?),
            payload: Payload::new(&payload).ok()?,
        };
        return Some(Spoken::Message { message, number: read.drawn("number").ok()? });
    }
    read.name("knock").ok().map(Spoken::Knock)
}

#[cfg(test)]
mod tests {
    use super::super::json::LARGEST;
    use super::*;

    #[test]
    fn a_key_comes_back_from_its_name() {
        let name = |text| ResourceName::new(text).expect("a name");
        let keys = [
            Key::Meta,
            Key::Ttls,
            Key::Lease(LeaseId(0x1f)),
            Key::Info(LeaseId(u128::MAX)),
            Key::Resource(name("a/b {c}")),
            Key::Runs(name("meta")),
        ];
        for key in keys {
            assert_eq!(key_of(&key_name(&key)), Some(key));
        }
        for stranger in
            ["", "meta/", "lease/1f", "lease/+0000000000000000000000000000001f", "resource/", "x/y"]
        {
            assert_eq!(key_of(stranger), None, "{stranger}");
        }
    }

    #[test]
    fn a_record_is_left_out_of_a_signal_that_would_be_too_long() {
        let resource = ResourceName::new("r").expect("a name");
        let told = Told { life: Incarnation(1), version: Version(2), text: r#"{"rev":1}"#.into() };
        let look = |told| Spoken::Look { resource: resource.clone(), after: Duration::ZERO, told };
        let changed = Spoken::Changed { resource: resource.clone(), told: told.clone() };
        for (spoken, short) in [(look(Some(told)), Some(look(None))), (changed, None)] {
            let whole = encode_signal(&spoken, usize::MAX).expect("there is room");
            let length = whole.as_str().len();

            assert_eq!(decode_signal(whole.as_str()), Some(spoken.clone()));
            assert_eq!(encode_signal(&spoken, length).as_ref(), Some(&whole));
            let left = encode_signal(&spoken, length - 1).map(|text| decode_signal(text.as_str()));
            assert_eq!(left, short.map(Some));
        }
    }

    #[test]
    fn what_a_newer_version_wrote_into_a_part_of_a_record_is_kept() {
        let key = Key::Resource(ResourceName::new("r").expect("a name"));
        let text = r#"{"format":1,"rev":1,"tickets":1,"set_by":{"opened":1,"lease":"1"},"term":1,"token":1,
            "arrivals":1,"frees":0,
            "owners":[{"ticket":0,"term":1,"token":1,"lease":"1","since":1,"until":99}],
            "queue":[{"lease":"2","arrival":1,"step_us":100000,"never":true}]}"#;
        let (revision, value) = decode(&key, text).expect("it is read");

        let again = encode(&value, revision + 1);

        assert!(again.as_str().contains("never") && again.as_str().contains("until"), "{}", again.as_str());
    }

    #[test]
    fn numbers_that_could_not_be_added_to_are_refused() {
        let key = Key::Resource(ResourceName::new("r").expect("a name"));
        for (name, limit) in [("term", LARGEST), ("token", LARGEST), ("rev", LARGEST), ("tickets", 1000)] {
            let text = |number: u64| {
                let mut fields = serde_json::json!({"format": 1, "rev": 1, "tickets": 1, "term": 1, "token": 1,
                    "arrivals": 1, "frees": 0, "set_by": {"opened": 1, "lease": "1"}});
                fields[name] = number.into();
                fields.to_string()
            };
            assert!(decode(&key, &text(limit)).is_ok(), "{name}");
            let refused = decode(&key, &text(limit + 1)).expect_err(name).to_string();
            assert!(refused.contains(&limit.to_string()), "{refused}");
        }
    }
}
