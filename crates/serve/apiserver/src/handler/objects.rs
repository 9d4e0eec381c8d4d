//! Resource requests: get, list and watch, and the encoding of their responses.

use std::time::Duration;

use futures_util::StreamExt as _;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, VARY};
use http::request::Parts;
use http::{Method, Response};
use http_body_util::{BodyExt as _, Limited};
use kubevitals_http::query::Query;

use super::{ApiHandler, ApiResponse};
use crate::body::Body;
use crate::encode::gzip::{self, Peeked};
use crate::encode::pretty_json::Indenter;
use crate::encode::yaml;
use crate::negotiate::{Choice, MediaType, Wanted, accepts_gzip, object};
use crate::query::ListOptions;
use crate::request_info::{RequestInfo, ResourceTarget};
use crate::resource::{GetRequest, ListRequest, WatchRequest};
use crate::status::ApiStatus;

impl ApiHandler {
    pub(super) async fn resource(
        &self,
        head: &Parts,
        info: &RequestInfo,
        target: &ResourceTarget,
        accept: &str,
        pretty: bool,
    ) -> Result<ApiResponse, ApiStatus> {
        let found = self
            .groups
            .resource(target)
            .ok_or_else(ApiStatus::no_such_path)?;
        if head.method != Method::GET {
            return Err(ApiStatus::method_not_allowed("GET"));
        }
        let status = |error| ApiStatus::from_error(error, info);
        let resource_info = found.resource.info();
        let query = Query::new(head.uri.query());
        if target.parts == 2 {
            let choice = object(accept, Wanted::Object, query)?;
            let request = GetRequest {
                version: found.version,
                namespace: &target.namespace,
                name: &target.name,
                representation: choice.representation(),
            };
            let body = found.resource.get(&request).map_err(status)?;
            return self.encoded(head, body, choice, pretty).await;
        }
        let is_watch = info.verb == "watch";
        if is_watch && !resource_info.watchable {
            return Err(ApiStatus::not_watchable(found.group, resource_info.plural));
        }
        let wanted = if is_watch {
            Wanted::Watch
        } else {
            Wanted::List
        };
        let choice = object(accept, wanted, query)?;
        let options = ListOptions::parse(query, resource_info)?;
        let list = ListRequest {
            version: found.version,
            namespace: Some(target.namespace.as_str()).filter(|namespace| !namespace.is_empty()),
            labels: &options.labels,
            fields: &options.fields,
            representation: choice.representation(),
        };
        if !is_watch {
            let body = found.resource.list(&list).map_err(status)?;
            return self.encoded(head, body, choice, pretty).await;
        }
        let timeout = options.timeout.unwrap_or_else(|| self.watch_timeout());
        let request = WatchRequest {
            list,
            resource_version: &options.resource_version,
            timeout,
            allow_bookmarks: options.allow_bookmarks,
            send_initial_events: options.send_initial_events,
        };
        let body = found.resource.watch(&request).map_err(status)?;
        let kind = match choice.media {
            MediaType::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            MediaType::Json | MediaType::Yaml => "application/json",
        };
        Ok(ApiResponse {
            response: typed(body, kind),
            watch: Some(timeout),
        })
    }

    /// Returns a random time between the minimum and twice that, so that not all watches end at
    /// once.
    fn watch_timeout(&self) -> Duration {
        let min = self.limits.min_watch_timeout;
        let mut random = [0_u8; 2];
        let random = match aws_lc_rs::rand::fill(&mut random) {
            Ok(()) => u32::from(u16::from_be_bytes(random)),
            Err(_) => 0,
        };
        min + min * random / 65_536
    }

    /// Converts and compresses the body of a resource for the client.
    async fn encoded(
        &self,
        head: &Parts,
        body: Body,
        choice: Choice,
        pretty: bool,
    ) -> Result<ApiResponse, ApiStatus> {
        let body = match choice.media {
            MediaType::Yaml => self.yaml(body).await?,
            MediaType::Json if pretty || choice.pretty => indented(body),
            MediaType::Json | MediaType::Protobuf => body,
        };
        let mut compressed = false;
        let body = if accepts_gzip(&head.headers) {
            match gzip::peek(body)
                .await
                .map_err(|error| ApiStatus::internal(error.to_string()))?
            {
                Peeked::Small(body) => body,
                Peeked::Large(body) => {
                    compressed = true;
                    gzip::compress(body)
                }
            }
        } else {
            body
        };
        let mut response = typed(body, choice.media.content_type());
        if compressed {
            let headers = response.headers_mut();
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        Ok(ApiResponse::plain(response))
    }

    /// Converts to YAML. It needs the whole tree, to sort its keys, so size and concurrency are
    /// limited.
    async fn yaml(&self, body: Body) -> Result<Body, ApiStatus> {
        // The semaphore is never closed.
        let _permit = self.yaml.acquire().await;
        let limit = self.limits.yaml_bytes;
        #[expect(clippy::disallowed_methods, reason = "the body is limited right here")]
        let json = Limited::new(body, limit).collect().await.map_err(|_| {
            ApiStatus::wrong_shape(format!(
                "the response exceeds the {limit} bytes that application/yaml is limited to; request application/json"
            ))
        })?;
        let yaml = yaml::from_json(&json.to_bytes()).map_err(|error| {
            tracing::error!(%error, "resource returned invalid JSON");
            ApiStatus::internal("failed to convert the response to YAML")
        })?;
        Ok(Body::full(yaml))
    }
}

fn typed(body: Body, kind: &'static str) -> Response<Body> {
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn indented(body: Body) -> Body {
    let mut indenter = Indenter::default();
    Body::fallible(gzip::pieces_of(body).map(move |piece| piece.map(|piece| indenter.push(&piece))))
}
