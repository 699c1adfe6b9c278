//! What a supervisor is told.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use super::scene::{LIMIT, Scene, until};

#[test]
fn a_supervisor_is_told_that_it_competes_owns_and_stops_and_the_command_does_not_speak_to_it() {
    let scene = Scene::new();
    let socket = UnixDatagram::bind(scene.file("notify")).expect("a socket");
    socket.set_read_timeout(Some(LIMIT)).expect("a limit");
    let mut tenure = scene.tenure();
    tenure.args(["run", "job", "--", "sh", "-c", "echo \"[$NOTIFY_SOCKET]\" > told; sleep 0.1"]);
    let mut child = tenure.env("NOTIFY_SOCKET", scene.file("notify")).spawn().expect("it runs");

    let next = || {
        let mut text = [0; 1024];
        let length = socket.recv(&mut text).expect("a message");
        String::from_utf8_lossy(&text[..length]).into_owned()
    };

    assert_eq!(next(), "READY=1\nSTATUS=competes for `job`");
    let owns = next();
    assert!(owns.starts_with("STATUS=owns `job` (term 1); runs pid "), "{owns}");
    assert_eq!(next(), "STOPPING=1\nSTATUS=stopping");
    assert!(child.wait().expect("it ends").success());
    assert_eq!(scene.lines("told"), ["[]"]);
    socket.set_read_timeout(Some(Duration::from_millis(10))).expect("a limit");
    assert!(socket.recv(&mut [0; 1]).is_err(), "that was all");
}

#[test]
fn a_supervisor_that_does_not_read_holds_nobody_up() {
    let scene = Scene::new();
    // Its queue is full before `tenure` starts.
    let socket = UnixDatagram::bind(scene.file("notify")).expect("a socket");
    let filler = UnixDatagram::unbound().expect("a socket");
    filler.set_nonblocking(true).expect("it can be set");
    while filler.send_to(b"STATUS=x", scene.file("notify")).is_ok() {}
    let mut tenure = scene.tenure();
    tenure.args(["run", "job", "--", "true"]).env("NOTIFY_SOCKET", scene.file("notify"));

    let mut child = tenure.spawn().expect("it runs");

    let ended = until("its end", || child.try_wait().expect("an answer"));
    assert!(ended.success());
    drop(socket);
}
