//! `redis://`, `rediss://`, `redis+unix://` A Redis server that its users already run; Valkey speaks the same.
//!
//! Every operation is one script, which Redis runs alone and whole, decided by the rules of
//! [`tenure_core::Ledger`] with the server's own clock. The files beside this one hold the scripts, the connections
//! and what is said over them; nothing here knows workers or drivers.

mod answers;
mod ears;
#[cfg(test)]
mod fuzz;
mod heard;
mod jobs;
mod line;
mod reply;
mod scripts;
mod server;
mod target;
mod trouble;
mod wire;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tenure_core::{
    Answer, Asked, Call, Closing, Happened, Holder, JobAct, JobSaid, JobStep, JobView, Label, LeaseId,
    Leaving, Namespace, Payload, Published, Request, ResourceName, ResourceView, Token,
};

use self::answers::{Past, Views};
use self::ears::{Ears, channel};
use self::heard::Heard;
use self::line::Line;
use self::scripts::{
    ASK, CLAIM, CLOSE, EVICT, HELD, OPEN, PAST, Question, READ, RELEASE, RENEW, SHORT_CLAIM, SHORT_RELEASE,
    Script,
};
use self::server::Server;
use self::target::Target;
use self::trouble::{Outcome, Trouble};
use self::wire::Wire;
use super::{Concern, Entry, Hints, Messages, Pending, Store};
use crate::Error;

/// How long opening, reading and operators' wishes may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Beyond it Lua's numbers are no longer exact.
const LARGEST: u64 = (1 << 53) - 1;

/// A namespace of a Redis server.
///
/// Its connections are made by whoever asks first, in that one's runtime: one for renewals, one for claims, one for
/// reading and one for hints, shared by all workers of the process.
pub struct RedisStore {
    target: Arc<Target>,
    namespace: Namespace,
    keys: Vec<String>,
    renewals: Line,
    claims: Line,
    reads: Line,
    ears: Ears,
    heard: Heard,
    shared: Mutex<HashSet<ResourceName>>,
}

impl RedisStore {
    /// Looks whether the server at `url` answers and can be used. Warns of what its configuration costs.
    ///
    /// # Errors
    /// `Refused` for a URL that is not understood, a server older than 6.2, a replica, a `maxmemory-policy` other than
    /// `noeviction`, a wrong password, missing rights and a certificate that cannot be verified. `Unavailable` when
    /// it does not answer.
    pub async fn open(url: &str, namespace: &Namespace) -> Result<Self, Error> {
        let store = Self::unopened(url, namespace)?;
        // Over a connection of its own: those that stay belong to the runtime that uses them.
        let dialled = tokio::time::timeout(PATIENCE, async {
            let wire = Wire::dial(&store.target).await?;
            let server = wire.server.clone();
            // Shows that the scripts may run, and where the keys are.
            match store.question(&HELD, &words([&hex(LeaseId(0))])).put(&wire).await {
                Err(trouble) if trouble.moved_to().is_some() => {
                    store.target.move_to(trouble.moved_to().unwrap_or_default());
                }
                said => drop(said?),
            }
            Ok::<Server, Trouble>(server)
        });
        let server =
            dialled.await.unwrap_or(Err(Trouble::Late)).map_err(|trouble| store.told("open", trouble))?;
        for concern in server.concerns() {
            tracing::warn!(store = %store.target, cost = ?concern.cost, hint = %concern.hint, "{}", concern.what);
        }
        Ok(store)
    }

    fn unopened(url: &str, namespace: &Namespace) -> Result<Self, Error> {
        let target = Arc::new(Target::of(url)?);
        let line = || Line::to(target.clone());
        Ok(Self {
            keys: scripts::keys(namespace.as_str()),
            renewals: line(),
            claims: line(),
            reads: line(),
            ears: Ears::of(target.clone(), namespace.as_str()),
            heard: Heard::default(),
            shared: Mutex::default(),
            namespace: namespace.clone(),
            target,
        })
    }

    fn told(&self, doing: &str, trouble: Trouble) -> Error {
        trouble.told(doing, &self.target.to_string())
    }

    fn question<'a>(&'a self, script: &'a Script, words: &'a [Vec<u8>]) -> Question<'a> {
        Question::Run { script, keys: &self.keys[..script.keys], words }
    }

    async fn carry_out(&self, request: &Request) -> Outcome<Answer> {
        let (line, script) = match &request.call {
            Call::Renew => (&self.renewals, &RENEW),
            Call::Held => (&self.renewals, &HELD),
            Call::Close(_) => (&self.renewals, &CLOSE),
            Call::Open { .. } => (&self.claims, &OPEN),
            Call::Claim(_) => (&self.claims, &CLAIM),
            Call::Release(_) => (&self.claims, &RELEASE),
        };
        let (words, until) = (self.words_of(request)?, Instant::now() + request.limit);
        let mut said = redis::Value::Nil;
        if let Some(short) = self.shortened(&request.call) {
            said = line.carry(request.limit, &self.question(short, &words)).await?;
        }
        // Some were not told from which life we come, and the short release does not ask which one it is in.
        let mut told = matches!(request.call, Call::Open { .. } | Call::Renew | Call::Claim(_));
        if said == redis::Value::Nil {
            // It has done nothing, because it is not what is usual.
            let left = until.saturating_duration_since(Instant::now());
            said = line.carry(left, &self.question(script, &words)).await?;
            told |= matches!(request.call, Call::Release(_));
        }
        let answer = answers::answer(&request.call, said)?;
        if told && self.heard.note(answer.stamp) {
            // Whatever was connected before may still lead to the life before.
            self.target.start_over();
        }
        Ok(answer)
    }

    /// What knows only the usual case, where this is likely to be one: somebody gives up a ticket, or was called to take
    /// it.
    fn shortened(&self, call: &Call) -> Option<&'static Script> {
        match call {
            Call::Release(leaves) => {
                let [leave] = leaves.as_slice() else { return None };
                let usual = leave.how != Leaving::SteppedDown && !self.shared().contains(&leave.resource);
                usual.then_some(&SHORT_RELEASE)
            }
            Call::Claim(wants) => {
                for want in wants {
                    if want.tickets.count() == 1 {
                        self.shared().remove(&want.resource);
                    } else {
                        self.shared().insert(want.resource.clone());
                    }
                }
                let alone = wants.len() == 1 && wants[0].tickets.count() == 1;
                (alone && self.ears.was_called()).then_some(&SHORT_CLAIM)
            }
            _ => None,
        }
    }

    /// The resources that were last claimed here with more than one ticket.
    fn shared(&self) -> MutexGuard<'_, HashSet<ResourceName>> {
        // There is no step in it that a panic could leave half done.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a script is told of a request.
    fn words_of(&self, request: &Request) -> Outcome<Vec<Vec<u8>>> {
        let lease = hex(request.lease);
        match &request.call {
            Call::Held => return Ok(words([&lease])),
            Call::Close(why) => return Ok(words([&lease, closing(*why)])),
            _ => {}
        }
        if request.seq.0 > LARGEST {
            let refused = format!("request number {} is not below 2^53", request.seq.0);
            return Err(Trouble::Told(Error::refused(refused)));
        }
        let judged_by =
            request.judged_by.map(|at| at.as_micros().min(LARGEST).to_string()).unwrap_or_default();
        let (seq, longest, seen) = (request.seq.0.to_string(), nanos(request.longest), self.heard.lately());
        let mut said = words([&lease, &seq, &judged_by, &longest, &seen]);
        match &request.call {
            Call::Open { ttl, label, metadata } => {
                self.ears.suit(*ttl);
                let channel = channel(self.namespace.as_str(), request.lease);
                said.extend(words([&nanos(*ttl), &channel, label.as_str(), metadata.as_str()]));
            }
            Call::Claim(wants) => {
                for want in wants {
                    let (tickets, priority) = (want.tickets.count().to_string(), want.priority.to_string());
                    said.extend(words([want.resource.as_str(), &tickets, &priority]));
                }
            }
            Call::Release(leaves) => {
                for leave in leaves {
                    said.extend(words([leave.resource.as_str(), leaving(leave.how)]));
                }
            }
            Call::Renew | Call::Held | Call::Close(_) => {}
        }
        Ok(said)
    }

    /// Runs what needs no lease.
    async fn look<const N: usize>(&self, script: &Script, told: [&str; N]) -> Outcome<redis::Value> {
        self.reads.carry(PATIENCE, &self.question(script, &words(told))).await
    }

    async fn read_views(&self, resource: Option<&ResourceName>) -> Outcome<Vec<ResourceView>> {
        let (name, mut cursor) = (resource.map_or("", ResourceName::as_str), String::new());
        let mut all: Vec<ResourceView> = Vec::new();
        loop {
            let Views { views, cursor: next, left_out } =
                answers::views(self.look(&READ, [name, &cursor]).await?)?;
            for mut view in views {
                // A large one comes in several pieces.
                match all.last_mut().filter(|last| last.resource == view.resource) {
                    Some(last) => {
                        last.owners.append(&mut view.owners);
                        last.waiters.append(&mut view.waiters);
                    }
                    None => all.push(view),
                }
            }
            of_one(resource, left_out)?;
            if next.is_empty() {
                return Ok(all);
            }
            cursor = next;
        }
    }

    async fn read_past(&self, resource: Option<&ResourceName>) -> Outcome<Vec<Entry>> {
        let name = resource.map_or("", ResourceName::as_str);
        let (mut cursor, mut from) = (String::new(), "-".to_owned());
        let (mut endings, mut records) = (Vec::new(), Vec::new());
        loop {
            let said = self.look(&PAST, [name, &cursor, &from]).await?;
            let Past { now, cursor: next, from: next_from, unwritten, written, left_out } =
                answers::past(said)?;
            of_one(resource, left_out)?;
            endings.extend(unwritten);
            records.extend(written);
            if next_from.is_empty() {
                // Between two pieces an ending may have been written down: then it is among the records, too.
                let is_ending = |record: &tenure_core::Record| record.what != Happened::Granted;
                endings.retain(|ending| {
                    let same = |record: &tenure_core::Record| {
                        is_ending(record)
                            && (&record.resource, record.grant) == (&ending.resource, ending.grant)
                    };
                    !records.iter().any(same)
                });
                records.extend(endings);
                records.sort_by_key(|record| record.at);
                return Ok(records.into_iter().map(|record| Entry::of(record, now)).collect());
            }
            (cursor, from) = (next, next_from);
        }
    }
}

/// Who asks for one resource is told that it is damaged; who asks for all is told of the others.
fn of_one(resource: Option<&ResourceName>, left_out: Vec<String>) -> Outcome<()> {
    match left_out.into_iter().next() {
        Some(name) if resource.is_some() => Err(Trouble::Damaged(name)),
        _ => Ok(()),
    }
}

fn words<const N: usize>(words: [&str; N]) -> Vec<Vec<u8>> {
    words.map(|word| word.as_bytes().to_vec()).to_vec()
}

fn hex(lease: LeaseId) -> String {
    format!("{:032x}", lease.0)
}

/// A span as the scripts count it; one beyond 104 days is cut there.
fn nanos(span: Duration) -> String {
    u64::try_from(span.as_nanos()).unwrap_or(LARGEST).min(LARGEST).to_string()
}

/// As the history will say it.
fn closing(why: Closing) -> &'static str {
    match why {
        Closing::Left => "released",
        Closing::Expired => "expired",
        Closing::Proved => "died",
    }
}

fn leaving(how: Leaving) -> &'static str {
    match how {
        Leaving::Released => "released",
        Leaving::Failed => "failed",
        Leaving::SteppedDown => "stepped-down",
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("target", &self.target)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Store for RedisStore {
    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer> {
        let doing = match request.call {
            Call::Open { .. } => "open a lease in",
            Call::Renew => "renew a lease in",
            Call::Claim(_) => "claim in",
            Call::Release(_) => "release in",
            Call::Held => "confirm what is held in",
            Call::Close(_) => "close a lease in",
        };
        Box::pin(async move { self.carry_out(request).await.map_err(|trouble| self.told(doing, trouble)) })
    }

    fn hints(&self, lease: LeaseId) -> Pending<'_, Hints> {
        Box::pin(async move {
            self.ears.listen(lease).await.map_err(|trouble| self.told("listen for hints from", trouble))
        })
    }

    fn safety(&self) -> Pending<'_, Vec<Concern>> {
        Box::pin(async move {
            let server = self.reads.carry(PATIENCE, &Question::Info).await.and_then(Server::said);
            Ok(server.map_err(|trouble| self.told("ask", trouble))?.concerns())
        })
    }

    fn read<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<ResourceView>> {
        Box::pin(async move { self.read_views(resource).await.map_err(|trouble| self.told("read", trouble)) })
    }

    fn history<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<Entry>> {
        Box::pin(async move { self.read_past(resource).await.map_err(|trouble| self.told("read", trouble)) })
    }

    fn ask<'a>(
        &'a self,
        resource: &'a ResourceName,
        token: Token,
        successor: Option<&'a Label>,
    ) -> Pending<'a, Asked> {
        Box::pin(async move {
            let successor = successor.map_or("", Label::as_str);
            let said = self.look(&ASK, [resource.as_str(), &token.0.to_string(), successor]).await;
            said.and_then(answers::asked).map_err(|trouble| self.told("ask in", trouble))
        })
    }

    fn evict<'a>(&'a self, resource: &'a ResourceName, token: Token) -> Pending<'a, Asked> {
        Box::pin(async move {
            let said = self.look(&EVICT, [resource.as_str(), &token.0.to_string()]).await;
            said.and_then(answers::asked).map_err(|trouble| self.told("evict in", trouble))
        })
    }

    fn job<'a>(&'a self, step: &'a JobStep) -> Pending<'a, JobSaid> {
        let doing = match step.act {
            JobAct::Attend { .. } => "take up a job in",
            JobAct::Begin(_) => "begin a run in",
            JobAct::Finish { .. } => "finish a run in",
        };
        Box::pin(async move { self.take_step(step).await.map_err(|trouble| self.told(doing, trouble)) })
    }

    fn jobs<'a>(&'a self, job: Option<&'a ResourceName>) -> Pending<'a, Vec<JobView>> {
        Box::pin(async move { self.read_jobs(job).await.map_err(|trouble| self.told("read", trouble)) })
    }

    fn publish<'a>(&'a self, holder: &'a Holder, payload: &'a Payload) -> Pending<'a, Published> {
        Box::pin(async move {
            self.send(holder, payload).await.map_err(|trouble| self.told("publish in", trouble))
        })
    }

    fn subscribe<'a>(&'a self, resource: &'a ResourceName) -> Pending<'a, Messages> {
        Box::pin(async move {
            self.ears.attend(resource).await.map_err(|trouble| self.told("listen for messages from", trouble))
        })
    }
}
