//! A worker on a clock to set, and replies that a test makes up.

use super::*;

pub(super) const SOME_PLACE: Waiting = Waiting { ahead: 0, look_again: TTL, why: WaitReason::Taken };

/// A worker, its clock, and what it has sent and said.
pub(super) struct Stage {
    pub(super) worker: Worker,
    /// In milliseconds.
    pub(super) now: u64,
    pub(super) asleep: u64,
    pub(super) jitter: u16,
    /// The newest request that is not answered.
    pub(super) sent: Option<Request>,
    pub(super) every: Vec<Request>,
    pub(super) outputs: Vec<Output>,
    pub(super) ids: u128,
}

impl Stage {
    pub(super) fn with(timing: Timing) -> Self {
        let label = Label::new("w").unwrap();
        let worker = Worker::new(timing, label, Metadata::default(), moment(1_000, 0));
        let (every, outputs) = (Vec::new(), Vec::new());
        Self { worker, now: 1_000, asleep: 0, jitter: 0, sent: None, every, outputs, ids: 0 }
    }

    pub(super) fn new() -> Self {
        Self::with(Timing::new(TTL).unwrap())
    }

    /// With a lease, and a claim of `r` under way.
    pub(super) fn opened() -> Self {
        let mut stage = Self::new();
        stage.enter("r");
        stage.answer(Said::Opened);
        stage
    }

    /// Owning `r` under token 1.
    pub(super) fn owning() -> Self {
        let mut stage = Self::opened();
        stage.answer(granted(1));
        assert!(stage.owns("r"));
        stage
    }

    pub(super) fn moment(&self) -> Moment {
        moment(self.now + self.asleep, self.now)
    }

    pub(super) fn feed(&mut self, input: Input) {
        self.ids += 1;
        let now = Now { at: self.moment(), jitter: self.jitter, fresh: LeaseId(self.ids) };
        self.worker.handle(now, input);
        while let Some(output) = self.worker.poll() {
            if let Output::Send(request) = &output {
                self.sent = Some(request.clone());
                self.every.push(request.clone());
            }
            self.outputs.push(output);
        }
    }

    /// Lets time go by, as a driver does: it comes back when there is something to do.
    pub(super) fn pass(&mut self, millis: u64) {
        self.pass_to(self.now + millis);
    }

    pub(super) fn pass_to(&mut self, end: u64) {
        while let Some(span) = self.worker.sleep(self.moment()) {
            let due = self.now + span.as_micros().div_ceil(1000) as u64;
            if due > end {
                break;
            }
            assert!(due > self.now || !span.is_zero(), "it wants to be woken at once, for ever");
            self.now = due;
            self.feed(Input::Tick);
        }
        self.now = end;
        self.feed(Input::Tick);
    }

    /// Until the next renewal leaves; says when.
    pub(super) fn until_renewal(&mut self) -> u64 {
        let renewals =
            |stage: &Self| stage.every.iter().filter(|request| request.call == Call::Renew).count();
        let before = renewals(self);
        while renewals(self) == before {
            self.pass(1);
        }
        self.now
    }

    pub(super) fn answer(&mut self, said: Said) {
        self.answer_as(1, said);
    }

    pub(super) fn answer_as(&mut self, incarnation: u128, said: Said) {
        let request = self.sent.take().expect("a request is under way");
        self.feed(Input::Answered(request, stamped(said, incarnation, self.now)));
    }

    /// Answers the renewal that is under way, if one is.
    pub(super) fn keep(&mut self) {
        if self.sent.as_ref().is_some_and(|request| request.call == Call::Renew) {
            self.answer(kept());
        }
    }

    /// The same by a store whose clock is ahead of what it was.
    pub(super) fn keep_ahead(&mut self, millis: u64) {
        if let Some(renewal) = self.sent.take_if(|request| request.call == Call::Renew) {
            self.feed(Input::Answered(renewal, stamped(kept(), 1, self.now + millis)));
        }
    }

    pub(super) fn answer_open(&mut self) {
        let open = self.every.iter().rev().find(|request| matches!(request.call, Call::Open { .. })).cloned();
        self.feed(Input::Answered(open.expect("an open"), stamped(Said::Opened, 1, self.now)));
    }

    pub(super) fn claim_under_way(&self) -> Option<Request> {
        let asked = self.worker.under_way.iter().find(|asked| asked.batch == Batch::Claims)?;
        self.every.iter().find(|request| request.seq == asked.attempt.seq).cloned()
    }

    pub(super) fn answer_claim(&mut self, said: Said) {
        let claim = self.claim_under_way().expect("a claim");
        self.feed(Input::Answered(claim, stamped(said, 1, self.now)));
    }

    /// The latest release, whatever came after it.
    pub(super) fn answer_release(&mut self) {
        let releases = |request: &&Request| matches!(request.call, Call::Release(_));
        let release = self.every.iter().rev().find(releases).cloned().expect("a release");
        self.feed(Input::Answered(release, stamped(Said::Released(vec![Released::Free]), 1, self.now)));
    }

    pub(super) fn fail(&mut self) {
        let request = self.sent.take().expect("a request is under way");
        self.feed(Input::Failed(request));
    }

    pub(super) fn enter(&mut self, resource: &str) {
        self.feed(Input::Enter(Want { resource: name(resource), tickets: Tickets::ONE, priority: 0 }));
    }

    pub(super) fn stopped(&mut self, resource: &str, token: u64) {
        self.feed(Input::Stopped { resource: name(resource), token: Token(token) });
    }

    pub(super) fn owns(&self, resource: &str) -> bool {
        self.worker.owned().any(|(owned, _)| owned.as_str() == resource)
    }

    pub(super) fn trusted_until(&self) -> Option<u64> {
        self.worker.trusted_until().map(|until| until.boot_micros() / 1000)
    }

    pub(super) fn saw(&self, output: &Output) -> bool {
        self.outputs.contains(output)
    }

    pub(super) fn distrusts(&self) -> bool {
        self.outputs.iter().any(|output| matches!(output, Output::Distrust { .. }))
    }

    pub(super) fn count(&self, output: &Output) -> usize {
        self.outputs.iter().filter(|seen| *seen == output).count()
    }

    pub(super) fn claims(&self) -> usize {
        self.every.iter().filter(|request| matches!(request.call, Call::Claim(_))).count()
    }

    pub(super) fn renewals(&self) -> usize {
        self.every.iter().filter(|request| matches!(request.call, Call::Renew)).count()
    }

    pub(super) fn releases(&self) -> Vec<(ResourceName, Leaving)> {
        let calls = self.every.iter().filter_map(|request| match &request.call {
            Call::Release(leaves) => Some(leaves),
            _ => None,
        });
        calls.flatten().map(|leave| (leave.resource.clone(), leave.how)).collect()
    }
}

pub(super) fn moment(boot: u64, raw: u64) -> Moment {
    Moment::new(Duration::from_millis(boot), Duration::from_millis(raw))
}

pub(super) fn name(text: &str) -> ResourceName {
    ResourceName::new(text).unwrap()
}

/// The store's clock runs with the worker's, a thousand seconds ahead.
pub(super) fn store_time(now: u64) -> StoreTime {
    StoreTime::from_micros((1_000_000 + now) * 1_000)
}

pub(super) fn stamped(said: Said, incarnation: u128, now: u64) -> Answer {
    let (now, incarnation) = (store_time(now), Incarnation(incarnation));
    let stamp = Stamp { now, shown: now, incarnation, longest: TTL };
    Answer { stamp, said }
}

pub(super) fn grant(token: u64) -> Grant {
    Grant { ticket: Ticket(0), term: Term(token), token: Token(token) }
}

pub(super) fn granted(token: u64) -> Said {
    Said::Claimed(vec![Claimed::Granted(grant(token))])
}

pub(super) fn waiting(ahead: u32, millis: u64) -> Said {
    let look_again = Duration::from_millis(millis);
    Said::Claimed(vec![Claimed::Waiting(Waiting { ahead, look_again, why: WaitReason::Taken })])
}

pub(super) fn holding(resource: &str, token: u64) -> Holding {
    Holding { resource: name(resource), ticket: Ticket(0), token: Token(token) }
}

pub(super) fn kept() -> Said {
    Said::Kept { notices: vec![], more: false }
}

pub(super) fn stop(resource: &str, token: u64, ending: EndReason) -> Output {
    Output::Stop { resource: name(resource), token: Token(token), ending }
}

pub(super) fn stop_hard(resource: &str, token: u64) -> Output {
    Output::StopHard { resource: name(resource), token: Token(token) }
}

pub(super) fn overdue(resource: &str, token: u64) -> Output {
    Output::Overdue(Ownership { resource: name(resource), grant: grant(token) })
}
