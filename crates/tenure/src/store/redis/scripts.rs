//! The scripts that the server runs, each alone and as a whole.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::Cmd;

/// A script, known to the server by its hash.
pub(super) struct Script {
    code: &'static str,
    hash: String,
}

macro_rules! script {
    ($file:literal) => {
        LazyLock::new(|| {
            let code = concat!(include_str!("head.lua"), include_str!($file));
            Script { code, hash: redis::Script::new(code).get_hash().to_owned() }
        })
    };
}

pub(super) static READ: LazyLock<Script> = script!("read.lua");
pub(super) static COMMIT: LazyLock<Script> = script!("commit.lua");
pub(super) static HISTORY: LazyLock<Script> = script!("history.lua");
pub(super) static NAMES: LazyLock<Script> = script!("names.lua");
pub(super) static INFO: LazyLock<Script> = script!("info.lua");

/// A script with its keys and arguments.
pub(super) struct Call<'a> {
    pub(super) script: &'static Script,
    pub(super) keys: &'a [String],
    pub(super) arguments: &'a [Cow<'a, str>],
}

impl Call<'_> {
    /// The command that runs the script if the server knows it.
    pub(super) fn by_hash(&self) -> Cmd {
        self.command("EVALSHA", &self.script.hash)
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
