//! A read-only image registry in the network of the cluster, as slow or as busy as a test needs it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::error::E2eError;
use crate::run;

/// The pieces that a slow layer is written in.
const PIECES: usize = 64;

/// The tools of busybox that tests use in containers.
const TOOLS: [&str; 7] = ["sh", "sleep", "touch", "test", "true", "false", "tail"];

const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// A registry on the node's loopback: container runtimes use plain HTTP there without being
/// configured to. It ends with the runtime of the test.
#[derive(Debug)]
pub struct Registry {
    address: SocketAddr,
    busybox: PathBuf,
    images: watch::Sender<BTreeMap<String, Arc<Image>>>,
    /// Aborted when it is dropped.
    _server: JoinSet<()>,
}

/// How an image is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The layer is written evenly over this time.
    Over(Duration),
    /// Requests of the manifest are answered with 429.
    TooManyRequests,
}

/// An image of one layer, which has a shell and a few tools.
#[derive(Debug)]
struct Image {
    manifest: Blob,
    config: Blob,
    layer: Blob,
    delivery: watch::Sender<Delivery>,
    /// The bytes of the layer that were written.
    written: watch::Sender<usize>,
}

#[derive(Debug, Clone)]
struct Blob {
    digest: String,
    bytes: Bytes,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

impl Registry {
    /// Starts a registry without images.
    pub async fn start() -> Result<Self, E2eError> {
        let failed = |source| E2eError::Program {
            program: "the registry".to_owned(),
            source,
        };
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].map(PathBuf::from);
        let busybox = busybox.into_iter().find(|path| path.is_file());
        let busybox = busybox.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let images = watch::Sender::new(BTreeMap::new());
        let mut server = JoinSet::new();
        server.spawn(serve(listener, images.subscribe()));
        Ok(Self {
            address,
            busybox,
            images,
            _server: server,
        })
    }

    /// Adds an image and returns its reference. No other image and no other run has its layer, so
    /// that it is pulled.
    pub fn add(&self, name: &str, delivery: Delivery) -> Result<String, E2eError> {
        let image = Image::new(&self.busybox, name, delivery);
        let image = image.map_err(|source| E2eError::Program {
            program: format!("the registry with {}", self.busybox.display()),
            source,
        })?;
        self.images.send_modify(|images| {
            images.insert(name.to_owned(), Arc::new(image));
        });
        Ok(self.reference(name))
    }

    /// Returns the reference of an image, whether it exists or not.
    pub fn reference(&self, name: &str) -> String {
        format!("{}/{name}:1", self.address)
    }

    /// Changes the delivery of an image; a layer that is being written is not affected.
    pub fn deliver(&self, name: &str, delivery: Delivery) {
        if let Some(image) = self.images.borrow().get(name) {
            image.delivery.send_replace(delivery);
        }
    }

    /// Waits until this part of the layer of an image is written.
    pub async fn written(&self, name: &str, percent: usize) {
        let image = self.images.borrow().get(name).cloned();
        if let Some(image) = image {
            let wanted = image.layer.bytes.len() * percent / 100;
            // The sender lives as long as the image.
            let _ = image
                .written
                .subscribe()
                .wait_for(|bytes| *bytes >= wanted)
                .await;
        }
    }
}

impl Image {
    fn new(busybox: &Path, name: &str, delivery: Delivery) -> io::Result<Self> {
        let layer = Blob::new(layer(busybox, name)?);
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let config = Blob::new(serde_json::to_vec(&json!({
            "architecture": architecture,
            "os": "linux",
            "config": {"Entrypoint": ["/bin/sh"], "Env": ["PATH=/bin"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [layer.digest]},
        }))?);
        let part = |blob: &Blob, kind: &str| {
            json!({
                "mediaType": format!("application/vnd.docker.{kind}"),
                "size": blob.bytes.len(),
                "digest": blob.digest,
            })
        };
        let manifest = Blob::new(serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": part(&config, "container.image.v1+json"),
            "layers": [part(&layer, "image.rootfs.diff.tar")],
        }))?);
        Ok(Self {
            manifest,
            config,
            layer,
            delivery: watch::Sender::new(delivery),
            written: watch::Sender::new(0),
        })
    }

    /// Returns the layer as a body that takes its time.
    fn slow_layer(self: &Arc<Self>, over: Duration) -> Body {
        let size = self.layer.bytes.len();
        let piece = size.div_ceil(PIECES).max(1);
        let pause = over
            / u32::try_from(size.div_ceil(piece))
                .unwrap_or(u32::MAX)
                .max(1);
        let pieces = stream::unfold((Arc::clone(self), 0), move |(image, from)| async move {
            if from >= size {
                return None;
            }
            let to = size.min(from + piece);
            tokio::time::sleep(pause).await;
            image.written.send_replace(to);
            let frame = Frame::data(image.layer.bytes.slice(from..to));
            Some((Ok(frame), (image, to)))
        });
        BodyExt::boxed_unsync(StreamBody::new(pieces))
    }
}

impl Blob {
    fn new(bytes: Vec<u8>) -> Self {
        let mut text = "sha256:".to_owned();
        for byte in digest(&SHA256, &bytes).as_ref() {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Self {
            digest: text,
            bytes: bytes.into(),
        }
    }
}

/// Returns a layer with a shell, and a file that no other layer has.
fn layer(busybox: &Path, name: &str) -> io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    let header = |kind, mode, size: usize| {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(u64::try_from(size).unwrap_or(u64::MAX));
        header
    };
    let program = std::fs::read(busybox)?;
    let unique = format!("{name} {}\n", run::name());
    let files = [
        ("bin/busybox", 0o755, program.as_slice()),
        ("image", 0o644, unique.as_bytes()),
    ];
    for (path, mode, content) in files {
        let mut header = header(tar::EntryType::Regular, mode, content.len());
        tar.append_data(&mut header, path, content)?;
    }
    for tool in TOOLS {
        let mut header = header(tar::EntryType::Symlink, 0o777, 0);
        tar.append_link(&mut header, format!("bin/{tool}"), "busybox")?;
    }
    tar.append_data(
        &mut header(tar::EntryType::Directory, 0o777, 0),
        "tmp/",
        io::empty(),
    )?;
    tar.into_inner()
}

async fn serve(listener: TcpListener, images: watch::Receiver<BTreeMap<String, Arc<Image>>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(connection(stream, images.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(stream: TcpStream, images: watch::Receiver<BTreeMap<String, Arc<Image>>>) {
    let service = service_fn(|request: Request<Incoming>| {
        let response = answer(&request, &images.borrow());
        async move { Ok::<_, Infallible>(response) }
    });
    // A client that disconnects is not an error of ours.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Answers `/v2/NAME/manifests/REFERENCE` and `/v2/NAME/blobs/DIGEST`.
fn answer<B>(request: &Request<B>, images: &BTreeMap<String, Arc<Image>>) -> Response<Body> {
    let mut parts = request
        .uri()
        .path()
        .trim_start_matches("/v2/")
        .splitn(3, '/');
    let (name, what, reference) = (parts.next(), parts.next(), parts.next());
    let image = name.and_then(|name| images.get(name));
    let (Some(image), Some(what), Some(reference)) = (image, what, reference) else {
        return empty(StatusCode::NOT_FOUND);
    };
    let delivery = *image.delivery.borrow();
    let blobs = [&image.config, &image.layer];
    let (blob, kind) = match what {
        "manifests" if delivery == Delivery::TooManyRequests => {
            return empty(StatusCode::TOO_MANY_REQUESTS);
        }
        "manifests" if reference == "1" || reference == image.manifest.digest => {
            (&image.manifest, MANIFEST)
        }
        "blobs" => match blobs.into_iter().find(|blob| blob.digest == reference) {
            Some(blob) => (blob, "application/octet-stream"),
            None => return empty(StatusCode::NOT_FOUND),
        },
        _ => return empty(StatusCode::NOT_FOUND),
    };
    let body = match delivery {
        _ if request.method() == Method::HEAD => empty_body(),
        Delivery::Over(over) if blob.digest == image.layer.digest => image.slow_layer(over),
        _ => Full::new(blob.bytes.clone()).boxed_unsync(),
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, blob.bytes.len().into());
    headers.insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    if let Ok(digest) = blob.digest.parse() {
        headers.insert("docker-content-digest", digest);
    }
    response
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(empty_body());
    *response.status_mut() = status;
    response
}

fn empty_body() -> Body {
    Empty::new().boxed_unsync()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images(delivery: Delivery) -> BTreeMap<String, Arc<Image>> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let image = Image::new(&program, "app", delivery).unwrap();
        [("app".to_owned(), Arc::new(image))].into()
    }

    fn get(path: &str, images: &BTreeMap<String, Arc<Image>>) -> Response<Body> {
        answer(&Request::get(path).body(()).unwrap(), images)
    }

    #[expect(clippy::disallowed_methods, reason = "bodies of our own images")]
    async fn bytes(response: Response<Body>) -> Bytes {
        response.into_body().collect().await.unwrap().to_bytes()
    }

    #[tokio::test(start_paused = true)]
    async fn an_image_is_pulled_part_by_part_in_the_time_of_its_delivery() {
        let images = images(Delivery::Over(Duration::from_secs(8)));
        let started = tokio::time::Instant::now();
        let manifest = bytes(get("/v2/app/manifests/1", &images)).await;
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        for part in [&manifest["config"], &manifest["layers"][0]] {
            let digest = part["digest"].as_str().unwrap();
            let blob = bytes(get(&format!("/v2/app/blobs/{digest}"), &images)).await;
            assert_eq!(Blob::new(blob.to_vec()).digest, digest);
        }
        // Timers have milliseconds.
        let took = started.elapsed();
        assert!((8_000..8_200).contains(&took.as_millis()), "{took:?}");
        let image = &images["app"];
        assert_eq!(*image.written.borrow(), image.layer.bytes.len());
    }

    #[test]
    fn a_busy_registry_answers_429_until_it_delivers() {
        let images = images(Delivery::TooManyRequests);
        let status = || get("/v2/app/manifests/1", &images).status();
        assert_eq!(status(), StatusCode::TOO_MANY_REQUESTS);
        images["app"]
            .delivery
            .send_replace(Delivery::Over(Duration::ZERO));
        assert_eq!(status(), StatusCode::OK);
    }

    #[test]
    fn a_head_request_has_the_size_and_the_digest() {
        let images = images(Delivery::Over(Duration::ZERO));
        let head = Request::head("/v2/app/manifests/1").body(()).unwrap();
        let response = answer(&head, &images);
        let manifest = &images["app"].manifest;
        assert_eq!(response.headers()["docker-content-digest"], manifest.digest);
        assert_eq!(
            response.headers()[CONTENT_LENGTH],
            manifest.bytes.len().to_string()
        );
        assert_eq!(
            hyper::body::Body::size_hint(response.body()).exact(),
            Some(0)
        );
    }

    #[test]
    fn unknown_images_and_blobs_are_not_found() {
        let images = images(Delivery::Over(Duration::ZERO));
        for path in [
            "/",
            "/v2/",
            "/v2/app",
            "/v2/other/manifests/1",
            "/v2/app/manifests/2",
            "/v2/app/blobs/sha256:0",
            "/v2/app/tags/list",
        ] {
            assert_eq!(get(path, &images).status(), StatusCode::NOT_FOUND, "{path}");
        }
    }
}
