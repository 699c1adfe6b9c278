//! One connection: who asks writes by itself, in order, and one task reads the answers and gives them out in that order.
//! Who asks may be on another thread, which may lose its core while it writes: so nobody ever blocks on a connection that it
//! has locked, but comes back a little later, and does something else meanwhile.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::task::{Context, Poll, Waker, ready};

use redis::{Cmd, ErrorKind, RedisError, Value};
use tokio::io::{AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::reply::{self, Coming};
use super::server::Server;
use super::target::{Stream, Target};
use super::trouble::{Outcome, Trouble};

/// How much is read at once.
const PIECE: usize = 16 << 10;
/// As much as a server says in one piece, and some more.
const MOST_UNREAD: usize = 80 << 20;
/// What is kept for the next answer, after a large one.
const MOST_KEPT: usize = 1 << 20;

/// A connection to a server that can be used, as long as somebody uses it.
pub(super) struct Wire {
    link: Link,
    /// What the server said of itself when the connection was made.
    pub(super) server: Server,
    pub(super) moves: u64,
}

impl Wire {
    pub(super) async fn dial(target: &Target) -> Outcome<Self> {
        let moves = target.moves();
        let link = Link::to(target, None).await?;
        let server = Server::said(link.ask(&redis::cmd("INFO"), 1).await?)?;
        if server.may_forget() {
            // What may not be used for one thing is not used for another over connections that were made before.
            target.start_over();
        }
        server.check(&target.to_string())?;
        Ok(Self { link, server, moves })
    }

    pub(super) async fn ask(&self, command: &Cmd) -> Outcome<Value> {
        self.link.ask(command, 1).await
    }

    /// Asks, and lets those who are woken by it be told first. A server writes to those last to whom it had something to
    /// say first: to us, because of the PING before. Without it the one who releases wakes up before the one who waits, and
    /// where they share cores that one comes later by as long as a round trip takes.
    pub(super) async fn ask_as_last(&self, command: &Cmd) -> Outcome<Value> {
        self.link.send(b"*1\r\n$4\r\nPING\r\n", command, 2).await
    }

    pub(super) fn is_over(&self) -> bool {
        self.link.carrier.is_finished()
    }
}

/// A connection on which commands are answered in order; what the server says unasked goes elsewhere.
pub(super) struct Link {
    shared: Arc<Mutex<Shared>>,
    carrier: JoinHandle<()>,
}

struct Shared {
    stream: Box<dyn Stream>,
    unsent: Vec<u8>,
    asked: Asked,
    /// Wakes the one that reads, and writes what did not go out at once.
    carrier: Waker,
    /// Nobody reads any more: why.
    over: Option<io::ErrorKind>,
}

/// Who waits for the next answers, in the order in which they come; nobody for some.
type Asked = VecDeque<Option<oneshot::Sender<Outcome<Value>>>>;

impl Link {
    /// Connects as the URL says. What comes unasked, to one who has subscribed, is told to `unasked`.
    pub(super) async fn to(target: &Target, unasked: Option<mpsc::UnboundedSender<Said>>) -> Outcome<Self> {
        let shared = Arc::new(Mutex::new(Shared {
            stream: target.connect().await?,
            unsent: Vec::new(),
            asked: VecDeque::new(),
            carrier: Waker::noop().clone(),
            over: None,
        }));
        let carrier = tokio::spawn(carry(shared.clone(), unasked));
        let link = Self { shared, carrier };
        link.introduce(target).await?;
        Ok(link)
    }

    async fn introduce(&self, target: &Target) -> Outcome<()> {
        let info = target.info();
        if let Some(password) = info.password() {
            let mut authenticate = redis::cmd("AUTH");
            if let Some(user) = info.username() {
                authenticate.arg(user);
            }
            match self.ask(authenticate.arg(password), 1).await {
                // Not in its own words: a server that does not know the command quotes what it was given.
                Err(Trouble::Redis(error)) if error.code() == Some("ERR") => {
                    return Err(RedisError::from((
                        ErrorKind::AuthenticationFailed,
                        "AUTH was refused, as by a server without a password",
                    ))
                    .into());
                }
                said => said?,
            };
        }
        if info.db() != 0 {
            self.ask(redis::cmd("SELECT").arg(info.db()), 1).await?;
        }
        Ok(())
    }

    /// Asks, and waits for the last of so many answers.
    pub(super) async fn ask(&self, command: &Cmd, answers: usize) -> Outcome<Value> {
        self.send(b"", command, answers).await
    }

    async fn send(&self, first: &[u8], command: &Cmd, answers: usize) -> Outcome<Value> {
        let answer = poll_fn(|cx| {
            let shared = &mut *ready!(poll_lock(&self.shared, cx));
            if let Some(why) = shared.over {
                return Poll::Ready(Err(broken(why)));
            }
            let (to, answer) = oneshot::channel();
            shared.asked.extend((1..answers).map(|_| None));
            shared.asked.push_back(Some(to));
            shared.unsent.extend_from_slice(first);
            command.write_packed_command(&mut shared.unsent);
            // From here, so that nobody else has to run first. What does not go out now the carrier takes up.
            let carrier = shared.carrier.clone();
            if let Poll::Ready(Err(_)) = shared.write(&mut Context::from_waker(&carrier)) {
                carrier.wake();
            }
            Poll::Ready(Ok(answer))
        });
        answer.await?.await.unwrap_or(Err(broken(io::ErrorKind::BrokenPipe)))
    }
}

impl Drop for Link {
    /// The carrier would wait for answers that nobody wants any more, on a link where none may come.
    fn drop(&mut self) {
        self.carrier.abort();
    }
}

impl Shared {
    fn write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.unsent))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => drop(self.unsent.drain(..sent)),
            }
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Nothing comes any more: everybody who waits is told.
    fn end(&mut self, why: io::ErrorKind) {
        self.over = Some(why);
        for asked in self.asked.drain(..).flatten() {
            // Whoever asked may have given up.
            let _gone = asked.send(Err(broken(why)));
        }
    }
}

/// What a server said unasked: what kind of message, on which channel, and what.
pub(super) type Said = [Value; 3];

/// Reads until the connection ends.
async fn carry(shared: Arc<Mutex<Shared>>, unasked: Option<mpsc::UnboundedSender<Said>>) {
    let (mut unread, mut coming) = (Vec::new(), Coming::default());
    loop {
        let is_over = poll_fn(|cx| {
            let shared = &mut *ready!(poll_lock(&shared, cx));
            if !shared.carrier.will_wake(cx.waker()) {
                shared.carrier = cx.waker().clone();
            }
            let read = match shared.write(cx) {
                Poll::Ready(Err(error)) => Err(error),
                _ => ready!(read_some(&mut *shared.stream, cx, &mut unread)),
            };
            let why = match read {
                Ok(()) => match give_out(&mut shared.asked, &mut unread, &mut coming, unasked.as_ref()) {
                    Ok(()) => return Poll::Ready(false),
                    Err(_odd) => io::ErrorKind::InvalidData,
                },
                Err(error) => error.kind(),
            };
            shared.end(why);
            Poll::Ready(true)
        });
        if is_over.await {
            return;
        }
    }
}

/// Reads what has come, at least a byte.
fn read_some(stream: &mut dyn Stream, cx: &mut Context<'_>, unread: &mut Vec<u8>) -> Poll<io::Result<()>> {
    let mut piece = [std::mem::MaybeUninit::uninit(); PIECE];
    let mut piece = ReadBuf::uninit(&mut piece);
    ready!(Pin::new(stream).poll_read(cx, &mut piece))?;
    if piece.filled().is_empty() {
        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
    }
    if unread.len() > MOST_UNREAD {
        return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
    }
    unread.extend_from_slice(piece.filled());
    Poll::Ready(Ok(()))
}

/// Gives the answers that are whole to those who wait for them.
fn give_out(
    asked: &mut Asked,
    unread: &mut Vec<u8>,
    coming: &mut Coming,
    unasked: Option<&mpsc::UnboundedSender<Said>>,
) -> Outcome<()> {
    let mut from = 0;
    while let Some(length) = coming.whole(&unread[from..])? {
        let said = reply::value(&unread[from..from + length])?;
        from += length;
        match (unasked, is_message(said)) {
            (Some(unasked), Ok(message)) => {
                // Nobody listens any more, and the connection is about to end.
                let _gone = unasked.send(message);
            }
            (None, Ok(message)) => answer(asked, Value::Array(message.into()))?,
            (_, Err(said)) => answer(asked, said)?,
        }
    }
    unread.drain(..from);
    if unread.is_empty() && unread.capacity() > MOST_KEPT {
        *unread = Vec::new();
    }
    Ok(())
}

fn answer(asked: &mut Asked, said: Value) -> Outcome<()> {
    let asked = asked.pop_front().ok_or_else(|| Trouble::Odd("an answer to nothing".to_owned()))?;
    if let Some(asked) = asked {
        // A refusal is an answer to the connection, and an error to who asked, who may have given up.
        let _gone = asked.send(said.extract_error().map_err(Trouble::from));
    }
    Ok(())
}

/// The message, if it is one, and not an answer.
fn is_message(said: Value) -> Result<Said, Value> {
    match said {
        Value::Array(parts) if matches!(parts.first(), Some(Value::BulkString(kind)) if kind == b"message") => {
            <Said>::try_from(parts).map_err(Value::Array)
        }
        said => Err(said),
    }
}

fn broken(why: io::ErrorKind) -> Trouble {
    Trouble::Broken(why.into())
}

/// Whoever else has it locked is about to be done; but that may have lost its core.
fn poll_lock<'a>(shared: &'a Mutex<Shared>, cx: &Context<'_>) -> Poll<MutexGuard<'a, Shared>> {
    match shared.try_lock() {
        Ok(locked) => Poll::Ready(locked),
        // There is no step in it that a panic could leave half done.
        Err(TryLockError::Poisoned(poisoned)) => Poll::Ready(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// One who is connected, and the other end.
    async fn connected(password: &str) -> (impl Future<Output = Outcome<Link>>, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let target = Target::of(&format!("redis://{password}127.0.0.1:{port}")).expect("a target");
        (async move { Link::to(&target, None).await }, listener)
    }

    async fn hear(stream: &mut TcpStream, what: &str) {
        let mut heard = vec![0; what.len()];
        stream.read_exact(&mut heard).await.expect("a request");
        assert_eq!(String::from_utf8_lossy(&heard), what);
    }

    #[tokio::test]
    async fn who_gives_up_leaves_the_answers_of_the_others_in_order() {
        let (link, listener) = connected("").await;
        let (link, accepted) = tokio::join!(link, listener.accept());
        let (link, mut server) = (link.expect("a link"), accepted.expect("a connection").0);
        let [one, two, three] = ["A", "B", "C"].map(redis::cmd);

        tokio::select! {
            biased;
            said = link.ask(&one, 1) => panic!("nobody answered: {said:?}"),
            () = std::future::ready(()) => {}
        }
        let answered = async {
            for word in ["A", "B", "C"] {
                hear(&mut server, &format!("*1\r\n$1\r\n{word}\r\n")).await;
            }
            // In pieces, as they may come.
            for piece in ["+a\r", "\n$1\r\nb", "\r\n", ":3\r\n"] {
                server.write_all(piece.as_bytes()).await.expect("it is sent");
                tokio::task::yield_now().await;
            }
        };
        let (b, c, ()) = tokio::join!(link.ask(&two, 1), link.ask(&three, 1), answered);

        assert_eq!(b.expect("an answer"), Value::BulkString(b"b".to_vec()));
        assert_eq!(c.expect("an answer"), Value::Int(3));
    }

    #[tokio::test]
    async fn everybody_is_told_when_the_connection_ends_or_says_what_nobody_asked() {
        for last in ["", ":1\r\n:2\r\n:3\r\n", "?\r\n"] {
            let (link, listener) = connected("").await;
            let (link, accepted) = tokio::join!(link, listener.accept());
            let (link, mut server) = (link.expect("a link"), accepted.expect("a connection").0);
            let [one, two] = ["A", "B"].map(redis::cmd);

            let over = async {
                hear(&mut server, "*1\r\n$1\r\nA\r\n*1\r\n$1\r\nB\r\n").await;
                server.write_all(last.as_bytes()).await.expect("it is sent");
                drop(server);
            };
            let (a, b, ()) = tokio::join!(link.ask(&one, 1), link.ask(&two, 1), over);

            assert_eq!((a.is_ok(), b.is_ok()), (last.starts_with(':'), last.starts_with(':')), "{last:?}");
            let later = link.ask(&one, 1).await.expect_err("it is over");
            assert!(later.breaks_connection(), "{later:?}");
        }
    }

    /// One that does not know the command quotes what it was given.
    #[tokio::test]
    async fn a_refused_password_is_not_told() {
        let (link, listener) = connected("me:secret@").await;
        let refused = async {
            let mut server = listener.accept().await.expect("a connection").0;
            hear(&mut server, "*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$6\r\nsecret\r\n").await;
            let said = "-ERR unknown command 'AUTH', with args beginning with: 'me' 'secret'\r\n";
            server.write_all(said.as_bytes()).await.expect("it is sent");
            server
        };
        let (link, _server) = tokio::join!(link, refused);

        let Err(trouble) = link else { panic!("it was let in") };
        let told = trouble.told("open", "redis://cache");
        assert_eq!(told.kind(), crate::Kind::Refused);
        assert!(!format!("{told:?}").contains("secret"), "{told:?}");
    }
}
