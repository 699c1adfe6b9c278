//! A channel that takes next to no memory while nothing is on its way.
//!
//! Every campaign has one, and a worker may have ten thousand campaigns. Tokio's channels are made for
//! traffic: each begins with room for 32 messages.

use std::future::poll_fn;
use std::pin::Pin;

use futures_channel::mpsc;
use futures_core::Stream;

#[derive(Debug)]
pub(crate) struct Sender<T>(mpsc::UnboundedSender<T>);

#[derive(Debug)]
pub(crate) struct Receiver<T>(mpsc::UnboundedReceiver<T>);

/// Nobody is there to receive it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (to, from) = mpsc::unbounded();
    (Sender(to), Receiver(from))
}

impl<T> Sender<T> {
    pub(crate) fn send(&self, message: T) -> Result<(), Gone> {
        self.0.unbounded_send(message).map_err(|_| Gone)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl<T> Receiver<T> {
    /// What comes next; nothing when every sender is gone. Dropping the future loses nothing.
    pub(crate) async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| Pin::new(&mut self.0).poll_next(cx)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_come_in_order_and_the_end_after_them() {
        let (to, mut from) = channel();
        assert_eq!((to.send(1), to.send(2)), (Ok(()), Ok(())));
        drop(to);

        assert_eq!((from.recv().await, from.recv().await, from.recv().await), (Some(1), Some(2), None));
        assert_eq!(from.recv().await, None);
    }

    #[test]
    fn a_sender_sees_that_nobody_receives_any_more() {
        let (to, from) = channel();
        assert!(!to.is_closed());

        drop(from);

        assert!(to.is_closed());
        assert_eq!(to.send(1), Err(Gone));
    }
}
