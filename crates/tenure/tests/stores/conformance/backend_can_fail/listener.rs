//! A listener that does wrong what its habit says.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::store::Pending;
use tenure::store::backend::{Channel, Heard, Signals, Subscriptions};
use tokio::sync::mpsc;

use super::flaw::{Flaw, Habit};

/// All listeners of a backend.
pub(crate) type Listeners = Arc<Mutex<Vec<Arc<FlawedListener>>>>;

pub(crate) struct FlawedListener {
    habit: Option<Habit>,
    behind: Arc<dyn Subscriptions>,
    past: Vec<Heard>,
    /// Nothing once the connection is lost.
    to: Mutex<Option<mpsc::UnboundedSender<Heard>>>,
    followed: Mutex<HashSet<Channel>>,
    twice: Mutex<HashSet<Channel>>,
    gone: Mutex<HashSet<Channel>>,
    is_cut_off: AtomicBool,
}

impl FlawedListener {
    /// Listens in front of another listener.
    pub(crate) fn relay(
        flaw: Flaw,
        behind: Arc<dyn Subscriptions>,
        mut from: Signals,
        past: Vec<Heard>,
        listeners: &Listeners,
    ) -> (Arc<Self>, Signals) {
        let has = |habit| flaw.habit == Some(habit);
        let (to, signals) = mpsc::unbounded_channel();
        let is_deaf = has(Habit::OneListener) && !listeners.lock().unwrap().is_empty();
        let listener = Arc::new(Self {
            habit: flaw.habit,
            behind,
            past,
            to: Mutex::new(Some(to.clone())),
            followed: Mutex::default(),
            twice: Mutex::default(),
            gone: Mutex::default(),
            is_cut_off: AtomicBool::new(is_deaf),
        });
        listeners.lock().unwrap().push(listener.clone());
        let (relay, all) = (listener.clone(), has(Habit::HearsAll).then(|| listeners.clone()));
        let _relaying = tokio::spawn(async move {
            loop {
                let signal = tokio::select! {
                    signal = from.recv() => signal,
                    () = to.closed() => None,
                };
                let Some(mut signal) = signal else { break };
                (flaw.heard)(&mut signal);
                match &all {
                    Some(all) => all.lock().unwrap().iter().for_each(|listener| listener.pass_on(&signal)),
                    None => relay.pass_on(&signal),
                }
            }
            *relay.to.lock().unwrap() = None;
        });
        (listener, signals)
    }

    pub(crate) fn cut_off(&self) {
        self.is_cut_off.store(true, Ordering::SeqCst);
    }

    fn pass_on(&self, signal: &Heard) {
        if self.is_cut_off.load(Ordering::SeqCst) {
            return;
        }
        let times = if self.twice.lock().unwrap().contains(&signal.channel) { 2 } else { 1 };
        for _ in 0..times {
            let _heard = self.to.lock().unwrap().as_ref().map(|to| to.send(signal.clone()));
        }
    }
}

impl fmt::Debug for FlawedListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlawedListener")
    }
}

impl Subscriptions for FlawedListener {
    fn follow(&self, channel: Channel) -> Pending<'_, ()> {
        Box::pin(async move {
            let again = !self.followed.lock().unwrap().insert(channel.clone());
            match self.habit {
                Some(Habit::HearsTwice) if again => drop(self.twice.lock().unwrap().insert(channel.clone())),
                Some(Habit::ForgetsForGood) if self.gone.lock().unwrap().contains(&channel) => return Ok(()),
                Some(Habit::RepeatsThePast) => {
                    for heard in self.past.iter().filter(|heard| heard.channel == channel) {
                        self.pass_on(heard);
                    }
                }
                Some(Habit::FollowsLater) => {
                    let behind = self.behind.clone();
                    let _later = tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        behind.follow(channel).await
                    });
                    return Ok(());
                }
                _ => {}
            }
            self.behind.follow(channel).await
        })
    }

    fn forget(&self, channel: &Channel) {
        self.gone.lock().unwrap().insert(channel.clone());
        if self.habit != Some(Habit::NeverForgets) {
            self.behind.forget(channel);
        }
    }
}
