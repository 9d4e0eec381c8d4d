//! The loop of `kubevitals prober`.
