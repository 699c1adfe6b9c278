//! Many workers on one server: whether leases are lost, how late renewals come, what it costs the server, and what it
//! leaves behind there.

use std::time::Duration;

use crate::Failure;
use crate::figure::{Figure, Unit};
use crate::ground::{Fleet, Ground, Leftovers, Length};
use crate::process::{Part, Role, Troupe};
use crate::samples::Samples;

const PROCESSES: usize = 4;

pub(crate) fn measure(ground: &Ground) -> Result<Vec<Figure>, Failure> {
    let watched = match ground.length {
        Length::Usual => Duration::from_secs(20),
        Length::Long => Duration::from_secs(120),
    };
    let Fleet { workers, ttl, cores } = ground.fleet().ok_or("there is no server")?;
    let site = ground.site("workers", ttl)?;
    let part = Part::new(Role::Workers, &site, ttl, workers);
    let interval = part.timing()?.renew();
    let mut troupe = Troupe::new();
    for _ in 0..PROCESSES {
        troupe.start(&part)?;
    }
    for _ in 0..PROCESSES {
        troupe.hear_word("owned")?;
    }
    (0..PROCESSES).try_for_each(|who| troupe.tell(who, "begin"))?;
    let (before, left_before) = (ground.server_cpu()?, ground.leftovers(&site)?);
    std::thread::sleep(watched);
    let (after, left_after) = (ground.server_cpu()?, ground.leftovers(&site)?);
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
    let late = Samples::of(late);
    let all = PROCESSES * workers;
    let what = format!("leases lost by {all} in {watched:?}");
    let mut figures = vec![
        Figure::new(what, lost as f64, Unit::Times).at_most(0.0),
        Figure::new(format!("renewals late, p99 of {}", late.count()), late.p99(), Unit::Seconds)
            .beside("interval", interval.as_secs_f64())
            .at_most_times(0.1),
        Figure::new("renewals late, maximum", late.max(), Unit::Seconds),
        // An answer is due every few milliseconds: what is longer is the machine or the server standing still.
        Figure::new("the longest time without any answer in a process", silence.max(), Unit::Seconds),
        Figure::new(
            "renewals per worker and interval",
            late.count() as f64 / all as f64 / watched.div_duration_f64(interval),
            Unit::Times,
        ),
    ];
    if let Some((before, after)) = before.zip(after) {
        let used = after.saturating_sub(before).div_duration_f64(watched);
        let figure = Figure::new("cores that the server used", used, Unit::Times);
        figures.push(match cores {
            Some(limit) => figure.at_most(limit),
            None => figure,
        });
    }
    if let Some((before, after)) = left_before.zip(left_after) {
        figures.extend(left_behind(before, after));
    }
    Ok(figures)
}

/// What renewals leave behind is cleared as fast as it comes: the table neither fills up nor grows.
fn left_behind(before: Leftovers, after: Leftovers) -> [Figure; 3] {
    let updates = after.updates - before.updates;
    let elsewhere = updates - (after.in_place - before.in_place);
    [
        // A page of leases has room for one and a half dead versions of each row in it.
        Figure::new(
            format!("dead rows among the leases after {updates} updates"),
            after.dead as f64,
            Unit::Times,
        )
        .beside("live", after.live as f64)
        .at_most_times(2.0),
        Figure::new("updates of a lease that left its page", elsewhere as f64, Unit::Times)
            .beside("updates", updates as f64)
            .at_most_times(0.01),
        Figure::new("the table of leases at the end", after.bytes as f64, Unit::Bytes)
            .beside("at the beginning", before.bytes as f64)
            .at_most_times(1.5),
    ]
}
