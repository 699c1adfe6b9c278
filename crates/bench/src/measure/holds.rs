//! What one look at an ownership costs, beside one reading of the clock.

use std::hint::black_box;
use std::time::Instant;

use tenure::{Ownership, Worker};

use crate::figure::{Figure, Unit};
use crate::ground::Ground;
use crate::samples::Samples;
use crate::{Failure, allocations, clock};

const RUNS: usize = 31;
const CALLS: u32 = 100_000;
const COUNTED: u64 = 1_000_000;

pub(crate) fn measure(_: &Ground) -> Result<Vec<Figure>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Which store it is makes no difference: none is asked.
    let own = runtime.block_on(async {
        let worker = Worker::connect("memory:bench").await?;
        worker.campaign("bench").acquire().await
    })?;
    let (mut looks, mut readings, mut ratios) = (Samples::default(), Samples::default(), Samples::default());
    for _ in 0..RUNS {
        let reading = per_call(clock::read);
        let look = per_call(|| black_box(&own).holds());
        readings.add_number(reading);
        looks.add_number(look);
        ratios.add_number(look / reading);
    }
    let allocated = allocations_of(&own)?;
    Ok(vec![
        Figure::new(format!("one call, median of {RUNS} runs"), looks.median(), Unit::Seconds)
            .beside("clock_gettime(BOOTTIME)", readings.median())
            .with_ratio(ratios.median())
            .at_most_times(4.0),
        Figure::new(format!("allocations in {COUNTED} calls"), allocated as f64, Unit::Times).at_most(0.0),
    ])
}

fn per_call<T>(call: impl Fn() -> T) -> f64 {
    let began = Instant::now();
    for _ in 0..CALLS {
        black_box(call());
    }
    began.elapsed().as_secs_f64() / f64::from(CALLS)
}

fn allocations_of(own: &Ownership) -> Result<u64, Failure> {
    let before = allocations::by_this_thread();
    let held = (0..COUNTED).filter(|_| black_box(own).holds()).count() as u64;
    let allocated = allocations::by_this_thread() - before;
    if held == COUNTED { Ok(allocated) } else { Err("the ownership was lost meanwhile".into()) }
}
