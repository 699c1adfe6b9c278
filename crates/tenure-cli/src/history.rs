//! `tenure history`: who owned what, when, why it ended, and how long nobody did.

use std::cmp::Reverse;
use std::time::Duration;

use serde::Serialize;
use tenure::{Namespace, ResourceName};

use crate::args;
use crate::exit::{Exit, Failure};
use crate::output::{self, Colour, Style, Table, clean, millis, span};
use crate::reading::Reading;
use crate::settings::named;
use crate::timeline::{self, Stint, Timeline, code, letter, why};

/// Grows when a field changes its meaning or goes. New fields may come without.
const VERSION: u32 = 1;
/// The width of a bar where there is no terminal, and at most.
const BAR: usize = 60;
/// Of so many workers the names are listed.
const NAMED: usize = 62;

pub(crate) async fn history(typed: args::History) -> Result<Exit, Failure> {
    let resource = typed.resource.map(|name| named(&name, ResourceName::new)).transpose()?;
    let reading = Reading::meant_by(typed.at)?;
    let timelines = match reading.open().await? {
        Some(store) => {
            let timelines = read(&store, resource.as_ref(), typed.since).await?;
            if timelines.is_empty() && resource.is_none() && !typed.json {
                output::nothing_claimed_yet();
            }
            timelines
        }
        None => Vec::new(),
    };
    match typed.json {
        true => output::json(&Report {
            version: VERSION,
            store: reading.place.to_string(),
            namespace: reading.namespace.as_str(),
            since_ms: typed.since.map(millis),
            resources: timelines
                .iter()
                .map(|(name, timeline)| Resource::of(name, timeline, typed.since))
                .collect(),
        })?,
        false => {
            let style = Style::of_stdout();
            let shown = timelines.iter().filter(|(_, timeline)| !timeline.reaches().is_zero());
            let texts: Vec<String> =
                shown.map(|(name, timeline)| text(name, timeline, typed.since, style)).collect();
            if texts.is_empty() && !timelines.is_empty() {
                output::nothing_owned(typed.since);
            }
            output::data(&texts.join("\n"))?;
        }
    }
    Ok(Exit::OK)
}

async fn read(
    store: &Namespace,
    resource: Option<&ResourceName>,
    since: Option<Duration>,
) -> Result<Vec<(String, Timeline)>, Failure> {
    let (entries, present) = match resource {
        Some(name) => {
            let Some(view) = store.read(name.as_str()).await? else {
                output::never_claimed(name.as_str());
                return Ok(Vec::new());
            };
            (store.history(name.as_str()).await?, vec![view])
        }
        None => (store.history_of_all().await?, store.read_all().await?),
    };
    let timelines = timeline::timelines(&entries, &present).into_iter();
    Ok(timelines.map(|(name, timeline)| (name, timeline.within(since))).collect())
}

// ---- for programs ------------------------------------------------------------------------------------------

#[derive(Serialize)]
struct Report<'a> {
    version: u32,
    store: String,
    namespace: &'a str,
    since_ms: Option<u64>,
    resources: Vec<Resource<'a>>,
}

#[derive(Serialize)]
struct Resource<'a> {
    resource: &'a str,
    vacant_for_ms: u64,
    changes: usize,
    flapping: bool,
    ownerships: Vec<Ownership<'a>>,
    vacancies: Vec<Nobody>,
}

#[derive(Serialize)]
struct Ownership<'a> {
    worker: &'a str,
    ticket: u32,
    term: u64,
    token: u64,
    began_ago_ms: Option<u64>,
    ended_ago_ms: Option<u64>,
    owned_for_ms: Option<u64>,
    ended: Option<&'static str>,
}

#[derive(Serialize)]
struct Nobody {
    began_ago_ms: u64,
    ended_ago_ms: Option<u64>,
    lasted_ms: u64,
}

impl<'a> Resource<'a> {
    fn of(name: &'a str, timeline: &'a Timeline, since: Option<Duration>) -> Self {
        let ownership = |stint: &'a Stint| Ownership {
            worker: &stint.worker,
            ticket: stint.ticket,
            term: stint.term,
            token: stint.token,
            began_ago_ms: stint.began.map(millis),
            ended_ago_ms: stint.ended.map(|(ago, _)| millis(ago)),
            owned_for_ms: stint.lasted().map(millis),
            ended: stint.ended.map(|(_, what)| code(what)),
        };
        let vacancies = timeline.vacancies().into_iter().map(|one| Nobody {
            began_ago_ms: millis(one.began),
            ended_ago_ms: one.ended.map(millis),
            lasted_ms: millis(one.lasted()),
        });
        Self {
            resource: name,
            vacant_for_ms: millis(timeline.vacant_for(since)),
            changes: timeline.changes().values().map(Vec::len).sum(),
            flapping: timeline.flapping().is_some(),
            ownerships: timeline.stints.iter().map(ownership).collect(),
            vacancies: vacancies.collect(),
        }
    }
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
    // Nobody should read 100 where a moment was missing.
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
        let ended = stint.ended.map_or("owns still", |(_, what)| why(what));
        let began = stint.began.map_or_else(|| "before that".to_owned(), ago);
        let (term, ticket) = (stint.term.to_string(), stint.ticket.to_string());
        (
            stint.began.unwrap_or(Duration::MAX),
            [term, ticket, stint.worker.clone(), began, lasted, ended.to_owned()],
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
