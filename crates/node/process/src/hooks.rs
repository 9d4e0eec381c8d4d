//! The hooks of containers: postStart and preStop.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};

use crate::command;
use crate::http_client::HttpGet;
use crate::instance::Instance;

/// Hooks have no time limit of their own; this bounds a postStart hook that never ends.
const LIMIT: Duration = Duration::from_hours(1);

/// Runs a hook; the error is why it failed.
pub(crate) async fn run(
    instance: &Instance,
    container: &Container,
    hook: &LifecycleHandler,
    address: IpAddr,
) -> Result<(), String> {
    if let Some(action) = &hook.exec {
        let argv = action.command.clone().unwrap_or_default();
        let text = argv.join(" ");
        return match command::run(instance, argv, LIMIT).await {
            Ok(output) if output.code == 0 => Ok(()),
            Ok(output) => Err(format!(
                "Exec lifecycle hook ([{text}]) failed - error: command exited with {}, message: {:?}",
                output.code, output.text
            )),
            Err(error) => Err(format!(
                "Exec lifecycle hook ([{text}]) failed - error: {error}"
            )),
        };
    }
    if let Some(action) = &hook.http_get {
        let get = HttpGet::new(action, container, address)?;
        return match get
            .send(Duration::from_secs(30), "kube-lifecycle/1.37")
            .await
        {
            Ok(response) if (200..400).contains(&response.code) => Ok(()),
            Ok(response) => Err(format!(
                "HTTP lifecycle hook failed with statuscode: {}",
                response.code
            )),
            Err(message) => Err(message),
        };
    }
    if let Some(action) = &hook.sleep {
        let seconds = u64::try_from(action.seconds).unwrap_or(0);
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        return Ok(());
    }
    Err("the hook has no supported handler".to_owned())
}
