//! `tenure history`: who owned what, when, why that ended, and how long nobody owned it.

use std::cmp::Reverse;
use std::time::Duration;

use crate::exit::{Exit, Failure};
use crate::json;
use crate::open;
use crate::output::{Colour, Style, Table, clean, say, span};
use crate::settings;
use crate::timeline::{self, Stint, Timeline, ended, letter};

/// The width of a bar where there is no terminal, and at most.
const BAR: usize = 60;
/// How many workers are listed by name.
const NAMED: usize = 62;

pub(crate) async fn history(settings: settings::History) -> Result<Exit, Failure> {
    let settings::History { resource, since, look } = settings;
    let mut timelines = Vec::new();
    if let Some(store) = look.store.open().await? {
        let (views, entries) = open::read(&store, resource.as_ref()).await?;
        let all = timeline::timelines(&entries, &views).into_iter();
        timelines = all.map(|(name, timeline)| (name, timeline.within(since))).collect();
        if timelines.is_empty() && resource.is_none() && !look.json {
            say("nothing has been claimed yet");
        }
    }
    let text = |style| {
        let shown = timelines.iter().filter(|(_, timeline)| !timeline.reaches().is_zero());
        let texts: Vec<String> = shown.map(|(name, timeline)| text(name, timeline, since, style)).collect();
        match since {
            _ if !texts.is_empty() || timelines.is_empty() => {}
            Some(since) => say(format!("nobody has owned anything within {}", span(since))),
            None => say("nobody has owned anything yet"),
        }
        texts.join("\n")
    };
    look.answer(|| json::history(&timelines, since), text)
}

// ---- for people --------------------------------------------------------------------------------------------

fn text(name: &str, timeline: &Timeline, since: Option<Duration>, style: Style) -> String {
    let shown = since.map_or(timeline.reaches(), |since| since.min(timeline.reaches()));
    let mut text = format!("{}: {}\n", style.paint(Colour::Strong, &clean(name)), summary(timeline, shown));
    if let Some(flaps) = timeline.flapping() {
        text += &format!("{}\n", style.paint(Colour::Warning, &format!("flapping: {flaps}")));
    }
    text + &bars(timeline, shown, style) + &table(timeline, style)
}

/// How much of the time it was owned.
fn summary(timeline: &Timeline, shown: Duration) -> String {
    let vacant = timeline.vacant_for(Some(shown));
    let owned = 100.0 - 100.0 * vacant.as_secs_f64() / shown.as_secs_f64().max(f64::MIN_POSITIVE);
    let longest = timeline.vacancies().iter().map(|one| one.lasted().min(shown)).max();
    let gaps = match (timeline.vacancies().len(), longest) {
        (0, _) | (_, None) => "it was never without an owner".to_owned(),
        (1, _) => format!("nobody owned it for {}", span(vacant)),
        (many, Some(longest)) => {
            format!("nobody owned it for {} ({many} gaps, the longest {})", span(vacant), span(longest))
        }
    };
    // Never 100 where a moment was missing.
    let owned = if vacant.is_zero() { 100.0 } else { (owned * 10.0).floor().min(999.0) / 10.0 };
    format!("owned {owned} % of the last {}; {gaps}", span(shown))
}

fn bars(timeline: &Timeline, shown: Duration, style: Style) -> String {
    let (workers, tickets) = (timeline.workers(), timeline.tickets());
    let digits = tickets.iter().map(|ticket| ticket.to_string().len()).max().unwrap_or(1);
    let columns = style.columns.map_or(BAR, |columns| columns.saturating_sub(digits + 3).clamp(1, BAR));
    let mut text = String::new();
    for ticket in tickets {
        let bar = timeline.bar(ticket, shown, columns, &workers);
        let bar: String = bar.into_iter().map(|worker| painted(worker, style)).collect();
        text += &format!("  {ticket:>digits$} {bar}\n");
    }
    let named = workers
        .iter()
        .enumerate()
        .take(NAMED)
        .map(|(number, worker)| format!("  {} {}\n", painted(Some(number), style), clean(worker)));
    text + &named.collect::<String>() + "\n"
}

fn painted(worker: Option<usize>, style: Style) -> String {
    let colour = worker.map_or(Colour::Faint, Colour::Worker);
    style.paint(colour, &letter(worker).to_string())
}

/// Ownerships, and between them the spans in which nobody owned, in their order.
fn table(timeline: &Timeline, style: Style) -> String {
    let ago = |ago: Duration| format!("{} ago", span(ago));
    let ownership = |stint: &Stint| {
        let lasted = stint.lasted().map_or_else(|| "?".to_owned(), span);
        let end = stint.ended.map_or("still owns", |(_, what)| ended(what)[1]);
        let began = stint.began.map_or_else(|| "before that".to_owned(), ago);
        let (term, ticket) = (stint.term.to_string(), stint.ticket.to_string());
        (
            stint.began.unwrap_or(Duration::MAX),
            [term, ticket, stint.worker.clone(), began, lasted, end.to_owned()],
        )
    };
    let mut rows: Vec<(Duration, [String; 6])> = timeline.stints.iter().map(ownership).collect();
    rows.extend(timeline.vacancies().into_iter().map(|one| {
        let ended = one.ended.map_or("nobody owns it", |_| "");
        let dash = || "-".to_owned();
        (
            one.began,
            [dash(), dash(), "(nobody)".to_owned(), ago(one.began), span(one.lasted()), ended.to_owned()],
        )
    }));
    rows.sort_by_key(|(began, _)| Reverse(*began));
    let head = ["TERM", "TICKET", "WORKER", "BEGAN", "FOR", "ENDED"];
    Table { head, rows: rows.into_iter().map(|(_, row)| row).collect() }.text(style.columns)
}
