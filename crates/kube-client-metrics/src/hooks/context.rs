//! What hooks may know of a request beyond its [`Call`](crate::Call).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use http::{Extensions, HeaderMap, Method, Uri};

use super::bundle::Noop;
use super::global::{Registered, registered};

/// Captures what other hooks need of a request when it starts: a trace for exemplars, the tenant or
/// the controller that asks for a label.
///
/// client-go passes the context of the call to every hook. Here a request is gone when its response
/// ends, so what shall remain of it is put into a [`Context`] first. The bundle captures nothing by
/// itself, which keeps a request free of allocations.
pub trait RequestContext: Send + Sync + 'static {
    /// Called once per request, before its first attempt and on the task that sends it.
    fn capture(&self, request: &RequestHead<'_>, context: &mut Context);
}

/// A request as it is sent, without its body.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct RequestHead<'r> {
    /// The method.
    pub method: &'r Method,
    /// The path and query of the API, with names and namespaces: not for labels.
    pub uri: &'r Uri,
    /// The headers, without those that kube adds for authentication.
    pub headers: &'r HeaderMap,
    /// The extensions: of the program, and kube's name of the operation as a `&'static str`.
    pub extensions: &'r Extensions,
}

/// Values that were captured of a request, one of each type. Clones share them.
#[derive(Clone, Default)]
pub struct Context(Option<Arc<Node>>);

struct Node<T: ?Sized = dyn Any + Send + Sync> {
    next: Option<Arc<Node>>,
    value: T,
}

impl Context {
    /// Adds a value, in place of an earlier one of the same type.
    pub fn insert<T: Any + Send + Sync>(&mut self, value: T) {
        let next = self.0.take();
        self.0 = Some(Arc::new(Node { next, value }));
    }

    /// Returns the value of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        let nodes = std::iter::successors(self.0.as_deref(), |node| node.next.as_deref());
        nodes.into_iter().find_map(|node| node.value.downcast_ref())
    }

    /// Returns whether nothing was captured.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl<F> RequestContext for F
where
    F: Fn(&RequestHead<'_>, &mut Context) + Send + Sync + 'static,
{
    fn capture(&self, request: &RequestHead<'_>, context: &mut Context) {
        self(request, context);
    }
}

impl RequestContext for Noop {
    fn capture(&self, _: &RequestHead<'_>, _: &mut Context) {}
}

impl RequestContext for Registered {
    fn capture(&self, request: &RequestHead<'_>, context: &mut Context) {
        if let Some(hooks) = registered() {
            hooks.request_context.capture(request, context);
        }
    }
}

/// Without values: a program may put secrets into them.
impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}

/// Without headers, which may hold secrets.
impl fmt::Debug for RequestHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHead")
            .field("method", &self.method)
            .field("uri", &self.uri)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_has_the_last_value_of_each_type() {
        let mut context = Context::default();
        assert!(context.is_empty() && context.get::<u8>().is_none());
        context.insert(1_u8);
        context.insert("text");
        let before = context.clone();
        context.insert(2_u8);
        assert_eq!(context.get(), Some(&2_u8));
        assert_eq!(context.get(), Some(&"text"));
        assert_eq!(before.get(), Some(&1_u8));
        assert_eq!(context.get::<u16>(), None);
    }
}
