//! The demo in process: the table holds the truth, and the admin server tells of it.

use std::net::SocketAddr;

use clap::Parser;
use kubevitals::demo::{Demo, DemoFlags};
use kubevitals::process::{Context, ProcessConfig, ProcessFlags};
use kubevitals_cli::flags::LogFlags;
use kubevitals_cli::shutdown_channel;
use kubevitals_model::Quantity;

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    demo: DemoFlags,
    #[command(flatten)]
    logs: LogFlags,
}

/// What the demo writes with these flags.
async fn shown(args: &[&str]) -> String {
    kubevitals_tls::install_crypto_provider();
    let flags = Flags::parse_from(std::iter::once(&"demo").chain(args));
    let process = ProcessFlags {
        admin_bind_address: SocketAddr::from(([127, 0, 0, 1], 0)),
        shutdown_grace_period: "1s".parse().unwrap(),
        profiling: false,
    };
    let config = ProcessConfig::new(&process, &flags.logs).unwrap();
    let (_trigger, shutdown) = shutdown_channel();
    let context = Context::new(&config, shutdown, None);
    let mut out = Vec::new();
    Demo::configure(&flags.demo)
        .unwrap()
        .run(context, &mut out)
        .await
        .unwrap();
    String::from_utf8(out).unwrap()
}

#[tokio::test]
async fn the_table_shows_each_container_with_its_true_usage() {
    let text = shown(&["--once", "--pods=7", "--scrape-interval=20ms"]).await;
    let rows: Vec<Vec<&str>> = text
        .lines()
        .skip_while(|line| !line.starts_with("NAMESPACE"))
        .skip(1)
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 14, "{text}");
    let mut sorted = rows.clone();
    sorted.sort();
    assert_eq!(rows, sorted, "namespace, pod, container");
    for row in rows.iter().filter(|row| row[2] == "proxy") {
        let cpu: Quantity = row[3].parse().unwrap();
        // Four thousandths of a core by the closed form; the wire's floats cost less than a millionth of that.
        let nanocores = cpu.scaled_value(kubevitals_model::Scale::Nano).unwrap();
        assert!((3_999_990..=4_000_010).contains(&nanocores), "{row:?}");
        assert_eq!(row[4], "12240Ki", "{row:?}");
    }
}
