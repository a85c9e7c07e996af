//! Finds the server and client programs on this machine, and says how to get those that are missing.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use crate::SandboxError;

/// What to run and how the nodes hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// MariaDB; several nodes replicate from the first by GTID.
    Mariadb,
    /// MySQL; several nodes replicate from the first by GTID.
    Mysql,
    /// MariaDB nodes in a Galera cluster; every node takes writes.
    Galera,
    /// MySQL nodes in Group Replication, single-primary; the first is the primary.
    GroupReplication,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Mariadb, Self::Mysql, Self::Galera, Self::GroupReplication];

    /// The name on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mariadb => "mariadb",
            Self::Mysql => "mysql",
            Self::Galera => "galera",
            Self::GroupReplication => "group-replication",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = SandboxError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                SandboxError::State(format!("unknown kind of sandbox {text:?}; there are: {names}"))
            })
    }
}

/// A server program and what it says about itself.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) flavour: Flavour,
    pub(crate) version: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    Mariadb,
    Mysql,
}

impl Program {
    /// The numbers of the version: `[8, 0, 33]`.
    pub(crate) fn release(&self) -> [u32; 3] {
        let mut numbers = self.version.split(|c: char| !c.is_ascii_digit());
        [(); 3].map(|()| numbers.next().and_then(|number| number.parse().ok()).unwrap_or(0))
    }

    /// The server for `kind`: the one that the environment names, else the one on this machine.
    pub(crate) fn find(kind: Kind) -> Result<Self, SandboxError> {
        match kind {
            Kind::Mariadb | Kind::Galera => Self::inspect(&mariadb_program()?),
            Kind::Mysql | Kind::GroupReplication => Self::inspect(&mysql_program()?),
        }
    }

    /// Asks the program for its version, once: a server takes a tenth of a second to say it.
    pub(crate) fn inspect(path: &Path) -> Result<Self, SandboxError> {
        static KNOWN: Mutex<Vec<Program>> = Mutex::new(Vec::new());
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known().iter().find(|program| program.path == path).cloned();
        if let Some(program) = found {
            return Ok(program);
        }
        let program = Self::ask(path)?;
        known().push(program.clone());
        Ok(program)
    }

    fn ask(path: &Path) -> Result<Self, SandboxError> {
        let unusable = |reason: String| SandboxError::Program {
            path: path.to_path_buf(),
            reason,
        };
        let output = Command::new(path)
            .args(["--no-defaults", "--version"])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| unusable(error.to_string()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        // "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)"
        let version = text.split_whitespace().skip_while(|word| *word != "Ver").nth(1);
        let version = version.ok_or_else(|| unusable(format!("its version was not understood: {text:?}")))?;
        let flavour = if text.contains("MariaDB") {
            Flavour::Mariadb
        } else {
            Flavour::Mysql
        };
        Ok(Self {
            path: path.to_path_buf(),
            flavour,
            version: version.to_owned(),
        })
    }

    /// The command line client that fits: the one beside the server, else one of the machine.
    pub(crate) fn client(&self) -> Result<PathBuf, SandboxError> {
        let names = match self.flavour {
            Flavour::Mariadb => ["mariadb", "mysql"],
            Flavour::Mysql => ["mysql", "mariadb"],
        };
        let beside = names
            .iter()
            .map(|name| self.path.with_file_name(name))
            .find(|path| path.is_file());
        beside.map_or_else(|| client_of_machine(names), Ok)
    }
}

/// The first of these command line clients that is on this machine.
pub(crate) fn client_of_machine(names: [&str; 2]) -> Result<PathBuf, SandboxError> {
    let found = names.iter().find_map(|name| on_path(name));
    found.ok_or(SandboxError::Missing {
        what: "a command line client (mariadb or mysql)",
        remedy: "apt-get install mariadb-client",
    })
}

/// The MariaDB server: `FOREBAY_MARIADBD`, else `mariadbd` of the machine.
fn mariadb_program() -> Result<PathBuf, SandboxError> {
    from_environment("FOREBAY_MARIADBD")
        .or_else(|| on_path("mariadbd"))
        .ok_or(SandboxError::Missing {
            what: "mariadbd",
            remedy: "apt-get install mariadb-server, or set FOREBAY_MARIADBD to the program",
        })
}

/// The MySQL server: `FOREBAY_MYSQLD`, else the one that `script/lib/mysql9` fetched, else `mysqld` of the
/// machine unless that is MariaDB under its old name.
pub fn mysql_program() -> Result<PathBuf, SandboxError> {
    let of_machine = || {
        let path = on_path("mysqld")?;
        Program::inspect(&path)
            .is_ok_and(|program| program.flavour == Flavour::Mysql)
            .then_some(path)
    };
    from_environment("FOREBAY_MYSQLD").or_else(|| fetched("mysql-9/bin/mysqld")).or_else(of_machine).ok_or(
        SandboxError::Missing {
            what: "a MySQL server",
            remedy: "set FOREBAY_MYSQLD to the program, or run script/lib/mysql9 in the source tree (fetches it into build/mysql-9, \
                     which is found from within the tree)",
        },
    )
}

/// The newer MariaDB (11.8 or later) that `script/lib/mariadb11` fetched, for what the distribution's lacks:
/// the authentication plugin parsec.
pub fn mariadb_11() -> Result<PathBuf, SandboxError> {
    fetched("mariadb-11/bin/mariadbd").ok_or(SandboxError::Missing {
        what: "MariaDB 11",
        remedy: "run script/lib/mariadb11 (fetches it into build/mariadb-11)",
    })
}

/// MySQL 8.0, which `script/lib/mysql8` fetched.
pub fn mysql_8() -> Result<PathBuf, SandboxError> {
    fetched("mysql-8.0/bin/mysqld").ok_or(SandboxError::Missing {
        what: "MySQL 8.0",
        remedy: "run script/lib/mysql8 (fetches it into build/mysql-8.0)",
    })
}

/// The folder for what is fetched and made once: `FOREBAY_BUILD`, else `build` of the checkout that this
/// program runs in or was built in, else one below the user's caches.
pub(crate) fn build_folder() -> PathBuf {
    if let Some(folder) = from_environment("FOREBAY_BUILD") {
        return folder;
    }
    let executable = std::env::current_exe().ok();
    let current = std::env::current_dir().ok();
    let starts = executable.into_iter().chain(current);
    for start in starts {
        if let Some(root) = start
            .ancestors()
            .find(|folder| folder.join("script/lib/mysql9").is_file())
        {
            return root.join("build");
        }
    }
    let home = from_environment("HOME").map(|home| home.join(".cache"));
    let caches = from_environment("XDG_CACHE_HOME");
    caches.or(home).unwrap_or_else(std::env::temp_dir).join("forebay")
}

pub(crate) fn fetched(path: &str) -> Option<PathBuf> {
    Some(build_folder().join(path)).filter(|path| path.is_file())
}

/// The path that a variable has, unless it is empty.
pub(crate) fn from_environment(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// Servers live in sbin folders, which the PATH of ordinary users lacks on Debian.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/libexec"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(usual)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        let release = |version: &str| {
            let program = Program {
                path: PathBuf::new(),
                flavour: Flavour::Mysql,
                version: version.to_owned(),
            };
            program.release()
        };
        assert_eq!(release("8.0.33"), [8, 0, 33]);
        assert_eq!(release("9.7.4-2"), [9, 7, 4]);
        assert_eq!(release("10.11.19-MariaDB-0+deb12u1"), [10, 11, 19]);
        assert_eq!(release("9"), [9, 0, 0]);
    }

    #[test]
    fn kinds_are_read_back_from_their_names() {
        for kind in Kind::ALL {
            assert_eq!(kind.to_string().parse::<Kind>().unwrap(), kind);
        }
        let error = "oracle".parse::<Kind>().unwrap_err().to_string();
        assert!(error.contains("group-replication"), "{error}");
    }
}
