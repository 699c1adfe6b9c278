//! The layer for HTTP servers, on a real server and real requests.

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Extension, State};
use axum::routing::post;
use tenure::fence::Fence;
use tenure::fence::http::{FenceLayer, TENURE_TOKEN};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::fence;

/// A server that keeps the last text that was posted.
pub(crate) struct Server {
    pub(crate) address: String,
    kept: Arc<Mutex<String>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let kept = Arc::<Mutex<String>>::default();
        let write = |State(kept): State<Arc<Mutex<String>>>, text: String| async move {
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = text;
        };
        let whose = |Extension(fence): Extension<Fence>| async move { fence.resource().to_string() };
        let fenced =
            Router::new().route("/write", post(write)).route("/whose", post(whose)).layer(FenceLayer::new());
        let open = Router::new().route("/open", post(write)).layer(FenceLayer::new().optional());
        let router = fenced.merge(open).with_state(kept.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound").to_string();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, kept }
    }

    pub(crate) fn kept(&self) -> String {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Posts a text, and returns status and body.
pub(crate) async fn send(address: &str, path: &str, fence: Option<&str>, text: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let header = fence.map(|fence| format!("{TENURE_TOKEN}: {fence}\r\n")).unwrap_or_default();
    let length = text.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n{header}\r\n{text}"
    );
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    (status, body)
}

// req: T4
#[tokio::test]
async fn a_stale_token_is_answered_with_409_and_does_not_reach_the_service() {
    let server = Server::start().await;
    let (earlier, later) = (fence("ledger", 0, 7).to_string(), fence("ledger", 0, 9).to_string());

    assert_eq!(send(&server.address, "/write", Some(&earlier), "first").await.0, 200);
    assert_eq!(send(&server.address, "/write", Some(&later), "second").await.0, 200);
    let (status, body) = send(&server.address, "/write", Some(&earlier), "late").await;

    assert_eq!(status, 409);
    assert_eq!(body, "token 7 of ticket 0 of `ledger` is stale: 9 has written already");
    assert_eq!(server.kept(), "second");
}

#[tokio::test]
async fn a_request_without_a_token_or_with_an_odd_one_does_not_pass() {
    let server = Server::start().await;

    assert_eq!(
        send(&server.address, "/write", None, "x").await,
        (428, "no `tenure-token` header".to_owned())
    );
    let (status, body) = send(&server.address, "/write", Some("0 0 ledger"), "x").await;
    assert_eq!((status, body.as_str()), (400, "`tenure-token`: token \"0\" is not from 1 to 2^53 - 1"));
    assert_eq!(send(&server.address, "/write", Some("garbage"), "x").await.0, 400);
    assert_eq!(server.kept(), "");

    assert_eq!(send(&server.address, "/open", None, "from others").await.0, 200);
    assert_eq!(send(&server.address, "/open", Some("garbage"), "x").await.0, 400);
    assert_eq!(server.kept(), "from others");
}

#[tokio::test]
async fn the_service_finds_the_fence_of_a_request() {
    let server = Server::start().await;

    let (status, body) = send(&server.address, "/whose", Some(&fence("größe x", 0, 7).to_string()), "").await;

    assert_eq!((status, body.as_str()), (200, "größe x"));
}
