//! `tenure explain`: why this one owns, who is next, and what would happen if it died now. In sentences, or as JSON.

use std::fmt::Write;

use tenure::admin::{HistoryEvent, OwnerView, ResourceView};

use crate::exit::{Exit, Failure};
use crate::json;
use crate::open;
use crate::output::{self, Style, clean, span, wrapped};
use crate::place::Place;
use crate::settings::{self, Form};
use crate::status::{self, Seen};
use crate::timeline::{LATEST_SUCCESSION, Stint, Timeline};

/// Of so many who wait the labels are listed.
const LISTED: usize = 5;
/// Of so many owners each is explained.
const EXPLAINED: usize = 5;

pub(crate) async fn explain(settings: settings::Explain) -> Result<Exit, Failure> {
    let settings::Explain { resource, form, store: at } = settings;
    let store = at.require().await?;
    let view = open::known(&store, &resource).await?;
    let entries = store.history(resource.as_str()).await?;
    let mut seen = status::examine(&store, vec![view], &entries).await?;
    let Some(seen) = seen.pop() else { return Ok(Exit::OK) };
    if form == Form::Programs {
        let explained = json::Resource::explained(&seen, at.place.proves_deaths());
        return output::report(&at, explained).map(|()| Exit::OK);
    }
    let text = sentences(&seen, &at.place);
    output::data(&wrapped(&text, Style::of_stdout().columns)).map(|()| Exit::OK)
}

// ---- for people --------------------------------------------------------------------------------------------

fn sentences(Seen { view, timeline, done_by }: &Seen, place: &Place) -> String {
    let mut text = standing(view);
    for owner in view.owners.iter().take(EXPLAINED) {
        text += &format!("\n{}", reason(owner, timeline));
    }
    if let Some(more) = view.owners.len().checked_sub(EXPLAINED).filter(|more| *more > 0) {
        text += &format!("\n{more} more own the others; `tenure status` lists them.\n");
    }
    text += &match done_by.as_ref().filter(|_| view.owners.is_empty()) {
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
    let _ = match timeline.before(owner) {
        None if grant.term.0 == 1 => writeln!(text, "  It was the first to claim."),
        None if timeline.stints.iter().any(|stint| stint.term == 1) && !timeline.has_had(grant) => {
            writeln!(text, "  It is the first to own this ticket.")
        }
        None => writeln!(text, "  Who had the ticket before, the store does not remember."),
        Some((before, why, free_for)) => {
            writeln!(text, "  {} The ticket was free for {}.", gone(before, why), span(free_for))
        }
    };
    text
}

fn gone(before: &Stint, what: HistoryEvent) -> String {
    let (worker, term) = (clean(&before.worker), before.term);
    let how = match what {
        HistoryEvent::Released => "released it",
        HistoryEvent::Failed => "gave it up because its work failed",
        HistoryEvent::SteppedDown => "stepped down",
        HistoryEvent::Expired => "lost it: its lease ran out",
        HistoryEvent::Died => "died, and its death was proved",
        HistoryEvent::Evicted => "was evicted by an operator",
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
        span(LATEST_SUCCESSION)
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
