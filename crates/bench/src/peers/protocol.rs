//! What every candidate understands and says, whatever it is written in: a word and its values per line.
//!
//! ```text
//! told               says
//!                    ready                      connected, and competing for nothing
//! campaign NAME      own NS                     later, when it owns; NS is CLOCK_BOOTTIME, here and below
//! release            released NS                when release was called
//! lease              lease NS                   until when the store keeps the lease, as the client knows; 0: it does not
//! check              check 0|1
//! watch              resumed 0|1                from then on it checks every millisecond: the first check after a gap
//! last               last NS 0|1                when a check that said yes was last begun; what the newest said
//! cost               cost PS                    picoseconds of one check
//! hold N             held N                     owns N resources in all, as one program would
//! wait N MS NAME     queued N                   N candidates more, each as a program of its own would be, which begin one
//!                                               after the other within that span; then own NS
//! ```
//!
//! This file belongs to two programs, the bench and `peers/rust`, so it uses nothing of either.

use std::error::Error;
use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub(crate) type Trouble = Box<dyn Error + Send + Sync>;

/// One way to elect an owner. A clone is the same candidate.
pub(crate) trait Peer: Clone + Send + Sync + 'static {
    /// What is owned.
    type Own: Send + 'static;

    /// Competes for it until it is owned.
    fn win(&self, name: String) -> impl Future<Output = Result<Self::Own, Trouble>> + Send;

    /// The same for one of many that nobody else wants.
    fn hold(&self, name: String) -> impl Future<Output = Result<Self::Own, Trouble>> + Send {
        self.win(name)
    }

    /// Gives it up, as the peer does it gracefully.
    fn release(&self, own: Self::Own) -> impl Future<Output = ()> + Send;

    /// Whether it is still owned, as a program would ask. On a thread that may wait for the answer.
    fn holds(&self, own: &Self::Own) -> bool;

    /// Until when the store keeps the lease, on CLOCK_BOOTTIME; zero where the client does not know.
    fn lease_until(&self, own: &Self::Own) -> u64;

    /// A candidate with a lease or a connection of its own, in this process.
    fn another(&self) -> impl Future<Output = Result<Self, Trouble>> + Send;
}

/// Nanoseconds of CLOCK_BOOTTIME.
#[allow(unsafe_code)] // Reading a clock of the kernel.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for one timespec, and lives for the whole call.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

pub(crate) fn say(word: &str, numbers: &[u64]) {
    let numbers: String = numbers.iter().map(|number| format!(" {number}")).collect();
    // When nobody listens the process is about to end.
    let _gone = writeln!(std::io::stdout(), "{word}{numbers}");
}

/// Does what it is told until nobody tells anything any more.
pub(crate) async fn serve<P: Peer>(peer: P) -> Result<(), Trouble> {
    let mut told = listen();
    let desk: Desk<P> = Arc::default();
    let (won, mut owned) = unbounded_channel();
    let asking = check_on_a_thread(peer.clone(), desk.clone());
    let mut held = Vec::new();
    say("ready", &[]);
    loop {
        tokio::select! {
            Some(own) = owned.recv() => *open(&desk) = Some(own),
            line = told.recv() => {
                let Some(line) = line else { return Ok(()) };
                // What it has said to own before it was told this is on the desk.
                while let Ok(own) = owned.try_recv() {
                    *open(&desk) = Some(own);
                }
                match line.split(' ').collect::<Vec<_>>().as_slice() {
                    ["campaign", name] => campaign(peer.clone(), (*name).to_owned(), won.clone()),
                    ["release"] => {
                        let own = open(&desk).take().ok_or("told to release, but owns nothing")?;
                        let released_at = now();
                        peer.release(own).await;
                        say("released", &[released_at]);
                    }
                    ["lease"] => say("lease", &[open(&desk).as_ref().map_or(0, |own| peer.lease_until(own))]),
                    [word @ ("check" | "watch" | "last" | "cost")] => asking.send((*word).to_owned())?,
                    ["hold", count] => {
                        hold(&peer, count.parse()?, &mut held).await?;
                        say("held", &[held.len() as u64]);
                    }
                    ["wait", count, span, name] => {
                        let (count, span): (u32, u64) = (count.parse()?, span.parse()?);
                        for _ in 0..count {
                            campaign(peer.another().await?, (*name).to_owned(), won.clone());
                            tokio::time::sleep(Duration::from_millis(span) / count).await;
                        }
                        say("queued", &[count.into()]);
                    }
                    _ => return Err(format!("told {line:?}, which is nothing").into()),
                }
            }
        }
    }
}

fn listen() -> UnboundedReceiver<String> {
    let (to, told) = unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if to.send(line).is_err() {
                return;
            }
        }
        // Who started us is gone, and so is the reason to go on.
        std::process::exit(0);
    });
    told
}

fn campaign<P: Peer>(peer: P, name: String, won: UnboundedSender<P::Own>) {
    tokio::spawn(async move {
        match peer.win(name).await {
            Ok(own) => {
                let owned_at = now();
                // Nobody wants it when the process ends.
                let _gone = won.send(own);
                say("own", &[owned_at]);
                // The candidate stays, and its lease with it.
                std::future::pending::<()>().await;
            }
            Err(trouble) => {
                eprintln!("a campaign failed: {trouble}");
                // Who waits for it learns that it is in vain.
                std::process::exit(1);
            }
        }
    });
}

async fn hold<P: Peer>(peer: &P, count: usize, held: &mut Vec<P::Own>) -> Result<(), Trouble> {
    let mut tasks = Vec::new();
    for number in held.len()..count {
        let peer = peer.clone();
        tasks.push(tokio::spawn(
            async move { peer.hold(format!("hold.{}.{number}", std::process::id())).await },
        ));
    }
    for task in tasks {
        held.push(task.await??);
    }
    Ok(())
}

/// What is owned just now.
type Desk<P> = Arc<Mutex<Option<<P as Peer>::Own>>>;

fn open<T>(desk: &Mutex<T>) -> MutexGuard<'_, T> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check_on_a_thread<P: Peer>(peer: P, desk: Desk<P>) -> Sender<String> {
    let (asking, asked) = channel();
    let runtime = tokio::runtime::Handle::current();
    std::thread::spawn(move || {
        // A check that asks the server needs the runtime.
        let _entered = runtime.enter();
        answer_checks(&peer, &desk, &asked);
    });
    asking
}

fn answer_checks<P: Peer>(peer: &P, desk: &Mutex<Option<P::Own>>, asked: &Receiver<String>) {
    /// Two checks are never that far apart unless the process was stopped.
    const GAP: u64 = 500_000_000;
    let holds = || open(desk).as_ref().is_some_and(|own| peer.holds(own));
    let (mut watching, mut yes_at, mut newest, mut checked_at) = (false, 0, false, now());
    loop {
        let word = match watching {
            true => asked.recv_timeout(Duration::from_millis(1)),
            false => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match word.as_deref() {
            Err(RecvTimeoutError::Disconnected) => return,
            // The desk is opened once: only the check itself counts.
            Ok("cost") => say("cost", &[open(desk).as_ref().map_or(0, |own| cost(|| peer.holds(own)))]),
            Ok("check") => say("check", &[holds().into()]),
            Ok("last") => say("last", &[yes_at, newest.into()]),
            Ok(_) => (watching, checked_at) = (true, now()),
            Err(RecvTimeoutError::Timeout) => {
                let began_at = now();
                newest = holds();
                if newest {
                    yes_at = began_at;
                }
                if began_at - checked_at > GAP {
                    say("resumed", &[newest.into()]);
                }
                checked_at = began_at;
            }
        }
    }
}

/// Picoseconds of one check: the median of a few spans with as many as fit into them.
fn cost(holds: impl Fn() -> bool) -> u64 {
    const SPANS: usize = 9;
    const SPAN: Duration = Duration::from_millis(50);
    let mut costs: Vec<u64> = (0..SPANS)
        .map(|_| {
            let (began, mut checks) = (Instant::now(), 0_u64);
            let mut spent = Duration::ZERO;
            while spent < SPAN {
                // So many that reading the clock does not count, unless a check takes longer than a millisecond.
                let batch = if checks > 1_000 { 10_000 } else { 10 };
                for _ in 0..batch {
                    std::hint::black_box(holds());
                }
                checks += batch;
                spent = began.elapsed();
            }
            u64::try_from(spent.as_nanos() * 1_000 / u128::from(checks)).unwrap_or(u64::MAX)
        })
        .collect();
    costs.sort_unstable();
    costs[SPANS / 2]
}
