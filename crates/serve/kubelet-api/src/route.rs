//! Paths of requests: the endpoint, its methods, and the permission that it needs.
//!
//! Names in paths are those of Kubernetes objects. Anything else names nothing that exists: it is
//! not found, and no provider sees it.

use http::Method;
use kubevitals_http::query::percent_decode;
use kubevitals_model::{PodKey, Uid};

use crate::provider::{ContainerTarget, PodTarget};

/// Maximum length of a UID in a path. Those of static pods are hashes.
const MAX_UID_BYTES: usize = 128;

/// An endpoint of a kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// `/pods`.
    Pods,
    /// `/runningpods/`.
    RunningPods,
    /// `/containerLogs/{namespace}/{pod}/{container}`.
    ContainerLogs(ContainerTarget),
    /// `/exec/{namespace}/{pod}[/{uid}]/{container}`.
    Exec(ContainerTarget),
    /// `/attach/{namespace}/{pod}[/{uid}]/{container}`.
    Attach(ContainerTarget),
    /// `/run/{namespace}/{pod}[/{uid}]/{container}`.
    Run(ContainerTarget),
    /// `/portForward/{namespace}/{pod}[/{uid}]`.
    PortForward(PodTarget),
    /// `/stats/summary`.
    StatsSummary,
    /// `/metrics`.
    Metrics,
    /// `/metrics/resource`.
    ResourceMetrics,
    /// `/metrics/cadvisor`.
    CadvisorMetrics,
    /// `/metrics/probes`.
    ProbeMetrics,
    /// `/healthz`, or `/healthz/{name}` of one check.
    Healthz(Option<String>),
    /// `/configz`.
    Configz,
}

/// A permission on the Node: a verb and a subresource of `nodes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permission {
    pub verb: &'static str,
    pub subresource: &'static str,
}

impl Route {
    /// Finds the endpoint of a path. A slash at the end makes no difference.
    pub fn parse(path: &str) -> Option<Self> {
        let path = path.strip_prefix('/')?;
        let path = path.strip_suffix('/').unwrap_or(path);
        let mut segments = path.split('/');
        let mut next = || segments.next();
        // Six are one more than any route has.
        let segments = [next(), next(), next(), next(), next(), next()];
        Some(match segments {
            [Some("pods"), None, ..] => Self::Pods,
            [Some("runningpods"), None, ..] => Self::RunningPods,
            [Some("stats"), Some("summary"), None, ..] => Self::StatsSummary,
            [Some("metrics"), None, ..] => Self::Metrics,
            [Some("metrics"), Some("resource"), None, ..] => Self::ResourceMetrics,
            [Some("metrics"), Some("cadvisor"), None, ..] => Self::CadvisorMetrics,
            [Some("metrics"), Some("probes"), None, ..] => Self::ProbeMetrics,
            [Some("configz"), None, ..] => Self::Configz,
            [Some("healthz"), None, ..] => Self::Healthz(None),
            [Some("healthz"), Some(check), None, ..] => {
                Self::Healthz(Some(percent_decode(check)?.into_owned()))
            }
            [
                Some("portForward"),
                Some(namespace),
                Some(pod),
                uid,
                None,
                ..,
            ] => Self::PortForward(pod_target(namespace, pod, uid)?),
            [
                Some("containerLogs"),
                Some(namespace),
                Some(pod),
                Some(container),
                None,
                ..,
            ] => Self::ContainerLogs(container_target(namespace, pod, None, container)?),
            [
                Some(endpoint),
                Some(namespace),
                Some(pod),
                Some(third),
                fourth,
                None,
            ] => {
                let (uid, container) = match fourth {
                    Some(container) => (Some(third), container),
                    None => (None, third),
                };
                let target = || container_target(namespace, pod, uid, container);
                match endpoint {
                    "exec" => Self::Exec(target()?),
                    "attach" => Self::Attach(target()?),
                    "run" => Self::Run(target()?),
                    _ => return None,
                }
            }
            _ => return None,
        })
    }

    /// The methods of the endpoint, as in the header `Allow`.
    pub const fn allow(&self) -> &'static str {
        match self {
            Self::Exec(_) | Self::Attach(_) | Self::PortForward(_) | Self::StatsSummary => {
                "GET, POST"
            }
            Self::Run(_) => "POST",
            _ => "GET",
        }
    }

    /// Whether the endpoint has this method.
    pub fn allows(&self, method: &Method) -> bool {
        self.allow().split(", ").any(|one| one == method.as_str())
    }

    /// The permissions that the endpoint needs, of which one suffices.
    ///
    /// They are the kubelet's, but one: whoever opens a session with `GET` (a WebSocket) needs
    /// `create` too. In the kubelet `get` on `nodes/proxy`, which monitoring often has, is enough
    /// to run any command.
    pub fn permissions(&self, method: &Method) -> Vec<Permission> {
        let subresource = match self {
            Self::Exec(_) | Self::Attach(_) | Self::Run(_) | Self::PortForward(_) => {
                return vec![Permission {
                    verb: "create",
                    subresource: "proxy",
                }];
            }
            Self::ContainerLogs(_) => "proxy",
            Self::Pods | Self::RunningPods => "pods",
            Self::Healthz(_) => "healthz",
            Self::Configz => "configz",
            Self::StatsSummary => "stats",
            Self::Metrics | Self::ResourceMetrics | Self::CadvisorMetrics | Self::ProbeMetrics => {
                "metrics"
            }
        };
        alternatives(verb(method), subresource)
    }
}

/// The permissions of a path that is no endpoint, by the kubelet's rules: what is not found is
/// shown only to those who may know.
pub fn permissions_of_unknown(path: &str, method: &Method) -> Vec<Permission> {
    let root = path.trim_start_matches('/').split('/').next();
    let subresource = match root {
        Some("stats") => "stats",
        Some("metrics") => "metrics",
        Some("logs") => "log",
        Some("checkpoint") => "checkpoint",
        Some("statusz") => "statusz",
        Some("pods" | "runningpods" | "allocatedPods") => "pods",
        Some("healthz") => "healthz",
        Some("configz" | "flagz") => "configz",
        _ => "proxy",
    };
    alternatives(verb(method), subresource)
}

/// The label of a path in metrics, as in the kubelet: its first segment, two below `metrics`.
pub fn path_label(path: &str) -> &'static str {
    let mut segments = path.strip_prefix('/').unwrap_or(path).splitn(3, '/');
    match (segments.next().unwrap_or_default(), segments.next()) {
        ("metrics", None | Some("")) => "metrics",
        ("metrics", Some("resource")) => "metrics/resource",
        ("metrics", Some("cadvisor")) => "metrics/cadvisor",
        ("metrics", Some("probes")) => "metrics/probes",
        ("pods", _) => "pods",
        ("runningpods", _) => "runningpods",
        ("containerLogs", _) => "containerLogs",
        ("exec", _) => "exec",
        ("attach", _) => "attach",
        ("run", _) => "run",
        ("portForward", _) => "portForward",
        ("stats", _) => "stats",
        ("healthz", _) => "healthz",
        ("configz", _) => "configz",
        _ => "other",
    }
}

/// The label of a method in metrics.
pub(crate) fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

/// The fine-grained subresources that came with Kubernetes 1.33 were parts of `proxy` before.
fn alternatives(verb: &'static str, subresource: &'static str) -> Vec<Permission> {
    let permission = |subresource| Permission { verb, subresource };
    match subresource {
        "pods" | "healthz" | "configz" => vec![permission(subresource), permission("proxy")],
        _ => vec![permission(subresource)],
    }
}

fn verb(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

fn pod_target(namespace: &str, pod: &str, uid: Option<&str>) -> Option<PodTarget> {
    let namespace = name(namespace, is_label)?;
    let pod = name(pod, is_subdomain)?;
    let uid = match uid {
        Some(uid) => Some(Uid::from(name(uid, is_uid)?.as_str())),
        None => None,
    };
    Some(PodTarget {
        key: PodKey::new(namespace, pod),
        uid,
    })
}

fn container_target(
    namespace: &str,
    pod: &str,
    uid: Option<&str>,
    container: &str,
) -> Option<ContainerTarget> {
    Some(ContainerTarget {
        pod: pod_target(namespace, pod, uid)?,
        container: name(container, is_label)?,
    })
}

fn name(segment: &str, is_valid: impl FnOnce(&str) -> bool) -> Option<String> {
    let decoded = percent_decode(segment)?;
    is_valid(&decoded).then(|| decoded.into_owned())
}

/// A label of RFC 1123, as names of namespaces and containers are.
fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_name(text)
}

/// Labels with dots between them, as names of pods are. Only the whole name has a limit.
fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_name)
}

fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && !text.starts_with('-') && !text.ends_with('-') && text.bytes().all(is_part)
}

fn is_uid(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !text.is_empty() && text.len() <= MAX_UID_BYTES && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn container(uid: Option<&str>) -> ContainerTarget {
        ContainerTarget {
            pod: PodTarget {
                key: PodKey::new("ns", "web-0.a"),
                uid: uid.map(Uid::from),
            },
            container: String::from("app"),
        }
    }

    #[test]
    fn paths_are_those_of_a_kubelet() {
        let uid = "93de724c-696f-48c2-8206-9c069d91751c";
        for (path, route) in [
            ("/pods", Route::Pods),
            ("/runningpods/", Route::RunningPods),
            (
                "/containerLogs/ns/web-0.a/app",
                Route::ContainerLogs(container(None)),
            ),
            ("/exec/ns/web-0.a/app", Route::Exec(container(None))),
            ("/attach/ns/web-0.a/app", Route::Attach(container(None))),
            ("/run/ns/web-0.a/app", Route::Run(container(None))),
            (
                "/portForward/ns/web-0.a",
                Route::PortForward(container(None).pod),
            ),
            ("/stats/summary", Route::StatsSummary),
            ("/metrics", Route::Metrics),
            ("/metrics/resource", Route::ResourceMetrics),
            ("/metrics/cadvisor", Route::CadvisorMetrics),
            ("/metrics/probes", Route::ProbeMetrics),
            ("/healthz", Route::Healthz(None)),
            ("/healthz/ping", Route::Healthz(Some(String::from("ping")))),
            ("/configz", Route::Configz),
        ] {
            assert_eq!(Route::parse(path).as_ref(), Some(&route), "{path}");
            let other = match path.strip_suffix('/') {
                Some(without) => without.to_owned(),
                None => format!("{path}/"),
            };
            assert_eq!(Route::parse(&other), Some(route), "{other}");
        }
        for (path, route) in [
            (
                format!("/exec/ns/web-0.a/{uid}/app"),
                Route::Exec(container(Some(uid))),
            ),
            (
                format!("/attach/ns/web-0.a/{uid}/app"),
                Route::Attach(container(Some(uid))),
            ),
            (
                format!("/run/ns/web-0.a/{uid}/app"),
                Route::Run(container(Some(uid))),
            ),
            (
                format!("/portForward/ns/web-0.a/{uid}"),
                Route::PortForward(container(Some(uid)).pod),
            ),
        ] {
            assert_eq!(Route::parse(&path), Some(route), "{path}");
        }
    }

    #[test]
    fn what_cannot_be_a_name_is_not_found() {
        for path in [
            "",
            "/",
            "pods",
            "//pods",
            "/pods//",
            "/Pods",
            "/pods/a",
            "/stats",
            "/metrics/other",
            "/metrics/resource/a",
            "/healthz/a/b",
            "/healthz/%zz",
            "/containerLogs/ns/pod",
            "/containerLogs/ns/pod/uid/app",
            "/exec/ns/pod",
            "/exec/ns/pod/uid/app/more",
            "/exec/../pod/app",
            "/exec/ns/%2e%2e/app",
            "/exec/ns/a%2Fb/app",
            "/exec/ns/pod/.hidden",
            "/exec/ns/pod/App",
            "/exec/ns/-pod/app",
            "/exec/ns//app",
            "/exec/ns/pod/u_d/app",
            "/exec/ns/pod/%00",
            "/portForward/ns",
            "/portForward/ns/a..b",
            "/metrics/../exec/a/b/c",
            "/checkpoint/ns/pod/app",
            "/logs/",
        ] {
            assert_eq!(Route::parse(path), None, "{path}");
        }
        let long = "a".repeat(64);
        assert_eq!(Route::parse(&format!("/exec/{long}/pod/app")), None);
        assert_eq!(Route::parse(&format!("/exec/ns/pod/{long}")), None);
        assert!(Route::parse(&format!("/exec/ns/{long}/app")).is_some());
        assert_eq!(
            Route::parse(&format!("/exec/ns/{}/app", "a".repeat(254))),
            None
        );
        assert_eq!(
            Route::parse(&format!("/portForward/ns/pod/{}", "a".repeat(129))),
            None
        );
    }

    #[test]
    fn exec_needs_another_permission_than_metrics() {
        let needed = |path: &str, method: &Method| {
            let permissions = match Route::parse(path) {
                Some(route) => route.permissions(method),
                None => permissions_of_unknown(path, method),
            };
            let texts = permissions
                .iter()
                .map(|one| format!("{} {}", one.verb, one.subresource));
            texts.collect::<Vec<_>>().join(" or ")
        };
        for path in ["/exec/a/b/c", "/attach/a/b/c", "/portForward/a/b"] {
            for method in [Method::GET, Method::POST, Method::DELETE] {
                assert_eq!(needed(path, &method), "create proxy", "{path}");
            }
        }
        for (path, expected) in [
            ("/metrics", "get metrics"),
            ("/metrics/resource", "get metrics"),
            ("/metrics/unknown", "get metrics"),
            ("/stats/summary", "get stats"),
            ("/stats", "get stats"),
            ("/pods", "get pods or get proxy"),
            ("/runningpods/", "get pods or get proxy"),
            ("/healthz/ping", "get healthz or get proxy"),
            ("/configz", "get configz or get proxy"),
            ("/containerLogs/a/b/c", "get proxy"),
            ("/logs/kubelet.log", "get log"),
            ("/checkpoint/a/b/c", "get checkpoint"),
            ("/statusz", "get statusz"),
            ("/metricsx", "get proxy"),
            ("/", "get proxy"),
        ] {
            assert_eq!(needed(path, &Method::GET), expected, "{path}");
        }
        assert_eq!(needed("/stats/summary", &Method::POST), "create stats");
        assert_eq!(needed("/pods", &Method::OPTIONS), " pods or  proxy");
    }

    #[test]
    fn labels_of_paths_are_a_closed_set() {
        for (path, label) in [
            ("/pods", "pods"),
            ("/metrics", "metrics"),
            ("/metrics/", "metrics"),
            ("/metrics/resource/", "metrics/resource"),
            ("/metrics/anything", "other"),
            ("/exec/a/b/c", "exec"),
            ("/stats/summary", "stats"),
            ("/secret", "other"),
            ("", "other"),
        ] {
            assert_eq!(path_label(path), label, "{path}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn names_are_restored(
            namespace in "[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?",
            pod in "[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?(\\.[a-z0-9]{1,3})?",
            uid in proptest::option::of("[0-9a-f-]{1,36}"),
            container in "[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?",
        ) {
            let path = match &uid {
                Some(uid) => format!("/exec/{namespace}/{pod}/{uid}/{container}"),
                None => format!("/exec/{namespace}/{pod}/{container}"),
            };
            let Some(Route::Exec(target)) = Route::parse(&path) else {
                return Err(TestCaseError::fail(path));
            };
            prop_assert_eq!(&**target.pod.key.namespace(), namespace);
            prop_assert_eq!(&**target.pod.key.name(), pod);
            prop_assert_eq!(target.pod.uid.map(|uid| uid.to_string()), uid);
            prop_assert_eq!(target.container, container);
        }

        #[test]
        fn any_path_is_parsed(path in "\\PC{0,60}|(/[a-zA-Z0-9.%_-]{0,12}){0,7}") {
            let _ = (Route::parse(&path), path_label(&path));
        }
    }
}
