//! OpenTelemetry's semantic conventions for HTTP clients.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, Meter};

use super::{seconds, sizes};
use crate::hooks::{AttemptEnd, AttemptReport, ResolverLatency, ResponseSize};
use crate::{Call, Code, Hooks, HttpMethod, bounds};

/// The bounds that the conventions advise for durations of requests.
const ADVISED: [f64; 14] = [
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
];

/// Reports requests by OpenTelemetry's semantic conventions, for those whose dashboards are made
/// for any HTTP client:
///
/// | instrument | unit | of |
/// |---|---|---|
/// | `http.client.request.duration` | `s` | each attempt, until its response head |
/// | `http.client.request.body.size` | `By` | each attempt whose size is known |
/// | `http.client.response.body.size` | `By` | each response that is not a stream, decompressed |
/// | `dns.lookup.duration` | `s` | each name that is resolved, with a timed connector |
///
/// Attributes are `http.request.method`, `server.address`, `server.port`, `url.template`,
/// `http.response.status_code` and `error.type`; all are bounded. It is made for use beside
/// [`OpenTelemetry`](super::OpenTelemetry), which has client-go's names:
///
/// ```
/// use kube_client_metrics::opentelemetry::{OpenTelemetry, SemanticConventions};
///
/// let meter = opentelemetry::global::meter("my-controller");
/// let hooks = OpenTelemetry::new(&meter).hooks().and(&SemanticConventions::new(&meter));
/// ```
#[derive(Clone, Debug)]
pub struct SemanticConventions {
    instruments: Arc<Instruments>,
}

#[derive(Debug)]
struct Instruments {
    duration: Histogram<f64>,
    request_size: Histogram<u64>,
    response_size: Histogram<u64>,
    dns: Histogram<f64>,
}

impl SemanticConventions {
    /// Creates the instruments.
    pub fn new(meter: &Meter) -> Self {
        let size = |name| sizes(meter, name, "By", &bounds::SIZE);
        Self {
            instruments: Arc::new(Instruments {
                duration: seconds(meter, "http.client.request.duration", &ADVISED),
                request_size: size("http.client.request.body.size"),
                response_size: size("http.client.response.body.size"),
                dns: seconds(meter, "dns.lookup.duration", &ADVISED),
            }),
        }
    }

    /// Returns hooks that report to these instruments.
    pub fn hooks(&self) -> Hooks {
        Hooks::from(self)
    }
}

impl From<&SemanticConventions> for Hooks {
    fn from(adapter: &SemanticConventions) -> Self {
        Self::default()
            .with_attempt_end(adapter.clone())
            .with_response_size(adapter.clone())
            .with_resolver_latency(adapter.clone())
    }
}

impl AttemptEnd for SemanticConventions {
    fn observe(&self, call: &Call, report: &AttemptReport) {
        let mut attributes = of(call);
        match report.code {
            Code::Status(status) => {
                let code = i64::from(status.as_u16());
                attributes.push(KeyValue::new("http.response.status_code", code));
                if status.is_client_error() || status.is_server_error() {
                    attributes.push(KeyValue::new("error.type", status.as_str().to_owned()));
                }
            }
            Code::Error => attributes.push(KeyValue::new("error.type", "_OTHER")),
        }
        let Instruments {
            duration,
            request_size,
            ..
        } = &*self.instruments;
        duration.record(report.duration.as_secs_f64(), &attributes);
        if let Some(bytes) = report.sent {
            request_size.record(bytes, &attributes);
        }
    }
}

impl ResponseSize for SemanticConventions {
    fn observe(&self, call: &Call, bytes: u64) {
        self.instruments.response_size.record(bytes, &of(call));
    }
}

impl ResolverLatency for SemanticConventions {
    fn observe(&self, host: &str, latency: Duration) {
        let name = KeyValue::new("dns.question.name", host.to_owned());
        self.instruments.dns.record(latency.as_secs_f64(), &[name]);
    }
}

fn of(call: &Call) -> Vec<KeyValue> {
    let method = match call.method {
        HttpMethod::Other => "_OTHER",
        known => known.as_str(),
    };
    // A port after the address; the colons of an IPv6 address are in brackets.
    let (address, port) = match call.host.rsplit_once(':') {
        Some((address, port)) if !port.ends_with(']') => (address, port.parse::<i64>().ok()),
        _ => (&*call.host, None),
    };
    let address = address.trim_start_matches('[').trim_end_matches(']');
    let mut attributes = Vec::with_capacity(6);
    attributes.push(KeyValue::new("http.request.method", method));
    attributes.push(KeyValue::new("server.address", address.to_owned()));
    // The conventions require it; HTTPS is what API servers speak.
    attributes.push(KeyValue::new("server.port", port.unwrap_or(443)));
    let template = call.endpoint.template().to_owned();
    attributes.push(KeyValue::new("url.template", template));
    attributes
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::Classifier;

    #[test]
    fn a_host_is_an_address_and_a_port() {
        for (host, address, port) in [
            ("10.0.0.1:6443", "10.0.0.1", 6443),
            ("cluster.example", "cluster.example", 443),
            ("[::1]:6443", "::1", 6443),
            ("[::1]", "::1", 443),
        ] {
            let call = Classifier::new(host).call(&Method::GET, &"/api/v1/pods".parse().unwrap());
            let attributes = of(&call);
            assert!(attributes.contains(&KeyValue::new("server.address", address)));
            assert!(attributes.contains(&KeyValue::new("server.port", port)));
        }
    }
}
