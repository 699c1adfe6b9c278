//! Signals: one connection that has subscribed to the channels that somebody follows.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use redis::Msg;
use redis::aio::{PubSubSink, PubSubStream};
use tenure_core::StoreTime;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::error::Failure;
use crate::ErrorKind;
use crate::store::Pending;
use crate::store::backend::{Channel, Heard, Signals, Subscriptions, Text};

/// A connection that is silent for so long is tested, and has as long to answer.
const SILENCE: Duration = Duration::from_secs(2);

/// The channels that this listener follows.
pub(super) struct Listener {
    sink: PubSubSink,
    /// Ends the connection. Nobody is left behind on one that does not answer.
    end: watch::Sender<bool>,
    prefix: String,
    server: String,
}

impl Listener {
    /// Listens over this connection until it ends or `replaced` changes.
    pub(super) fn start(
        (sink, stream): (PubSubSink, PubSubStream),
        replaced: watch::Receiver<u64>,
        prefix: String,
        server: String,
    ) -> (Self, Signals) {
        let (signals, heard) = mpsc::unbounded_channel();
        let end = watch::Sender::new(false);
        let reader = Reader { sink: sink.clone(), stream, signals, prefix: prefix.clone() };
        tokio::spawn(reader.run(replaced, end.subscribe()));
        (Self { sink, end, prefix, server }, heard)
    }

    fn name(&self, channel: &Channel) -> String {
        format!("{}{}", self.prefix, channel.as_str())
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Subscriptions for Listener {
    fn follow(&self, channel: Channel) -> Pending<'_, ()> {
        Box::pin(async move {
            let mut sink = self.sink.clone();
            let subscribed = timeout(SILENCE, sink.subscribe(self.name(&channel))).await;
            let failure = match subscribed {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => Failure::Redis(error),
                Err(_) => Failure::TimedOut,
            };
            let error = failure.describe("subscribe at", &self.server);
            // A user without the right to subscribe would try again at once, and for ever.
            if error.kind() != ErrorKind::Refused {
                self.end.send_replace(true);
            }
            Err(error)
        })
    }

    fn forget(&self, channel: &Channel) {
        let mut sink = self.sink.clone();
        let unsubscribed = pin!(sink.unsubscribe(self.name(channel)));
        // The first poll queues the command, before the commands of later calls. Nobody waits for the reply.
        let _pending = unsubscribed.poll(&mut Context::from_waker(Waker::noop()));
    }
}

/// Passes on what is heard.
struct Reader {
    sink: PubSubSink,
    stream: PubSubStream,
    signals: mpsc::UnboundedSender<Heard>,
    prefix: String,
}

impl Reader {
    async fn run(mut self, mut replaced: watch::Receiver<u64>, mut end: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                message = timeout(SILENCE, next(&mut self.stream)) => match message {
                    Ok(Some(message)) => {
                        // A message in another form is as good as lost: hints may be lost.
                        if let Some(heard) = heard(&self.prefix, &message)
                            && self.signals.send(heard).is_err()
                        {
                            return;
                        }
                    }
                    Ok(None) => return,
                    Err(_) => {
                        let answered = timeout(SILENCE, self.sink.ping::<redis::Value>()).await;
                        if !matches!(answered, Ok(Ok(_))) || self.signals.is_closed() {
                            return;
                        }
                    }
                },
                _ = replaced.changed() => return,
                // Also when the listener was dropped.
                _ = end.changed() => return,
                () = self.signals.closed() => return,
            }
        }
    }
}

async fn next(stream: &mut PubSubStream) -> Option<Msg> {
    use futures_core::Stream;
    std::future::poll_fn(|cx| std::pin::Pin::new(&mut *stream).poll_next(cx)).await
}

/// A message is `STAMP TEXT`.
fn heard(prefix: &str, message: &Msg) -> Option<Heard> {
    let channel = message.get_channel_name().strip_prefix(prefix)?;
    let (stamp, text) = std::str::from_utf8(message.get_payload_bytes()).ok()?.split_once(' ')?;
    Some(Heard {
        channel: Channel::new(channel),
        stamp: Some(StoreTime::from_micros(stamp.parse().ok()?)),
        text: Text::from(text),
    })
}
