//! The images that a cluster starts with, and that of our own program. There is no registry:
//! pods say `imagePullPolicy: Never`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::archive::{Image, Tar};
use crate::config::PAUSE_IMAGE;
use crate::network::output;
use xtask::{cache, step};

/// A shell and its tools.
pub(crate) const BUSYBOX_IMAGE: &str = "kubevitals.test/busybox:1";
/// Burns all the CPU that its limit allows, and holds `HOLD_BYTES` of memory; see
/// `e2e/manifests/burner.yaml`.
pub(crate) const BURNER_IMAGE: &str = "kubevitals.test/burner:1";
/// Our own program, built from the work tree.
pub(crate) const KUBEVITALS_IMAGE: &str = "kubevitals.test/kubevitals:dev";

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
    let layer = busybox_layer(busybox)?;
    [
        (PAUSE_IMAGE, &["/bin/sh", "-c", PAUSE][..]),
        (BUSYBOX_IMAGE, &["/bin/sh"][..]),
        (BURNER_IMAGE, &["/bin/burner"][..]),
    ]
    .into_iter()
    .map(|(name, entrypoint)| {
        Image {
            name,
            entrypoint,
            layer: &layer,
        }
        .archive()
    })
    .collect()
}

/// Builds our program statically, in a target folder of its own, and returns its image.
pub(crate) fn kubevitals() -> Result<Vec<u8>> {
    let program = static_build()?;
    let binary =
        std::fs::read(&program).with_context(|| format!("reading {}", program.display()))?;
    let mut tar = Tar::default();
    tar.folder("bin", 0o755)?;
    tar.file("bin/kubevitals", 0o755, &binary)?;
    tar.folder("tmp", 0o1777)?;
    let layer = tar.finish()?;
    Image {
        name: KUBEVITALS_IMAGE,
        entrypoint: &["/bin/kubevitals"],
        layer: &layer,
    }
    .archive()
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

fn busybox_layer(busybox: &Path) -> Result<Vec<u8>> {
    let binary =
        std::fs::read(busybox).with_context(|| format!("reading {}", busybox.display()))?;
    let applets = String::from_utf8(output(Command::new(busybox).arg("--list"))?)?;
    let mut tar = Tar::default();
    tar.folder("bin", 0o755)?;
    tar.file("bin/busybox", 0o755, &binary)?;
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        tar.link(&format!("bin/{applet}"), "busybox")?;
    }
    tar.file("bin/burner", 0o755, BURNER.as_bytes())?;
    tar.folder("etc", 0o755)?;
    tar.file(
        "etc/passwd",
        0o644,
        b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
    )?;
    tar.file("etc/group", 0o644, b"root:x:0:\nnogroup:x:65534:\n")?;
    tar.folder("tmp", 0o1777)?;
    tar.finish()
}

/// Builds our program with the C library linked in: the image contains nothing but the program.
fn static_build() -> Result<PathBuf> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let folder = cache::folder()?.join("static-target");
    // With `--target` the flag does not apply to build scripts and macros, which must stay dynamic.
    step::run(
        step::cargo()
            .args([
                "build",
                "--locked",
                "--package=kubevitals",
                "--all-features",
                "--target",
                &target,
            ])
            .env("RUSTFLAGS", "-C target-feature=+crt-static")
            .env("CARGO_TARGET_DIR", &folder),
    )?;
    let program = folder.join(&target).join("debug/kubevitals");
    if !is_static(&std::fs::read(&program)?) {
        bail!(
            "{} needs shared libraries: it was not linked statically",
            program.display()
        );
    }
    Ok(program)
}

/// Returns whether this is a 64-bit ELF file without a program interpreter.
fn is_static(elf: &[u8]) -> bool {
    const INTERPRETER: usize = 3;
    let number = |at: usize, size: usize| {
        let bytes = elf.get(at..at.checked_add(size)?)?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0_usize, |value, byte| (value << 8) | usize::from(*byte)),
        )
    };
    let header = || Some((number(32, 8)?, number(54, 2)?, number(56, 2)?));
    let Some((table, size, count)) = header().filter(|_| elf.starts_with(b"\x7fELF\x02")) else {
        return false;
    };
    (0..count).all(|index| {
        let kind = table
            .checked_add(index * size)
            .and_then(|entry| number(entry, 4));
        kind.is_some_and(|kind| kind != INTERPRETER)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header and a table of two entries, the second of this kind.
    fn elf(kind: u8) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 2 * 56];
        bytes[..5].copy_from_slice(b"\x7fELF\x02");
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 2;
        bytes[64] = 1;
        bytes[64 + 56] = kind;
        bytes
    }

    #[test]
    fn only_a_program_without_interpreter_is_static() {
        assert!(is_static(&elf(1)));
        assert!(!is_static(&elf(3)));
        let whole = elf(1);
        for length in 0..whole.len() - 52 {
            assert!(!is_static(&whole[..length]), "cut to {length} bytes");
        }
        assert!(!is_static(b"#!/bin/sh\n"));
    }

    #[test]
    fn the_burner_is_a_valid_shell_script() {
        let checked = Command::new("sh").args(["-n", "-c", BURNER]).status();
        assert!(checked.unwrap().success());
    }
}
