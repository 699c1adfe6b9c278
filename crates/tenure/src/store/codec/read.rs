//! Records as JSON: reading. An error says which field cannot be read, and why.

use std::time::Duration;

use tenure_core::rules::{
    Ended, Info, Job, Lease, Meta, Owner, Quarantine, Resource, Run, Runs, SetBy, Time, TtlUse, Ttls, Waiter,
};
use tenure_core::{
    Closing, Grant, Incarnation, JobCounts, JobRecord, JobState, LONGEST_TTL, Label, LeaseId, Metadata, Note,
    Notice, Occurrence, Plan, ResourceName, Seq, StoreTime, Term, Ticket, Tickets, Token, WallTime, Wish,
};

use crate::store::json::{Read, Reader};

impl Reader<'_> {
    pub(super) fn time(&mut self, name: &str) -> Read<Time> {
        Ok(self.maybe_number(name)?.map(StoreTime::from_micros))
    }

    pub(super) fn span(&mut self, name: &str) -> Read<Duration> {
        Ok(Duration::from_micros(self.number(name)?))
    }

    pub(super) fn name(&mut self, name: &str) -> Read<ResourceName> {
        ResourceName::new(&self.text(name)?).map_err(|error| error.to_string())
    }

    pub(super) fn label(&mut self, name: &str) -> Read<Label> {
        Label::new(&self.text(name)?).map_err(|error| error.to_string())
    }

    pub(super) fn meta(&mut self) -> Read<Meta> {
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
            // A longer one would keep grants back for as long.
            longest: self.span("longest_us")?.min(LONGEST_TTL),
            quarantine,
            floor: Token(self.number("floor")?),
            secret: self.hex("secret")?,
            rest: self.left_over(),
        })
    }

    pub(super) fn ttls(&mut self) -> Read<Ttls> {
        let uses = self.list("uses", |used| {
            Ok(TtlUse { ttl: used.span("ttl_us")?.min(LONGEST_TTL), used: used.time("used")? })
        })?;
        Ok(Ttls { uses, rest: self.left_over() })
    }

    pub(super) fn lease(&mut self) -> Read<Lease> {
        let notices = self.list("notices", |notice| {
            Ok(Notice {
                resource: notice.name("resource")?,
                token: Token(notice.number("token")?),
                wish: notice.known("wish", Wish::of_record_name)?,
            })
        })?;
        let ended = self.maybe_part("ended", |ended| {
            let why = ended.known("why", Closing::of_record_name)?;
            Ok(Ended { at: ended.time("at")?, why, clean: ended.flag("clean")? })
        })?;
        Ok(Lease {
            ttl: self.span("ttl_us")?.min(LONGEST_TTL),
            label: self.label("label")?,
            opened: self.time("opened")?,
            renewed: self.time("renewed")?,
            seq: Seq(self.number("seq")?),
            mark: self.maybe_drawn("mark")?.unwrap_or(0),
            notices,
            more_notices: self.flag("all")?,
            ended,
            rest: self.left_over(),
        })
    }

    pub(super) fn info(&mut self) -> Read<Info> {
        Ok(Info {
            metadata: Metadata::new(&self.text("metadata")?).map_err(|error| error.to_string())?,
            witness: self.maybe_text("witness")?.map(Into::into),
            rest: self.left_over(),
        })
    }

    pub(super) fn resource(&mut self) -> Read<Resource> {
        let set_by = self.part("set_by", |by| {
            Ok(SetBy { opened: by.time("opened")?, lease: LeaseId(by.hex("lease")?) })
        })?;
        let owners = self.list("owners", |owner| {
            Ok(Owner {
                grant: owner.grant()?,
                lease: LeaseId(owner.hex("lease")?),
                since: owner.time("since")?,
                wish: owner.maybe_known("wish", Wish::of_record_name)?,
                rest: owner.left_over(),
            })
        })?;
        let queue = self.list("queue", |waiter| {
            Ok(Waiter {
                lease: LeaseId(waiter.hex("lease")?),
                priority: waiter.maybe_signed("priority")?.unwrap_or(0),
                named: waiter.maybe_number("named")?.unwrap_or(0),
                arrival: waiter.number("arrival")?,
                step: waiter.span("step_us")?,
                rest: waiter.left_over(),
            })
        })?;
        Ok(Resource {
            tickets: self.tickets()?,
            set_by,
            term: Term(self.number("term")?),
            token: Token(self.number("token")?),
            arrivals: self.number("arrivals")?,
            owners,
            freed: self.time("freed")?,
            frees: self.number("frees")?,
            queue,
            job: self.maybe_part("job", Reader::job)?.map(Box::new),
            rest: self.left_over(),
        })
    }

    pub(super) fn tickets(&mut self) -> Read<u32> {
        let tickets = Tickets::new(self.small("tickets")?).map_err(|error| error.to_string())?;
        Ok(tickets.count())
    }

    pub(super) fn grant(&mut self) -> Read<Grant> {
        Ok(Grant {
            ticket: Ticket(self.small("ticket")?),
            term: Term(self.number("term")?),
            token: Token(self.number("token")?),
        })
    }

    pub(super) fn job(&mut self) -> Read<Job> {
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

    pub(super) fn occurrence(&mut self, name: &str) -> Read<Occurrence> {
        Occurrence::new(self.number(name)?).map_err(|error| error.to_string())
    }

    pub(super) fn runs(&mut self) -> Read<Runs> {
        Ok(Runs { runs: self.list("runs", Reader::run)?, rest: self.left_over() })
    }

    pub(super) fn run(&mut self) -> Read<JobRecord> {
        Ok(JobRecord {
            occurrence: self.occurrence("occurrence")?,
            attempt: self.small("attempt")?,
            token: Token(self.number("token")?),
            key_token: Token(self.number("key_token")?),
            worker: self.label("worker")?,
            began_at: WallTime::from_micros(self.number("began_at")?),
            state: self.known("state", JobState::of_record_name)?,
            took: self.maybe_number("took_us")?.map(Duration::from_micros),
            missed: self.small("missed")?,
            skipped: self.small("skipped")?,
            note: Note::of(&self.maybe_text("note")?.unwrap_or_default()),
        })
    }
}
