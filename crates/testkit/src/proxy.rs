//! A TCP link that goes bad on command: it delays, drops, hangs, refuses and half-opens.
//!
//! It runs on a thread of its own, so that a test whose runtime is blocked does not stall it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::process::Port;

/// What the link does to what passes over it.
///
/// What is dropped comes after all when the link is good again, late and in order, as TCP would send it again,
/// also when the sender has given up meanwhile. Who wants it lost cuts the link first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// Nothing.
    #[default]
    Pass,
    /// Everything comes later.
    Delay {
        /// To the server.
        requests: Duration,
        /// From it.
        replies: Duration,
    },
    /// Requests pass, replies vanish.
    DropReplies,
    /// Requests vanish.
    DropRequests,
    /// Both vanish; connections are made, and nothing comes.
    Hang,
    /// Connections are reset, new ones refused.
    Refuse,
    /// The server's end is closed, and the client is not told; new connections are made, and nothing comes. When
    /// the link is good again, the first thing that the client sends over an old connection resets it.
    HalfOpen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Requests,
    Replies,
}

impl Link {
    fn delay(self, way: Way) -> Duration {
        match (self, way) {
            (Self::Delay { requests, .. }, Way::Requests) => requests,
            (Self::Delay { replies, .. }, Way::Replies) => replies,
            _ => Duration::ZERO,
        }
    }

    fn is_open(self, way: Way) -> bool {
        match self {
            Self::Pass | Self::Delay { .. } => true,
            Self::DropReplies => way == Way::Requests,
            Self::DropRequests => way == Way::Replies,
            Self::Hang | Self::Refuse | Self::HalfOpen => false,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    link: Link,
    /// How often all connections were cut.
    cuts: u64,
}

enum Order {
    Set(Link),
    Cut,
    Point(u16),
}

/// A link to a server. Dropping it cuts it.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    orders: mpsc::UnboundedSender<(Order, std::sync::mpsc::Sender<()>)>,
    accepted: Arc<AtomicU64>,
}

impl Proxy {
    /// A good link to the server on `port` of this machine.
    ///
    /// # Panics
    /// When there is no port for it.
    #[must_use]
    pub fn to(port: u16) -> Self {
        let ours = Port::free();
        let (orders, arriving) = mpsc::unbounded_channel();
        let (number, accepted) = (ours.number(), Arc::new(AtomicU64::new(0)));
        let count = accepted.clone();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(serve(&ours, port, arriving, count, ready));
        };
        std::thread::Builder::new().name("testkit-proxy".into()).spawn(run).expect("a thread");
        is_ready.recv().expect("the proxy listens");
        Self { port: number, orders, accepted }
    }

    /// Where clients connect.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections were made so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// From here on the link is like this.
    pub fn set(&self, link: Link) {
        self.order(Order::Set(link));
    }

    /// Resets all connections; new ones are as the link is.
    pub fn cut(&self) {
        self.order(Order::Cut);
    }

    /// From here on it leads to the server on this port, as a name does that was given to another one. Connections that
    /// were made before are reset.
    pub fn point_to(&self, port: u16) {
        self.order(Order::Point(port));
    }

    fn order(&self, order: Order) {
        let (done, is_done) = std::sync::mpsc::channel();
        self.orders.send((order, done)).expect("the proxy runs");
        is_done.recv().expect("the proxy obeys");
    }
}

type Orders = mpsc::UnboundedReceiver<(Order, std::sync::mpsc::Sender<()>)>;

async fn serve(
    port: &Port,
    mut server: u16,
    mut orders: Orders,
    accepted: Arc<AtomicU64>,
    ready: std::sync::mpsc::Sender<()>,
) {
    let (state, seen) = watch::channel(State::default());
    let mut listener = Some(listen(port).await);
    // Whoever made us waits for it.
    let _gone = ready.send(());
    loop {
        tokio::select! {
            biased;
            order = orders.recv() => {
                let Some((order, done)) = order else { return };
                match order {
                    Order::Cut => state.send_modify(|state| state.cuts += 1),
                    Order::Point(port) => {
                        server = port;
                        state.send_modify(|state| state.cuts += 1);
                    }
                    Order::Set(link) => {
                        if link == Link::Refuse {
                            listener = None;
                        } else if listener.is_none() {
                            listener = Some(listen(port).await);
                        }
                        state.send_modify(|state| state.link = link);
                    }
                }
                let _gone = done.send(());
            }
            Some(client) = accept(listener.as_ref()) => {
                accepted.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(connect(client, server, seen.clone()));
            }
        }
    }
}

async fn listen(port: &Port) -> TcpListener {
    let at = SocketAddr::from(([127, 0, 0, 1], port.number()));
    for _ in 0..500 {
        if let Ok(listener) = TcpListener::bind(at).await {
            return listener;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the proxy cannot listen on its port {} again", port.number());
}

async fn accept(listener: Option<&TcpListener>) -> Option<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.ok().map(|(client, _)| client),
        None => std::future::pending().await,
    }
}

/// Carries one connection until it ends or is cut.
async fn connect(client: TcpStream, server: u16, mut state: watch::Receiver<State>) {
    let (_, born) = (client.set_nodelay(true), state.borrow_and_update().cuts);
    if state.borrow().link == Link::HalfOpen {
        return orphan(client, state, born).await;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { return reset(&client) };
    let _ = server.set_nodelay(true);
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let carried = {
        let requests = pump(&mut from_client, &mut to_server, Way::Requests, state.clone());
        let replies = pump(&mut from_server, &mut to_client, Way::Replies, state.clone());
        let broken =
            state.wait_for(|state| state.cuts != born || matches!(state.link, Link::Refuse | Link::HalfOpen));
        tokio::select! {
            _ = async { tokio::join!(requests, replies) } => None,
            broken = broken => broken.ok().map(|state| state.link),
        }
    };
    let Some(link) = carried else { return };
    // Whole again: half a connection that is dropped says goodbye, which a reset does not.
    let whole = |read: OwnedReadHalf, write| read.reunite(write).expect("two halves of one connection");
    reset(&whole(from_server, to_server));
    let client = whole(from_client, to_client);
    match link {
        Link::HalfOpen => orphan(client, state, born).await,
        _ => reset(&client),
    }
}

/// A client whose server has forgotten it.
async fn orphan(client: TcpStream, mut state: watch::Receiver<State>, born: u64) {
    let healed = state.wait_for(|state| state.cuts != born || state.link != Link::HalfOpen).await;
    if healed.is_ok_and(|state| state.cuts == born && state.link != Link::Refuse) {
        let _sent = client.readable().await;
    }
    reset(&client);
}

/// Closing it will reset it.
fn reset(stream: &TcpStream) {
    // One that is gone already needs no reset.
    let _gone = stream.set_zero_linger();
}

/// Carries one direction, in order, each piece when it is due and the link lets it pass.
async fn pump(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, way: Way, state: watch::Receiver<State>) {
    let (pieces, mut due) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let seen = state.clone();
    let read = async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            let at = Instant::now() + seen.borrow().link.delay(way);
            if pieces.send((at, buffer[..length].to_vec())).is_err() {
                return;
            }
        }
    };
    let write = async move {
        let mut state = state;
        while let Some((at, piece)) = due.recv().await {
            tokio::time::sleep_until(at).await;
            if state.wait_for(|state| state.link.is_open(way)).await.is_err()
                || to.write_all(&piece).await.is_err()
            {
                return;
            }
        }
        // The end of the stream has to pass like everything else.
        if state.wait_for(|state| state.link.is_open(way)).await.is_ok() {
            let _gone = to.shutdown().await;
        }
    };
    tokio::join!(read, write);
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};

    use super::*;

    /// A server that says everything back, and tells what it heard.
    fn echo() -> (u16, std::sync::mpsc::Receiver<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (heard, hears) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(mut stream), heard) = (stream, heard.clone()) else { return };
                std::thread::spawn(move || {
                    let mut buffer = [0; 1024];
                    while let Ok(length @ 1..) = stream.read(&mut buffer) {
                        let _gone = heard.send(buffer[..length].to_vec());
                        let _gone = stream.write_all(&buffer[..length]);
                    }
                });
            }
        });
        (port, hears)
    }

    fn client(proxy: &Proxy) -> TcpStream {
        let client = TcpStream::connect(("127.0.0.1", proxy.port())).expect("a connection");
        client.set_read_timeout(Some(Duration::from_millis(100))).expect("a limit");
        client
    }

    fn says(client: &mut TcpStream) -> Result<Vec<u8>, ErrorKind> {
        let mut buffer = [0; 1024];
        client.read(&mut buffer).map(|length| buffer[..length].to_vec()).map_err(|error| error.kind())
    }

    const SOON: Duration = Duration::from_secs(5);

    #[test]
    fn a_good_link_passes_and_a_slow_one_passes_later() {
        let (port, _) = echo();
        let proxy = Proxy::to(port);
        let mut to = client(&proxy);

        to.write_all(b"a").expect("sent");
        assert_eq!(says(&mut to), Ok(b"a".to_vec()));

        proxy.set(Link::Delay { requests: Duration::ZERO, replies: Duration::from_millis(150) });
        to.write_all(b"b").expect("sent");
        assert_eq!(says(&mut to), Err(ErrorKind::WouldBlock));
        assert_eq!(says(&mut to), Ok(b"b".to_vec()));
    }

    #[test]
    fn replies_vanish_while_requests_pass_and_come_when_the_link_is_good_again() {
        let (port, hears) = echo();
        let proxy = Proxy::to(port);
        let mut to = client(&proxy);
        proxy.set(Link::DropReplies);

        to.write_all(b"a").expect("sent");
        assert_eq!(hears.recv_timeout(SOON), Ok(b"a".to_vec()));
        assert_eq!(says(&mut to), Err(ErrorKind::WouldBlock));

        proxy.set(Link::Pass);
        assert_eq!(says(&mut to), Ok(b"a".to_vec()));
    }

    #[test]
    fn a_request_on_a_hanging_link_arrives_late_though_its_sender_has_given_up() {
        let (port, hears) = echo();
        let proxy = Proxy::to(port);
        let mut to = client(&proxy);
        to.write_all(b"a").expect("sent");
        assert_eq!(hears.recv_timeout(SOON), Ok(b"a".to_vec()));
        proxy.set(Link::Hang);

        to.write_all(b"b").expect("sent");
        to.shutdown(Shutdown::Both).expect("closed");
        assert!(hears.recv_timeout(Duration::from_millis(100)).is_err());

        proxy.set(Link::Pass);
        assert_eq!(hears.recv_timeout(SOON), Ok(b"b".to_vec()));
    }

    #[test]
    fn a_refusing_link_resets_what_is_there_and_refuses_what_comes() {
        let (port, _) = echo();
        let proxy = Proxy::to(port);
        let mut to = client(&proxy);
        to.write_all(b"a").expect("sent");
        assert_eq!(says(&mut to), Ok(b"a".to_vec()));

        proxy.set(Link::Refuse);

        assert_eq!(says(&mut to), Err(ErrorKind::ConnectionReset));
        let refused = TcpStream::connect(("127.0.0.1", proxy.port())).map(|_| ()).map_err(|e| e.kind());
        assert_eq!(refused, Err(ErrorKind::ConnectionRefused));
        proxy.set(Link::Pass);
        let mut to = client(&proxy);
        to.write_all(b"b").expect("sent");
        assert_eq!(says(&mut to), Ok(b"b".to_vec()));
    }

    #[test]
    fn a_half_open_connection_is_silent_and_is_reset_when_it_is_used_after_the_fault() {
        let (port, hears) = echo();
        let proxy = Proxy::to(port);
        let mut to = client(&proxy);
        to.write_all(b"a").expect("sent");
        assert_eq!(says(&mut to), Ok(b"a".to_vec()));
        assert_eq!(hears.recv_timeout(SOON), Ok(b"a".to_vec()));

        proxy.set(Link::HalfOpen);
        assert_eq!(says(&mut to), Err(ErrorKind::WouldBlock));
        to.write_all(b"b").expect("sent into nothing");
        assert_eq!(says(&mut to), Err(ErrorKind::WouldBlock));

        proxy.set(Link::Pass);
        assert!(says(&mut to).is_err_and(|kind| kind == ErrorKind::ConnectionReset));
        assert!(hears.recv_timeout(Duration::from_millis(50)).is_err(), "what was sent meanwhile is lost");
    }

    #[test]
    fn a_cut_resets_once_and_lets_new_connections_pass() {
        let (port, _) = echo();
        let proxy = Proxy::to(port);
        let mut to = client(&proxy);
        to.write_all(b"a").expect("sent");
        assert_eq!(says(&mut to), Ok(b"a".to_vec()));

        proxy.cut();

        assert_eq!(says(&mut to), Err(ErrorKind::ConnectionReset));
        let mut to = client(&proxy);
        to.write_all(b"b").expect("sent");
        assert_eq!((says(&mut to), proxy.accepted()), (Ok(b"b".to_vec()), 2));
    }
}
