//! A terminal with somebody who reads it: what a program draws is kept as a screen of characters.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use super::scene::{Scene, until};

pub(crate) struct Terminal {
    /// The side of whoever looks at it.
    ours: File,
    /// Kept open, so that it can be looked at after the program has ended.
    theirs: File,
    seen: Arc<Mutex<Seen>>,
    before: Termios,
    child: Child,
}

struct Seen {
    screen: vt100::Parser,
    raw: Vec<u8>,
}

impl Terminal {
    /// `tenure` with these arguments in a terminal of this size.
    pub(crate) fn start(scene: &Scene, arguments: &[&str], columns: u16, lines: u16) -> Self {
        Self::start_with(scene, arguments, columns, lines, |_| {})
    }

    pub(crate) fn start_with(
        scene: &Scene,
        arguments: &[&str],
        columns: u16,
        lines: u16,
        change: impl FnOnce(&mut Command),
    ) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("it can be used");
        let path = ptsname(&ours, Vec::new()).expect("a name").into_string().expect("UTF-8");
        let theirs = File::options().read(true).write(true).open(path).expect("the other end");
        let ours = File::from(ours);
        resize(&ours, columns, lines);
        let before = tcgetattr(&theirs).expect("its settings");
        let mut tenure = scene.tenure_on_terminal();
        let end = || theirs.try_clone().expect("the same");
        tenure.args(arguments).env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR");
        change(&mut tenure);
        let child = tenure.stdin(end()).stdout(end()).stderr(end()).spawn().expect("it runs");
        let seen =
            Arc::new(Mutex::new(Seen { screen: vt100::Parser::new(lines, columns, 0), raw: Vec::new() }));
        let (mut reads, kept) = (ours.try_clone().expect("the same"), seen.clone());
        // Ends with the terminal.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reads.read(&mut bytes) {
                let mut seen = kept.lock().unwrap_or_else(PoisonError::into_inner);
                seen.screen.process(&bytes[..count]);
                seen.raw.extend_from_slice(&bytes[..count]);
            }
        });
        Self { ours, theirs, seen, before, child }
    }

    /// What is on the screen now, line by line.
    pub(crate) fn shows(&self) -> String {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let screen = seen.screen.screen();
        let rows: Vec<String> =
            screen.rows(0, screen.size().1).map(|row| row.trim_end().to_owned()).collect();
        rows.join("\n")
    }

    /// All that was ever written to it.
    pub(crate) fn raw(&self) -> Vec<u8> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).raw.clone()
    }

    /// Waits until the screen shows this.
    pub(crate) fn until(&self, what: &str, look: impl Fn(&str) -> bool) -> String {
        let describe = || format!("{what}, and the screen shows\n{}", self.shows());
        let began = std::time::Instant::now();
        loop {
            let shown = self.shows();
            if look(&shown) {
                return shown;
            }
            assert!(began.elapsed() < super::scene::LIMIT, "waited in vain: {}", describe());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    pub(crate) fn press(&self, keys: &str) {
        (&self.ours).write_all(keys.as_bytes()).expect("it takes keys");
    }

    pub(crate) fn resize(&self, columns: u16, lines: u16) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).screen.screen_mut().set_size(lines, columns);
        resize(&self.ours, columns, lines);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn ended(&mut self) -> ExitStatus {
        until("the end of what draws", || self.child.try_wait().expect("an answer"))
    }

    /// Waits until it is as before; whoever reads it may be behind.
    pub(crate) fn until_restored(&self) {
        until("the terminal is restored", || self.is_restored().then_some(()));
    }

    /// Whether the terminal is as it was before the program: its settings, no other screen, the cursor is seen.
    pub(crate) fn is_restored(&self) -> bool {
        let now = tcgetattr(&self.theirs).expect("its settings");
        let same = now.local_modes == self.before.local_modes
            && now.input_modes == self.before.input_modes
            && now.output_modes == self.before.output_modes;
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        same && !seen.screen.screen().alternate_screen() && !seen.screen.screen().hide_cursor()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

fn resize(terminal: &File, columns: u16, lines: u16) {
    let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("it has that size");
}
