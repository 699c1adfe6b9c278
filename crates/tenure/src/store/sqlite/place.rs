//! Where the database lies, whether it may lie there, and whether it is still the same file.

use crate::runtime::events::{self, StoreChange};
use crate::store::{Impact, Warning};
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, StatxAttributes, StatxFlags};
use rustix::process::geteuid;

use super::error::io_error;
use crate::Error;

/// File systems on which SQLite's shared memory and the kernel's locks are known to work, by the magic of statfs.
const ALLOWED: [(&str, u64); 7] = [
    ("ext4", 0xEF53),
    ("xfs", 0x5846_5342),
    ("btrfs", 0x9123_683E),
    ("zfs", 0x2FC1_2FC1),
    ("f2fs", 0xF2F5_2010),
    ("tmpfs", TMPFS),
    ("overlay", OVERLAY),
];
const TMPFS: u64 = 0x0102_1994;
const OVERLAY: u64 = 0x794C_7630;
/// File systems that people try, for the error message.
const KNOWN: [(&str, u64); 5] = [
    ("NFS", 0x6969),
    ("SMB", 0xFE53_4D42),
    ("CIFS", 0xFF53_4D42),
    ("FUSE", 0x6573_5546),
    ("9p", 0x0102_1997),
];

/// The path of the database and of the folder beside it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Without symbolic links: every process has to find the same files beside it.
    pub(super) path: PathBuf,
    /// For lock files and sockets.
    pub(super) folder: PathBuf,
}

/// Which file it is, until the next boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) dev: i64,
    pub(super) ino: i64,
}

impl Identity {
    pub(super) fn of(metadata: &fs::Metadata) -> Self {
        // Both are only ever compared.
        Self { dev: metadata.dev().cast_signed(), ino: metadata.ino().cast_signed() }
    }
}

/// The three files of an open database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) database: Identity,
    wal: Identity,
    shm: Identity,
}

impl Place {
    /// Where `path` leads. Its folder has to exist; the file need not.
    pub(super) fn find(path: &Path) -> Result<Self, Error> {
        let Some(name) = path.file_name() else {
            return Err(Error::refused(format!("cannot open `{}`: it names no file", path.display())));
        };
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let parent = parent.canonicalize().map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::NotFound => "does not exist",
                _ => "cannot be reached",
            };
            let (path, parent) = (path.display(), parent.display());
            Error::refused(format!("cannot open `{path}`: its folder `{parent}` {why}")).because(error)
        })?;
        let mut found = parent.join(name);
        if fs::symlink_metadata(&found).is_ok_and(|found| found.is_symlink()) {
            found = found.canonicalize().map_err(|error| io_error("follow", path, error))?;
        }
        Ok(Self { folder: beside(&found, "-tenure"), path: found })
    }

    /// Refuses places where locks, shared memory or the files beside the database cannot be relied on, and database
    /// files that other users can write. Takes the right to read it away from other users.
    pub(super) fn check(&self) -> Result<(), Error> {
        let parent = self.parent();
        let magic = self.file_system()?;
        let name = |known: &[(&'static str, u64)]| known.iter().find(|(_, of)| *of == magic).map(|of| of.0);
        if name(&ALLOWED).is_none() {
            let found = name(&KNOWN).map_or_else(|| format!("{magic:#x}"), str::to_owned);
            let allowed = ALLOWED.map(|(name, _)| name).join(", ");
            return Err(self.refused(&format!(
                "it lies on a file system ({found}) that is not known to be safe; these are: {allowed}"
            )));
        }
        // SQLite creates files beside the database.
        rustix::fs::access(parent, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| io_error("write beside", &self.path, error.into()))?;
        let file = match fs::metadata(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(io_error("open", &self.path, error)),
        };
        if !file.is_file() {
            return Err(self.refused("it is not a file"));
        }
        if file.nlink() > 1 {
            return Err(self.refused("it has hard links; under another name its lock files are not found"));
        }
        let around =
            fs::metadata(parent).map_err(|error| io_error("open the folder of", &self.path, error))?;
        // On overlay a file may show the device of the layer that it is in.
        let elsewhere = file.dev() != around.dev() && magic != OVERLAY;
        if elsewhere || self.is_mount() {
            return Err(self.refused("it is mounted as a single file; mount its folder instead"));
        }
        if file.uid() != geteuid().as_raw() {
            return Err(self.refused("it belongs to another user"));
        }
        match file.mode() & 0o777 {
            mode if mode & 0o022 != 0 => Err(self.refused(&format!(
                "other users can write to it (its mode is {mode:o}; `chmod 600` makes it safe)"
            ))),
            mode if mode & 0o077 != 0 => self.hide(mode),
            _ => Ok(()),
        }
    }

    /// Takes every right of other users away, also to the files that SQLite made beside the database.
    fn hide(&self, mode: u32) -> Result<(), Error> {
        for suffix in ["-wal", "-shm", ""] {
            let path = beside(&self.path, suffix);
            match fs::set_permissions(&path, Permissions::from_mode(0o600)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(io_error("change the mode of", &path, error));
                }
                _ => {}
            }
        }
        events::store(StoreChange::Warned(Warning {
            cost: Impact::Exclusion,
            what: format!(
                "other users could read `{}` (mode {mode:o}); its mode is 600 now",
                self.path.display()
            ),
            hint: String::new(),
        }));
        Ok(())
    }

    /// Creates an empty database file for this user only, unless there is a file already.
    ///
    /// The file is never opened here: closing a descriptor would drop the locks that SQLite has on the file by
    /// another connection of this process.
    pub(super) fn create(&self) -> Result<(), Error> {
        let mode = Mode::from_raw_mode(0o600);
        match rustix::fs::mknodat(CWD, &self.path, FileType::RegularFile, mode, 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(error) => Err(io_error("create", &self.path, error.into())),
        }
    }

    /// Creates the folder for lock files and sockets. Refuses one that other users can look into or change: anybody
    /// who can remove a lock or send signals is believed. Returns which folder it is.
    pub(super) fn make_folder(&self) -> Result<Identity, Error> {
        let failed = |error| io_error("make the folder", &self.folder, error);
        match fs::DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        let found = fs::symlink_metadata(&self.folder).map_err(failed)?;
        let mode = found.mode() & 0o777;
        let refused = |why: String| {
            Err(Error::refused(format!("cannot use the folder `{}`: {why}", self.folder.display())))
        };
        if !found.is_dir() {
            refused("it is not a folder".to_owned())
        } else if found.uid() != geteuid().as_raw() {
            refused("it belongs to another user".to_owned())
        } else if mode & 0o077 != 0 {
            refused(format!("other users have rights to it (its mode is {mode:o}; 700 is safe)"))
        } else {
            Ok(Identity::of(&found))
        }
    }

    /// Which files lie there now, if all of them do.
    pub(super) fn files(&self) -> io::Result<Option<Files>> {
        let find = |suffix: &str| match fs::metadata(beside(&self.path, suffix)) {
            Ok(found) => Ok(Some(Identity::of(&found))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        let files = find("")?.zip(find("-wal")?).zip(find("-shm")?);
        Ok(files.map(|((database, wal), shm)| Files { database, wal, shm }))
    }

    /// Whether everything in it is lost when the system reboots.
    pub(super) fn is_in_memory(&self) -> Result<bool, Error> {
        Ok(self.file_system()? == TMPFS)
    }

    pub(super) fn refused(&self, why: &str) -> Error {
        Error::refused(format!("cannot open `{}`: {why}", self.path.display()))
    }

    pub(super) fn unavailable(&self, why: &str) -> Error {
        Error::unavailable(format!("cannot open `{}`: {why}", self.path.display()))
    }

    fn parent(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    fn file_system(&self) -> Result<u64, Error> {
        let found = rustix::fs::statfs(self.parent())
            .map_err(|error| io_error("open the folder of", &self.path, error.into()))?;
        // The field's type depends on the platform; magics have 32 bits.
        Ok(found.f_type as u64 & 0xFFFF_FFFF)
    }

    fn is_mount(&self) -> bool {
        // A kernel too old to tell leaves it to the device numbers.
        rustix::fs::statx(CWD, &self.path, AtFlags::empty(), StatxFlags::BASIC_STATS)
            .is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
    }
}

/// The path with `suffix` appended to the file's name.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path.as_os_str());
    name.push(suffix);
    name.into()
}
