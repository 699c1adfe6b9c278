//! The scripts that the server runs, each alone and as a whole.

use std::borrow::Cow;

use redis::Cmd;

use crate::runtime::process::PerProcess;

/// A script, known to the server by its hash.
pub(super) struct Script {
    code: &'static str,
    hash: PerProcess<String>,
}

impl Script {
    const fn new(code: &'static str) -> Self {
        Self { code, hash: PerProcess::new() }
    }

    fn hash(&'static self) -> &'static str {
        self.hash.get(|| redis::Script::new(self.code).get_hash().to_owned())
    }
}

macro_rules! script {
    ($file:literal) => {
        Script::new(concat!(include_str!("head.lua"), include_str!($file)))
    };
}

pub(super) static READ: Script = script!("read.lua");
pub(super) static COMMIT: Script = script!("commit.lua");
pub(super) static HISTORY: Script = script!("history.lua");
pub(super) static NAMES: Script = script!("names.lua");
pub(super) static INFO: Script = script!("info.lua");

/// A script with its keys and arguments.
pub(super) struct Call<'a> {
    pub(super) script: &'static Script,
    pub(super) keys: &'a [String],
    pub(super) arguments: &'a [Cow<'a, str>],
}

impl Call<'_> {
    /// The command that runs the script if the server knows it.
    pub(super) fn by_hash(&self) -> Cmd {
        self.command("EVALSHA", self.script.hash())
    }

    /// The command that runs it in any case, and makes it known.
    pub(super) fn with_code(&self) -> Cmd {
        self.command("EVAL", self.script.code)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.keys.len()).arg(self.keys);
        for argument in self.arguments {
            command.arg(argument.as_bytes());
        }
        command
    }
}
