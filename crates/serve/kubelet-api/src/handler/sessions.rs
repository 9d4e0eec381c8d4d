//! `/exec`, `/attach` and `/portForward`: checks before the connection is upgraded.

use http::{Request, Response};
use hyper::body::Incoming;
use kubevitals_apiserver::Body;
use kubevitals_http::query::Query;

use super::KubeletHandler;
use crate::options::{command, ports, stream_options};
use crate::provider::{AttachRequest, ContainerTarget, ExecRequest, PodTarget};
use crate::response::Failure;

impl KubeletHandler {
    pub(super) async fn exec(
        &self,
        target: ContainerTarget,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Failure> {
        let exec = self.provider.exec.as_deref();
        let exec = exec.ok_or_else(|| Failure::not_implemented("exec"))?;
        let query = Query::new(request.uri().query());
        let streams = stream_options(query)?;
        let command = command(query)?;
        let session = exec
            .exec(ExecRequest {
                target,
                command,
                streams,
            })
            .await?;
        let streaming = &self.streaming;
        let response = streaming.remote_command(request, streams, session).await;
        Ok(response.map(Body::full))
    }

    pub(super) async fn attach(
        &self,
        target: ContainerTarget,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Failure> {
        let attach = self.provider.attach.as_deref();
        let attach = attach.ok_or_else(|| Failure::not_implemented("attach"))?;
        let streams = stream_options(Query::new(request.uri().query()))?;
        let session = attach.attach(AttachRequest { target, streams }).await?;
        let streaming = &self.streaming;
        let response = streaming.remote_command(request, streams, session).await;
        Ok(response.map(Body::full))
    }

    pub(super) async fn port_forward(
        &self,
        target: PodTarget,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Failure> {
        let forward = self.provider.port_forward.as_deref();
        let forward = forward.ok_or_else(|| Failure::not_implemented("port-forward"))?;
        let ports = ports(Query::new(request.uri().query()))?;
        let dialer = forward.port_forward(target).await?;
        let response = self.streaming.port_forward(request, ports, dialer).await;
        Ok(response.map(Body::full))
    }
}
