//! Delivery over real sockets, to a receiver that fails as a test tells it.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use kubevitals_otlp::{OtlpClient, Settings};
use kubevitals_protobuf::{put_message, put_str};
use kubevitals_sim::otlp::{OtlpReceiver, Reply};
use kubevitals_sink::{DropReason, ExportError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

use crate::support::{DEADLINE, Pipeline, UID, ready_trace, receiver, settings};

const GRPC: (&str, &str) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
const HTTP: (&str, &str) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
const PLAIN: (&str, &str) = ("OTEL_EXPORTER_OTLP_COMPRESSION", "none");

/// One attempt to send an empty message of `records` records.
async fn attempt(settings: Settings, records: u64) -> Result<(), ExportError> {
    kubevitals_tls::install_crypto_provider();
    let client = OtlpClient::new(settings, None).unwrap();
    client.send(Vec::new(), records).await
}

#[tokio::test]
async fn a_trace_arrives_whole_over_both_protocols_with_and_without_compression() {
    let spans = ready_trace();
    for variables in [&[HTTP][..], &[HTTP, PLAIN], &[GRPC], &[GRPC, PLAIN]] {
        let receiver = receiver().await;
        let pipeline = Pipeline::start(settings(receiver.address, variables));
        pipeline.queue.push(&spans);
        assert_eq!(pipeline.flush().await, (8, 0), "{variables:?}");
        let received = receiver.received();
        assert_eq!(received.requests.len(), 1);
        let request = &received.requests[0];
        let is_grpc = variables.contains(&GRPC);
        let path = if is_grpc {
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
        } else {
            "/v1/traces"
        };
        assert_eq!(request.path, path);
        let encoding = if is_grpc {
            "grpc-encoding"
        } else {
            "content-encoding"
        };
        let expected = (!variables.contains(&PLAIN)).then_some("gzip");
        let encoding = request.headers.get(encoding);
        assert_eq!(encoding.map(|value| value.to_str().unwrap()), expected);
        for (sent, got) in spans.iter().zip(&received.spans) {
            assert_eq!(got.trace_id, UID.replace('-', ""));
            assert_eq!(
                (got.name.as_str(), &got.span_id),
                (sent.name, &sent.id.to_string())
            );
            assert_eq!(got.resource["service.instance.id"], "test-0");
            assert_eq!(got.scope, "kubevitals.transitions");
        }
    }
}

#[tokio::test]
async fn a_batch_is_retried_when_the_receiver_allows_it_and_nothing_is_lost() {
    let soon = || vec![("retry-after", "0".to_owned())];
    let receiver = receiver().await;
    receiver.reply([
        Reply::Http(429, soon()),
        Reply::Http(503, soon()),
        Reply::Http(502, soon()),
    ]);
    let pipeline = Pipeline::start(settings(receiver.address, &[]));
    pipeline.queue.push(&ready_trace());
    let metrics = pipeline.metrics.clone();
    assert_eq!(pipeline.flush().await, (8, 0));
    let received = receiver.received();
    assert_eq!((received.requests.len(), received.spans.len()), (4, 8));
    assert_eq!(metrics.retries().get(), 3);
}

#[tokio::test]
async fn a_receiver_that_is_busy_over_grpc_is_retried_too() {
    let mut details = Vec::new();
    put_message(&mut details, 3, |any| {
        put_str(any, 1, "type.googleapis.com/google.rpc.RetryInfo");
        // No delay.
        put_message(any, 2, |info| put_message(info, 1, |_| {}));
    });
    let details = STANDARD_NO_PAD.encode(details);
    let soon = || vec![("grpc-status-details-bin", details.clone())];
    let receiver = receiver().await;
    receiver.reply([Reply::Grpc(14, soon()), Reply::Grpc(8, soon())]);
    let pipeline = Pipeline::start(settings(receiver.address, &[GRPC]));
    pipeline.queue.push(&ready_trace());
    let metrics = pipeline.metrics.clone();
    assert_eq!(pipeline.flush().await, (8, 0));
    assert_eq!(receiver.received().requests.len(), 3);
    assert_eq!(metrics.retries().get(), 2);
}

#[tokio::test]
async fn a_permanent_failure_is_not_retried_and_counted() {
    for (variables, reply) in [
        (&[HTTP][..], Reply::Http(400, Vec::new())),
        (&[HTTP], Reply::Http(401, Vec::new())),
        (&[HTTP], Reply::Http(404, Vec::new())),
        (&[HTTP], Reply::Http(500, Vec::new())),
        (&[GRPC], Reply::Grpc(16, Vec::new())),
        (&[GRPC], Reply::Grpc(8, Vec::new())),
        (&[GRPC], Reply::Http(404, Vec::new())),
    ] {
        let receiver = receiver().await;
        receiver.reply([reply.clone()]);
        let pipeline = Pipeline::start(settings(receiver.address, variables));
        pipeline.queue.push(&ready_trace());
        let metrics = pipeline.metrics.clone();
        assert_eq!(pipeline.flush().await, (0, 8), "{reply:?}");
        assert_eq!(metrics.dropped(DropReason::Rejected).get(), 8);
        assert_eq!(receiver.received().requests.len(), 1);
    }
}

#[tokio::test]
async fn spans_that_the_receiver_rejects_are_counted_and_not_sent_again() {
    for variables in [&[HTTP][..], &[GRPC]] {
        let receiver = receiver().await;
        receiver.reply([Reply::Partial(3, "too old".to_owned())]);
        let pipeline = Pipeline::start(settings(receiver.address, variables));
        pipeline.queue.push(&ready_trace());
        assert_eq!(pipeline.flush().await, (5, 3), "{variables:?}");
        assert_eq!(receiver.received().requests.len(), 1);
    }
}

#[tokio::test]
async fn a_warning_of_the_receiver_is_no_failure() {
    let receiver = receiver().await;
    receiver.reply([Reply::Partial(0, "deprecated".to_owned())]);
    let pipeline = Pipeline::start(settings(receiver.address, &[]));
    pipeline.queue.push(&ready_trace());
    assert_eq!(pipeline.flush().await, (8, 0));
}

#[tokio::test]
async fn a_receiver_that_does_not_answer_is_given_up_after_the_timeout() {
    let short = ("OTEL_EXPORTER_OTLP_TIMEOUT", "100");
    for protocol in [HTTP, GRPC] {
        let receiver = receiver().await;
        receiver.reply([Reply::Hang]);
        let settings = settings(receiver.address, &[protocol, short]);
        let result = timeout(DEADLINE, attempt(settings.clone(), 1))
            .await
            .unwrap();
        let Err(ExportError::Retryable {
            message,
            after: None,
        }) = result
        else {
            panic!("{result:?}");
        };
        assert_eq!(message, "the receiver did not answer within 100ms");
        assert_eq!(attempt(settings, 1).await, Ok(()));
    }
}

#[tokio::test]
async fn a_connection_that_breaks_is_retryable_and_replaced() {
    for protocol in [HTTP, GRPC] {
        let receiver = receiver().await;
        receiver.reply([Reply::Accept, Reply::Close]);
        kubevitals_tls::install_crypto_provider();
        let client = OtlpClient::new(settings(receiver.address, &[protocol]), None).unwrap();
        assert_eq!(client.send(Vec::new(), 1).await, Ok(()));
        let broken = client.send(Vec::new(), 1).await;
        assert!(
            matches!(broken, Err(ExportError::Retryable { .. })),
            "{broken:?}"
        );
        assert_eq!(client.send(Vec::new(), 1).await, Ok(()));
    }
}

/// A free address at which nothing listens.
async fn closed() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

#[tokio::test]
async fn a_receiver_that_starts_later_gets_everything() {
    let address = closed().await;
    let pipeline = Pipeline::start(settings(address, &[]));
    pipeline.queue.push(&ready_trace());
    let retries = pipeline.metrics.clone();
    let flush = tokio::spawn(pipeline.flush());
    // After the first failure.
    timeout(DEADLINE, async {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        while retries.retries().get() == 0 {
            ticks.tick().await;
        }
    })
    .await
    .unwrap();
    let receiver = OtlpReceiver::start(address, None).await.unwrap();
    assert_eq!(timeout(DEADLINE, flush).await.unwrap().unwrap(), (8, 0));
    assert_eq!(receiver.received().spans.len(), 8);
}

#[tokio::test]
async fn a_receiver_that_is_away_delays_no_shutdown_beyond_its_grace() {
    let pipeline = Pipeline::start(settings(closed().await, &[]));
    pipeline.queue.push(&ready_trace());
    let started = Instant::now();
    let counts = pipeline.queue.shutdown(Duration::from_millis(50)).await;
    assert!(started.elapsed() < DEADLINE / 2);
    assert_eq!((counts.exported, counts.dropped), (0, 8));
    assert_eq!(pipeline.dropped(DropReason::Shutdown), 8);
}

/// A slow receiver costs memory up to the queue, and no time of the producer.
#[tokio::test]
async fn a_receiver_that_hangs_fills_the_queue_and_no_more() {
    let receiver = receiver().await;
    receiver.always(Reply::Hang);
    let pipeline = Pipeline::start(settings(receiver.address, &[]));
    let spans = ready_trace();
    let mut pushed = 0_u64;
    while pipeline.queue.push(&spans) {
        pushed += 8;
        assert!(pushed < 1_000_000, "the queue has no bound");
    }
    assert_eq!(pipeline.dropped(DropReason::QueueFull), 8);
    assert_eq!(pipeline.queue.counts().queued, pushed);
    receiver
        .until(|received| !received.requests.is_empty())
        .await;
    // A request stays below the limit of receivers.
    assert!(receiver.received().requests[0].spans < 20_000);
}

/// A response without end does not grow the process.
#[tokio::test]
async fn a_response_that_does_not_end_is_cut() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 64];
        stream.read_exact(&mut request).await.unwrap();
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n";
        stream.write_all(head).await.unwrap();
        let zeros = vec![0; 64 << 10];
        while stream.write_all(&zeros).await.is_ok() {}
    });
    let result = timeout(DEADLINE, attempt(settings(address, &[PLAIN]), 1))
        .await
        .unwrap();
    let Err(ExportError::Retryable { message, .. }) = result else {
        panic!("{result:?}");
    };
    assert!(message.contains("length limit"), "{message}");
    server.await.unwrap();
}
