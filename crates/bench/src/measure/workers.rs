//! A thousand workers on one server: whether leases are lost, how late renewals come, and what it costs the server.

use std::time::Duration;

use crate::Failure;
use crate::figure::{Figure, Unit};
use crate::ground::{Ground, Length};
use crate::process::{Part, Role, Troupe};
use crate::samples::Samples;

const PROCESSES: usize = 4;
const WORKERS: usize = 250;
const TTL: Duration = Duration::from_secs(3);
/// Exactly a third, unless set.
const INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn measure(ground: &Ground) -> Result<Vec<Figure>, Failure> {
    let watched = match ground.length {
        Length::Usual => Duration::from_secs(20),
        Length::Long => Duration::from_secs(120),
    };
    let part = Part::new(Role::Workers, &ground.site("workers", TTL), TTL, WORKERS);
    let mut troupe = Troupe::new();
    for _ in 0..PROCESSES {
        troupe.start(&part)?;
    }
    for _ in 0..PROCESSES {
        troupe.hear_word("owned")?;
    }
    (0..PROCESSES).try_for_each(|who| troupe.tell(who, "begin"))?;
    let before = ground.server_cpu()?;
    std::thread::sleep(watched);
    let after = ground.server_cpu()?;
    (0..PROCESSES).try_for_each(|who| troupe.tell(who, "end"))?;
    let (mut late, mut silence, mut lost, mut done) = (Vec::new(), Samples::default(), 0, 0);
    while done < PROCESSES {
        let line = troupe.hear()?;
        match line.word.as_str() {
            "late" => late.push(line.time(0)?.as_secs_f64()),
            _ => {
                done += 1;
                // A lease that is gone ends its ownership, too.
                lost += line.number(0)?.max(line.number(1)?);
                silence.add(line.time(2)?);
            }
        }
    }
    let (late, cores) = (Samples::of(late), after.zip(before).map(|(after, before)| after - before));
    let all = PROCESSES * WORKERS;
    let what = format!("leases lost by {all} in {watched:?}");
    let mut figures = vec![
        Figure::new(what, lost as f64, Unit::Times).at_most(0.0),
        Figure::new(format!("renewals late, p99 of {}", late.count()), late.p99(), Unit::Seconds)
            .beside("interval", INTERVAL.as_secs_f64())
            .at_most_times(0.1),
        Figure::new("renewals late, maximum", late.max(), Unit::Seconds),
        // With 250 workers an answer is due every 4 ms: what is longer is the machine or the server standing still.
        Figure::new("the longest time without any answer in a process", silence.max(), Unit::Seconds),
        Figure::new(
            "renewals per worker and interval",
            late.count() as f64 / all as f64 / watched.div_duration_f64(INTERVAL),
            Unit::Times,
        ),
    ];
    if let Some(cores) = cores {
        let what = "cores that the server used";
        figures.push(Figure::new(what, cores.div_duration_f64(watched), Unit::Times).at_most(0.5));
    }
    Ok(figures)
}
