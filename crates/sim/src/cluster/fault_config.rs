//! Faults that are changed at run time through a ConfigMap.

use std::sync::Arc;

use serde_json::Value;
use tracing::{info, warn};

use crate::api::context::ApiContext;
use crate::api::resources;
use crate::faults::{FaultParseError, FaultSpec, Faults};
use crate::objects::Resource;
use crate::seed::Seed;
use crate::store::join_key;

/// The namespace and name of the ConfigMap.
pub(super) const CONFIG_MAP: (&str, &str) = ("kube-system", "kubevitals-sim");

/// Applies the faults of the ConfigMap, in addition to the configured ones.
pub(super) async fn follow(
    context: Arc<ApiContext>,
    faults: Faults,
    initial: Vec<FaultSpec>,
    seed: Seed,
) {
    let mut changes = context.store.subscribe(Resource::ConfigMaps);
    let mut last = None;
    loop {
        let text = configured_faults(&context);
        if text != last {
            match parse(text.as_deref().unwrap_or_default()) {
                Ok(more) => {
                    faults.clear_all();
                    let nodes: usize = initial
                        .iter()
                        .chain(&more)
                        .map(|spec| faults.apply(spec, seed).len())
                        .sum();
                    info!(
                        faults = text.as_deref().unwrap_or("none"),
                        nodes, "applied faults"
                    );
                }
                Err(error) => {
                    warn!(%error, "invalid faults in ConfigMap, keeping the previous ones");
                }
            }
            last = text;
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

fn configured_faults(context: &ApiContext) -> Option<String> {
    let (namespace, name) = CONFIG_MAP;
    let record = context
        .store
        .get(Resource::ConfigMaps, &join_key(namespace, name))?;
    let faults = record
        .value(resources::info(Resource::ConfigMaps))
        .pointer("/data/faults")
        .and_then(Value::as_str)?
        .to_owned();
    Some(faults)
}

fn parse(text: &str) -> Result<Vec<FaultSpec>, FaultParseError> {
    text.split([',', ' ', '\n', '\t'])
        .filter(|part| !part.is_empty())
        .map(str::parse)
        .collect()
}
