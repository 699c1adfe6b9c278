//! Reports to systemd, for a service with `Type=notify`: ready when it competes, then its status.
//!
//! Only main speaks, so `NotifyAccess=main` is enough; the command does not inherit the socket.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Where the socket is named.
pub(crate) const VARIABLE: &str = "NOTIFY_SOCKET";

/// The supervisor, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Supervisor(Option<(UnixDatagram, SocketAddr)>);

impl Supervisor {
    pub(crate) fn find() -> Self {
        let named = std::env::var_os(VARIABLE).and_then(|name| name.into_string().ok());
        let address = named.and_then(|name| match name.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name).ok(),
            None => SocketAddr::from_pathname(&name).ok(),
        });
        // Without a supervisor that listens nobody waits for us.
        Self(address.and_then(|address| {
            let socket = UnixDatagram::unbound().ok()?;
            // One that does not read must not hold us up.
            socket.set_nonblocking(true).ok()?;
            Some((socket, address))
        }))
    }

    /// It competes: a worker that waits for its turn is as ready as one that owns.
    pub(crate) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={}", line(status)));
    }

    pub(crate) fn status(&self, status: &str) {
        self.tell(&format!("STATUS={}", line(status)));
    }

    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=stopping");
    }

    fn tell(&self, text: &str) {
        if let Some((socket, address)) = &self.0 {
            // It may have gone, and is told for its own good.
            let _gone = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}

/// One line: another one would be another message.
fn line(status: &str) -> String {
    status.replace(char::is_control, " ")
}
