//! The hooks of the process. No other test registers any.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube_client_metrics::{Error, Hooks, global, register};

#[test]
fn a_second_registration_of_hooks_fails() {
    global()
        .resolver_latency
        .observe("no hook is registered yet", Duration::ZERO);
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let hooks = Hooks::default().with_resolver_latency(move |_: &str, _: Duration| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    register(hooks).unwrap();
    global().resolver_latency.observe("host", Duration::ZERO);
    assert_eq!(count.load(Ordering::Relaxed), 1);

    let refused = register(Hooks::default()).unwrap_err();
    assert!(matches!(refused, Error::AlreadyRegistered));
    global().resolver_latency.observe("host", Duration::ZERO);
    assert_eq!(count.load(Ordering::Relaxed), 2, "the first stay");
}
