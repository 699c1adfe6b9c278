//! Records as JSON: writing. A field that is absent, empty or false is left out.

use std::time::Duration;

use tenure_core::rules::{Info, Job, Lease, Meta, Resource, Rest, Runs, Time, Ttls};
use tenure_core::{Grant, JobCounts, JobRecord};

use crate::store::json::Writer;

impl Writer {
    pub(super) fn time(&mut self, name: &str, time: Time) {
        if let Some(time) = time {
            self.put(name, time.as_micros());
        }
    }

    pub(super) fn span(&mut self, name: &str, span: Duration) {
        self.put(name, u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
    }

    pub(super) fn rest(&mut self, rest: &Rest) {
        for (name, json) in rest.iter() {
            self.raw(name, json);
        }
    }

    pub(super) fn meta(&mut self, meta: &Meta) {
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

    pub(super) fn ttls(&mut self, ttls: &Ttls) {
        self.list("uses", &ttls.uses, |write, used| {
            write.span("ttl_us", used.ttl);
            write.time("used", used.used);
        });
        self.rest(&ttls.rest);
    }

    pub(super) fn lease(&mut self, lease: &Lease) {
        self.put("label", lease.label.as_str());
        self.span("ttl_us", lease.ttl);
        self.time("opened", lease.opened);
        self.time("renewed", lease.renewed);
        self.put("seq", lease.seq.0);
        self.put("mark", lease.mark);
        if !lease.notices.is_empty() {
            self.list("notices", &lease.notices, |write, notice| {
                write.put("resource", notice.resource.as_str());
                write.put("token", notice.token.0);
                write.put("wish", notice.wish.record_name());
            });
        }
        if lease.more_notices {
            self.put("all", true);
        }
        if let Some(ended) = &lease.ended {
            self.part("ended", |write| {
                write.time("at", ended.at);
                write.put("why", ended.why.record_name());
                write.put("clean", ended.clean);
            });
        }
        self.rest(&lease.rest);
    }

    pub(super) fn info(&mut self, info: &Info) {
        // Written as a string, so that it comes back byte for byte.
        self.put("metadata", info.metadata.as_str());
        if let Some(witness) = &info.witness {
            self.put("witness", &**witness);
        }
        self.rest(&info.rest);
    }

    pub(super) fn resource(&mut self, resource: &Resource) {
        self.put("tickets", resource.tickets);
        self.part("set_by", |write| {
            write.time("opened", resource.set_by.opened);
            write.hex("lease", resource.set_by.lease.0);
        });
        self.put("term", resource.term.0);
        self.put("token", resource.token.0);
        self.put("arrivals", resource.arrivals);
        self.list("owners", &resource.owners, |write, owner| {
            write.grant(owner.grant);
            write.hex("lease", owner.lease.0);
            write.time("since", owner.since);
            if let Some(wish) = owner.wish {
                write.put("wish", wish.record_name());
            }
            write.rest(&owner.rest);
        });
        self.time("freed", resource.freed);
        self.put("frees", resource.frees);
        self.list("queue", &resource.queue, |write, waiter| {
            write.hex("lease", waiter.lease.0);
            write.put("arrival", waiter.arrival);
            if waiter.priority != 0 {
                write.put("priority", waiter.priority);
            }
            if waiter.named != 0 {
                write.put("named", waiter.named);
            }
            write.span("step_us", waiter.step);
            write.rest(&waiter.rest);
        });
        if let Some(job) = &resource.job {
            self.part("job", |write| write.job(job));
        }
        self.rest(&resource.rest);
    }

    pub(super) fn grant(&mut self, grant: Grant) {
        self.put("ticket", grant.ticket.0);
        self.put("term", grant.term.0);
        self.put("token", grant.token.0);
    }

    pub(super) fn job(&mut self, job: &Job) {
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

    pub(super) fn runs(&mut self, runs: &Runs) {
        self.list("runs", &runs.runs, Self::run);
        self.rest(&runs.rest);
    }

    pub(super) fn run(&mut self, run: &JobRecord) {
        self.put("occurrence", run.occurrence.as_millis());
        self.put("attempt", run.attempt);
        self.put("token", run.token.0);
        self.put("key_token", run.key_token.0);
        self.put("worker", run.worker.as_str());
        self.put("began_at", run.began_at.as_micros());
        self.put("state", run.state.record_name());
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
