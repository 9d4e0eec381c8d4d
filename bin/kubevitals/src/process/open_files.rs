//! The limit of open files, and how the parts of the process share it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files for watches, reviews, certificates and the process itself: at least these, and an eighth.
const MIN_OTHERS: u64 = 32;
const MAX_OTHERS: u64 = 512;

/// The files that each part may open. Together they are at most the limit, so that none of them
/// fails because of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenFiles {
    /// Connections to the API.
    pub(crate) api: usize,
    /// Connections to the admin server.
    pub(crate) admin: usize,
    /// Connections to kubelets.
    pub(crate) kubelets: usize,
}

impl OpenFiles {
    /// Divides the limit of this process.
    pub(crate) fn current() -> Self {
        Self::divide(getrlimit(Resource::Nofile).current)
    }

    fn divide(limit: Option<u64>) -> Self {
        let limit = limit.unwrap_or(u64::MAX);
        let others = (limit / 8).clamp(MIN_OTHERS, MAX_OTHERS);
        let api = (limit / 4).min(u64::from(u16::MAX));
        let admin = (limit / 16).min(1_024);
        // Servers have limits of their own, which are lower than their share of a high limit.
        let kubelets = limit.saturating_sub(others + api.min(1_024) + admin.min(128));
        let count = |files: u64| usize::try_from(files).unwrap_or(usize::MAX).max(1);
        Self {
            api: count(api),
            admin: count(admin),
            kubelets: count(kubelets),
        }
    }
}

/// Raises the soft limit to the hard limit, as programs in Go do: container runtimes set a soft
/// limit of 1,024 for programs that use `select`.
pub(super) fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => {
            tracing::debug!(
                from = current,
                to = maximum,
                "raised the limit of open files"
            );
        }
        Err(error) => {
            tracing::warn!(%error, limit = current, "cannot raise the limit of open files");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_share_the_limit() {
        for limit in [128, 256, 512, 1_024, 4_096, 20_000, 524_288] {
            let OpenFiles {
                api,
                admin,
                kubelets,
            } = OpenFiles::divide(Some(limit));
            let used = api.min(1_024) + admin.min(128) + kubelets;
            let others = usize::try_from(limit).unwrap() - used;
            assert!((16..=512).contains(&others), "{limit}: {others}");
            assert!(kubelets >= used / 2, "{limit}: {kubelets}");
        }
        let unlimited = OpenFiles::divide(None);
        assert!(unlimited.kubelets > 1_000_000 && unlimited.api >= 1_024);
        assert_eq!(
            OpenFiles::divide(Some(512)),
            OpenFiles {
                api: 128,
                admin: 32,
                kubelets: 288
            }
        );
    }
}
