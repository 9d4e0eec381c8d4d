//! Profiles of the program itself, off until they are enabled.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kubevitals_protobuf::fields;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::kubevitals;
use crate::transitions::Cluster;

/// Far longer than anything here takes.
const DEADLINE: Duration = Duration::from_mins(1);

/// A running program, killed when the test ends.
struct Program {
    child: Child,
    admin: SocketAddr,
}

impl Program {
    async fn start(cluster: &Cluster, flags: &[&str], alter: impl FnOnce(&mut Command)) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let admin = free.local_addr().unwrap();
        drop(free);
        let kubeconfig = format!("--kubeconfig={}", cluster.kubeconfig().display());
        let address = format!("--listen-address={admin}");
        let mut words = vec!["transitions", &kubeconfig, &address];
        words.extend(flags);
        let mut command = kubevitals(&words);
        alter(command.stdout(Stdio::null()).stderr(Stdio::null()));
        let child = command.spawn().unwrap();
        let program = Self { child, admin };
        timeout(DEADLINE, async {
            let mut ticks = tokio::time::interval(Duration::from_millis(20));
            while program
                .get("/readyz")
                .await
                .is_none_or(|(status, _)| status != 200)
            {
                ticks.tick().await;
            }
        })
        .await
        .unwrap();
        program
    }

    /// The status and the body of a response.
    async fn get(&self, path: &str) -> Option<(u16, Vec<u8>)> {
        let mut stream = TcpStream::connect(self.admin).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await.ok()?;
        let end = response
            .windows(4)
            .position(|window| window == b"\r\n\r\n")?;
        let body = response.split_off(end + 4);
        let head = String::from_utf8(response).unwrap();
        Some((head.split(' ').nth(1)?.parse().ok()?, body))
    }

    async fn profile(&self, name: &str) -> Vec<u8> {
        let answer = timeout(DEADLINE, self.get(&format!("/debug/pprof/{name}"))).await;
        let (status, body) = answer.unwrap().unwrap();
        assert_eq!(status, 200, "{name}: {}", String::from_utf8_lossy(&body));
        body
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The table of strings, and the number of samples.
fn read(profile: &[u8]) -> (Vec<String>, usize) {
    let all = fields(profile).unwrap();
    let strings = all.iter().filter(|field| field.number == 6);
    let strings = strings.map(|field| field.value.text().unwrap().to_owned());
    let samples = all.iter().filter(|field| field.number == 2).count();
    (strings.collect(), samples)
}

#[tokio::test]
async fn profiles_are_off_until_they_are_enabled() {
    let cluster = Cluster::start().await;
    let program = Program::start(&cluster, &[], |_| {}).await;
    for path in ["/debug/pprof/", "/debug/pprof/profile", "/debug/pprof/heap"] {
        let (status, body) = program.get(path).await.unwrap();
        let body = String::from_utf8(body).unwrap();
        assert_eq!(status, 404, "{path}");
        assert!(body.contains("--profiling"), "{body}");
    }
}

#[cfg(feature = "jemalloc")]
#[tokio::test]
async fn the_heap_and_the_processor_can_be_profiled() {
    let cluster = Cluster::start().await;
    let program = Program::start(&cluster, &["--profiling"], |command| {
        // Few bytes are in use: most allocations are sampled. No temporary directory is writable.
        command.env("_RJEM_MALLOC_CONF", "lg_prof_sample:10");
        command.env("TMPDIR", "/does/not/exist");
    })
    .await;
    let (_, index) = program.get("/debug/pprof/").await.unwrap();
    let index = String::from_utf8(index).unwrap();
    assert!(
        index.contains("profile") && index.contains("heap"),
        "{index}"
    );
    for _ in 0..2 {
        let (strings, samples) = read(&program.profile("heap").await);
        assert!(
            strings.iter().any(|text| text == "inuse_space"),
            "{strings:?}"
        );
        assert!(samples > 10, "{samples} stacks");
        let ours = strings.iter().filter(|text| text.contains("kubevitals"));
        assert!(ours.count() > 3, "{strings:#?}");
        let allocator = strings.iter().find(|text| text.starts_with("prof_"));
        assert_eq!(allocator, None, "the allocator's own frames are left out");
    }
    let (strings, _) = read(&program.profile("profile?seconds=1").await);
    assert!(strings.iter().any(|text| text == "cpu"), "{strings:?}");
    let (status, _) = program
        .get("/debug/pprof/profile?seconds=121")
        .await
        .unwrap();
    assert_eq!(status, 400);
}
