//! A graceful hand-over between two processes: from the call of `release` until the next owner's work has started.

use std::time::Duration;

use crate::Failure;
use crate::figure::{Figure, Unit};
use crate::ground::{Baseline, Ground, Site};
use crate::process::{Part, Role, Troupe};
use crate::samples::Samples;

const RUNS: usize = 5;
const ROUNDS: usize = 200;
const WARM_UP: usize = 20;
/// Before every baseline and every hand-over, so that both meet the machine in the same state.
const PAUSE: Duration = Duration::from_millis(2);
const TTL: Duration = Duration::from_secs(15);

pub(crate) fn measure(ground: &Ground) -> Result<Vec<Figure>, Failure> {
    let mut stage = Stage::set(ground, "hand-over", &ground.site("hand-over", TTL)?)?;

    let (mut all, mut ratios) = (Run::default(), Samples::default());
    for _ in 0..RUNS {
        let run = stage.run(ROUNDS, PAUSE)?;
        ratios.add_number(run.hand_overs.median() / run.baselines.median());
        all.hand_overs.extend(&run.hand_overs);
        all.baselines.extend(&run.baselines);
    }
    let hurried = stage.run(ROUNDS, Duration::ZERO)?;
    let (name, limits) = (stage.baseline.name(), ground.limits());
    let rounds = all.hand_overs.count();
    let p99 = Figure::new(format!("p99 of all {rounds}"), all.hand_overs.p99(), Unit::Seconds)
        .beside(format!("{name}, p99"), all.baselines.p99());
    let mut figures = vec![
        Figure::new(format!("median of {RUNS} runs of {ROUNDS}"), all.hand_overs.median(), Unit::Seconds)
            .beside(name, all.baselines.median())
            .with_ratio(ratios.median())
            .at_most_times(limits.hand_over),
        match limits.hand_over_p99 {
            Some(limit) => p99.at_most(limit),
            None => p99,
        },
        Figure::new("back to back, median", hurried.hand_overs.median(), Unit::Seconds)
            .beside(name, hurried.baselines.median()),
        Figure::new("back to back, p99", hurried.hand_overs.p99(), Unit::Seconds)
            .beside(format!("{name}, p99"), hurried.baselines.p99()),
    ];
    if let Some(site) = ground.plain_site("hand-over-plain")? {
        let run = Stage::set(ground, "hand-over-plain", &site)?.run(ROUNDS, PAUSE)?;
        let what = "by the URL without parameters, median";
        figures.push(
            Figure::new(what, run.hand_overs.median(), Unit::Seconds).beside(name, run.baselines.median()),
        );
    }
    Ok(figures)
}

#[derive(Default)]
struct Run {
    hand_overs: Samples,
    baselines: Samples,
}

struct Stage {
    troupe: Troupe,
    owner: usize,
    baseline: Box<dyn Baseline>,
}

impl Stage {
    /// One owns, the other waits.
    fn set(ground: &Ground, name: &str, site: &Site) -> Result<Self, Failure> {
        let mut stage = Self { troupe: Troupe::new(), owner: 0, baseline: ground.baseline(name)? };
        let part = Part::new(Role::Owner, site, TTL, 1);
        stage.owner = stage.troupe.start(&part)?;
        stage.troupe.hear_word("owns")?;
        stage.troupe.start(&part)?;
        stage.troupe.hear_word("waiting")?;
        stage.run(WARM_UP, PAUSE)?;
        Ok(stage)
    }

    fn run(&mut self, rounds: usize, pause: Duration) -> Result<Run, Failure> {
        let mut run = Run::default();
        for _ in 0..rounds {
            std::thread::sleep(pause);
            run.baselines.add(self.baseline.once()?);
            std::thread::sleep(pause);
            run.hand_overs.add(self.hand_over()?);
        }
        Ok(run)
    }

    /// One hand-over; returns when one owns again and the other waits. The one that hands over does nothing else
    /// meanwhile: what it says, and that it competes again, come when the next one owns.
    fn hand_over(&mut self) -> Result<Duration, Failure> {
        let old = self.owner;
        self.troupe.tell(old, "release")?;
        let owns = self.troupe.hear_word("owns")?;
        self.owner = owns.by;
        self.troupe.tell(old, "again")?;
        let released = self.troupe.hear_of(old, "released")?;
        self.troupe.hear_of(old, "waiting")?;
        Ok(owns.time(0)?.saturating_sub(released.time(0)?))
    }
}
