//! HTTP requests that are refused once a later owner has been seen: a `tower` layer for the server, a header for the
//! client.
//!
//! ```
//! # fn request(own: &tenure::Ownership) -> http::Request<()> {
//! use tenure::fence::http::TENURE_TOKEN;
//!
//! // The owner sends
//! http::Request::post("/pay").header(TENURE_TOKEN, own.fence().to_string()).body(()).unwrap()
//! # }
//! # fn service<S>(service: S) -> impl Sized {
//! use tower_layer::Layer;
//!
//! // and the server lets pass, as a layer of axum, tonic or anything else of tower.
//! tenure::fence::http::FenceLayer::new().layer(service)
//! # }
//! ```

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use tower_layer::Layer;
use tower_service::Service;

use super::{Fence, Marks};

/// The header that carries a fence: token, ticket and resource, as [`Fence`] writes them.
pub const TENURE_TOKEN: HeaderName = HeaderName::from_static("tenure-token");

impl From<&Fence> for HeaderValue {
    /// What [`TENURE_TOKEN`] is to carry.
    fn from(fence: &Fence) -> Self {
        // It is written in visible ASCII and blanks, with digits at its beginning.
        Self::try_from(fence.to_string()).expect("plain text")
    }
}

/// Refuses requests of earlier owners: 409 when the token is stale, 400 when the header makes no sense, 428 when there
/// is none. Those that pass carry their [`Fence`] in the extensions.
///
/// The marks are in the memory of this process. Behind a load balancer each server has its own, so there, and where a
/// restart matters, check the fence again where the data is: in PostgreSQL or Redis.
#[derive(Clone, Debug, Default)]
pub struct FenceLayer {
    marks: Arc<Marks>,
    is_optional: bool,
}

impl FenceLayer {
    /// Has seen nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With marks that others share.
    #[must_use]
    pub fn with(marks: Arc<Marks>) -> Self {
        Self { marks, is_optional: false }
    }

    /// Lets requests without the header pass, too: for servers that owners and others write to.
    #[must_use]
    pub fn optional(self) -> Self {
        Self { is_optional: true, ..self }
    }

    /// The fence of a request that may pass, or why it may not.
    fn admit(&self, header: Option<&HeaderValue>) -> Result<Option<Fence>, (StatusCode, String)> {
        let Some(header) = header else {
            let missing = || (StatusCode::PRECONDITION_REQUIRED, format!("no `{TENURE_TOKEN}` header"));
            return if self.is_optional { Ok(None) } else { Err(missing()) };
        };
        let bad = |why: String| (StatusCode::BAD_REQUEST, format!("`{TENURE_TOKEN}`: {why}"));
        let text = header.to_str().map_err(|_| bad("not plain text".to_owned()))?;
        let fence: Fence = text.parse().map_err(|limit| bad(format!("{limit}")))?;
        self.marks.admit(&fence).map_err(|stale| (StatusCode::CONFLICT, stale.to_string()))?;
        Ok(Some(fence))
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = Fenced<S>;

    fn layer(&self, inner: S) -> Fenced<S> {
        Fenced { inner, layer: self.clone() }
    }
}

/// A service behind a [`FenceLayer`].
#[derive(Clone, Debug)]
pub struct Fenced<S> {
    inner: S,
    layer: FenceLayer,
}

impl<S, B, R> Service<Request<B>> for Fenced<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: From<String>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Answer<S::Future, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        match self.layer.admit(request.headers().get(TENURE_TOKEN)) {
            Ok(fence) => {
                fence.map(|fence| request.extensions_mut().insert(fence));
                Answer::Passed { answer: self.inner.call(request) }
            }
            Err((status, why)) => {
                let mut response = Response::new(R::from(why));
                *response.status_mut() = status;
                Answer::Refused { response: Some(response) }
            }
        }
    }
}

pin_project_lite::pin_project! {
    /// What a [`Fenced`] service answers.
    #[project = Projected]
    #[derive(Debug)]
    pub enum Answer<F, R> {
        #[doc(hidden)]
        Passed { #[pin] answer: F },
        #[doc(hidden)]
        Refused { response: Option<Response<R>> },
    }
}

impl<F, R, E> Future for Answer<F, R>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = F::Output;

    fn poll(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            Projected::Passed { answer } => answer.poll(cx),
            Projected::Refused { response } => {
                Poll::Ready(Ok(response.take().expect("polled again after it was ready")))
            }
        }
    }
}
