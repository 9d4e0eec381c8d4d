//! The images that a cluster starts with, and that of our own program. There is no registry:
//! pods say `imagePullPolicy: Never`.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use kubevitals_dist::archive::Files;
use kubevitals_dist::image::{self, Architecture, Compression, Config, Format, Image};
use kubevitals_dist::program::Build;
use kubevitals_dist::root::Root;
use kubevitals_dist::source::Source;
use kubevitals_dist::target::Target;

use crate::config::PAUSE_IMAGE;
use crate::network::output;

/// A shell and its tools.
pub(crate) const BUSYBOX_IMAGE: &str = "kubevitals.test/busybox:1";
/// Burns all the CPU that its limit allows, and holds `HOLD_BYTES` of memory; see
/// `e2e/manifests/burner.yaml`.
pub(crate) const BURNER_IMAGE: &str = "kubevitals.test/burner:1";
/// The profile of Cargo.toml that our own program is compiled with, unless another one is named.
pub(crate) const PROFILE: &str = "e2e";
/// Our own program, built from the work tree.
pub(crate) const KUBEVITALS_IMAGE: &str = "kubevitals.test/kubevitals:dev";
/// The name that metrics-server's own tests use.
const RESOURCE_CONSUMER_IMAGE: &str = "registry.k8s.io/e2e-test-images/resource-consumer:1.9";

/// Sleeps until it is signalled. The `sleep` of busybox has no `infinity`.
const PAUSE: &str = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait; done";

/// `tail` buffers a possible last line until its input ends, which it never does: the bytes stay in
/// its memory.
const BURNER: &str = r#"#!/bin/sh
trap 'exit 0' TERM INT
if [ "${HOLD_BYTES:-0}" -gt 0 ]; then
    (head -c "$HOLD_BYTES" /dev/zero; while :; do sleep 3600; done) | tail &
fi
if [ "${BURN:-yes}" = yes ]; then
    while :; do :; done
fi
while :; do sleep 3600 & wait $!; done
"#;

/// Returns the images of every cluster, as archives.
pub(crate) fn standard(busybox: &Path) -> Result<Vec<Vec<u8>>> {
    let files = busybox_files(busybox)?;
    [
        (PAUSE_IMAGE, &["/bin/sh", "-c", PAUSE][..]),
        (BUSYBOX_IMAGE, &["/bin/sh"][..]),
        (BURNER_IMAGE, &["/bin/burner"][..]),
    ]
    .into_iter()
    .map(|(name, entrypoint)| plain(name, entrypoint, files.clone()))
    .collect()
}

/// Builds our own program and returns its image, as `cargo xtask image` makes it.
pub(crate) fn kubevitals(profile: &str) -> Result<Vec<u8>> {
    let target = Target::of_image(Architecture::of_host()?);
    let program = Build { target, profile }.run()?;
    let source = Source::read()?;
    // Compressing takes longer than importing it.
    let image = Root::new(&source, &program)?.image(&source, Compression::None)?;
    Ok(image::archive(KUBEVITALS_IMAGE, &[image], Format::Oci)?.bytes)
}

/// Returns the image that metrics-server's own tests run in pods: a program that burns CPU and one
/// that holds memory, at the paths of the image that they name.
pub(crate) fn resource_consumer(consume_cpu: &Path, stress: &Path) -> Result<Vec<u8>> {
    let mut files = Files::default();
    files.folder("bin", 0o755);
    files.folder("consume-cpu", 0o755);
    add_program(&mut files, "consume-cpu/consume-cpu", consume_cpu)?;
    add_program(&mut files, "bin/stress", stress)?;
    add_libraries(&mut files, stress)?;
    plain(
        RESOURCE_CONSUMER_IMAGE,
        &["/consume-cpu/consume-cpu"],
        files,
    )
}

/// Returns an image that runs as root and says nothing about itself.
fn plain(name: &str, entrypoint: &[&str], files: Files) -> Result<Vec<u8>> {
    let image = Image {
        architecture: Architecture::of_host()?,
        config: Config {
            env: vec!["PATH=/bin".to_owned()],
            entrypoint: entrypoint.iter().map(ToString::to_string).collect(),
            working_dir: "/".to_owned(),
            ..Config::default()
        },
        created: None,
        compression: Compression::None,
        files,
    };
    Ok(image::archive(name, &[image], Format::Oci)?.bytes)
}

/// Imports an image into the cluster's containerd; one of the same name is replaced.
pub(crate) fn import(mount_namespace: &Path, archive: &[u8]) -> Result<()> {
    let mut mounts = std::ffi::OsString::from("--mount=");
    mounts.push(mount_namespace);
    let mut ctr = Command::new("nsenter")
        .arg(mounts)
        .args(["--", "ctr", "--namespace=k8s.io", "images", "import", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start nsenter")?;
    let mut input = ctr.stdin.take().context("ctr has an input")?;
    // A failed write means that ctr has ended: its own error is reported first.
    let written = input.write_all(archive);
    drop(input);
    let done = ctr.wait_with_output()?;
    if !done.status.success() {
        bail!(
            "ctr images import: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        );
    }
    written.context("writing an image to ctr")
}

fn busybox_files(busybox: &Path) -> Result<Files> {
    let applets = String::from_utf8(output(Command::new(busybox).arg("--list"))?)?;
    let mut files = Files::default();
    files.folder("bin", 0o755);
    add_program(&mut files, "bin/busybox", busybox)?;
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        files.link(&format!("bin/{applet}"), "busybox");
    }
    files.file("bin/burner", 0o755, BURNER);
    files.folder("etc", 0o755);
    files.file(
        "etc/passwd",
        0o644,
        "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
    );
    files.file("etc/group", 0o644, "root:x:0:\nnogroup:x:65534:\n");
    files.folder("tmp", 0o1777);
    Ok(files)
}

fn add_program(files: &mut Files, path: &str, program: &Path) -> Result<()> {
    let binary =
        std::fs::read(program).with_context(|| format!("reading {}", program.display()))?;
    files.file(path, 0o755, binary);
    Ok(())
}

/// Adds the shared libraries of a program, and the loader, at the paths that they have here.
fn add_libraries(files: &mut Files, program: &Path) -> Result<()> {
    let list = String::from_utf8(output(Command::new("ldd").arg(program))?)?;
    let libraries = libraries(&list);
    let folders: BTreeSet<&Path> = libraries
        .iter()
        .flat_map(|library| library.ancestors().skip(1))
        .filter(|folder| !folder.as_os_str().is_empty())
        .collect();
    for folder in folders {
        files.folder(&folder.display().to_string(), 0o755);
    }
    for library in &libraries {
        let path = library.display().to_string();
        add_program(files, &path, &Path::new("/").join(library))?;
    }
    Ok(())
}

/// Returns the files in the output of `ldd`, without the leading slash.
fn libraries(list: &str) -> BTreeSet<PathBuf> {
    let words = list.split_whitespace();
    words
        .filter_map(|word| word.strip_prefix('/'))
        .map(PathBuf::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_the_files_that_ldd_lists() {
        let list = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f5e)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f60)\n";
        assert_eq!(
            libraries(list),
            [
                PathBuf::from("lib/x86_64-linux-gnu/libc.so.6"),
                PathBuf::from("lib64/ld-linux-x86-64.so.2"),
            ]
            .into()
        );
        assert!(libraries("\tstatically linked\n").is_empty());
    }

    #[test]
    fn the_burner_is_a_valid_shell_script() {
        let checked = Command::new("sh").args(["-n", "-c", BURNER]).status();
        assert!(checked.unwrap().success());
    }
}
