//! Slim list+watch.

mod backoff;
mod decode;
mod engine;
mod error;
mod hub;
mod identity;
mod kind;
mod kinds;
mod labels;
mod lines;
mod metrics;
mod server;
mod spec;
mod state;
mod stream;
mod strings;
mod transport;
mod wire;

pub use decode::{
    Bookmark, EventType, Page, Status, WatchEvent, decode_event, decode_object, decode_page,
};
pub use error::{DecodeError, TransportError, WatchError};
pub use hub::mirror::Mirror;
pub use hub::subscription::Subscription;
pub use hub::{Change, Resync, ResyncCause, Seen, Update, What};
pub use identity::{Identity, ResourceVersion, Uid};
pub use kind::{Decoder, Form, Kind, Resource, TypedKind};
pub use kinds::condition::{Condition, ConditionStatus};
pub use kinds::container::{ContainerSpec, ContainerState, ContainerStatus, Termination};
pub use kinds::event::{Event, Regarding, Series};
pub use kinds::meta::{Details, Metadata, Owner};
pub use kinds::node::{Node, NodeAddress, Taint};
pub use kinds::pod::{Pod, PodBrief, PodLike, PodPhase};
pub use kinds::workload::{DaemonSet, Deployment, ReplicaSet, Requirement, Selector, Workload};
pub use labels::Labels;
pub use metrics::WatchMetrics;
pub use server::Server;
pub use spec::{StreamOptions, StreamSpec};
pub use state::{Restart, StreamState};
pub use stream::Stream;
pub use strings::Interner;
pub use transport::{Answer, BoxBody, KubeTransport, Transport};
