//! Signals: one connection that LISTENs to the channels that are followed.
//!
//! Behind a transaction pooler LISTEN is accepted, but nothing ever arrives. So a new listener first sends itself a
//! signal over another connection.

use crate::runtime::events;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tenure_core::StoreTime;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Notification};

use super::connection::{Bound, Lane, Pool};
use super::error::Failure;
use super::schema::Quoted;
use super::url::{Connected, Target};
use crate::Error;
use crate::store::Pending;
use crate::store::backend::{Channel, Heard, Signals, Subscriptions};

/// How long a signal to oneself may take.
const ECHO_WITHIN: Duration = Duration::from_secs(1);
/// When nothing arrives, listening is tried again after so long: the pooler may be gone.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// How often the connection is checked, and how long it may take to answer. Only this finds a link that died silently.
const PULSE: Duration = Duration::from_secs(5);

/// The name that a channel has in the database. Channels are per database; namespaces must not hear each other.
pub(super) fn database_name(schema: &Quoted, channel: &Channel) -> String {
    let hash = Sha256::digest(format!("{schema} {}", channel.as_str()).as_bytes());
    let hex: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("tenure_{hex}")
}

/// Begins to listen; nothing if signals do not arrive.
pub(super) async fn listen(
    target: &Arc<Target>,
    pool: &Pool,
    schema: &Quoted,
) -> Result<Option<(Arc<dyn Subscriptions>, Signals)>, Failure> {
    let place = target.listen.as_deref().unwrap_or(target);
    let (client, connection, _) = place.connect().await?;
    let (to, mut signals) = mpsc::unbounded_channel();
    let listener = Arc::new(Listener {
        client,
        server: place.to_string(),
        schema: schema.clone(),
        channels: Mutex::default(),
        turn: tokio::sync::Mutex::default(),
    });
    tokio::spawn(run(listener.clone(), connection, to));

    let mut random = [0; 16];
    getrandom::fill(&mut random)
        .map_err(|error| Error::unavailable(format!("the system gives no random numbers: {error}")))?;
    let echo = Channel::new(random.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    listener.add(&echo).await?;
    let name = Bound(database_name(schema, &echo));
    let params: [(&(dyn ToSql + Sync), Type); 1] = [(&name, Type::TEXT)];
    pool.query(Lane::Ordinary, "SELECT pg_notify($1, '0 ')", &params).await?;
    let heard = tokio::time::timeout(ECHO_WITHIN, signals.recv()).await;
    listener.forget(&echo);
    match heard {
        Ok(Some(_)) => Ok(Some((listener, signals))),
        Ok(None) => {
            Err(Error::unavailable(format!("cannot listen at {place}: the connection is closed")).into())
        }
        Err(_) => {
            // Else another client of the pooler would inherit the channel.
            listener.unlisten().await?;
            Ok(None)
        }
    }
}

/// A stream on which nothing arrives. It ends after a while, so that listening is tried again.
pub(super) fn silence(target: &Target) -> (Arc<dyn Subscriptions>, Signals) {
    let (to, signals) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        tokio::select! {
            () = to.closed() => {}
            () = tokio::time::sleep(RETRY_AFTER) => {}
        }
    });
    (Arc::new(Silence { server: target.to_string() }), signals)
}

struct Listener {
    client: Client,
    /// Where it listens, for messages.
    server: String,
    schema: Quoted,
    channels: Mutex<Channels>,
    /// Held while the server is told of a change, so that LISTEN and UNLISTEN arrive in the order they were decided.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Channels {
    /// Those that are followed, by their names in the database.
    followed: HashMap<String, Channel>,
    /// Names that the server still sends.
    forgotten: HashSet<String>,
}

impl Listener {
    async fn add(&self, channel: &Channel) -> Result<(), Failure> {
        let _turn = self.turn.lock().await;
        let name = database_name(&self.schema, channel);
        {
            let mut channels = self.channels();
            channels.forgotten.remove(&name);
            channels.followed.insert(name.clone(), channel.clone());
        }
        let sql = format!("SELECT {}.listen($1)", self.schema);
        self.ask(&sql, &Bound(name), Type::TEXT).await
    }

    /// Tells the server which channels are not needed any more.
    async fn unlisten(&self) -> Result<(), Failure> {
        let _turn = self.turn.lock().await;
        let names: Vec<String> = self.channels().forgotten.drain().collect();
        let sql = format!("SELECT {}.unlisten($1)", self.schema);
        self.ask(&sql, &Bound(names), Type::TEXT_ARRAY).await
    }

    async fn ask(&self, sql: &str, value: &(dyn ToSql + Sync), kind: Type) -> Result<(), Failure> {
        let params = [(value, kind)];
        let asked = tokio::time::timeout(PULSE, self.client.query_typed(sql, &params)).await;
        let late =
            |_| Error::unavailable(format!("cannot listen at {}: no answer within {PULSE:?}", self.server));
        asked.map_err(late)??;
        Ok(())
    }

    fn pass_on(&self, notification: &Notification, to: &UnboundedSender<Heard>) {
        let Some(channel) = self.channels().followed.get(notification.channel()).cloned() else { return };
        // Anybody in the database may send; what is not ours is not passed on.
        let Some((stamp, text)) = notification.payload().split_once(' ') else { return };
        let Ok(stamp) = stamp.parse() else { return };
        let stamp = Some(StoreTime::from_micros(stamp));
        // If nobody receives it any more, the listener is about to end.
        let _gone = to.send(Heard { channel, stamp, text: text.into() });
    }

    fn channels(&self) -> MutexGuard<'_, Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does the I/O and checks the connection, until it is lost or nobody receives. Then the stream ends, because its
/// sender is dropped.
async fn run(listener: Arc<Listener>, mut connection: Connected, to: UnboundedSender<Heard>) {
    let receive = async {
        loop {
            match poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(notification))) => listener.pass_on(&notification, &to),
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    events::debug("the connection that listens has ended", &error);
                    return;
                }
                None => return,
            }
        }
    };
    let check = async {
        loop {
            tokio::time::sleep(PULSE).await;
            if listener.unlisten().await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = receive => {}
        () = check => {}
        () = to.closed() => {}
    }
}

impl Subscriptions for Listener {
    fn follow(&self, channel: Channel) -> Pending<'_, ()> {
        Box::pin(async move {
            let added = self.add(&channel).await;
            added.map_err(|failure| failure.worded(format!("cannot listen at {}", self.server)))
        })
    }

    fn forget(&self, channel: &Channel) {
        let name = database_name(&self.schema, channel);
        let mut channels = self.channels();
        if channels.followed.remove(&name).is_some() {
            channels.forgotten.insert(name);
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("server", &self.server).finish_non_exhaustive()
    }
}

/// In place of a listener where signals do not arrive.
#[derive(Debug)]
struct Silence {
    server: String,
}

impl Subscriptions for Silence {
    fn follow(&self, _: Channel) -> Pending<'_, ()> {
        Box::pin(async move {
            Err(Error::refused(format!(
                "cannot listen at {}: signals do not arrive through a transaction pooler; give the server itself as `listen` \
                 in the URL",
                self.server
            )))
        })
    }

    fn forget(&self, _: &Channel) {}
}
