//! Storage of an authority on disk.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{KeyPair, PublicKeyData};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::SelfSignedFiles;
use super::authority::{Authority, Validity};
use crate::TlsError;
use crate::pem::PemSource;
use crate::x509::CertificateInfo;

/// Reads the authorities in a file, oldest first. Returns none if there is no file.
pub(super) fn read(path: &Path) -> Result<Vec<Authority>, TlsError> {
    let text = match PemSource::File(path.to_owned()).read() {
        Err(TlsError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(Vec::new());
        }
        text => text?,
    };
    let invalid = |reason| TlsError::StoredAuthority {
        path: path.to_owned(),
        reason,
    };
    let text = String::from_utf8(text).map_err(|_| invalid("not UTF-8"))?;
    let certificates: Vec<_> = certificate_blocks(&text).collect();
    let keys = PrivateKeyDer::pem_slice_iter(text.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| invalid("invalid private keys"))?;
    if certificates.is_empty() || certificates.len() != keys.len() {
        return Err(invalid("not one private key for each certificate"));
    }
    certificates
        .into_iter()
        .zip(keys)
        .map(|(pem, key)| restore(pem, &key).map_err(invalid))
        .collect()
}

/// Writes both files, each atomically.
pub(super) fn write(
    files: &SelfSignedFiles,
    authorities: &[Authority],
    bundle: &str,
) -> Result<(), TlsError> {
    let secret: String = authorities
        .iter()
        .map(|authority| authority.certificate_pem().to_owned() + &authority.key_pem())
        .collect();
    for (path, contents, mode) in [
        (&files.authority, secret.as_str(), 0o600),
        (&files.bundle, bundle, 0o644),
    ] {
        replace(path, contents.as_bytes(), mode).map_err(|source| TlsError::Write {
            path: path.clone(),
            source,
        })?;
    }
    Ok(())
}

/// Renames a file that cannot be used, and returns its new path. One that was moved before is
/// replaced.
pub(super) fn move_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = with_suffix(path, ".damaged")?;
    fs::rename(path, &aside)?;
    Ok(aside)
}

/// Returns the certificates as PEM blocks.
fn certificate_blocks(text: &str) -> impl Iterator<Item = String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    text.split(BEGIN)
        .skip(1)
        .filter_map(|rest| rest.split_once(END))
        .map(|(body, _)| format!("{BEGIN}{body}{END}\n"))
}

fn restore(pem: String, key: &PrivateKeyDer<'_>) -> Result<Authority, &'static str> {
    const INVALID: &str = "invalid certificate";
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| INVALID)?;
    let info = CertificateInfo::parse(&certificate).ok_or(INVALID)?;
    if !info.is_authority {
        return Err("not a CA certificate");
    }
    let (_, parsed) = X509Certificate::from_der(&certificate).map_err(|_| INVALID)?;
    let mut names = parsed.subject().iter_common_name();
    let subject = names.next().and_then(|name| name.as_str().ok());
    let (Some(subject), None) = (subject, names.next()) else {
        return Err("unexpected subject");
    };
    let key = KeyPair::try_from(key).map_err(|_| "unusable private key")?;
    if parsed.public_key().raw != key.subject_public_key_info() {
        return Err("private key of another certificate");
    }
    let validity = Validity {
        not_before: info.not_before,
        not_after: info.not_after,
    };
    Ok(Authority::restore(validity, pem, subject, key))
}

/// Writes a temporary file and renames it: readers see the old contents or the new.
fn replace(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let temporary = with_suffix(path, ".new")?;
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    // A process that was killed may have left it, with other permissions.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&temporary)
        .and_then(|mut file| {
            file.write_all(contents)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The first error is reported.
        let _gone = fs::remove_file(&temporary);
    }
    written
}

fn with_suffix(path: &Path, suffix: &str) -> io::Result<PathBuf> {
    let mut name = path
        .file_name()
        .ok_or(io::ErrorKind::InvalidInput)?
        .to_owned();
    name.push(suffix);
    Ok(path.with_file_name(name))
}
