//! The cost of measuring a request: the same requests with and without the layer of
//! `kube-client-metrics`, in turns.
//!
//! `cargo xtask bench client-metrics` sends requests to a service in memory that responds at once,
//! so that only the layer differs. Allocations are counted.
#![expect(clippy::print_stdout, reason = "the table is the output")]

use std::alloc::System;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::hint::black_box;
use std::pin::pin;
use std::process::ExitCode;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::Body;
use http_body_util::Full;
use kube_client_metrics::{Classifier, Hooks, MetricsLayer, Registry, global};
use kubevitals_bench::timing::Timing;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tower::retry::Policy;
use tower::{Layer, Service};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Requests of a controller: objects by name, lists, a health check, a watch.
const PATHS: [&str; 5] = [
    "/api/v1/namespaces/default/pods/web-6c5f4d7b9-x2x4z",
    "/apis/apps/v1/namespaces/default/deployments/web/status",
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?limit=500&resourceVersion=0",
    "/readyz",
    "/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion=12345",
];
const REQUESTS: usize = 200_000;
const TURNS: usize = 15;
/// Maximum cost of measuring a request.
const BAR: Duration = Duration::from_micros(1);
/// Maximum cost with three adapters at once.
const BAR_OF_THREE: Duration = Duration::from_micros(2);

/// Retries nothing: only the retry loop remains.
#[derive(Clone)]
struct NoRetry;

/// One way to send all requests.
struct Contender<'a> {
    name: &'static str,
    bar: Duration,
    send_all: Box<dyn FnMut() + 'a>,
    times: Vec<Duration>,
    allocations: usize,
}

impl<Q, R, E> Policy<Q, R, E> for NoRetry {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut Q, _: &mut Result<R, E>) -> Option<Ready<()>> {
        None
    }

    fn clone_request(&mut self, _: &Q) -> Option<Q> {
        None
    }
}

impl<'a> Contender<'a> {
    fn new<S, B>(name: &'static str, bar: Duration, uris: &'a [Uri], mut service: S) -> Self
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>> + 'a,
        B: Body,
    {
        Self {
            name,
            bar,
            send_all: Box::new(move || {
                for uri in uris.iter().cycle().take(REQUESTS) {
                    send(&mut service, uri);
                }
            }),
            times: Vec::new(),
            allocations: 0,
        }
    }

    fn take_turn(&mut self) {
        let region = Region::new(COUNTING);
        let timing = Timing::of_cpu(1, |_| (self.send_all)());
        self.times.push(timing.best);
        let change = region.change();
        self.allocations = change.allocations + change.reallocations;
    }

    /// Returns the median over turns of the nanoseconds per request beyond those of the other
    /// contender.
    fn beyond(&self, other: &Self) -> i128 {
        let mut differences: Vec<i128> = self
            .times
            .iter()
            .zip(&other.times)
            .map(|(own, base)| nanos(*own) - nanos(*base))
            .collect();
        differences.sort_unstable();
        differences
            .get(differences.len() / 2)
            .copied()
            .unwrap_or_default()
            / REQUESTS as i128
    }

    fn median(&self) -> i128 {
        let mut times = self.times.clone();
        times.sort_unstable();
        nanos(times.get(times.len() / 2).copied().unwrap_or_default()) / REQUESTS as i128
    }
}

fn main() -> ExitCode {
    let uris: Vec<Uri> = PATHS.iter().map(|path| Uri::from_static(path)).collect();
    let registry = Registry::new();
    let classifier = || Classifier::new("cluster.example:6443");
    let service = || tower::service_fn(answer);
    let noop = MetricsLayer::new(Hooks::default(), classifier());
    let unregistered = MetricsLayer::new(global(), classifier());
    let families = MetricsLayer::new(&registry, classifier());
    let again = families.clone().with_retry(NoRetry);
    let others = [Registry::new(), Registry::new()];
    let [second, third] = &others;
    let three = MetricsLayer::new(registry.hooks().and(second).and(third), classifier());
    let mut contenders = [
        Contender::new("without the layer", BAR, &uris, service()),
        Contender::new("hooks that do nothing", BAR, &uris, noop.layer(service())),
        Contender::new(
            "global, none registered",
            BAR,
            &uris,
            unregistered.layer(service()),
        ),
        Contender::new("Prometheus families", BAR, &uris, families.layer(service())),
        Contender::new("the same, with retries", BAR, &uris, again.layer(service())),
        Contender::new(
            "three adapters at once",
            BAR_OF_THREE,
            &uris,
            three.layer(service()),
        ),
    ];
    // Create all series before counting.
    for contender in &mut contenders {
        (contender.send_all)();
    }
    for _ in 0..TURNS {
        for contender in &mut contenders {
            contender.take_turn();
        }
    }
    let [base, measured @ ..] = &contenders;
    println!(
        "{REQUESTS} requests per turn, {TURNS} turns; processor time and allocations per request\n"
    );
    println!(
        "{:<26} {:>8} {:>12} {:>14}",
        "", "ns", "ns more", "allocations"
    );
    println!(
        "{:<26} {:>8} {:>12} {:>14}",
        base.name,
        base.median(),
        "",
        each(base.allocations)
    );
    let mut good = true;
    for contender in measured {
        let (beyond, allocations) = (contender.beyond(base), contender.allocations);
        println!(
            "{:<26} {:>8} {:>12} {:>14}",
            contender.name,
            contender.median(),
            beyond,
            each(allocations)
        );
        good &= beyond < nanos(contender.bar) && allocations <= base.allocations;
    }
    println!(
        "\nbar of less than {BAR:?} more ({BAR_OF_THREE:?} for three adapters) and no allocation: {}",
        if good { "reached" } else { "NOT reached" }
    );
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn answer(_: Request<Full<Bytes>>) -> Ready<Result<Response<Full<Bytes>>, Infallible>> {
    ready(Ok(Response::new(Full::new(Bytes::from_static(
        b"{\"kind\":\"Pod\"}\n",
    )))))
}

fn send<S, B>(service: &mut S, uri: &Uri)
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>>,
    B: Body,
{
    let mut context = Context::from_waker(Waker::noop());
    let mut request = Request::new(Full::new(Bytes::new()));
    request.uri_mut().clone_from(uri);
    let Poll::Ready(Ok(response)) = pin!(service.call(request)).poll(&mut context) else {
        return;
    };
    let mut body = pin!(response.into_body());
    while let Poll::Ready(Some(frame)) = body.as_mut().poll_frame(&mut context) {
        let _ = black_box(frame.is_ok());
    }
}

fn nanos(time: Duration) -> i128 {
    i128::try_from(time.as_nanos()).unwrap_or(i128::MAX)
}

/// Formats allocations per request with three decimals: one among many is visible.
fn each(allocations: usize) -> String {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    let of_one = allocations as f64 / REQUESTS as f64;
    format!("{of_one:.3}")
}
