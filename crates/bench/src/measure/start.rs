//! `tenure run -- true`, with nobody else competing: what starting a command under ownership costs, and where that goes.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::figure::{Figure, Unit};
use crate::ground::Ground;
use crate::samples::Samples;
use crate::{Failure, clock};

/// The word by which this program says what time it is.
pub(crate) const NOW: &str = "--now";

const ROUNDS: usize = 50;

pub(crate) fn measure(ground: &Ground) -> Result<Vec<Figure>, Failure> {
    let site = ground.site("start", Duration::from_secs(15))?;
    let (bench, [url, _]) = (std::env::current_exe()?, site.words());
    let tenure = tenure()?;
    let (mut whole, mut plain, mut nothing, mut reads) =
        (Samples::default(), Samples::default(), Samples::default(), Samples::default());
    let (mut before, mut after) = (Samples::default(), Samples::default());
    let run = |command: &[&str]| {
        let mut run = Command::new(&tenure);
        run.args(["run", "start", "--store", url, "--"]).args(command);
        timed(run)
    };
    for _ in 0..ROUNDS {
        whole.add(run(&["true"])?.0);
        plain.add(timed(Command::new("true"))?.0);
        let mut version = Command::new(&tenure);
        version.arg("--version");
        nothing.add(timed(version)?.0);
        let mut status = Command::new(&tenure);
        status.args(["status", "--store", url]);
        reads.add(timed(status)?.0);
        let began = clock::boottime();
        let (took, output) = run(&[&bench.to_string_lossy(), NOW])?;
        let started = Duration::from_micros(String::from_utf8(output.stdout)?.trim().parse()?);
        before.add(started.saturating_sub(began));
        after.add((began + took).saturating_sub(started));
    }
    let part = |what: &str, samples: &Samples| Figure::new(what, samples.median(), Unit::Seconds);
    Ok(vec![
        Figure::new(format!("`tenure run -- true`, median of {ROUNDS}"), whole.median(), Unit::Seconds)
            .beside("true", plain.median())
            .at_most(0.050),
        part("of this, until the program runs and has read its arguments", &nothing),
        part("of this, until a store was opened and read, too", &reads),
        part("of this, until the command runs: guard, lease and ticket", &before),
        part("of this, from then on: the command, release and close", &after),
    ])
}

/// The command beside this program.
fn tenure() -> Result<PathBuf, Failure> {
    let tenure = std::env::current_exe()?.with_file_name("tenure");
    match tenure.exists() {
        true => Ok(tenure),
        false => {
            Err(format!("`{}` is not built: cargo build --release -p tenure-cli", tenure.display()).into())
        }
    }
}

fn timed(mut command: Command) -> Result<(Duration, Output), Failure> {
    let began = clock::boottime();
    let output = command.stdin(Stdio::null()).output()?;
    let took = clock::boottime().saturating_sub(began);
    match output.status.success() {
        true => Ok((took, output)),
        false => Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}
