//! A small disk of its own for a server, so that it can be filled up. Needs the right to mount.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small disk, in memory. Dropping it unmounts it.
#[derive(Debug)]
pub struct Disk(PathBuf);

impl Disk {
    /// Mounts it in a folder that is made for it, with room for so many MiB.
    ///
    /// # Panics
    /// When it cannot be mounted.
    #[must_use]
    pub fn mount(at: &Path, mebibytes: u32) -> Self {
        fs::create_dir(at).expect("a folder");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "tmpfs"]).arg(at);
        run(command);
        Self(at.to_owned())
    }

    /// Fills it up to the last byte; what was given back since it was filled, too.
    ///
    /// # Panics
    /// When it cannot be written to at all.
    pub fn fill(&self) {
        fill_up(&self.filler());
    }

    /// Gives back what [`fill`](Self::fill) took.
    pub fn free(&self) {
        // It may not have been filled.
        let _none = fs::remove_file(self.filler());
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let mut command = Command::new("umount");
        command.arg("--lazy").arg(&self.0);
        run(command);
    }
}

/// Makes a file, or one that is there already, as large as the disk lets it be.
///
/// # Panics
/// When it cannot be made.
pub fn fill_up(path: &Path) {
    let mut file = File::options().create(true).append(true).open(path).expect("a file");
    let (large, small) = (vec![1; 1 << 16], [1]);
    while file.write_all(&large).is_ok() {}
    while file.write_all(&small).is_ok() {}
}

/// Removes what is in a folder, and not the folder: a disk may be mounted there.
pub(crate) fn empty(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn run(mut command: Command) {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command.output().unwrap_or_else(|error| panic!("`{program}` cannot be started: {error}"));
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_full_takes_nothing_until_it_is_freed() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = Disk::mount(&folder.path().join("disk"), 1);
        let write = || fs::write(folder.path().join("disk/file"), [0; 5000]);
        write().expect("there is room");

        disk.fill();
        fs::remove_file(folder.path().join("disk/file")).expect("it is there");
        let mut other = File::create(folder.path().join("disk/other")).expect("a name takes no room");
        while other.write_all(&[0; 4096]).is_ok() {}
        assert!(write().is_err());

        disk.free();
        write().expect("there is room again");
    }
}
