//! The mesh: probers of nodes connect to each other.
//!
//! ```text
//! cluster mode: pods of node mode ──► ring ──► /mesh/peers?node=a     ◄── each node asks, and says
//!                                      └─────► /mesh: zone by zone        what it measured
//! node mode:    peers ──► connect, GET /livez ──► histograms by zones; /mesh: its own peers
//! ```
//!
//! A node knows a few peers only, which it learns from the cluster mode: if each watched all of
//! them, the API server would send each change to every node.

mod coordinator;
mod pinger;
mod ring;

pub use coordinator::MeshCoordinator;
pub use pinger::{MeshPinger, MeshSettings};
pub use ring::{MeshPeer, MeshRing};
