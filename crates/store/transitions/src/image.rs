//! Names of images, normalized as container runtimes do.

/// The parts of an image's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageName {
    /// Registry and repository, normalized: `docker.io/library/nginx` for `nginx`.
    pub name: String,
    /// The last part of the repository: `nginx`.
    pub short: String,
    /// The tag; the digest where there is no tag; `latest` where there is neither.
    pub tag: String,
}

impl ImageName {
    /// Parses a reference; `None` if it is not one.
    pub fn parse(reference: &str) -> Option<Self> {
        let (rest, digest) = match reference.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (reference, None),
        };
        // A colon before the last slash belongs to the registry's port.
        let last_slash = rest.rfind('/').map_or(0, |at| at + 1);
        let (path, last) = rest.split_at_checked(last_slash)?;
        let (short, tag) = match last.split_once(':') {
            Some((short, tag)) => (short, Some(tag)),
            None => (last, None),
        };
        let is_sound =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let parts_are_sound =
            is_sound(short) && tag.is_none_or(is_sound) && digest.is_none_or(is_sound);
        if !parts_are_sound
            || path.contains("//")
            || path.starts_with('/')
            || tag.is_some_and(|tag| tag.contains(':'))
        {
            return None;
        }
        Some(Self {
            name: format!("{}{short}", completed(path)),
            short: short.to_owned(),
            tag: tag.or(digest).unwrap_or("latest").to_owned(),
        })
    }
}

/// The path before the last part, with the default registry if none is named.
fn completed(path: &str) -> String {
    let first = path.split('/').next().unwrap_or_default();
    let names_a_registry = first == "localhost" || first.contains(['.', ':']);
    match (path, names_a_registry) {
        ("" | "docker.io/" | "index.docker.io/", _) => "docker.io/library/".to_owned(),
        (_, true) => path.replacen("index.docker.io/", "docker.io/", 1),
        (_, false) => format!("docker.io/{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(reference: &str) -> Option<(String, String, String)> {
        ImageName::parse(reference).map(|image| (image.name, image.short, image.tag))
    }

    #[test]
    fn names_are_normalized_as_runtimes_do() {
        for (reference, name, short, tag) in [
            ("nginx", "docker.io/library/nginx", "nginx", "latest"),
            ("nginx:1.27", "docker.io/library/nginx", "nginx", "1.27"),
            ("team/app:v1", "docker.io/team/app", "app", "v1"),
            (
                "docker.io/nginx",
                "docker.io/library/nginx",
                "nginx",
                "latest",
            ),
            ("index.docker.io/a/b", "docker.io/a/b", "b", "latest"),
            ("localhost/a", "localhost/a", "a", "latest"),
            (
                "registry.example.com:5000/team/app",
                "registry.example.com:5000/team/app",
                "app",
                "latest",
            ),
            ("10.0.0.1:5000/app:v1", "10.0.0.1:5000/app", "app", "v1"),
            ("a/b@sha256:00ff", "docker.io/a/b", "b", "sha256:00ff"),
            ("a/b:v1@sha256:00ff", "docker.io/a/b", "b", "v1"),
        ] {
            assert_eq!(
                parts(reference),
                Some((name.into(), short.into(), tag.into())),
                "{reference}"
            );
        }
    }

    #[test]
    fn invalid_names_are_rejected() {
        for reference in ["", ":", "a/", "/a", "a//b", "a:", "a@", "a b", "é", "a:b:c"] {
            assert_eq!(parts(reference), None, "{reference}");
        }
    }
}
