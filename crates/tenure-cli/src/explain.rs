//! `tenure explain`: why this one owns, who is next, and what would happen if it died now. In sentences, or as JSON.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;
use tenure::{Happened, Label, OwnerView, ResourceName, ResourceView};

use crate::args;
use crate::exit::{Exit, Failure};
use crate::output::{self, Style, clean, millis, span, wrapped};
use crate::place::Place;
use crate::reading::{self, Reading};
use crate::settings::named;
use crate::status;
use crate::timeline::{self, Stint, Timeline, code};

/// Grows when a field changes its meaning or goes. New fields may come without.
const VERSION: u32 = 1;
/// Of so many who wait the labels are listed.
const LISTED: usize = 5;
/// Of so many owners each is explained.
const EXPLAINED: usize = 5;
/// Within so long after the end of a lease the next one owns, plus the slowest answer that counts.
const EXCESS: Duration = Duration::from_millis(50);

pub(crate) async fn explain(typed: args::Explain) -> Result<Exit, Failure> {
    let resource = named(&typed.resource, ResourceName::new)?;
    let reading = Reading::meant_by(typed.at)?;
    let store = reading.require().await?;
    let view = reading::known(&store, &resource).await?;
    let entries = store.history(resource.as_str()).await?;
    let timeline = timeline::timelines(&entries, std::slice::from_ref(&view)).remove(resource.as_str());
    let timeline = timeline.unwrap_or_default();
    let done_by = status::done_by(&store, &resource).await?;
    match typed.json {
        true => output::json(&Report::of(&reading, &view, &timeline, done_by.as_ref()))?,
        false => {
            let text = sentences(&view, &timeline, &reading.place, done_by.as_ref());
            output::data(&wrapped(&text, Style::of_stdout().columns))?;
        }
    }
    Ok(Exit::OK)
}

/// Who had the ticket before this owner, why it went, and for how long the ticket was free; as far as the store remembers.
fn before<'a>(owner: &OwnerView, timeline: &'a Timeline) -> Option<(&'a Stint, Happened, Duration)> {
    let grant = owner.grant;
    let earlier = |stint: &&Stint| stint.ticket == grant.ticket.0 && stint.token < grant.token.0;
    let (stint, (ended, why)) =
        timeline.stints.iter().rev().filter(earlier).find_map(|stint| Some((stint, stint.ended?)))?;
    // Both from the history: what was read beside it is as of another moment.
    let began = timeline.stints.iter().find(|stint| stint.token == grant.token.0);
    let began = began.and_then(|stint| stint.began).unwrap_or(owner.owned_for);
    Some((stint, why, ended.saturating_sub(began)))
}

// ---- for programs ------------------------------------------------------------------------------------------

#[derive(Serialize)]
struct Report<'a> {
    version: u32,
    store: String,
    namespace: &'a str,
    resource: &'a str,
    tickets: u32,
    flapping: bool,
    done_by: Option<&'a str>,
    withheld_ms: Option<u64>,
    /// Whether the store itself proves that a process is gone.
    proves_deaths: bool,
    owners: Vec<Owner<'a>>,
    /// The first of them is next.
    waiters: Vec<status::Waiter<'a>>,
}

#[derive(Serialize)]
struct Owner<'a> {
    #[serde(flatten)]
    owner: status::Owner<'a>,
    before: Option<Before<'a>>,
    /// If it died now, and nobody proved that.
    free_within_ms: u64,
}

#[derive(Serialize)]
struct Before<'a> {
    worker: &'a str,
    term: u64,
    token: u64,
    ended: &'static str,
    free_for_ms: u64,
}

impl<'a> Report<'a> {
    fn of(
        reading: &'a Reading,
        view: &'a ResourceView,
        timeline: &'a Timeline,
        done_by: Option<&'a Label>,
    ) -> Self {
        Self {
            version: VERSION,
            store: reading.place.to_string(),
            namespace: reading.namespace.as_str(),
            resource: view.resource.as_str(),
            tickets: view.tickets,
            flapping: timeline.flapping_now().is_some(),
            done_by: done_by.map(Label::as_str),
            withheld_ms: view.withheld.map(millis),
            proves_deaths: reading.place.proves_deaths(),
            owners: view.owners.iter().map(|owner| Owner::of(owner, timeline)).collect(),
            waiters: view.waiters.iter().map(status::Waiter::of).collect(),
        }
    }
}

impl<'a> Owner<'a> {
    fn of(owner: &'a OwnerView, timeline: &'a Timeline) -> Self {
        let before = before(owner, timeline).map(|(stint, why, free_for)| Before {
            worker: &stint.worker,
            term: stint.term,
            token: stint.token,
            ended: code(why),
            free_for_ms: millis(free_for),
        });
        Self { owner: status::Owner::of(owner), before, free_within_ms: millis(owner.left + EXCESS) }
    }
}

// ---- for people --------------------------------------------------------------------------------------------

fn sentences(view: &ResourceView, timeline: &Timeline, place: &Place, done_by: Option<&Label>) -> String {
    let mut text = standing(view);
    for owner in view.owners.iter().take(EXPLAINED) {
        text += &format!("\n{}", reason(owner, timeline));
    }
    if let Some(more) = view.owners.len().checked_sub(EXPLAINED).filter(|more| *more > 0) {
        text += &format!("\n{more} more own the others; `tenure status` lists them.\n");
    }
    text += &match done_by.filter(|_| view.owners.is_empty()) {
        Some(by) => format!(
            "\nIt is done, by `{}`: whoever claims it next learns that, and does nothing.\n",
            clean(by.as_str())
        ),
        None => format!("\n{}", next(view)),
    };
    for owner in view.owners.iter().take(EXPLAINED) {
        text += &format!("\n{}", death(owner, view, place));
    }
    if let Some(flaps) = timeline.flapping_now() {
        text += &format!("\nFlapping: {flaps}.\n");
    }
    text
}

fn standing(view: &ResourceView) -> String {
    let tickets = match view.tickets {
        1 => "one ticket".to_owned(),
        many => format!("{many} tickets"),
    };
    let owned = match (view.owners.len(), view.tickets) {
        (0, _) => "nobody owns it".to_owned(),
        (1, 1) => "it is owned".to_owned(),
        (owned, all) => format!("{owned} of {all} are owned"),
    };
    format!("`{}` has {tickets}; {owned}.\n", clean(view.resource.as_str()))
}

/// Why this one owns, as far as the store remembers.
fn reason(owner: &OwnerView, timeline: &Timeline) -> String {
    let (worker, grant) = (clean(owner.worker.as_str()), owner.grant);
    let mut text = format!(
        "`{worker}` has owned ticket {} for {}: term {}, token {}.\n",
        grant.ticket.0,
        span(owner.owned_for),
        grant.term.0,
        grant.token.0
    );
    let _ = match before(owner, timeline) {
        None if grant.term.0 == 1 => writeln!(text, "  It was the first to claim."),
        None => writeln!(text, "  Who had the ticket before, the store does not remember."),
        Some((before, why, free_for)) => {
            writeln!(text, "  {} The ticket was free for {}.", gone(before, why), span(free_for))
        }
    };
    text
}

fn gone(before: &Stint, what: Happened) -> String {
    let (worker, term) = (clean(&before.worker), before.term);
    let how = match what {
        Happened::Released => "released it",
        Happened::Failed => "gave it up because its work failed",
        Happened::SteppedDown => "stepped down",
        Happened::Expired => "lost it: its lease ran out",
        Happened::Died => "died, and its death was proved",
        Happened::Evicted => "was evicted by an operator",
        _ => "lost it",
    };
    format!("Before it, `{worker}` (term {term}) {how}.")
}

fn next(view: &ResourceView) -> String {
    let listed: Vec<String> = view
        .waiters
        .iter()
        .take(LISTED)
        .map(|waiter| format!("`{}`", clean(waiter.worker.as_str())))
        .collect();
    let more = match view.waiters.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let is_free = (view.owners.len() as u64) < u64::from(view.tickets);
    match (listed.as_slice(), is_free) {
        ([], true) => match output::withheld(view) {
            Some(why) => format!("Nobody waits, and {why}.\n"),
            None => "Nobody waits: whoever claims it next owns it at once.\n".to_owned(),
        },
        ([], false) => {
            "Nobody waits: when an owner goes, nobody follows until somebody claims it.\n".to_owned()
        }
        (_, true) => format!(
            "A ticket is free and {} ({}{more}){}\n",
            if view.waiters.len() == 1 {
                "one waits".to_owned()
            } else {
                format!("{} wait", view.waiters.len())
            },
            listed.join(", "),
            output::withheld(view).map_or_else(
                || ". That lasts for about two round trips; if it lasts longer, they do not reach the store."
                    .to_owned(),
                |why| format!(": {why}.")
            )
        ),
        ([only], false) if view.waiters.len() == 1 => format!("Next is {only}, the only one who waits.\n"),
        ([first, ..], false) => format!(
            "Next is {first}, the first of {} who wait, by priority and then by arrival: {}{more}.\n",
            view.waiters.len(),
            listed.join(", ")
        ),
    }
}

/// What would happen if this owner died now.
fn death(owner: &OwnerView, view: &ResourceView, place: &Place) -> String {
    let worker = clean(owner.worker.as_str());
    let next = match view.waiters.first() {
        Some(next) => format!("`{}` would own the ticket", clean(next.worker.as_str())),
        None => "the ticket would be free".to_owned(),
    };
    if let Some(why) = output::withheld(view) {
        return format!("If `{worker}` died now, nobody would follow at once: {why}.\n");
    }
    let left = span(owner.left);
    let end = format!(
        "when its lease has run out, in {left} at most, plus {} and one answer of the store",
        span(EXCESS)
    );
    let how = match place.proves_deaths() {
        true => format!(
            "{next} within milliseconds, because a lock of the kernel proves that its process is gone; should the process \
             only hang, {end}"
        ),
        false => format!(
            "{next} within milliseconds if it runs under `tenure run`, whose guard reports the death; otherwise, or if its \
             guard or its host went with it, {end}"
        ),
    };
    let told = if owner.left.is_zero() {
        ""
    } else {
        " If the store went away instead, it would stop by itself before that."
    };
    format!("If `{worker}` died now, {how}.{told}\n")
}
