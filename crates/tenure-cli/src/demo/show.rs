//! The interactive demo: shows live who owns, and makes trouble on a key press.

use std::time::Duration;

use tenure::Timing;
use tenure::admin::ResourceView;
use tokio::time::sleep;

use super::RESOURCE;
use super::stage::{Stage, State};
use crate::exit::{Exit, Failure};
use crate::output::{Colour, Line, Screen, Wish, data, span};
use crate::timeline::{self, Timeline};
use crate::watch::of_resource;

/// How often it is drawn.
const AGAIN: Duration = Duration::from_millis(100);
/// What the bar shows.
const SHOWN: Duration = Duration::from_secs(20);
/// More are not told apart.
const MOST: usize = 9;

pub(super) async fn show(timing: Timing, workers: u8) -> Result<Exit, Failure> {
    let mut screen = Screen::enter("the demo", "`tenure demo --script` plays a fixed scenario without one")?;
    let mut stage = Stage::build(timing, false).await?;
    for _ in 0..workers {
        stage.add()?;
    }
    let mut show = Show { chosen: None, told: "press k to kill the owner".to_owned(), is_broken: false };
    loop {
        let (view, timeline) = look(&stage).await?;
        show.check(&mut stage)?;
        let (columns, height) = screen.size();
        screen.draw(&show.lines(&stage, view.as_ref(), &timeline, columns, height))?;
        tokio::select! {
            wish = screen.next() => match wish {
                Wish::Quit(exit) => {
                    // It has to be left before anything can be read below it.
                    drop(screen);
                    return Ok(show.verdict(exit));
                }
                Wish::Key(key) => show.act(key, &mut stage, view.as_ref()).await?,
                Wish::Up | Wish::Down | Wish::Redraw => {}
            },
            () = sleep(AGAIN) => {}
        }
    }
}

async fn look(stage: &Stage) -> Result<(Option<ResourceView>, Timeline), Failure> {
    let view = stage.store.read(RESOURCE).await?;
    let entries = stage.store.history(RESOURCE).await?;
    let mut timelines = timeline::timelines(&entries, view.as_slice());
    Ok((view, timelines.remove(RESOURCE).unwrap_or_default()))
}

struct Show {
    /// The worker that the next key is about; without one, the owner.
    chosen: Option<usize>,
    told: String,
    is_broken: bool,
}

impl Show {
    async fn act(
        &mut self,
        key: char,
        stage: &mut Stage,
        view: Option<&ResourceView>,
    ) -> Result<(), Failure> {
        let owner = view.and_then(|view| view.owners.first());
        let meant = self.chosen.or_else(|| stage.position(owner?.worker.as_str()));
        match (key, meant) {
            ('1'..='9', _) => {
                let number = key as usize - '1' as usize;
                self.chosen = Some(number).filter(|number| *number < stage.workers.len());
                return Ok(());
            }
            ('k', Some(at)) => {
                stage.kill(at);
                self.told = format!("killed {}", stage.workers[at].name);
            }
            ('p', Some(at)) => {
                stage.pause(at);
                self.told = format!(
                    "paused {}; its lease runs out within {}",
                    stage.workers[at].name,
                    span(stage.timing.ttl())
                );
            }
            ('r', _) => {
                stage.resume_all();
                self.told = "resumed all that were paused".to_owned();
            }
            ('s', _) => {
                if let Some(owner) = owner {
                    let _asked = stage.store.ask(RESOURCE, owner.grant.token.0, None).await?;
                    self.told = format!(
                        "asked {} to step down; it hears of it within {}",
                        owner.worker,
                        span(stage.timing.renew())
                    );
                }
            }
            ('a', _) if stage.workers.len() < MOST => {
                stage.add()?;
                self.told = "added a worker".to_owned();
            }
            ('a', _) => self.told = format!("there are {MOST} already"),
            _ => return Ok(()),
        }
        self.chosen = None;
        Ok(())
    }

    /// What it came to, for whoever wants to read it afterwards.
    fn verdict(&self, exit: Exit) -> Exit {
        let what =
            if self.is_broken { "BROKEN: two worked at once\n" } else { "held: at no moment two worked\n" };
        // The terminal may be gone.
        let _gone = data(what);
        if self.is_broken && exit == Exit::OK { Exit::UNSAFE } else { exit }
    }

    fn check(&mut self, stage: &mut Stage) -> Result<(), Failure> {
        stage.look_after();
        stage.lives.read()?;
        self.is_broken |= stage.lives.two_at_once().is_some();
        Ok(())
    }

    fn lines(
        &self,
        stage: &Stage,
        view: Option<&ResourceView>,
        timeline: &Timeline,
        columns: usize,
        height: usize,
    ) -> Vec<Line> {
        let mut lines =
            vec![Line::in_colour(Colour::Strong, format!("tenure demo, ttl {}", span(stage.timing.ttl())))];
        lines.push(match self.is_broken {
            true => Line::in_colour(Colour::Bad, "TWO WORKED AT ONCE"),
            false => Line::in_colour(Colour::Good, "two at once: never"),
        });
        lines.push(Line::in_colour(Colour::Faint, self.told.clone()));
        lines.push(Line::default());
        if let Some(view) = view {
            lines.extend(of_resource(view, timeline, SHOWN, columns));
        }
        for (at, player) in stage.workers.iter().enumerate() {
            let owns =
                view.is_some_and(|view| view.owners.iter().any(|one| one.worker.as_str() == player.name));
            let (colour, state) = match (player.state, owns) {
                (State::Dead, _) => (Colour::Faint, "dead"),
                (State::Paused, true) => (Colour::Warning, "paused, owns until its lease ends"),
                (State::Paused, false) => (Colour::Warning, "paused"),
                (State::Runs, true) => (Colour::Good, "owns"),
                (State::Runs, false) => (Colour::Faint, "waits"),
            };
            let mark = if self.chosen == Some(at) { ">" } else { " " };
            lines.push(
                Line::plain(format!("{mark}{} {} pid {} ", at + 1, player.name, player.pid()))
                    .and(Some(colour), state),
            );
        }
        lines.truncate(height.saturating_sub(1));
        lines.resize_with(height.saturating_sub(1), Line::default);
        let keys = "q quit  k kill  p pause  r resume  s step down  a add  1-9 choose";
        lines.push(Line::in_colour(Colour::Faint, keys));
        lines
    }
}
