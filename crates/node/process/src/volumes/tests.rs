use super::*;

fn payload(files: &[(&str, &str)]) -> Payload {
    let file = |text: &str| PayloadFile {
        content: text.as_bytes().to_vec(),
        mode: 0o640,
    };
    files
        .iter()
        .map(|(path, text)| (PathBuf::from(path), file(text)))
        .collect()
}

#[test]
fn files_are_swapped_at_once_and_old_ones_are_removed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    write_payload(folder, &payload(&[("a", "1"), ("d/b", "2")]), None).expect("write");
    let read = |path: &str| fs::read_to_string(folder.join(path)).ok();
    assert_eq!(
        (read("a"), read("d/b")),
        (Some("1".to_owned()), Some("2".to_owned()))
    );
    let mode = fs::metadata(folder.join("a"))
        .expect("a")
        .permissions()
        .mode()
        & 0o777;
    assert_eq!(mode, 0o640);
    let first = fs::read_link(folder.join("..data")).expect("a link");
    write_payload(folder, &payload(&[("a", "1"), ("d/b", "2")]), None).expect("write");
    let second = fs::read_link(folder.join("..data")).expect("a link");
    assert_eq!(first, second, "the same content is not written again");
    write_payload(folder, &payload(&[("a", "3")]), None).expect("write");
    assert_eq!((read("a"), read("d/b")), (Some("3".to_owned()), None));
    let names: Vec<_> = fs::read_dir(folder)
        .expect("list")
        .flatten()
        .map(|one| one.file_name())
        .collect();
    assert_eq!(names.len(), 3, "a, ..data and its folder: {names:?}");
}

#[test]
fn paths_that_lead_out_of_a_volume_are_refused() {
    let mut out = Payload::new();
    for path in ["", "/etc/passwd", "../x", "a/../../x", "..data", "..2026"] {
        assert!(put(&mut out, path, Vec::new(), 0o644).is_err(), "{path:?}");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    symlink("/etc", folder.path().join("link")).expect("link");
    assert!(sub_path(folder.path(), "link").is_err());
    assert!(sub_path(folder.path(), "../x").is_err());
    assert!(sub_path(folder.path(), "new/folder").is_ok());
}

#[test]
fn host_paths_are_checked_by_their_type() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(folder.path().join("file"), "").expect("write");
    let check = |name: &str, kind: &str| {
        host_path(&HostPathVolumeSource {
            path: path(name),
            type_: Some(kind.to_owned()),
        })
    };
    assert!(check("absent", "").is_ok());
    assert!(check("absent", "Directory").is_err());
    assert!(check("file", "Directory").is_err());
    assert!(check("file", "File").is_ok());
    assert!(check("file", "Socket").is_err());
    assert!(check("made", "DirectoryOrCreate").is_ok());
    assert!(check("made", "Directory").is_ok());
    assert!(check("made-file", "FileOrCreate").is_ok());
    assert!(check("made-file", "Unknown").is_err());
}
