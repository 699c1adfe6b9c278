//! `tenure status --watch`: owners and waiting workers as they are now, and bars of who owned lately.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::admin::{Admin, ResourceView};
use tenure::store::Condition;
use tenure::types::ResourceName;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::exit::{Exit, Failure};
use crate::output::{Colour, Line, Screen, Wish, grants_nothing, span};
use crate::settings::Store;
use crate::status;
use crate::timeline::{self, Timeline, letter};

/// How often to read the store.
const AGAIN: Duration = Duration::from_millis(500);
/// The spans of the bars, in seconds.
const SPANS: [u64; 7] = [10, 30, 60, 300, 900, 3_600, 86_400];

pub(crate) async fn watch(at: &Store, resource: Option<ResourceName>) -> Result<Exit, Failure> {
    let store = at.require().await?;
    let mut screen = Screen::enter("--watch", "`tenure status --json` gives what it shows, once")?;
    let (tell, mut seen) = watch::channel(Seen::default());
    tokio::spawn(async move {
        let mut latest = Seen::default();
        loop {
            latest.look(&store, resource.as_ref()).await;
            if tell.send(latest.clone()).is_err() {
                return;
            }
            sleep(AGAIN).await;
        }
    });
    let mut view = View { title: format!("{} {}", at.place, at.namespace), span: 2, scrolled: 0 };
    loop {
        let (columns, height) = screen.size();
        screen.draw(&view.lines(&seen.borrow_and_update(), columns, height))?;
        tokio::select! {
            wish = screen.next() => match wish {
                Wish::Quit(exit) => return Ok(exit),
                Wish::Key('+' | '=') => view.span = (view.span + 1).min(SPANS.len() - 1),
                Wish::Key('-') => view.span = view.span.saturating_sub(1),
                Wish::Up | Wish::Key('k') => view.scrolled = view.scrolled.saturating_sub(1),
                Wish::Down | Wish::Key('j') => view.scrolled += 1,
                Wish::Redraw | Wish::Key(_) => {}
            },
            _ = seen.changed() => {}
        }
    }
}

/// What was read last.
#[derive(Clone, Debug, Default)]
struct Seen {
    views: Vec<ResourceView>,
    timelines: BTreeMap<String, Timeline>,
    /// When that was; and when the history was read, which is older.
    at: Option<Instant>,
    history_at: Option<Instant>,
    trouble: Option<String>,
    condition: Condition,
}

impl Seen {
    async fn look(&mut self, store: &Admin, resource: Option<&ResourceName>) {
        self.trouble = self.try_look(store, resource).await.err().map(|failure| failure.to_string());
    }

    async fn try_look(&mut self, store: &Admin, resource: Option<&ResourceName>) -> Result<(), Failure> {
        let views = match resource {
            Some(name) => store.read(name.as_str()).await?.into_iter().collect(),
            None => store.read_all().await?,
        };
        // A history may be long, and changes only with an owner.
        if self.history_at.is_none() || tokens(&views) != tokens(&self.views) {
            let entries = match resource {
                Some(name) => store.history(name.as_str()).await?,
                None => store.history_of_all().await?,
            };
            self.timelines = timeline::timelines(&entries, &views);
            self.history_at = Some(Instant::now());
        }
        // This lists all resources once more, so only when it may have changed.
        if resource.is_none()
            && (views.is_empty() || tokens(&views) != tokens(&self.views) || self.at.is_none())
        {
            self.condition = store.condition().await?;
        }
        (self.views, self.at) = (views, Some(Instant::now()));
        Ok(())
    }

    /// The history as of now: it was read a while ago.
    fn timeline(&self, resource: &str) -> Timeline {
        let elapsed = self.history_at.map_or(Duration::ZERO, |at| at.elapsed());
        self.timelines.get(resource).cloned().unwrap_or_default().older_by(elapsed)
    }
}

fn tokens(views: &[ResourceView]) -> Vec<u64> {
    views.iter().flat_map(|view| view.owners.iter().map(|owner| owner.grant.token.0)).collect()
}

/// What part of it is shown.
#[derive(Debug)]
struct View {
    title: String,
    /// Which of [`SPANS`].
    span: usize,
    /// How many lines are above the first one shown.
    scrolled: usize,
}

impl View {
    fn lines(&mut self, seen: &Seen, columns: usize, height: usize) -> Vec<Line> {
        let shown = Duration::from_secs(SPANS[self.span]);
        let mut body: Vec<Line> = seen
            .views
            .iter()
            .flat_map(|view| of_resource(view, &seen.timeline(view.resource.as_str()), shown, columns))
            .collect();
        if let Some(left) = seen.condition.withheld.filter(|_| body.is_empty()) {
            body.push(Line::in_colour(Colour::Warning, grants_nothing(left)));
        }
        if let Some(first) = seen.condition.unreadable.first() {
            let failure = status::cannot_be_read(first, seen.condition.unreadable.len());
            body.push(Line::in_colour(Colour::Bad, failure.to_string()));
        }
        if body.is_empty() {
            body.push(Line::in_colour(
                Colour::Faint,
                if seen.at.is_some() { "nothing has been claimed yet" } else { "reading ..." },
            ));
        }
        let state = match (&seen.trouble, seen.at) {
            (Some(why), Some(at)) => {
                Line::in_colour(Colour::Bad, format!("NOT CURRENT, {} old: {why}", span(at.elapsed())))
            }
            (Some(why), None) => Line::in_colour(Colour::Bad, why.clone()),
            (None, _) => Line::in_colour(Colour::Faint, format!("bars: the last {}", span(shown))),
        };
        // The head, and one line for the keys.
        let room = height.saturating_sub(3);
        self.scrolled = self.scrolled.min(body.len().saturating_sub(room));
        let mut lines = vec![Line::in_colour(Colour::Strong, self.title.clone()), state];
        lines.extend(body.into_iter().skip(self.scrolled).take(room));
        lines.resize_with(height.saturating_sub(1).max(2), Line::default);
        lines.push(Line::in_colour(Colour::Faint, "q quit  +/- span  j/k scroll"));
        lines
    }
}

/// A head, a bar per ticket with its owner below, and the waiting workers.
pub(crate) fn of_resource(
    view: &ResourceView,
    timeline: &Timeline,
    shown: Duration,
    columns: usize,
) -> Vec<Line> {
    let workers = timeline.workers();
    let number = |label: &str| workers.iter().position(|worker| *worker == label);
    let owned = match (view.owners.len(), view.tickets) {
        (0, 1) => "nobody owns it".to_owned(),
        (1, 1) => "owned".to_owned(),
        (owned, all) => format!("{owned} of {all} owned"),
    };
    let state = if view.owners.is_empty() { Colour::Warning } else { Colour::Good };
    let mut head =
        Line::in_colour(Colour::Strong, view.resource.to_string()).and(None, "  ").and(Some(state), owned);
    if let Some(flaps) = timeline.flapping_now() {
        head = head.and(None, "  ").and(Some(Colour::Warning), format!("flapping: {flaps}"));
    }
    if let Some(left) = view.withheld.map(grants_nothing) {
        head = head.and(None, "  ").and(Some(Colour::Warning), left);
    }
    let mut lines = vec![head];
    let mut tickets = timeline.tickets();
    tickets.retain(|ticket| {
        *ticket < view.tickets || view.owners.iter().any(|owner| owner.grant.ticket.0 == *ticket)
    });
    let digits = tickets.iter().map(|ticket| ticket.to_string().len()).max().unwrap_or(1);
    for ticket in tickets {
        let mut bar = Line::plain(format!("{ticket:>digits$} "));
        for worker in timeline.bar(ticket, shown, columns.saturating_sub(digits + 1), &workers) {
            bar = bar.and(Some(worker.map_or(Colour::Faint, Colour::Worker)), letter(worker));
        }
        lines.push(bar);
        for owner in view.owners.iter().filter(|owner| owner.grant.ticket.0 == ticket) {
            let number = number(owner.worker.as_str());
            let (term, owned_for, left) = (owner.grant.term.0, span(owner.owned_for), span(owner.left));
            lines.push(
                Line::plain(format!("{:digits$} ", ""))
                    .and(Some(number.map_or(Colour::Faint, Colour::Worker)), format!("{} ", letter(number)))
                    .and(None, format!("{}  term {term}  for {owned_for}  lease {left}", owner.worker)),
            );
        }
    }
    if !view.waiters.is_empty() {
        let waiting: Vec<String> = view.waiters.iter().map(|waiter| waiter.worker.to_string()).collect();
        let line = format!("{:digits$} {} waiting: {}", "", waiting.len(), waiting.join(", "));
        lines.push(Line::in_colour(Colour::Faint, line));
    }
    lines.push(Line::default());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Style;
    use crate::timeline::Stint;
    use tenure::admin::{OwnerView, WaiterView};
    use tenure::types::{Grant, Label, Metadata, Term, Ticket, Token};

    fn seen() -> Seen {
        let grant = Grant { ticket: Ticket(0), term: Term(3), token: Token(9) };
        let label = |text: &str| Label::new(text).expect("a label");
        let owner = OwnerView {
            worker: label("web1"),
            metadata: Metadata::default(),
            grant,
            owned_for: Duration::from_secs(15),
            left: Duration::from_secs(12),
        };
        let waiter =
            WaiterView { worker: label("web2"), metadata: Metadata::default(), left: Duration::from_secs(9) };
        let view = ResourceView {
            resource: ResourceName::new("job").expect("a name"),
            tickets: 1,
            owners: vec![owner],
            waiters: vec![waiter],
            withheld: None,
        };
        let stint = Stint {
            worker: "web1".into(),
            ticket: 0,
            term: 3,
            token: 9,
            began: Some(Duration::from_secs(15)),
            ended: None,
        };
        let timelines = BTreeMap::from([("job".to_owned(), Timeline { stints: vec![stint], before: None })]);
        Seen {
            views: vec![view],
            timelines,
            at: Some(Instant::now()),
            history_at: None,
            trouble: None,
            condition: Condition::default(),
        }
    }

    fn drawn(seen: &Seen, columns: usize, height: usize) -> Vec<String> {
        let mut view = View { title: "sqlite:/x tenure".into(), span: 1, scrolled: 0 };
        let lines = view.lines(seen, columns, height);
        lines.iter().map(|line| line.painted(columns, Style::PLAIN)).collect()
    }

    #[test]
    fn owners_bars_and_waiters_are_drawn() {
        let lines = drawn(&seen(), 32, 10);

        assert_eq!(
            lines,
            [
                "sqlite:/x tenure",
                "bars: the last 30s",
                "job  owned",
                "0 ...............aaaaaaaaaaaaaaa",
                "  a web1  term 3  for 15s  leas~",
                "  1 waiting: web2",
                "",
                "",
                "",
                "q quit  +/- span  j/k scroll"
            ]
        );
    }

    #[test]
    fn twenty_columns_and_three_lines_are_enough_to_see_something() {
        let lines = drawn(&seen(), 20, 4);

        assert_eq!(lines, ["sqlite:/x tenure", "bars: the last 30s", "job  owned", "q quit  +/- span  j~"]);
        for (columns, height) in [(1, 1), (2, 2), (5, 3)] {
            assert!(drawn(&seen(), columns, height).iter().all(|line| line.chars().count() <= columns));
        }
    }

    #[test]
    fn a_picture_that_is_not_current_says_so() {
        let mut seen = seen();
        seen.trouble = Some("no answer".into());

        let told = &drawn(&seen, 40, 10)[1];
        assert!(told.starts_with("NOT CURRENT, ") && told.ends_with(" old: no answer"), "{told}");
    }
}
