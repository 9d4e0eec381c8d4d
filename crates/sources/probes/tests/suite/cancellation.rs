//! A run that is dropped leaves nothing behind.

use std::time::Duration;

use kubevitals_probes::{
    GrpcSettings, HttpSettings, Prober, QueryResponse, Target, TcpSettings, compile_regexp,
};
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;

use crate::support::{GENEROUS, Server, context};

/// Runs a probe until the server has read something, drops it, and waits for the connection to end.
async fn assert_closed(prober: Prober, is_url: bool) {
    let (events, mut received) = mpsc::channel(4);
    let server = Server::start(move |mut stream| {
        let events = events.clone();
        async move {
            let mut buffer = [0; 4096];
            let mut is_first = true;
            loop {
                match stream.read(&mut buffer).await {
                    Ok(1..) if is_first => events.send("read").await.unwrap(),
                    Ok(1..) => {}
                    Ok(0) | Err(_) => break,
                }
                is_first = false;
            }
            events.send("closed").await.unwrap();
        }
    });
    let server = server.await;
    let target = if is_url {
        server.url("/")
    } else {
        server.address.to_string()
    };
    let target = Target::parse(&target, &prober).unwrap();
    let context = context(Duration::from_mins(10));
    let mut running = Box::pin(prober.run(&target, &context));
    tokio::select! {
        outcome = &mut running => panic!("it ended: {outcome:?}"),
        event = received.recv() => assert_eq!(event, Some("read")),
    }
    drop(running);
    let event = tokio::time::timeout(GENEROUS, received.recv()).await;
    assert_eq!(event.unwrap(), Some("closed"));
}

#[tokio::test]
async fn connections_are_closed() {
    assert_closed(Prober::Http(Box::<HttpSettings>::default()), true).await;
    assert_closed(Prober::Grpc(Box::<GrpcSettings>::default()), false).await;
    let dialogue = TcpSettings {
        query_response: vec![
            QueryResponse {
                send: Some("hello".to_owned()),
                ..QueryResponse::default()
            },
            QueryResponse {
                expect: Some(compile_regexp("never").unwrap()),
                ..QueryResponse::default()
            },
        ],
        ..TcpSettings::default()
    };
    assert_closed(Prober::Tcp(Box::new(dialogue)), false).await;
}

#[tokio::test]
async fn no_task_outlives_its_run() {
    let metrics = tokio::runtime::Handle::current().metrics();
    let server = Server::silent().await;
    let before = metrics.num_alive_tasks();
    let prober = Prober::Grpc(Box::<GrpcSettings>::default());
    let target = Target::parse(&server.address.to_string(), &prober).unwrap();
    for _ in 0..20 {
        let outcome = prober
            .run(&target, &context(Duration::from_millis(20)))
            .await;
        assert!(!outcome.is_success());
    }
    // The server holds one task for each connection that it never closes.
    let gone = async {
        while metrics.num_alive_tasks() > before + 20 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(GENEROUS, gone).await.unwrap();
}
