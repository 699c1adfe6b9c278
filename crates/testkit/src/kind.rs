//! The stores that a run can be on, by name.

/// Which store it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreKind {
    /// An embedded file.
    Sqlite,
    /// A private Redis.
    Redis,
    /// A private PostgreSQL.
    Postgres,
}

impl StoreKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Sqlite, Self::Redis, Self::Postgres];

    /// What people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Redis => "redis",
            Self::Postgres => "postgres",
        }
    }

    /// The one of this name.
    ///
    /// # Errors
    /// A sentence with the names that there are.
    pub fn of(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("store {name:?} is not known here; known: {names}")
        })
    }

    /// Whether there is a server, and a link to it.
    #[must_use]
    pub fn is_served(self) -> bool {
        self != Self::Sqlite
    }
}
