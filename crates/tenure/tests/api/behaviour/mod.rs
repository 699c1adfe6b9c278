//! The library on a store that fails, hangs and is slow; what it tells of itself; and resources without limit.

mod app;
mod shaky;
mod surface;
mod told;
mod trouble;
mod unlimited;

use std::time::Duration;

/// How long a condition may take to come true. Nothing here should ever come near it.
const SOON: Duration = Duration::from_secs(20);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("it comes to pass soon")
}

async fn until(mut holds: impl FnMut() -> bool) {
    soon(async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}
