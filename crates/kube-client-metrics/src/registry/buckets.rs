//! Histograms of each kind of measurement.

use super::metric::Histogram;
use crate::bounds;

pub(crate) fn latency() -> Histogram {
    Histogram::new(&bounds::LATENCY)
}

pub(crate) fn resolver() -> Histogram {
    Histogram::new(&bounds::RESOLVER)
}

pub(crate) fn size() -> Histogram {
    Histogram::new(&bounds::SIZE)
}

pub(crate) fn certificate_age() -> Histogram {
    Histogram::new(&bounds::CERTIFICATE_AGE)
}

pub(crate) fn queue() -> Histogram {
    Histogram::new(&bounds::QUEUE)
}

pub(crate) fn stream() -> Histogram {
    Histogram::new(&bounds::STREAM)
}

pub(crate) fn items() -> Histogram {
    Histogram::new(&bounds::ITEMS)
}

pub(crate) fn reconcile() -> Histogram {
    Histogram::new(&bounds::RECONCILE)
}

pub(crate) fn informer() -> Histogram {
    Histogram::new(&bounds::INFORMER)
}
