//! A simulated Kubernetes cluster that speaks real protocols on real sockets.
//!
//! * [`objects`]: what the halves agree on: resources, and where controllers and kubelets write.
//! * [`workload`]: pods that live realistic lives, as a discrete-event simulation.
//! * [`kubelet`]: thousands of kubelets with closed-form usage.
//! * [`roster`]: the nodes and their pods, which workload and kubelets share.
//! * [`faults`]: what is wrong with which node, switched at run time.
//! * [`clock`] and [`seed`]: the time and the chance that everything follows.

pub mod clock;
pub mod faults;
pub mod kubelet;
pub mod objects;
pub mod roster;
pub mod seed;
pub mod workload;
