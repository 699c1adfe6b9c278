//! Where the database lies, whether it may lie there, and whether it is still the same file.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, StatxAttributes, StatxFlags, access, statfs, statx};
use rustix::process::geteuid;

use super::lock::{Identity, make_folder};
use super::trouble::refused_by_kernel;
use crate::Error;

/// File systems on which SQLite's shared memory and the kernel's locks are known to work, by the magic of statfs.
const ALLOWED: [(&str, u64); 7] = [
    ("ext4", 0xEF53),
    ("xfs", 0x5846_5342),
    ("btrfs", 0x9123_683E),
    ("zfs", 0x2FC1_2FC1),
    ("f2fs", 0xF2F5_2010),
    ("tmpfs", 0x0102_1994),
    ("overlay", OVERLAY),
];
const OVERLAY: u64 = 0x794C_7630;
/// Some that people try, for the message.
const KNOWN: [(&str, u64); 5] = [
    ("NFS", 0x6969),
    ("SMB", 0xFE53_4D42),
    ("CIFS", 0xFF53_4D42),
    ("FUSE", 0x6573_5546),
    ("9p", 0x0102_1997),
];

#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Without symbolic links: everybody has to find the same neighbours.
    pub(super) path: PathBuf,
    /// For locks and sockets.
    pub(super) folder: PathBuf,
}

/// The three files that make up an open database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) database: Identity,
    wal: Identity,
    shm: Identity,
}

impl Place {
    /// Where `path` leads. Its folder has to be there; the file need not.
    pub(super) fn find(path: &Path) -> Result<Self, Error> {
        let Some(name) = path.file_name() else {
            return Err(Error::refused(format!("cannot open `{}`: it names no file", path.display())));
        };
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let parent = parent.canonicalize().map_err(|error| {
            let folder = Error::refused(format!(
                "cannot open `{}`: its folder `{}` {}",
                path.display(),
                parent.display(),
                if error.kind() == io::ErrorKind::NotFound { "does not exist" } else { "cannot be reached" }
            ));
            folder.because(error)
        })?;
        let mut found = parent.join(name);
        if fs::symlink_metadata(&found).is_ok_and(|found| found.is_symlink()) {
            found = found.canonicalize().map_err(|error| refused_by_kernel("follow", path, error))?;
        }
        let mut folder = OsString::from(found.as_os_str());
        folder.push("-tenure");
        Ok(Self { path: found, folder: folder.into() })
    }

    /// Refuses places where locks, shared memory or the neighbours of the file cannot be relied on.
    pub(super) fn check(&self) -> Result<(), Error> {
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        let magic = self.file_system(parent)?;
        // SQLite makes files beside the database, also where that could be written to.
        access(parent, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| refused_by_kernel("write beside", &self.path, error.into()))?;
        let file = match fs::metadata(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(refused_by_kernel("open", &self.path, error)),
        };
        if !file.is_file() {
            return Err(self.refused("it is not a file"));
        }
        if file.nlink() > 1 {
            return Err(
                self.refused("it has hard links, and under another name its lock files are not found")
            );
        }
        let around = fs::metadata(parent)
            .map_err(|error| refused_by_kernel("open the folder of", &self.path, error))?;
        // On overlay a file may show the device of the layer that it is in.
        let elsewhere = file.dev() != around.dev() && magic != OVERLAY;
        if elsewhere || self.is_mount() {
            return Err(
                self.refused("it is mounted as a single file, apart from its folder; mount the folder")
            );
        }
        Ok(())
    }

    /// Makes the folder for locks and sockets, and refuses one that others can look into or change: who can take a
    /// lock away, or make hints, is believed.
    pub(super) fn make_folder(&self) -> Result<(), Error> {
        let trouble = |error| refused_by_kernel("make the folder", &self.folder, error);
        make_folder(&self.folder).map_err(trouble)?;
        let found = fs::symlink_metadata(&self.folder).map_err(trouble)?;
        let refused =
            |why: &str| Error::refused(format!("cannot use the folder `{}`: {why}", self.folder.display()));
        if found.uid() != geteuid().as_raw() {
            return Err(refused("it belongs to another user"));
        }
        let mode = found.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(refused(&format!("others have rights to it (its mode is {mode:o}; 700 is safe)")));
        }
        Ok(())
    }

    /// Which files lie there now, if they all do. An error says nothing about that.
    pub(super) fn files(&self) -> io::Result<Option<Files>> {
        let beside = |suffix: &str| {
            let mut name = OsString::from(self.path.as_os_str());
            name.push(suffix);
            match fs::metadata(name) {
                Ok(found) => Ok(Some(Identity::of(&found))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        let (database, wal, shm) = (beside("")?, beside("-wal")?, beside("-shm")?);
        let files = database.zip(wal).zip(shm);
        Ok(files.map(|((database, wal), shm)| Files { database, wal, shm }))
    }

    pub(super) fn refused(&self, why: &str) -> Error {
        Error::refused(format!("cannot open `{}`: {why}", self.path.display()))
    }

    fn file_system(&self, parent: &Path) -> Result<u64, Error> {
        let found = statfs(parent)
            .map_err(|error| refused_by_kernel("open the folder of", &self.path, error.into()))?;
        // The field is 32 or 64 bits wide, with a sign or without, as the platform likes; magics have 32.
        let magic = found.f_type as u64 & 0xFFFF_FFFF;
        if ALLOWED.iter().any(|(_, allowed)| *allowed == magic) {
            return Ok(magic);
        }
        let known = KNOWN.iter().find(|(_, known)| *known == magic);
        let name = known.map_or_else(|| format!("{magic:#x}"), |(name, _)| (*name).to_owned());
        let allowed: Vec<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
        Err(self.refused(&format!(
            "it lies on a file system ({name}) that is not known to be safe; these are: {}",
            allowed.join(", ")
        )))
    }

    fn is_mount(&self) -> bool {
        // A kernel too old to say leaves it to the device numbers.
        statx(CWD, &self.path, AtFlags::empty(), StatxFlags::BASIC_STATS)
            .is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
    }
}
