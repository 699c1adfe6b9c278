//! What the library counts, as Prometheus reads it. Alone in its process: the counters belong to all of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tenure::conformance::Relay;
use tenure::store::{Answer, Call, MemoryStore, OpenStore, Pending, Request, Store};
use tenure::{Tickets, Timing, Worker};
use testkit::child::is_alone;
use testkit::until;

/// What is left of it at a near miss is enough for a machine that is busy.
const TTL: Duration = Duration::from_secs(6);
/// How long a condition may take to come true: longer than it takes a lease to run out.
const SOON: Duration = Duration::from_secs(30);

// req: E14 H17
#[tokio::test]
async fn prometheus_reads_what_was_acquired_lost_and_renewed_under_bounded_labels() {
    if !is_alone(module_path!(), "prometheus_reads_what_was_acquired_lost_and_renewed_under_bounded_labels") {
        return;
    }
    let buckets = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full("tenure_trust_left_ratio".to_owned()), &[0.25, 0.5, 1.0]);
    let prometheus = buckets.expect("buckets").install_recorder().expect("the first of this process");
    let silent = Arc::new(AtomicBool::new(false));
    let store = Arc::new(Silent { inner: MemoryStore::default(), silent: silent.clone() });
    let opened = OpenStore::new(store).expect("a thread");
    let timing = Timing::new(TTL).expect("sound");
    let worker = Worker::on(opened).timing(timing).connect().await.expect("a worker");

    let names = ["billing.invoices:2024", "billing.invoices:2025", "mail"];
    let mut owned = Vec::new();
    for name in names {
        owned.push(worker.campaign(name).acquire().await.expect("a ticket"));
    }
    let everywhere = worker.campaign("everywhere").tickets(Tickets::All).acquire().await.expect("a ticket");
    owned.pop().expect("mail").release().await;
    reads(&prometheus, "tenure_acquired_total{class=\"billing\"} 2").await;
    reads(&prometheus, "tenure_acquired_total{class=\"mail\"} 1").await;
    reads(&prometheus, "tenure_owned{class=\"billing\"} 2").await;
    reads(&prometheus, "tenure_owned{class=\"mail\"} 0").await;
    reads(&prometheus, "tenure_owned{class=\"everywhere\"} 1").await;
    reads(&prometheus, "tenure_flapping_total{class=\"mail\"} 0").await;
    until(|| value(&prometheus, "tenure_renewals_total") >= Some(2.0)).await;
    // So far every renewal had most of the trust left.
    assert_eq!(value(&prometheus, "tenure_trust_left_ratio_bucket{le=\"0.25\"}"), Some(0.0));

    // A near miss: silence until little of the trust is left.
    let own = &owned[0];
    let before = value(&prometheus, "tenure_renewal_failures_total").unwrap_or_default();
    silent.store(true, Ordering::SeqCst);
    until(|| own.remaining() < timing.margin() + timing.trust() / 5).await;
    silent.store(false, Ordering::SeqCst);
    until(|| value(&prometheus, "tenure_trust_left_ratio_bucket{le=\"0.25\"}") >= Some(1.0)).await;
    assert!(own.holds(), "it was near, but a miss");
    assert!(value(&prometheus, "tenure_renewal_failures_total") > Some(before), "silence is a failure, too");

    silent.store(true, Ordering::SeqCst);
    reads(&prometheus, "tenure_lost_total{class=\"billing\",reason=\"gone\"} 0").await;
    reads(&prometheus, "tenure_lost_total{class=\"billing\",reason=\"expired\"} 2").await;
    reads(&prometheus, "tenure_owned{class=\"billing\"} 0").await;
    drop(everywhere);
    reads(&prometheus, "tenure_owned{class=\"everywhere\"} 0").await;

    // Jobs and gates are counted under the class of their resource, too.
    silent.store(false, Ordering::SeqCst);
    let once = worker.once("migration-42", async |_| {}).await.expect("an answer");
    assert_eq!(once, tenure::jobs::Once::Ran);
    let failed = worker.once("seed", async |_| Err::<(), &str>("no")).await;
    assert_eq!(failed.expect_err("it fails").kind(), tenure::ErrorKind::Failed);
    reads(&prometheus, "tenure_runs_total{class=\"once\",outcome=\"ran\"} 1").await;
    reads(&prometheus, "tenure_runs_total{class=\"once\",outcome=\"failed\"} 1").await;
    let campaign = worker.campaign("gate").obtain(async |_| {}, async |_| {}).expect("it competes");
    until(|| campaign.gate().is_some()).await;
    campaign.stop().await;
    assert!(campaign.gate().is_none());
    reads(&prometheus, "tenure_ticks_total{class=\"gate\"} 1").await;
    assert!(
        value(&prometheus, "tenure_ticks_skipped_total{class=\"gate\",reason=\"not_owner\"}") >= Some(1.0)
    );
    reads(&prometheus, "tenure_ticks_skipped_total{class=\"gate\",reason=\"silence\"} 0").await;

    every_name_in_the_documents_is_there(&prometheus.render());
    let text = prometheus.render();
    assert!(value(&prometheus, "tenure_renew_seconds_count") >= Some(2.0), "{text}");
    assert!(!text.contains("invoices") && !text.contains(worker.label()), "labels are bounded:\n{text}");
}

/// What alerts, dashboard and document speak of is what the library counts.
fn every_name_in_the_documents_is_there(text: &str) {
    let documents = [
        include_str!("../../../../contrib/prometheus/tenure.rules.yml"),
        include_str!("../../../../contrib/grafana/tenure.json"),
        include_str!("../../../../docs/observability.md"),
    ];
    for document in documents {
        let is_part = |sign: char| sign.is_ascii_lowercase() || sign == '_';
        let names = document.split(|sign| !is_part(sign)).filter(|word| word.starts_with("tenure_"));
        let mut count = 0;
        for name in names.filter(|name| !name.starts_with("tenure_token")) {
            count += 1;
            let name = name.strip_suffix("_bucket").unwrap_or(name);
            assert!(text.contains(&format!("# TYPE {name} ")), "nothing is called {name}:\n{text}");
        }
        assert!(count > 5, "names were looked for in the wrong way");
    }
}

/// Until this line stands in the text.
async fn reads(prometheus: &PrometheusHandle, line: &str) {
    let read = async { until(|| prometheus.render().lines().any(|read| read == line)).await };
    let done = tokio::time::timeout(2 * SOON, read).await;
    assert!(done.is_ok(), "never read {line}:\n{}", prometheus.render());
}

/// The number behind this name.
fn value(prometheus: &PrometheusHandle, name: &str) -> Option<f64> {
    let text = prometheus.render();
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// A store that does not answer while it is silent.
#[derive(Debug)]
struct Silent {
    inner: MemoryStore,
    silent: Arc<AtomicBool>,
}

impl Relay for Silent {
    fn behind(&self) -> &dyn Store {
        &self.inner
    }

    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer> {
        Box::pin(async move {
            if self.silent.load(Ordering::SeqCst) && matches!(request.call, Call::Renew) {
                std::future::pending::<()>().await;
            }
            self.inner.call(request).await
        })
    }
}
