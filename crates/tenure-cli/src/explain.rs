//! `tenure explain`: why a worker owns, who is next, and what would happen if the owner died now.

use std::fmt::Write;

use tenure::admin::{HistoryEvent, OwnerView, ResourceView};

use crate::exit::{Exit, Failure};
use crate::json;
use crate::open;
use crate::output::{clean, grants_nothing, span, wrapped};
use crate::settings;
use crate::status;
use crate::timeline::{LATEST_SUCCESSION, Stint, Timeline, ended};
use crate::view::Seen;

/// How many waiting workers are listed.
const LISTED: usize = 5;
/// How many owners are explained.
const EXPLAINED: usize = 5;

pub(crate) async fn explain(settings: settings::Explain) -> Result<Exit, Failure> {
    let settings::Explain { resource, look } = settings;
    let store = look.store.require().await?;
    let view = open::known(&store, &resource).await?;
    let entries = store.history(resource.as_str()).await?;
    let mut seen = status::examine(&store, vec![view], &entries).await?;
    let Some(seen) = seen.pop() else { return Ok(Exit::OK) };
    let proves_deaths = look.store.place.proves_deaths();
    look.answer(
        || json::explained(&seen, proves_deaths),
        |style| wrapped(&sentences(&seen, proves_deaths), style.columns),
    )
}

// ---- for people --------------------------------------------------------------------------------------------

fn sentences(Seen { view, timeline, done_by }: &Seen, proves_deaths: bool) -> String {
    let mut text = standing(view);
    for owner in view.owners.iter().take(EXPLAINED) {
        text += &format!("\n{}", reason(owner, timeline));
    }
    if let Some(more) = view.owners.len().checked_sub(EXPLAINED).filter(|more| *more > 0) {
        text += &format!("\n{more} more workers own the other tickets; `tenure status` lists them.\n");
    }
    text += &match done_by.as_ref().filter(|_| view.owners.is_empty()) {
        Some(by) => format!(
            "\nIt is done, by `{}`: a worker that claims it learns that, and does nothing.\n",
            clean(by.as_str())
        ),
        None => format!("\n{}", next(view)),
    };
    for owner in view.owners.iter().take(EXPLAINED) {
        text += &format!("\n{}", death(owner, view, proves_deaths));
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

/// Why a worker owns, as far as the store remembers.
fn reason(owner: &OwnerView, timeline: &Timeline) -> String {
    let (worker, grant) = (clean(owner.worker.as_str()), owner.grant);
    let mut text = format!(
        "`{worker}` has owned ticket {} for {}: term {}, token {}.\n",
        grant.ticket.0,
        span(owner.owned_for),
        grant.term.0,
        grant.token.0
    );
    let _ = match timeline.before(owner) {
        None if grant.term.0 == 1 => writeln!(text, "  It was the first to claim."),
        None if timeline.stints.iter().any(|stint| stint.term == 1) && !timeline.has_had(grant) => {
            writeln!(text, "  It is the first to own this ticket.")
        }
        None => writeln!(text, "  The store does not remember who had the ticket before."),
        Some((before, why, free_for)) => {
            writeln!(text, "  {} The ticket was free for {}.", gone(before, why), span(free_for))
        }
    };
    text
}

fn gone(before: &Stint, what: HistoryEvent) -> String {
    let (worker, term, how) = (clean(&before.worker), before.term, ended(what)[2]);
    format!("Before it, `{worker}` (term {term}) {how}.")
}

fn next(view: &ResourceView) -> String {
    let waiting = view.waiters.len();
    let listed =
        view.waiters.iter().take(LISTED).map(|waiter| format!("`{}`", clean(waiter.worker.as_str())));
    let listed: Vec<String> = listed.collect();
    let mut all = listed.join(", ");
    if waiting > LISTED {
        all += &format!(" and {} more", waiting - LISTED);
    }
    let is_free = (view.owners.len() as u64) < u64::from(view.tickets);
    let withheld = view.withheld.map(grants_nothing);
    match (listed.first(), is_free, withheld) {
        (None, true, Some(why)) => format!("Nobody waits, and {why}.\n"),
        (None, true, None) => "Nobody waits: the next worker that claims it owns it at once.\n".to_owned(),
        (None, false, _) => {
            "Nobody waits: when an owner goes, nobody follows until a worker claims it.\n".to_owned()
        }
        (Some(_), true, why) => {
            let wait =
                if waiting == 1 { "one worker waits".to_owned() } else { format!("{waiting} workers wait") };
            let why = why.map_or_else(
                || {
                    ". That lasts for about two round trips; if it lasts longer, they do not reach the store"
                        .to_owned()
                },
                |why| format!(": {why}"),
            );
            format!("A ticket is free and {wait} ({all}){why}.\n")
        }
        (Some(only), false, _) if waiting == 1 => format!("Next is {only}, the only waiting worker.\n"),
        (Some(first), false, _) => format!(
            "Next is {first}, the first of {waiting} waiting workers, by priority and then by arrival: {all}.\n"
        ),
    }
}

/// What would happen if this owner died now.
fn death(owner: &OwnerView, view: &ResourceView, proves_deaths: bool) -> String {
    let worker = clean(owner.worker.as_str());
    if let Some(left) = view.withheld {
        return format!("If `{worker}` died now, nobody would follow at once: {}.\n", grants_nothing(left));
    }
    let next = match view.waiters.first() {
        Some(next) => format!("`{}` would own the ticket", clean(next.worker.as_str())),
        None => "the ticket would be free".to_owned(),
    };
    let end = format!(
        "when its lease has run out, in at most {}, plus {} and one reply of the store",
        span(owner.left),
        span(LATEST_SUCCESSION)
    );
    let how = match proves_deaths {
        true => format!(
            "{next} within milliseconds, because a lock of the kernel proves that its process is gone; should the process \
             only hang, {end}"
        ),
        false => format!(
            "{next} within milliseconds if it runs under `tenure run`, whose guard reports the death; otherwise, or if its \
             guard or its host died with it, {end}"
        ),
    };
    let outage = if owner.left.is_zero() {
        ""
    } else {
        " If the store went away instead, it would stop by itself before that."
    };
    format!("If `{worker}` died now, {how}.{outage}\n")
}
