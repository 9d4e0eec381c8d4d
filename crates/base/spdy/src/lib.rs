//! SPDY/3.1 as Kubernetes speaks it for exec, attach and port-forward.
